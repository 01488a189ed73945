"""Where the pages lead: every link, fragment and download exists, each claim has row, chip and a rule that decides."""

import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

from reproduced.pages.findings import slug
from reproduced.pages.library_pages import page_file
from reproduced.pages.sphinx_extension import BRANCH
from reproduced.repository import public_address

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]
REPOSITORY = public_address(ROOT)  # "" where neither CI nor a remote names it
CHAPTERS = {path.stem for path in (ROOT / "book" / "claims").glob("*.yml")}
NOTEBOOKS = {path.stem for path in (ROOT / "book").glob("*.md") if path.read_text("utf-8").startswith("---\njupytext:")}
ASKED_OF_OTHERS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(str(tag["id"]) for tag in parsed(path).find_all(id=True))


def targets(site: Path, name: str) -> list[str]:
    return [str(link["href"]) for link in parsed(site / f"{name}.html").find_all("a", href=True)]


def in_repository(url: str) -> str | None:
    """The path inside the repository that `url` shows, edits or launches; None if it is no such link."""
    if urlsplit(url).netloc == "mybinder.org":
        return parse_qs(urlsplit(url).query)["urlpath"][0].removeprefix("lab/tree/")
    match = re.match(re.escape(REPOSITORY) + r"/(?:blob|edit|tree|raw)/([^/]+)/([^?#]+)", url)
    if match is None or not REPOSITORY:
        return None
    assert match[1] == "main", f"{url} is on another branch"
    return unquote(match[2])


def test_figures_are_numbered_as_they_are_seen_and_then_those_in_folds(site, name):
    captions = parsed(site / f"{name}.html").select("figcaption .caption-number")
    found = [(bool(one.find_parent("details")), re.findall(r"\d+", one.get_text())) for one in captions]
    assert [int(numbers[-1]) for _, numbers in sorted(found, key=lambda one: one[0])] == [*range(1, len(found) + 1)]


def test_every_local_link_and_fragment_exists(site, name):
    broken = []
    for target in targets(site, name):
        if urlsplit(target).scheme or target.startswith("//"):
            continue
        path, fragment = urldefrag(target)
        here = site / f"{name}.html"
        file = (here.parent / unquote(path.partition("?")[0])).resolve() if path else here
        if not file.is_file() or (fragment and file.suffix == ".html" and unquote(fragment) not in anchors(file)):
            broken.append(target)
    assert not broken


def test_a_page_loads_nothing_from_another_host(site, name):
    page = parsed(site / f"{name}.html")
    loaded = [tag.get(attribute, "") for kind, attribute in ASKED_OF_OTHERS.items() for tag in page.find_all(kind)]
    loaded += [link["href"] for link in page.find_all("link", href=True) if link.get("rel") != ["canonical"]]
    assert not [url for url in loaded if urlsplit(str(url)).scheme in ("http", "https") or str(url).startswith("//")]


def test_every_link_into_the_repository_has_a_file(site, name):
    linked = {path for target in targets(site, name) if (path := in_repository(target)) is not None}
    assert not [path for path in linked if not (ROOT / path).is_file()]


def test_a_page_of_the_book_can_be_edited_and_reported(site, name):
    if name == "search":
        return  # made by Sphinx: there is nothing to edit
    linked = targets(site, name)
    made = name.startswith("library/")  # from a package, whose own file says what the page says first
    source = page_file(name.partition("/")[2]) if made else f"book/{name}.md"
    edits = [target for target in linked if "/edit/" in target or "/issues/new" in target]
    if not REPOSITORY:
        assert not edits
        return
    assert f"{REPOSITORY}/edit/main/{source}" in edits
    assert any(target.startswith(f"{REPOSITORY}/issues/new") for target in edits)


def test_a_notebook_is_launched_from_its_source_and_downloaded_as_executed(site, name):
    launched = [path for target in targets(site, name) if "mybinder" in target and (path := in_repository(target))]
    opened = [target for target in targets(site, name) if "colab" in target]
    if name not in NOTEBOOKS or not REPOSITORY:
        assert not launched + opened
    else:
        assert launched == [f"book/{name}.md"]
        colab = f"https://colab.research.google.com/github/{urlsplit(REPOSITORY).path.strip('/')}/blob/{BRANCH}"
        assert opened == [f"{colab}/{name}.ipynb"]
    if name not in NOTEBOOKS:
        return
    downloads = [target for target in targets(site, name) if target.endswith(".ipynb") and not urlsplit(target).scheme]
    assert downloads == [f"_sources/{name}.ipynb"]
    cells = json.loads((site / downloads[0]).read_text(encoding="utf-8"))["cells"]
    assert any(cell.get("outputs") for cell in cells)


def test_every_chapter_is_a_page_and_the_landing_page_leads_to_it(site):
    landing = targets(site, "intro")
    for name in CHAPTERS:
        assert (site / f"{name}.html").is_file()
        assert f"{name}.html" in landing


def test_the_landing_page_has_a_row_for_each_planned_chapter_with_question_and_answer(site):
    rows = parsed(site / "intro.html").find_all(class_="chapter-row")
    listed = yaml.safe_load((ROOT / "book" / "chapters.yml").read_text(encoding="utf-8"))["chapters"]
    for chapter, row in zip(listed, rows, strict=True):
        told = " ".join(row.get_text().split()).replace("’", "'")
        assert f"{chapter['number']} · {chapter['title']}" in told
        assert all(chapter[field].replace("’", "'") in told for field in ("question", "answer"))


def test_every_claim_has_a_row_that_leads_to_its_chip_and_a_chip_that_leads_to_its_row(site):
    rows = {str(row["id"]): row for row in parsed(site / "scoreboard.html").select("#claims tbody tr")}
    chips = {}
    for name in CHAPTERS:
        for chip in parsed(site / f"{name}.html").select("details.claim"):
            chips[str(chip["id"]).replace("claim-", "row-", 1)] = f"{name}.html#{chip['id']}"
            ways = chip.select_one(".claim-links").find_all("a")
            (way,) = [link["href"] for link in ways if str(link["href"]).startswith("scoreboard.html")]
            assert way.partition("#")[2] in rows
    assert chips, "no chapter has a chip"
    for row, chip in chips.items():
        assert {link["href"] for link in rows[row].find_all("a")} >= {chip}
    unled = {row for row in rows.keys() - chips.keys() if rows[row]["data-verdict"] not in ("not-run", "not-judged")}
    assert not unled


def test_an_id_of_a_claim_in_code_leads_to_the_claim(site, name):
    rows = {str(row["id"]) for row in parsed(site / "scoreboard.html").select("#claims tbody tr")}
    for code in parsed(site / f"{name}.html").select("article code"):
        row = f"row-{slug(code.get_text())}"
        if row not in rows or code.find_parent(["pre", "summary", "h1", "h2", "h3"]):
            continue
        link = code.find_parent("a")
        assert link is not None, code
        assert str(link["href"]).partition("#")[2] in (row, row.replace("row-", "claim-", 1))


def test_the_claims_can_be_downloaded(site):
    (download,) = {target for target in targets(site, "scoreboard") if target.endswith("claims.json")}
    json.loads((site / download).read_text(encoding="utf-8"))
    (rows,) = {target for target in targets(site, "scoreboard") if target.endswith("claims.csv")}
    assert (site / rows).read_text(encoding="utf-8").startswith("id,chapter,kind,verdict,")


# Rules with a number that decides nothing, and why they may have one.
EXPLAINED: dict[str, str] = {}


def test_every_number_of_a_rule_that_decided_could_have_decided_otherwise(site):
    (path,) = site.rglob("claims.json")
    chapters = json.loads(path.read_text("utf-8"))["chapters"]
    idle = {claim["id"]: claim["idle"] for chapter in chapters for claim in chapter["claims"]}
    assert {name for name, numbers in idle.items() if numbers} == EXPLAINED.keys()
