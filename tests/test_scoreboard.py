"""The tables of all claims: what a row says, carries and leads to, and which scripts a page with such a table gets."""

import csv
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx

from miniature import add_chapter, build, make_repository, staged
from reproduced.claims.declarations import Claim
from reproduced.claims.rules import Rule
from reproduced.pages import entries, inline, page_tables, scoreboard
from reproduced.pages.entries import Entry, Place
from reproduced.run.replications import Replication

PLACE = Place("toy", "A toy", "3")


def entry(name: str = "t.one", verdict: str = "held", reason: str = "", **more) -> Entry:
    rules = {"holds": Rule("x.high < 2"), "refuted": Rule("x.low > 2")}
    fields = {
        "kind": "figure",
        "claim": "That $|x| < 2$.",
        "expected": verdict,
        "where": "Figure 1",
        "paper": "a | <b>",
    }
    claim = Claim.model_construct(
        id=name, **{"values": {"x": "what *is* measured"}} | rules | fields | more.pop("fields", {})
    )
    measured = {"kind": "estimate", "estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5, "level": 0.95}
    record = {"verdict": verdict, "reason": reason, "seconds": 0.1, "values": [{"name": "x", "measured": measured}]}
    return Entry(PLACE, claim, record, **{"page": "toy.html#claim-t-one"} | more)


def row(one: Entry):
    return BeautifulSoup(scoreboard.table([one]), "html.parser").tbody.tr


def test_a_row_has_an_anchor_leads_to_its_claim_and_says_what_it_can_be_filtered_by():
    found = row(entry(fields={"needs": ("mnist", "adult")}))
    assert found["id"] == "row-t-one"
    assert found.find("a", string="t.one")["href"] == "toy.html#claim-t-one"
    told = {name: found[f"data-{name}"] for name in ("verdict", "chapter", "kind", "needs", "profile")}
    assert told == {"verdict": "held", "chapter": "toy", "kind": "figure", "needs": "mnist,adult", "profile": "ci"}


def test_a_row_says_the_claim_its_place_the_papers_value_and_ours():
    cells = {cell["class"][0]: cell.get_text() for cell in row(entry()).find_all("td")}
    assert cells["verdict"] == "✓ held"
    assert cells["claim"].startswith(r"That \(|x| < 2\).Figure 1 t.one")
    assert cells["paper"] == "a | <b>"  # a text, never a tag
    assert cells["ours"] == "x 1.00 [0.90, 1.10]"


@pytest.mark.parametrize(("verdict", "shown"), [("held in part", True), ("did not hold", True), ("held", False)])
def test_the_reason_of_what_did_not_simply_hold_stands_in_the_row(verdict, shown):
    assert ("Because." in row(entry(verdict=verdict, reason="Because.")).get_text()) == shown


def test_the_fold_of_a_row_has_the_rule_as_it_is_executed_the_values_and_the_sources():
    fold = row(entry(declared="https://x/y.yml#L3", judged="https://x/y.md#L9")).details
    assert [code.get_text() for code in fold.select(".rules code")] == ["x.high < 2", "x.low > 2"]
    assert fold.select_one(".values").get_text() == "x 1.00 [0.90, 1.10] – what is measured"
    links = [link["href"] for link in fold.find_all("a")]
    assert links == ["toy.html#claim-t-one", "#row-t-one", "https://x/y.yml#L3", "https://x/y.md#L9"]


def test_a_claim_that_is_true_by_algebra_is_marked():
    assert row(entry(fields={"exact": True})).td.get_text() == "✓ held, exact"


def test_the_value_that_a_claim_shows_stands_first():
    fields = {"values": {"y": "another", "x": "the one"}, "shows": "about {x}"}
    one = entry(fields=fields)
    one.record["values"].insert(0, {"name": "y", "measured": {"kind": "exact", "value": 2.0, "error": 0.0}})
    assert row(one).select_one(".ours").get_text(" ") == "x  1.00 [0.90, 1.10] y  2"


def test_our_own_findings_are_said_to_be_no_score():
    again = Replication("held", Counter(held=9), Counter())
    ours = [entry("t.a", fields={"kind": "ours"}, again=again), entry("t.b", "undecided", fields={"kind": "ours"})]
    told = scoreboard.findings([entry(), *ours])
    assert told.startswith("**Of 2 findings of ours 1 held.** That is no score")
    assert "1 of the 1 that were judged again gave the same verdict at every one of 9 or more seeds" in told
    assert scoreboard.findings([entry()]) == ""


def test_a_verdict_that_is_another_one_at_full_scale_is_told_with_its_row_and_all_that_was_found():
    same, other = (
        entry(name, full=entry(verdict=verdict).record) for name, verdict in (("t.a", "held"), ("t.b", "did not hold"))
    )
    told = BeautifulSoup(scoreboard.at_full_scale([entry(), same, other]), "html.parser")
    assert "At full scale 1 of 2 verdicts on record are others than here: t.b did not hold." in told.get_text()
    assert told.a["href"] == "scoreboard.html#row-t-b"
    assert [row(one).select_one(".full").get_text() for one in (same, other)] == [
        "1.00 [0.90, 1.10] ✓ held",
        "x 1.00 [0.90, 1.10] ✗ did not hold",
    ]
    assert scoreboard.at_full_scale([entry(), same]) == ""


def test_an_unexpected_verdict_is_marked():
    found = entry(verdict="held in part", fields={"expected": "held"})
    assert row(found).td.get_text() == "◐ held in part (expected: held)"


def test_a_row_says_at_how_many_seeds_the_verdict_came_again_and_draws_how_far_it_was():
    again = Replication("held", Counter(held=3, undecided=1), Counter(), (1.0, 2.0, -0.5, math.inf))
    found = row(entry(again=again))
    assert found.select_one(".again").get_text() == "3 of 4"
    assert len(found.select("svg.strip circle")) == 3
    assert "-0.5 to 2.0 standard deviations" in found.svg["aria-label"]
    assert not row(entry(again=replace(again, distances=(math.inf, math.inf)))).svg


def test_runs_by_rules_that_were_replaced_stand_beside_those_by_todays():
    again = Replication("held", Counter(held=10), Counter({"held": 37, "undecided": 2, "did not hold": 1}))
    both = [entry(again=again), entry("t.two", again=Replication("held", Counter(held=5), Counter())), entry("t.three")]
    assert row(both[0]).select_one(".again").get_text() == "10 of 10; under earlier rules 37 of 40"
    said = "Runs by today's rules: 10 held. Runs by earlier rules: 37 held, 2 undecided, 1 did not hold."
    assert said in row(both[0]).details.get_text()
    assert scoreboard.at_other_seeds(both) == (
        "**At seeds that nobody chose, 15 of 15 verdicts of today's rules were the expected ones.** "
        "Rules that have been replaced since gave 40 more, 37 of them the verdict expected today."
    )
    assert scoreboard.at_other_seeds(both[2:]) == ""


def test_a_full_scale_run_stands_in_a_column_of_its_own():
    one = entry()
    full = one.record | {"verdict": "held in part"}
    assert row(replace(one, full=full)).select_one(".full").get_text() == "x 1.00 [0.90, 1.10] ◐ held in part"
    both = BeautifulSoup(scoreboard.table([replace(one, full=full), entry("t.two")]), "html.parser")
    assert [cell.get_text() for cell in both.select("td.full")][1:] == [""]
    assert "at full scale" in [head.get_text() for head in both.find_all("th")]


def test_a_column_that_no_claim_fills_is_left_out():
    heads = [head.get_text() for head in BeautifulSoup(scoreboard.table([entry()]), "html.parser").find_all("th")]
    assert heads == ["verdict", "chapter", "kind", "claim", "the paper", "ours", "needs"]


def test_a_chapter_without_a_ledger_is_named():
    assert "**A toy.** This chapter did not run to its end" in scoreboard.scoreboard([entry()], ["A toy"])


def test_the_rows_are_also_a_file_for_a_spreadsheet():
    again = Replication("held", Counter(held=3, undecided=1), Counter(held=2))
    (read,) = csv.DictReader(scoreboard.as_csv([entry(again=again)]).splitlines())
    assert (read["id"], read["verdict"], read["same"], read["seeds"]) == ("t.one", "held", "3", "4")
    assert (read["same_earlier"], read["seeds_earlier"]) == ("2", "2")
    assert read["rule"] == "held if x.high < 2; refuted if x.low > 2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a $x<1$ *b*", r'a <span class="math inline">\(x&lt;1\)</span> <em>b</em>'),
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("![p](q)", '! <a href="q">p</a>'),
    ],
)
def test_a_sentence_becomes_html_that_is_safe(text, shown):
    assert inline.rendered(text) == shown


# ── gathering ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_book(tmp_path):
    """A book of one chapter, with a public address."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    with (root / "_config.yml").open("a", encoding="utf-8") as config:
        config.write("repository: {url: https://example.org/o/r, branch: trunk}\n")
    return root


def test_rows_lead_to_lines_of_the_repository(small_book):
    assert build(small_book, "--no-render") == 0
    board = BeautifulSoup(staged(small_book, "_generated/scoreboard.md"), "html.parser")
    assert [row["id"] for row in board.tbody.find_all("tr")] == ["row-sums-a"]
    links = {link.get_text(): link["href"] for link in board.tbody.tr.details.find_all("a")}
    name = board.tbody.tr["data-chapter"]
    assert links["rule as declared"] == f"https://example.org/o/r/blob/trunk/book/claims/{name}.yml?plain=1#L6"
    assert f"blob/trunk/book/{name}.md?plain=1#L" in links["code that judges it"]


def test_verdicts_are_ordered_by_what_they_ask_of_a_reader():
    assert entries.ORDER[:4] == ("did not hold", "held in part", "undecided", "held")


# ── scripts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ('<table class="claims-table table">', ["page.js", "tables.js", "datatables/dataTables.min.js"]),
        ('<table class="table"><th class="head"><p>why</p></th>', ["page.js", "tables.js"]),
        ("<p>why</p>", ["page.js"]),
    ],
)
def test_the_scripts_of_tables_are_loaded_where_there_is_one(body, kept):
    files = [SimpleNamespace(filename=f"_static/{name}") for name in ("page.js", "tables.js")]
    files.append(SimpleNamespace(filename="_static/datatables/dataTables.min.js"))
    context = {"body": body, "script_files": files}
    page_tables._keep_where_needed(Mock(spec=Sphinx), "one", "page.html", context, None)
    assert [file.filename.removeprefix("_static/") for file in context["script_files"]] == kept
