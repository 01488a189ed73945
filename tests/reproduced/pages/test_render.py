"""From a book to its staged pages: alt texts, pages that are notebooks, and a chapter with the real library."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import jupytext
import nbformat
import pytest
from sphinx.errors import ConfigError

from reproduced import code_keys
from reproduced.pages import sphinx_extension
from reproduced.pages.render import execute_pages, stage
from reproduced.run.book import Book
from small_book import HEADER, PARAMETERS, build, cell, make_repository, read_findings, staged

BOOK = Path(__file__).parents[3] / "book"
PICTURE = """
import IPython
from pathlib import Path
print(sorted(path.name for path in Path("book/records").iterdir()))
IPython.display.display({"image/png": "x"}, raw=True, metadata={"image/png": {"alt": "A curve."}})
"""


def test_a_page_shows_what_its_cells_say_and_a_cell_that_fails_is_a_fault(tmp_path):
    root = make_repository(tmp_path / "repository", "speed", "words")
    book = Book(root, root / "_build")
    (root / "book/records/speed.json").write_text("{}", "utf-8")
    (root / "book/speed.md").write_text(f"{HEADER}\n# Speed\n\n{cell(PICTURE)}\n{cell('1 / 0')}", "utf-8")
    (root / "book/words.md").write_text("# Words alone\n", "utf-8")
    stage(book, "ci", {}, {}, {})
    (fault,) = execute_pages(book)
    assert re.fullmatch(r"✗ speed: failed in cell 2 of 2 after .* s: ZeroDivisionError: division by zero", fault)
    first, second = (one for one in nbformat.read(book.staged / "speed.ipynb", 4).cells if one.cell_type == "code")
    assert first.outputs[0].text == "['speed.json']\n"
    assert first.metadata["mystnb"]["image"]["alt"] == "A curve."
    assert second.outputs[0].ename == "ZeroDivisionError"
    assert (book.staged / "words.md").is_file()
    assert (book.staged / "_generated/notebooks/speed.ipynb").is_file()


def test_a_page_is_executed_again_only_if_its_text_its_code_or_a_record_changed(tmp_path):
    root = make_repository(tmp_path / "repository", "speed")
    book, record, page = Book(root, root / "_build"), root / "book/records/speed.json", root / "book/speed.md"

    def printed() -> str:
        stage(book, "ci", {}, {}, {})
        code_keys.file_digest.cache_clear()
        assert execute_pages(book) == []
        cells = nbformat.read(book.staged / "speed.ipynb", 4).cells
        return next(one.outputs[0].text for one in cells if one.cell_type == "code")

    record.write_text("{}", "utf-8")
    code = "import time; print(time.time_ns())"
    page.write_text(f"{HEADER}\n# Speed\n\n{cell(code)}", "utf-8")
    first = printed()
    assert printed() == first
    record.write_text("[]", "utf-8")
    second = printed()
    assert second != first
    page.write_text(f"{HEADER}\n# Speed\n\n{cell(code, 'hide-input')}", "utf-8")
    assert printed() != second


def test_the_cells_of_the_performance_page_run_on_the_records_of_this_book(monkeypatch):
    monkeypatch.chdir(BOOK)
    cells = jupytext.read("performance.md").cells
    sources = [one.source for one in cells if one.cell_type == "code"]
    names = {}
    for source in sources:
        exec(source, names)
    assert len(names["runs"]) == sum(len(record["rows"]) for record in names["records"])
    assert max(len(source.splitlines()) for source in sources) <= 25


def test_a_missing_mathjax_is_named_with_its_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(sphinx_extension.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"sphinx-mathjax-offline.*leakage\[book\]"):
        sphinx_extension.copy_mathjax(tmp_path)
    monkeypatch.setattr(
        sphinx_extension.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "x.py"))
    )
    with pytest.raises(ConfigError, match=r"has no tex-chtml\.js"):
        sphinx_extension.copy_mathjax(tmp_path)


@pytest.fixture
def real_book(tmp_path):
    """A repository without a package of its own: its one chapter uses the ledger and the figures that are tested."""
    sources = (
        'run = runtime.begin(profile, seed, device)\nledger = Ledger("real", run)\nledger.declared()',
        'picture, ax = figures.figure()\nfigures.show(picture, alt="An empty pair of axes, for a test only.")',
        'ledger.judge("r.one", x=Estimate(0.5, 0.4, 0.6, 9))',
        'glue("half", "0.50")\nledger.verdicts()',
    )
    imports = "from reproduced import runtime\nfrom reproduced import figures\n"
    imports += "from leakage.metrics.estimates import Estimate\nfrom reproduced.claims.ledger import Ledger, glue"
    cells = [cell(imports), cell(PARAMETERS, "parameters"), *map(cell, sources)]
    rules = "kind: figure, values: {x: W}, holds: x.high < 1, refuted: x.low > 1, expected: held"
    one = f"{{id: r.one, claim: C., where: W, {rules}}}"
    two = f"{{id: r.data, claim: C., where: W, {rules}, needs: [mnist]}}"
    head = "chapter: real, prefix: r, title: T, paper: k, data: [mnist]"
    root = make_repository(tmp_path / "repository", "real")
    shutil.rmtree(root / "lib")
    (root / "book/claims/real.yml").write_text(f"{{{head}, claims: [{one}, {two}]}}", "utf-8")
    (root / "book/real.md").write_text(f"{HEADER}\n# Real\n\n" + "\nWords.\n\n".join(cells), "utf-8")
    return root


def test_a_chapter_that_uses_the_real_library_is_collected_and_staged(real_book, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "nothing"))
    assert build(real_book) == 0
    printed = capsys.readouterr().out
    lacking = "Not run for want of data: 1 claim (mnist 1); `make data` fetches this set.\n"
    assert printed.endswith(f"Claims: figures: ✓ 1 held, – 1 not run\n{lacking}")
    assert staged(real_book, "_generated/scoreboard.md").startswith(lacking)
    judged = [one["values"] for one in read_findings(real_book, "real")["claims"]]
    assert [values and values[0]["measured"]["estimate"] for values in judged] == [0.5, []]
    notebook = nbformat.reads(staged(real_book, "real.ipynb"), as_version=4)
    alts = [one.metadata.mystnb.image.alt for one in notebook.cells if "mystnb" in one.metadata]
    assert alts == ["An empty pair of axes, for a test only."]
    assert f"```{{warning}}\n{lacking.strip()} Captions" in notebook.cells[0]["source"]
    assert notebook.metadata["repro"]["data"] == {"mnist": "absent"}
