"""How much of a page a reader meets before opening anything: words, height, weight."""

import re
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.site

MOST_WORDS = 5000
MOST_SCREENS, SCREEN = 20, 800  # of 1280 by 800 pixels
MOST_BYTES = 1_500_000  # of a page, and of all that a browser reads before it draws anything of it
MOST_BLOCKING = 32  # files of these: a third of a second in Chromium, from disk
MOST_SHEETS = 25  # of a chapter on paper, its folds closed
PAGE = "(document.querySelector('article') ?? document.querySelector('main'))"  # the search page has no article
WORDS = f"{PAGE}.innerText.split(/\\s+/).filter(Boolean).length"
BLOCKING = """[...document.querySelectorAll(
    "script[src]:not([async], [defer], [type=module]), link[rel=stylesheet]")].map(one => one.src || one.href)"""
HEIGHT = f"{PAGE}.getBoundingClientRect().height"


def test_a_page_is_light(site, name):
    assert (site / f"{name}.html").stat().st_size <= MOST_BYTES


def test_little_stands_before_the_first_view_of_a_page(visit, site):
    before = [urlsplit(address).path.lstrip("/") for address in visit.page.evaluate(BLOCKING)]
    assert not [name for name in before if "mathjax" in name or "fontawesome" in name]
    assert len(before) <= MOST_BLOCKING
    assert sum((site / name).stat().st_size for name in before) <= MOST_BYTES


def test_a_page_can_be_finished(visit):
    assert visit.page.evaluate(WORDS) <= MOST_WORDS
    assert visit.page.evaluate(HEIGHT) <= MOST_SCREENS * SCREEN


def test_a_chapter_prints_on_few_sheets_with_its_folds_closed(visit):
    if visit.page.locator("details.claim").count():
        sheets = re.findall(rb"/Type\s*/Page\b", visit.page.pdf(format="A4"))
        assert 0 < len(sheets) <= MOST_SHEETS


def test_a_link_to_a_verdict_opens_it_and_what_it_stands_in(opened, address, site):
    name = next(path.stem for path in sorted(site.glob("*.html")) if 'class="claim ' in path.read_text("utf-8"))
    page = opened(name).page
    chip = page.locator("details.claim").first.get_attribute("id")
    page.goto(f"{address}/{name}.html#{chip}")
    page.wait_for_function("id => document.getElementById(id).open", arg=chip)


WIDE = """() => [...document.querySelectorAll("article span.math")].filter(formula => {
    const block = formula.closest("p, li, td, th, dd, dt, summary, figcaption, div").getBoundingClientRect();
    return formula.querySelector("mjx-container")?.getBoundingClientRect().right > block.right + 2;
})"""


def test_a_formula_that_is_wider_than_its_line_scrolls_and_is_reached_by_the_keyboard(opened, site):
    name = next(path.stem for path in sorted(site.glob("*.html")) if 'class="claim ' in path.read_text("utf-8"))
    page = opened(name, width=390).page
    page.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
    page.wait_for_function(f"({WIDE})().length && ({WIDE})().every(formula => formula.tabIndex === 0)")
    beyond = f"({WIDE})().filter(formula => formula.getBoundingClientRect().right > innerWidth)"
    assert page.evaluate(f"{beyond}.length") == 0
    assert page.evaluate("[...document.querySelectorAll('article span.math:not(.scrolls)')].some(e => e.tabIndex < 0)")


def test_the_first_link_to_a_term_says_what_it_means_to_who_comes_by_keyboard(opened):
    page = opened("intro", width=390).page
    link = page.locator("article a[data-definition]").first
    told = "link => getComputedStyle(link, '::after').content"
    assert link.evaluate(told) == "none"
    page.locator("article a").first.focus()
    for _ in range(200):
        if page.evaluate("document.activeElement.matches('a[data-definition]')"):
            break
        page.keyboard.press("Tab")
    assert page.locator("a[data-definition]:focus").evaluate(told).strip('"') == link.get_attribute("data-definition")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


SENTENCES_OF_AN_ANSWER = """[...document.querySelectorAll("div.admonition")]
    .filter(box => box.querySelector(".admonition-title")?.innerText.trim() === "The answer")
    .flatMap(box => [...box.querySelectorAll("p")])
    .filter(sentence => !sentence.closest("table")).map(sentence => sentence.innerText)"""


def test_no_sentence_of_an_answer_holds_an_interval(visit):
    intervals = re.compile(r"\[[-−]?[\d.,]+, [-−]?[\d.,]+\]")
    assert not [text for text in visit.page.evaluate(SENTENCES_OF_AN_ANSWER) if intervals.search(text)]
