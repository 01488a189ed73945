"""Pages that are notebooks but judge no claim are executed with every build; *Performance* is one of them."""

from pathlib import Path

import jupytext
import nbformat
import pytest

from miniature import HEADER, cell, make_repository
from reproduced.claims.texts import seconds_text
from reproduced.pages.notebook_pages import execute_pages
from reproduced.pages.render import stage
from reproduced.run.book import Book

BOOK = Path(__file__).parents[1] / "book"
PICTURE = """
import IPython
from pathlib import Path
print(sorted(path.name for path in Path("records").iterdir()))
IPython.display.display({"image/png": "x"}, raw=True, metadata={"image/png": {"alt": "A curve."}})
"""


def test_a_page_shows_what_its_cells_say_and_a_cell_that_fails_is_a_fault(tmp_path):
    root = make_repository(tmp_path / "repository", "speed", "words")
    book = Book(root, root / "_build")
    (root / "book/records/speed.json").write_text("{}", "utf-8")
    (root / "book/speed.md").write_text(f"{HEADER}\n# Speed\n\n{cell(PICTURE)}\n{cell('1 / 0')}", "utf-8")
    (root / "book/words.md").write_text("# Words alone\n", "utf-8")
    stage(book, "ci", {}, {})
    assert execute_pages(book) == ["speed: ZeroDivisionError: division by zero"]
    first, second = (one for one in nbformat.read(book.staged / "speed.ipynb", 4).cells if one.cell_type == "code")
    assert first.outputs[0].text == "['speed.json']\n"
    assert first.metadata["mystnb"]["image"]["alt"] == "A curve."
    assert second.outputs[0].ename == "ZeroDivisionError"
    assert (book.staged / "words.md").is_file()
    assert (book.staged / "_generated/notebooks/speed.ipynb").is_file()


def test_the_cells_of_the_performance_page_run_on_the_records_of_this_book(monkeypatch):
    monkeypatch.chdir(BOOK)
    cells = jupytext.read("performance.md").cells
    sources = [one.source for one in cells if one.cell_type == "code"]
    names = {}
    for source in sources:
        exec(source, names)
    assert len(names["runs"]) == sum(len(record["rows"]) for record in names["records"])
    assert max(len(source.splitlines()) for source in sources) <= 25


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.48e-7, "148 ns"), (3.456e-3, "3.46 ms"), (1.0, "1 s"), (90, "1.5 min"), (7.9e5, "9.14 d")]
)
def test_a_time_is_written_in_its_largest_unit(seconds, text):
    assert seconds_text(seconds) == text
