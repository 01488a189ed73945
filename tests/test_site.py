"""The book's Sphinx extension, and that configuration, contents and sources of the plain pages agree."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from pybtex.database import parse_file
from sphinx.application import Sphinx
from sphinx.errors import ConfigError

from reproduced.pages import site

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
PAGES = sorted(BOOK.glob("*.md"))
LEDGER = {
    "chapter": "one",
    "profile": "ci",
    "seed": 3,
    "device": "cpu",
    "device_name": "a <processor>",
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-02T03:04:05+00:00",
    "seconds": 200,
}


# ── the extension ───────────────────────────────────────────────────────────────────────────────────────────────────


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
    found = site.source_url(staged)
    assert found == source or (source.startswith("…") and found.endswith(source[1:]))


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")]
)
def test_a_duration_is_said_in_two_units(seconds, said):
    assert site.duration(seconds) == said


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError, match="`seconds`"):
        site.duration(-1)


def test_a_chapter_says_which_run_it_shows():
    assert site.origin({"one": LEDGER}, "one") == (
        "Executed in 3 min 20 s: profile ci, seed 3, a <processor>, commit 0123456789, 2026-01-02."
    )


def test_another_page_names_all_runs_of_the_book_once():
    other = LEDGER | {"chapter": "two", "seconds": 100}
    same, mixed = {"one": LEDGER, "two": other}, {"one": LEDGER, "two": other | {"dirty": True}}
    assert site.origin(same, "intro").startswith("Chapters executed in 5 min 0 s: profile ci, seed 3")
    assert site.origin(same, "intro").count("commit") == 1
    assert "commit 0123456789 with local changes" in site.origin(mixed, "intro")


def test_a_book_without_a_run_says_so():
    assert site.origin({}, "intro") == "No chapter was executed for this copy of the book."


def test_ledgers_are_read_by_chapter_and_absent_ones_are_none(tmp_path):
    path = tmp_path / "claims.json"
    assert site.read_ledgers(path) == {}
    path.write_text(json.dumps({"chapters": [LEDGER]}), encoding="utf-8")
    assert site.read_ledgers(path) == {"one": LEDGER}


@pytest.mark.parametrize("text", ["{", "[]", '{"chapters": [1]}', '{"chapters": [{}]}', '{"chapters": null}'])
def test_ledgers_of_another_form_are_refused(tmp_path, text):
    path = tmp_path / "claims.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="leakage build"):
        site.read_ledgers(path)


def test_mathjax_is_copied_without_the_parts_no_page_loads(tmp_path):
    site.copy_mathjax(tmp_path / "mathjax")
    copied = [path for path in (tmp_path / "mathjax").rglob("*") if path.is_file()]
    assert (tmp_path / "mathjax" / "tex-chtml.js").is_file()
    assert any(path.suffix == ".woff" for path in copied)
    assert sum(path.stat().st_size for path in copied) < 8e6  # the package has 24 MB


def test_a_missing_mathjax_is_named_with_its_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"sphinx-mathjax-offline.*leakage\[book\]"):
        site.copy_mathjax(tmp_path)
    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "x.py")))
    with pytest.raises(ConfigError, match=r"has no tex-chtml\.js"):
        site.copy_mathjax(tmp_path)


def finished(page: str, tmp_path: Path, **context: object) -> dict:
    """The context of a page after the extension has seen it."""
    (tmp_path / "_generated").mkdir(exist_ok=True)
    (tmp_path / "_generated" / "claims.json").write_text(json.dumps({"chapters": [LEDGER]}), encoding="utf-8")
    app = Mock(spec=Sphinx, srcdir=str(tmp_path), config=SimpleNamespace(copyright="2026", author="A & B"))
    site._finish_page(app, page, "page.html", context, None)
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


# ── configuration and sources ───────────────────────────────────────────────────────────────────────────────────────


def listed_pages() -> list[str]:
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [contents["root"], *(page["file"] for part in contents["parts"] for page in part["chapters"])]


def test_the_contents_list_every_page_once():
    assert sorted(listed_pages()) == [path.stem for path in PAGES]


def test_the_repository_is_named_in_one_place():
    address = CONFIG["repository"]["url"]
    named = [p.name for p in [*PAGES, BOOK / "chapters.yml", ROOT / "_toc.yml"] if address in p.read_text("utf-8")]
    assert not named, "write {source}`path` or {{ repository }} instead"
    assert (ROOT / "_config.yml").read_text(encoding="utf-8").count(address) == 1
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")).get("repository-code", address)
    assert cited == address


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_files_that_a_page_points_to_exist(path):
    text = path.read_text(encoding="utf-8")
    assert not [name for name in re.findall(r"\{source\}`([^`]+)`", text) if not (ROOT / name).exists()]
    for name in re.findall(r":file: (\S+)", text):
        assert (BOOK / name).is_file()


def test_a_colour_scheme_of_the_configuration_is_one_the_theme_knows():
    assert CONFIG["sphinx"]["config"]["html_context"]["default_mode"] == "auto"
    assert CONFIG["execute"]["execute_notebooks"] == "off"  # unquoted it would be a boolean


def test_the_five_chapters_are_described_and_their_papers_are_in_the_bibliography():
    chapters = yaml.safe_load((BOOK / "chapters.yml").read_text(encoding="utf-8"))["chapters"]
    entries = parse_file(BOOK / "references.bib").entries
    assert [chapter["number"] for chapter in chapters] == [1, 2, 3, 4, 5]
    for chapter in chapters:
        assert chapter["question"].endswith("?")
        entry = entries[chapter["key"]]
        assert entry.fields["keywords"] == "chapter"
        assert entry.fields["title"] == chapter["paper"]
        assert entry.fields["year"] == str(chapter["year"])
        surnames = [" ".join(person.last_names) for person in entry.persons["author"]]
        assert [name.split()[-1] for name in chapter["authors"].split(", ")] == surnames


def test_every_work_that_a_page_cites_is_in_the_bibliography():
    entries = parse_file(BOOK / "references.bib").entries
    cited = {
        key.strip()
        for path in PAGES
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert cited <= set(entries)


@pytest.mark.parametrize("path", sorted((BOOK / "_static").glob("*.svg")), ids=lambda path: path.stem)
def test_every_drawing_has_a_title(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(r'role="(?:img|group)".*<title id="[^"]+">[^<]{20,}</title>', text, re.DOTALL)


def test_binder_opens_chapters_as_notebooks():
    script = ROOT / "postBuild"
    assert script.stat().st_mode & 0o111
    assert "jupytext-config set-default-viewer" in script.read_text(encoding="utf-8")
