"""The book in numbers: counts of verdicts, a row for each chapter, and where the runs come from."""

from datetime import date

import pytest

from reproduced.pages import summaries
from reproduced.pages.findings import Chapter
from small_book import TOY, findings, judgement

IDLE = Chapter("idle", "idle", "2", "Is it?", "It is.")
CLAIMS = [
    judgement("t.no", "did not hold"),
    judgement("t.part", "held in part"),
    judgement("t.proof", fields={"proof": "It divides by $0$."}),
    judgement("t.slip", fields={"kind": "erratum"}),
    judgement("t.new", fields={"kind": "ours"}),
]


def test_what_the_papers_say_and_what_is_ours_are_counted_apart():
    assert summaries.tally(CLAIMS).strip().splitlines() == [
        "- **3 statements of one paper**: ✓ 1 held, ◐ 1 held in part, ✗ 1 did not hold.",
        "- **1 finding of ours**: ✓ 1 held.",
        "- **1 error in the papers' texts, counted separately**: ✓ 1 confirmed.",
    ]
    two = [judgement("t.sum", fields={"exact": True}), judgement("t.two")]
    told, _, meaning = summaries.tally(two).splitlines()[:3]
    assert told.endswith("✓ 2 held (1 of those that held are exact).")
    assert "true by algebra or construction" in meaning
    assert summaries.tally([]).strip() == "No chapter was executed for this copy of the book."


def test_a_chapter_has_a_row_that_says_whether_it_was_executed():
    pictures = {"toy": "_generated/story/toy.png"}
    rows = summaries.chapter_rows([TOY, IDLE], {"toy": findings(*CLAIMS)}, pictures)
    toy, idle = rows.split(":::::{div} chapter-row\n")[1:]
    assert "**[3 · A toy](/toy)** Is it?\n\nIt is.\n" in toy
    assert "held" not in toy, "the page has the tally once, below the rows"
    assert toy.startswith("[![It is.](_generated/story/toy.png)](/toy)")
    assert "[2 · idle](/idle)" in idle
    assert "Not executed in this build." in idle


def test_a_chapter_says_which_run_it_shows_and_another_page_names_all_runs_once():
    same = {"one": findings(seconds=200), "two": findings(seconds=100)}
    run = "profile ci, seed 0, CPU, 2 cores (x86_64 AVX2), commit aaaaaaaaaa"
    found = summaries.origins(same)
    for page, seconds in (("one", "3 min 20 s"), ("two", "1 min 40 s"), ("", "5 min 0 s")):
        assert (seconds in found[page], found[page].count(run)) == (True, 1)
    mixed = summaries.origins(same | {"two": findings(dirty=True)})
    assert mixed[""].count(run) == 2
    assert "with local changes" in mixed[""]


NEEDS = [("location",), ("location", "mnist"), ("location",), ("multi30k",), ("mnist",), ()]


@pytest.fixture
def lacking(monkeypatch, tmp_path):
    """The sentence for claims that need sets, with these verdicts."""
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "data"))

    def say(verdict="not run", needs=tuple(NEEDS)) -> str:
        fields = [{"needs": sets} for sets in needs]
        claims = [judgement(f"t.c{number}", verdict, fields=one) for number, one in enumerate(fields)]
        return summaries.lacking_data([findings(*claims)])

    return say


def test_claims_that_lack_data_are_counted_by_set_with_the_command_that_gets_it(lacking):
    counted = "5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"Not run for want of data: {counted}; `make data` fetches these sets."
    one = "Not run for want of data: 1 claim (mnist 1); `make data` fetches this set."
    assert lacking(needs=(("mnist",), ())) == one


@pytest.mark.parametrize(
    "case",
    [{"verdict": "held"}, {"verdict": "not judged"}, {"needs": ((), ())}],
)
def test_nothing_is_said_of_claims_that_no_data_would_have_run(lacking, case):
    assert lacking(**case) == ""


def test_a_damaged_set_is_named_with_its_file_and_stays_as_it_is(lacking, tmp_path):
    path = tmp_path / "data/location/dataset_location.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    cure = "move it away and run `.venv/bin/leakage data location`."
    damaged = f"location is damaged (location/dataset_location.tgz): {cure}"
    counted = "Not run for want of data: 5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"{counted}; `make data` fetches mnist, multi30k; {damaged}"
    assert lacking(needs=(("location",),)) == f"Not run for want of data: 1 claim (location 1); {damaged}"
    assert path.read_bytes() == b"damaged"


def test_the_book_is_cited_by_what_is_known_of_it():
    citation = {"authors": [{"name": "The group"}, {"family-names": "Doe", "given-names": "Jo"}], "title": "A Book"}
    entry = summaries.bibtex(citation, "", None)
    assert "author = {{The group} and Doe, Jo}" in entry
    assert "title = {A Book}" in entry
    assert not {"url", "note", "year", "doi"} & {line.split()[0] for line in entry.splitlines()[2:-2]}
    released = citation | {"version": "0.1.0", "date-released": date(2026, 11, 27), "doi": "10.1/x"}
    entry = summaries.bibtex(released, "https://example.org/book", "0123456789abcdef")
    for field in ("version = {0.1.0}", "year = {2026}", "doi = {10.1/x}", "note = {Commit 0123456789}"):
        assert field in entry
    assert "url = {https://example.org/book}" in entry
