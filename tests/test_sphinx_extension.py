"""The book's Sphinx extension: links to sources, scripts, footers and MathJax. `test_page_layout` renders its folds."""

import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sphinx.application import Sphinx
from sphinx.errors import ConfigError

from reproduced.pages import sphinx_extension


@pytest.mark.parametrize(
    ("staged", "source"),
    [
        ("https://github.com/o/r/edit/main/book/one.ipynb", "https://github.com/o/r/edit/main/book/one.md"),
        ("https://mybinder.org/v2/gh/o/r/main?urlpath=lab/tree/book/one.ipynb", "…/book/one.md"),
        ("https://github.com/o/r/blob/main/book/one.ipynb?plain=1", "…/book/one.md?plain=1"),
        ("https://github.com/o/r/edit/main/book/intro.md", "https://github.com/o/r/edit/main/book/intro.md"),
        ("https://github.com/o/notes.ipynb.old", "https://github.com/o/notes.ipynb.old"),
        ("_sources/one.ipynb", "_sources/one.ipynb"),
        (
            "https://colab.research.google.com/github/o/r/blob/main/book/one.ipynb",
            "…/github/o/r/blob/notebooks/one.ipynb",
        ),
    ],
)
def test_links_to_a_chapter_lead_to_its_source_and_downloads_stay(staged, source):
    found = sphinx_extension.source_url(staged)
    assert found == source or (source.startswith("…") and found.endswith(source[1:]))


def test_mathjax_is_copied_without_the_parts_no_page_loads(tmp_path):
    sphinx_extension.copy_mathjax(tmp_path / "mathjax")
    copied = [path for path in (tmp_path / "mathjax").rglob("*") if path.is_file()]
    assert (tmp_path / "mathjax" / "tex-chtml.js").is_file()
    assert any(path.suffix == ".woff" for path in copied)
    assert sum(path.stat().st_size for path in copied) < 8e6  # the package has 24 MB


def test_a_missing_mathjax_is_named_with_its_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(sphinx_extension.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"sphinx-mathjax-offline.*leakage\[book\]"):
        sphinx_extension.copy_mathjax(tmp_path)
    monkeypatch.setattr(
        sphinx_extension.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "x.py"))
    )
    with pytest.raises(ConfigError, match=r"has no tex-chtml\.js"):
        sphinx_extension.copy_mathjax(tmp_path)


def finished(page: str, tmp_path: Path, **context: object) -> dict:
    """The context of a page after the extension has seen it."""
    (tmp_path / "_generated").mkdir(exist_ok=True)
    (tmp_path / "_generated" / "origins.json").write_text('{"one": "By a <processor>.", "": "All."}', "utf-8")
    app = Mock(spec=Sphinx, srcdir=str(tmp_path), config=SimpleNamespace(copyright="2026", author="A & B"))
    sphinx_extension._finish_page(app, page, "page.html", context, None)
    return context


def test_every_button_of_a_page_leads_to_a_source(tmp_path):
    menu = [{"url": "https://h/o/r/edit/main/book/one.ipynb"}, {"javascript": "print()"}]
    context = finished("one", tmp_path, header_buttons=[{"buttons": menu}, {"type": "javascript"}])
    assert context["header_buttons"][0]["buttons"][0]["url"].endswith("one.md")


def test_scripts_of_thebe_are_left_out_and_others_stay(tmp_path):
    inline = SimpleNamespace(filename=None, attributes={"body": "const THEBE_JS_URL = 1"})
    kept = SimpleNamespace(filename="_static/doctools.js", attributes={})
    context = finished("one", tmp_path, script_files=["_static/sphinx-thebe.js", inline, kept])
    assert context["script_files"] == [kept]


def test_the_footer_names_the_run_and_the_licences_and_is_escaped(tmp_path):
    assert "All." in finished("two", tmp_path)["theme_extra_footer"]
    footer = finished("one", tmp_path)["theme_extra_footer"]
    assert "a &lt;processor&gt;" in footer
    assert "A &amp; B" in footer
    assert re.search("CC BY 4.0.*MIT", footer)


def test_what_unfolds_a_part_of_the_contents_has_a_name(tmp_path):
    context = finished("one", tmp_path, generate_toctree_html=lambda kind, *, depth: f"{kind} {depth} <summary>")
    made = context["generate_toctree_html"]("sidebar", depth=1)
    assert re.fullmatch('sidebar 1 <summary aria-label="[^"]+">', made)


def test_a_bibliography_loses_the_roles_that_break_it(tmp_path):
    body = '<div role="list" class="citation-list"><div class="citation" id="a" role="doc-biblioentry">x</div></div>'
    assert "role" not in finished("one", tmp_path, body=body)["body"]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ('<table class="claims-table table">', ["page.js", "tables.js", "datatables/dataTables.min.js"]),
        ('<table class="table"><th class="head"><p>why</p></th>', ["page.js", "tables.js"]),
        ("<p>why</p>", ["page.js"]),
    ],
)
def test_the_scripts_of_tables_are_loaded_where_there_is_one(tmp_path, body, kept):
    names = ("page.js", "tables.js", "datatables/dataTables.min.js")
    files = [SimpleNamespace(filename=f"_static/{name}") for name in names]
    context = finished("one", tmp_path, body=body, script_files=files)
    assert [file.filename.removeprefix("_static/") for file in context["script_files"]] == kept
