"""Configuration, contents and sources of the plain pages agree."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from pybtex.database import parse_file

from reproduced.pages.ledgers import read_chapters
from reproduced.run.book import open_book

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
PAGES = sorted(BOOK.glob("*.md"))


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
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"].values()
    assert cited == address
    assert all(url == address or url.startswith(f"{address}/") for url in urls)


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
    book = open_book(ROOT)
    chapters = [chapter for chapter in read_chapters(book).values() if chapter.question]
    entries = parse_file(BOOK / "references.bib").entries
    assert [chapter.number for chapter in chapters] == ["1", "2", "3", "4", "5"]
    for chapter in chapters:
        assert chapter.title == book.declarations(chapter.name).title
        assert "`" not in chapter.title, "it stands in the line that opens a fence"
        assert chapter.question.endswith("?")
        assert not re.search(r"[0-9][.,]?[0-9]", chapter.answer), "another run would measure another number"
        entry = entries[chapter.key]
        assert entry.fields["keywords"] == "chapter"
        assert entry.fields["title"] == chapter.paper
        assert entry.fields["year"] == chapter.year
        surnames = [" ".join(person.last_names) for person in entry.persons["author"]]
        assert [name.split()[-1] for name in chapter.authors.split(", ")] == surnames


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
