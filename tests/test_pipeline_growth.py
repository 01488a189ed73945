"""The section on growth: panels with exponents beside their lines, a table in a fold, records read strictly."""

from itertools import pairwise

import pytest
from bs4 import BeautifulSoup

import kept_records
from leakage.pipeline import contents, growth
from leakage.pipeline.book import Book, Refusal


def fitted(exponent: float | None, theory: float, note: str = "") -> dict:
    low, high = (None, None) if exponent is None else (exponent - 0.1, exponent + 0.1)
    return {"exponent": exponent, "low": low, "high": high, "theory": theory, "reason": "so $n^2$", "note": note}


def curve(side: str, exponent: float | None, last: float) -> dict:
    costs = {"time": fitted(exponent, 1.0), "memory": fitted(None, 0.0, "of a page")}
    amounts = {"sizes": [10, 20, 40], "seconds": [1e-3, 2e-3, last], "bytes": [None, 0, 2**20]}
    return {"side": side, "method": f"{side} <b>", **amounts, **costs}


@pytest.fixture
def record():
    """A record of one axis with three curves, whose ends are near each other."""
    axis = {"id": "toy.sum.n", "chapter": "toy", "what": "a <b>", "along": "points n", "unit": "sum"}
    axis |= {"precision": "float64", "flops": "$2 n$", "flops_share": 0.25, "traffic": "8 n", "traffic_share": 0.5}
    axis["curves"] = [curve("ours", 0.99, 4e-3), curve("theirs", 1.3, 4.01e-3), curve("theirs", None, 4.02e-3)]
    peak = {"float64": 5e10, "float32": 1e11, "copy": 2e10}
    return {"title": "Growth", "date": "2026-01-02T03:04:05+00:00", "threads": 1, "peak": peak, "axes": [axis]}


@pytest.fixture
def kept(tmp_path):
    """Keeps a record in a book, and reads it."""
    return kept_records.keeper(tmp_path, "growth.json", contents.growth)


def test_growth_is_a_sentence_panels_a_table_in_a_fold_and_their_origin(record):
    text = growth.growth(record, {"toy": "A toy"})
    assert text.startswith("Of 2 exponents along 1 axes 1 are within 0.15 of the theory; ")
    assert "50 billion operations a second in a product of matrices (100 in single precision)" in text
    assert text.endswith("This record: 2026-01-02, threads 1.\n")
    page = BeautifulSoup(text, "html.parser")
    assert page.figcaption.get_text() == "A toy: a <b>"
    assert [label.get_text() for label in page.select("svg text.ours, svg text.theirs")] == [
        "0.99 (1)",
        "1.30 (1)",
        "– (1)",
    ]
    assert len(page.select("svg g.ours circle")) == 3
    assert len(page.select("svg g.theirs rect")) == 6
    assert page.svg["aria-label"].endswith("theirs <b>: exponent – (1).")
    first, second = ([cell.get_text() for cell in row.find_all("td")] for row in page.select("details tbody tr")[:2])
    assert first == [
        "a <b>, for one sum",
        "ours",
        "ours <b>",
        "10 to 40 points n",
        "1 ms to 4 ms",
        "0.99 [0.89, 1.09]",
        "1: so \\(n^2\\)",
        "1 MB",
        "not measurable",
        "0: so \\(n^2\\). of a page",
        "25.00% of \\(2 n\\)",
        "50.00% of 8 n",
    ]
    assert second[-2:] == ["", ""]  # of the other side no operations are counted


def test_labels_of_lines_that_end_together_do_not_touch(record):
    page = BeautifulSoup(growth.growth(record), "html.parser")
    places = sorted(float(label["y"]) for label in page.select("svg text.ours, svg text.theirs"))
    assert min(below - above for above, below in pairwise(places)) >= 12.9  # less rounding


def test_without_a_record_the_page_says_how_to_make_one(tmp_path):
    assert contents.growth(Book(tmp_path, tmp_path / "_build")) == {}
    assert "benchmarks/growth.py --record" in growth.growth({})


def test_a_whole_record_is_taken(record, kept):
    assert kept(record) == record


def test_the_record_of_this_book_is_drawn(pytestconfig):
    found = contents.growth(Book(pytestconfig.rootpath, pytestconfig.rootpath / "_build"))
    assert growth.growth(found).count("<svg") == len(found.get("axes", []))


AXIS, CURVE, TIME = ("axes", 0), ("axes", 0, "curves", 0), ("axes", 0, "curves", 0, "time")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("peak",), None),
        (("peak", "copy"), 0),
        (("date",), ["today"]),
        (("axes",), 3),
        (AXIS, "axis"),
        ((*AXIS, "what"), ""),
        ((*AXIS, "precision"), "bfloat16"),
        ((*AXIS, "flops_share"), -1),
        ((*AXIS, "curves"), []),
        (CURVE, 3),
        ((*CURVE, "side"), "nobody's"),
        ((*CURVE, "sizes"), [10, 10, 40]),
        ((*CURVE, "sizes"), [10, 20]),
        ((*CURVE, "seconds"), [1.0, 0.0, 1.0]),
        ((*CURVE, "bytes"), [1, -1, None]),
        (TIME, None),
        ((*TIME, "theory"), "one"),
        ((*TIME, "note"), None),
        ((*TIME, "low"), None),
    ],
)
def test_a_broken_record_is_refused(record, kept, place, value):
    with pytest.raises(Refusal, match=r"growth\.json"):
        kept(kept_records.broken(record, place, value))
