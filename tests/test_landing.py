"""The landing page's rows and counts, and the page of what is wrong in the papers."""

from collections import Counter

import pytest
from bs4 import BeautifulSoup

from reproduced.claims.declarations import Claim
from reproduced.claims.rules import Rule
from reproduced.pages import landing, wrong_papers
from reproduced.pages.entries import Entry, Place
from reproduced.run.replications import Replication

TOY = Place("toy", "A toy", "1")
PLAN = [
    {"name": name, "number": number, "title": name, "question": "Is it?", "answer": "It is.", "paper": "P"}
    | {"authors": "A", "year": 2020}
    for number, name in enumerate(("toy", "idle", "future"), start=1)
]
MEASURED = {"x": {"kind": "estimate", "estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5, "level": 0.95}}
MEASURED |= {"y": {"kind": "exact", "value": 2.0, "error": 1e-6}, "z": {"kind": "count", "count": 3, "of": 40}}


def entry(name: str, kind: str = "theorem", verdict: str = "held", **fields) -> Entry:
    rule = Rule("x.high < 2")
    values = {"x": "mean of $x$", "y": "computed", "z": "counted"}
    claim = Claim.model_construct(
        id=name,
        kind=kind,
        claim="That it is.",
        expected=verdict,
        values=values,
        holds=rule,
        refuted=rule,
        **{"where": "Theorem 1"} | fields,
    )
    record = {"verdict": verdict, "reason": "Because.", "seconds": 0.1}
    record |= {"values": [{"name": name, "measured": value} for name, value in MEASURED.items()]}
    again = Replication("held", Counter(held=3, undecided=1), Counter(held=2))
    return Entry(TOY, claim, record, again, page="toy.html#claim")


CLAIMS = [
    entry("t.no", verdict="did not hold"),
    entry("t.part", verdict="held in part"),
    entry("t.proof", proof="It divides by $0$."),
    entry("t.slip", "erratum"),
    entry("t.new", "ours"),
]


def test_what_the_papers_say_and_what_is_ours_are_counted_apart():
    assert landing.tally(CLAIMS).splitlines() == [
        "- **3 statements of one paper**: ✓ 1 held, ◐ 1 held in part, ✗ 1 did not hold.",
        "- **1 finding of ours**: ✓ 1 held.",
        "- **1 claim that a printed text slips, counted apart**: ✓ 1 held.",
    ]
    (told,) = landing.tally([entry("t.sum", exact=True), entry("t.two")]).splitlines()
    assert told.endswith("✓ 2 held (1 of those that held are exact: true by algebra or construction).")
    assert landing.tally([]) == "No chapter was executed for this copy of the book.\n"


def test_only_chapters_that_exist_are_links_and_the_others_are_in_preparation():
    rows = landing.rows(PLAN, CLAIMS, ["toy", "idle"], {"toy": "_generated/story/toy.png"})
    toy, idle, future = rows.split(":::::{div} chapter-row\n")[1:]
    assert "**[1 · toy](/toy)** Is it?\n\nIt is.\n" in toy
    assert "The paper: ✓ 1 held, ◐ 1 held in part, ✗ 1 did not hold; ours: ✓ 1 held; slips: 1." in toy
    assert toy.startswith("![It is.](_generated/story/toy.png)")
    assert "[2 · idle](/idle)" in idle
    assert "Not executed in this build." in idle
    assert "**3 · future**" in future
    assert "In preparation." in future


@pytest.fixture
def tables():
    return dict(zip(("refuted", "proofs", "misprints"), wrong_papers.page(CLAIMS).split("\n## "), strict=True))


def test_refuted_statements_slips_of_proofs_and_misprints_stand_apart(tables):
    found = {name: [a.get_text() for a in soup(text).select(".where a")] for name, text in tables.items()}
    assert found == {"refuted": ["t.no"], "proofs": ["t.proof"], "misprints": ["t.slip"]}


def test_a_row_says_the_evidence_and_how_sure_it_is_and_leads_to_the_scoreboard(tables):
    proof = soup(tables["proofs"])
    assert proof.select_one(".where a")["href"] == "scoreboard.html#row-t-proof"
    told = [paragraph.get_text() for paragraph in proof.select(".evidence p")]
    assert told == [r"It divides by \(0\).", r"1.00 [0.90, 1.10] mean of \(x\)", "2 computed", "3 of 40 counted"]
    assert [paragraph.get_text() for paragraph in proof.select(".sure p")] == [
        "Intervals over 5 samples.",
        "Computed, with an error of at most 1e-06.",
        "Counted among 40.",
        "The expected verdict at seeds that nobody chose: 3 of 4; under earlier rules 2 of 2.",
    ]


def test_a_book_without_slips_says_so():
    assert wrong_papers.page([]).count("None in this build.") == 3


def soup(text: str) -> BeautifulSoup:
    return BeautifulSoup(text, "html.parser")
