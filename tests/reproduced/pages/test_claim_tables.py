"""The tables of all claims: what a row says, carries and leads to."""

import csv
from collections import Counter
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup

from leakage.metrics.estimates import Estimate
from reproduced.claims import measurements
from reproduced.claims.declarations import VERDICTS
from reproduced.pages import claim_tables, jinja_environment
from reproduced.pages.findings import FullScale, Judgement
from reproduced.run.replications import Replication
from small_book import X, add_chapter, build, judgement, make_repository, staged

FULL = FullScale("held", {"x": measurements.from_json(X)})


def board(*judgements: Judgement) -> BeautifulSoup:
    return BeautifulSoup(claim_tables.scoreboard(judgements), "html.parser")


def row(one: Judgement):
    return board(one).tbody.tr


def test_a_row_has_an_anchor_leads_to_its_claim_and_says_what_it_can_be_filtered_by():
    found = row(judgement(fields={"needs": ("mnist", "adult")}))
    assert found["id"] == "row-t-one"
    assert found.find("a", string="t.one")["href"] == "toy.html#claim-t-one"
    told = {name: found[f"data-{name}"] for name in ("verdict", "chapter", "kind", "needs")}
    assert told == {"verdict": "held", "chapter": "toy", "kind": "figure", "needs": "mnist,adult"}


def test_a_row_says_the_claim_its_place_the_papers_value_and_ours():
    cells = {cell["class"][0]: cell.get_text() for cell in row(judgement(fields={"paper": "a | <b>"})).find_all("td")}
    assert cells["verdict"] == "✓ held"
    assert cells["claim"].split("\n")[:2] == [r"That \(|x| < 2\).", "Chapter 3 · figure · Figure 1 · t.one"]
    assert cells["paper"] == "a | <b>"  # a text, never a tag
    assert cells["measured"] == "x 1.00 [0.90, 1.10]"


@pytest.mark.parametrize(("verdict", "shown"), [("held in part", True), ("did not hold", True), ("held", False)])
def test_the_reason_of_what_did_not_simply_hold_stands_in_the_row(verdict, shown):
    assert ("Because." in row(judgement(verdict=verdict, reason="Because.")).get_text()) == shown


def test_the_first_sentence_of_a_reason_stands_in_the_row_and_the_rest_in_its_fold():
    one = row(judgement(verdict="did not hold", reason="It is $n. K$ at .5 of all. Then it falls. So."))
    assert one.select_one(".reason").get_text() == r"It is \(n. K\) at .5 of all."
    assert "Then it falls. So." in one.details.get_text()


def test_the_fold_of_a_row_has_the_rule_as_it_is_executed_the_values_and_the_sources():
    fold = row(judgement(source_links={"rule as declared": "https://x/y.yml#L3"})).details
    assert [code.get_text() for code in fold.select(".rules code")] == ["x.high < 2", "x.low > 2"]
    assert " ".join(fold.select_one(".values").get_text().split()) == "x – what is measured"  # its number is in the row
    links = [link["href"] for link in fold.find_all("a")]
    assert links == ["toy.html#claim-t-one", "#row-t-one", "https://x/y.yml#L3"]


def test_a_claim_that_is_true_by_algebra_is_marked():
    assert row(judgement(fields={"exact": True})).td.get_text() == "✓ held, exact"


def test_an_erratum_is_confirmed_and_a_finding_of_ours_is_marked():
    again = Replication("held", Counter(held=4), Counter(), kind="erratum")
    slip = judgement(fields={"kind": "erratum"}, full_scale=FULL, replication=again)
    found = row(slip)
    assert (found["data-verdict"], found.td.get_text()) == ("confirmed", "✓ confirmed")
    assert "held" not in found.get_text()
    assert "4 confirmed" in found.get_text()
    assert row(judgement(fields={"kind": "ours"})).td.get_text() == "✓ held our finding"
    (read,) = csv.DictReader(claim_tables.scoreboard_csv([slip]).splitlines())
    assert read["verdict"] == "confirmed"


def test_our_own_findings_are_counted_apart():
    ours = [judgement("t.a", fields={"kind": "ours"}), judgement("t.b", "undecided", fields={"kind": "ours"})]
    assert "2 findings of ours 1 held" in claim_tables.scoreboard([judgement(), *ours])
    assert "findings of ours" not in claim_tables.scoreboard([judgement()])


def test_a_verdict_that_is_another_one_at_full_scale_is_told_with_its_row_and_all_that_was_found():
    same, other = judgement("t.a", full_scale=FULL), judgement("t.b", full_scale=replace(FULL, verdict="did not hold"))
    told = board(judgement(), same, other)
    assert "1 of 1 recorded verdicts differ" in told.get_text()
    assert "1 more records repeat the draws of this build" in told.get_text()
    drawn_anew = replace(same, full_scale=replace(FULL, values={"x": Estimate(1.1, 1.0, 1.2, n=10)}))
    assert "1 of 2 recorded verdicts differ" in board(drawn_anew, other).get_text()
    assert told.a["href"] == "scoreboard.html#row-t-b"
    earlier = board(same, replace(other, full_scale=replace(FULL, verdict="did not hold", is_current=False))).get_text()
    assert "✗ did not hold (by an earlier rule)" in earlier
    assert [cell.get_text() for cell in told.select("td.full")] == [
        "",
        "the same draws ✓ held",
        "the same draws ✗ did not hold",
    ]
    found = [row(replace(drawn_anew, full_scale=replace(drawn_anew.full_scale, verdict=v))) for v in VERDICTS[:2]]
    assert [one.select_one("td.full").get_text() for one in found] == [
        "1.10 [1.00, 1.20] ✓ held",
        "x 1.10 [1.00, 1.20] ◐ held in part",
    ]
    more = FullScale("held", {"x": FULL.values["x"], "y": Estimate(1.1, 1.0, 1.2, n=10)})
    assert row(judgement(full_scale=more)).select_one("td.full").get_text() == "the same ✓ held"
    assert "At full scale" not in board(judgement(), same).get_text()
    assert (
        "At full scale" not in board(replace(other, verdict="not judged"), replace(other, verdict="not run")).get_text()
    )


def test_an_unexpected_verdict_is_marked():
    found = judgement(verdict="held in part", fields={"expected": "held"})
    assert row(found).td.get_text() == "◐ held in part (expected: held)"


def test_runs_by_rules_that_were_replaced_stand_beside_those_by_todays():
    again = Replication("held", Counter(held=10), Counter({"held": 37, "undecided": 2, "did not hold": 1}))
    later = judgement("t.two", replication=Replication("held", Counter(held=5), Counter()))
    both = [judgement(replication=again), later, judgement("t.three")]
    assert row(both[0]).select_one(".again").get_text() == again.brief
    assert again.sentence in row(both[0]).details.get_text()
    assert "15 of 15 verdicts" in claim_tables.scoreboard(both)
    counted = replace(both[0], replication=replace(again, earlier_flips=2, is_steady=True))
    text = claim_tables.scoreboard([counted, *both[1:]], withdrawn=(24, 1))
    assert "10 of them could not differ" in text
    assert "2 of 40 verdicts were not the one expected then**, and 1 of 24 on claims that have been withdrawn." in text
    assert "seeds that nobody chose" not in claim_tables.scoreboard(both[2:])


def test_the_rows_are_also_a_file_for_a_spreadsheet():
    again = Replication("held", Counter(held=3, undecided=1), Counter(held=2))
    (read,) = csv.DictReader(claim_tables.scoreboard_csv([judgement(replication=again)]).splitlines())
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
    assert jinja_environment.sentence_html(text) == shown


VALUES = {"x": X, "y": {"kind": "exact", "value": 2.0, "error": 1e-6}, "z": {"kind": "count", "count": 3, "of": 40}}


def test_refuted_statements_slips_of_proofs_and_misprints_stand_apart_with_their_evidence():
    again = Replication("held", Counter(held=3, undecided=1), Counter(held=2))
    given = {"values": VALUES, "replication": again}
    told = {"values": {"x": "mean of $x$", "y": "computed", "z": "counted"}}
    claims = [
        judgement("t.no", "did not hold", **given, fields=told),
        judgement("t.part", "held in part", **given, fields=told),
        judgement("t.proof", **given, fields=told | {"proof": "It divides by $0$."}),
        judgement("t.slip", **given, fields=told | {"kind": "erratum"}),
        judgement("t.new", **given, fields=told | {"kind": "ours"}),
    ]
    parts = claim_tables.wrong_papers(claims).split("\n## ")
    soups = (BeautifulSoup(part, "html.parser") for part in parts)
    refuted, proof, misprints = soups
    for table, name in ((refuted, "t.no"), (proof, "t.proof"), (misprints, "t.slip")):
        assert [link.get_text() for link in table.select(".where a")] == [name]
    assert proof.select_one(".where a")["href"] == "scoreboard.html#row-t-proof"
    told = [paragraph.get_text() for paragraph in proof.select(".evidence p")]
    assert told == [r"It divides by \(0\).", r"1.00 [0.90, 1.10] mean of \(x\)", "2 computed", "3 of 40 counted"]
    assert [paragraph.get_text() for paragraph in proof.select(".sure p")] == [
        "Intervals over 5 samples.",
        "Computed, with an error of at most 1e-06.",
        "Counted among 40.",
        "The expected verdict at seeds that nobody chose: 3 of 4; 2 earlier, by other rules or code.",
    ]


@pytest.fixture
def small_book(tmp_path, monkeypatch):
    """A book of one chapter, with a public address."""
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


def test_rows_lead_to_lines_of_the_repository(small_book):
    assert build(small_book, "--no-render") == 0
    board = BeautifulSoup(staged(small_book, "_generated/scoreboard.md"), "html.parser")
    assert [row["id"] for row in board.tbody.find_all("tr")] == ["row-sums-a"]
    links = {link.get_text(): link["href"] for link in board.tbody.tr.details.find_all("a")}
    name = board.tbody.tr["data-chapter"]
    assert links["rule as declared"] == f"https://example.org/o/r/blob/main/book/claims/{name}.yml?plain=1#L6"
    assert f"blob/main/book/{name}.md?plain=1#L" in links["code that judges it"]
