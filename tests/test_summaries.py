"""The book in numbers: counts of verdicts, a row for each chapter, and where the runs come from."""

import pytest

from judgements import TOY, judgement, ledger
from reproduced.pages import summaries
from reproduced.pages.ledgers import Chapter

IDLE, FUTURE = (Chapter(name, name, number, "Is it?", "It is.") for number, name in (("2", "idle"), ("4", "future")))
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
        "- **1 slip of the printed texts, counted apart**: ✓ 1 held.",
    ]
    (told,) = summaries.tally([judgement("t.sum", fields={"exact": True}), judgement("t.two")]).strip().splitlines()
    assert told.endswith("✓ 2 held (1 of those that held are exact: true by algebra or construction).")
    assert summaries.tally([]).strip() == "No chapter was executed for this copy of the book."


def test_only_chapters_that_exist_are_links_and_the_others_are_in_preparation():
    pictures = {"toy": "_generated/story/toy.png"}
    rows = summaries.chapter_rows([TOY, IDLE, FUTURE], {"toy": ledger(*CLAIMS)}, ["toy", "idle"], pictures)
    toy, idle, future = rows.split(":::::{div} chapter-row\n")[1:]
    assert "**[3 · A toy](/toy)** Is it?\n\nIt is.\n" in toy
    assert "held" not in toy, "the page has the tally once, above the rows"
    assert toy.startswith("![It is.](_generated/story/toy.png)")
    assert "[2 · idle](/idle)" in idle
    assert "Not executed in this build." in idle
    assert "**4 · future**" in future
    assert "In preparation." in future


def test_the_status_says_when_where_and_with_what():
    text = summaries.status({"toy": ledger()})
    assert "| [](/toy) | 2026-01-02 03:04:05 UTC | 75 | ci | 0 | CPU, 2 cores (x86_64 AVX2) | aaaaaaaaaa |" in text
    assert "Versions: python 3.11.7." in text
    assert summaries.status({}) == "No chapter was executed for this copy of the book.\n"


def test_a_page_can_show_what_a_build_says_at_its_end():
    told = summaries.last_lines(CLAIMS)
    assert (
        "\nClaims: figures: ✓ 1 held, ◐ 1 held in part, ✗ 1 did not hold; errata: ✓ 1 held;\n  ours: ✓ 1 held\n" in told
    )
    assert "Claims: none" in summaries.last_lines([])


def test_a_chapter_says_which_run_it_shows_and_another_page_names_all_runs_once():
    same = {"one": ledger(seconds=200), "two": ledger(seconds=100)}
    run = "profile ci, seed 0, CPU, 2 cores (x86_64 AVX2), commit aaaaaaaaaa"
    assert summaries.origins(same) == {
        "one": f"Executed in 3 min 20 s: {run}, 2026-01-02.",
        "two": f"Executed in 1 min 40 s: {run}, 2026-01-02.",
        "": f"Chapters executed in 5 min 0 s: {run}, 2026-01-02.",
    }
    mixed = summaries.origins(same | {"two": ledger(dirty=True)})
    assert f"{run}, 2026-01-02; {run} with local changes, 2026-01-02." in mixed[""]
    assert summaries.origins({}) == {"": "No chapter was executed for this copy of the book."}


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")]
)
def test_a_duration_is_said_in_two_units(seconds, said):
    assert summaries.duration(seconds) == said
