"""The pages of the library hold every public name, and chapters and modules lead to each other."""

from functools import cache
from pathlib import Path

import pytest
from test_links import anchors, targets

from reproduced.pages.library_pages import PAGE
from reproduced.pages.render import read_library
from reproduced.run.book import Book

pytestmark = pytest.mark.site

LIBRARY = read_library(Book(Path(__file__).parents[2], Path()))


@cache
def links(site: Path, name: str) -> frozenset[str]:
    return frozenset(targets(site, name))


def test_every_public_name_can_be_linked_to(site):
    absent = [
        name
        for module, path in LIBRARY.modules.items()
        if path.name != "__init__.py"
        for name in LIBRARY.names
        if name.startswith(f"{module}.") and name not in anchors(site / PAGE / f"{LIBRARY.page(module)}.html")
    ]
    assert not absent


@pytest.mark.parametrize("chapter", LIBRARY.chapters)
def test_a_chapter_leads_to_the_modules_it_imports_and_they_lead_back(site, chapter):
    own = LIBRARY.chapters[chapter] & LIBRARY.modules.keys()
    assert own
    for module in own:
        page = LIBRARY.page(module)
        assert f"{PAGE}/{page}.html#module-{module}" in links(site, chapter)
        assert f"../{chapter}.html" in links(site, f"{PAGE}/{page}")


def test_an_entry_is_a_line_until_it_is_opened_and_a_link_to_it_opens_it(opened, address):
    page = opened(f"{PAGE}/metrics").page
    assert page.locator("details.name[open]").count() == 0
    page.goto(f"{address}/{PAGE}/metrics.html#leakage.metrics.roc.auc")
    entry = page.locator("details.name", has=page.locator("[id='leakage.metrics.roc.auc']"))
    page.wait_for_function("() => document.querySelector('details.name[open]')")
    assert entry.evaluate("fold => fold.open")
    assert entry.locator("summary").first.inner_text().strip().startswith("auc ")
    assert page.locator("details.name[open]").count() == 1
    assert page.locator("details.name summary a").count() == 0


def test_the_source_of_a_call_opens_below_it_and_scrolls_in_its_box(opened, site):
    name = next(
        name for name in LIBRARY.chapters if "What these calls run" in (site / f"{name}.html").read_text("utf-8")
    )
    page = opened(name, width=390).page
    fold = page.locator("details.fold:has(> summary:text-is('What these calls run'))").first
    assert not fold.evaluate("fold => fold.open")
    page.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
    assert "def " in fold.locator("pre").first.inner_text() or "class " in fold.locator("pre").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
