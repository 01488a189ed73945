"""What a reader meets in a browser: each page is quiet, complete, legible and usable without a network."""

import re

import pytest
from barriers import serious_barriers

pytestmark = pytest.mark.site

PHONE = 390  # pixels across a common phone
# A macro that MathJax does not know is no `mjx-merror`: it stands in the formula in red.
BROKEN_MATHS = """() => [...document.querySelectorAll(".math")]
    .filter(formula => !formula.querySelector("mjx-container")
        || formula.querySelector("mjx-merror, [data-mjx-error], [style*='color: red'], [mathcolor='red']"))
    .map(formula => formula.textContent)"""
WITHOUT_ALT = """() => [...document.querySelectorAll("img")]
    .filter(image => !image.alt.trim()).map(image => image.src.slice(0, 120))"""
TEXT = """() => {
    const article = document.querySelector("article, main").cloneNode(true);
    article.querySelectorAll("pre, code, script, style").forEach(element => element.remove());
    return article.textContent;
}"""


def test_a_page_raises_no_error(visit):
    assert not visit.errors


def test_a_page_asks_no_other_host(visit):
    assert not visit.foreign


def test_a_page_gets_every_file_it_asks_for(visit):
    assert not visit.refused


def test_every_formula_is_rendered(visit):
    assert not visit.page.evaluate(BROKEN_MATHS)


def test_every_image_has_a_text(visit):
    assert not visit.page.evaluate(WITHOUT_ALT)


def test_no_markup_is_left_in_the_text(visit):
    left = re.findall(r"\{[a-z:]+\}`[^`]*`|```|\$\$|\{\{|\]\(", visit.page.evaluate(TEXT))
    assert not left


def test_a_page_has_one_title_and_says_where_it_comes_from(visit):
    assert visit.page.locator("main h1:visible").count() == 1
    assert re.search(r"executed", visit.page.locator(".extra_footer").inner_text(), re.IGNORECASE)


TAB_STOPS = "[...document.querySelectorAll('pre')].every(e => e.tabIndex >= 0 || e.scrollWidth <= e.clientWidth)"


def reached(page):
    """The page with a place in the tab order for what scrolls: the theme gives it a moment after the last change."""
    page.evaluate("window.dispatchEvent(new Event('resize'))")
    page.wait_for_function(TAB_STOPS)
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_a_page_shows_has_no_serious_barrier(visit, theme):
    serious = serious_barriers(reached(visit.in_theme(theme)))
    assert not serious, "\n".join(serious)


def test_what_a_page_hides_has_no_serious_barrier(visit):
    serious = serious_barriers(reached(visit.page), hidden=True)
    assert not serious, "\n".join(serious)


def test_a_page_fits_a_phone(visit):
    with visit.across(PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


WHOLE = """() => [...document.querySelectorAll(":is(.bd-sidebar-primary, .bd-sidebar-secondary) a")]
    .every(link => [link, ...link.children].every(part => part.getBoundingClientRect().right
        <= link.closest(".bd-sidebar-primary, .bd-sidebar-secondary").getBoundingClientRect().right + 1))"""


def test_no_entry_of_a_side_bar_is_cut(visit):
    visit.page.wait_for_function(WHOLE)  # another test may have left the bar sliding back from a phone's width


def test_the_first_address_leads_to_the_landing_page(opened, address):
    page = opened("intro").page
    page.goto(f"{address}/")
    page.wait_for_url("**/intro.html")
    assert page.locator("main h1:visible").inner_text().startswith("Privacy Leakage, Reproduced")


def test_the_theme_button_turns_the_page_dark_and_the_next_page_stays_dark(opened):
    page = opened("intro").page
    theme, ground = "document.documentElement.dataset.theme", "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(theme) == "light"
    light = page.evaluate(ground)
    for _ in range(3):  # the button goes round: system, light, dark
        if page.evaluate(theme) != "dark":
            page.locator(".theme-switch-button:visible").first.click()
    assert page.evaluate(theme) == "dark"
    assert page.evaluate(ground) != light
    page.goto(page.url.replace("intro", "scoreboard"))
    assert page.evaluate(theme) == "dark"


def test_search_finds_a_word_and_leads_to_its_page(opened):
    page = opened("search").page
    page.goto(f"{page.url}?q=membership+advantage")
    results = page.locator("#search-results ul.search > li a")
    results.first.wait_for()
    assert results.count() >= 2
    results.first.click()
    page.wait_for_load_state()
    assert "advantage" in page.locator("article").inner_text().lower()


FOLDS = """slider => {
    const folds = [];
    for (let fold = slider.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    return folds.filter(fold => !fold.open);
}"""


def test_every_slider_changes_its_picture_from_the_keyboard(visit):
    for slider in visit.page.locator("figure.frames").all():
        folds = slider.evaluate_handle(FOLDS)
        folds.evaluate("folds => folds.forEach(fold => (fold.open = true))")
        seen, label, control = slider.locator("img:visible"), slider.locator("output"), slider.locator("[type=range]")
        opening = int(control.input_value())
        assert seen.count() == 1, "one frame is shown at a time"
        control.press("Home")  # it opens on the frame that tells most
        first = seen.get_attribute("src"), label.inner_text()
        control.press("End")
        assert seen.count() == 1, "one frame is shown at a time"
        last = seen.get_attribute("src"), label.inner_text()
        assert first[0] != last[0], "the picture did not change"
        assert first[1] != last[1], "the label did not change"
        for _ in range(int(control.input_value()) - opening):
            control.press("ArrowLeft")
        folds.evaluate("folds => folds.forEach(fold => (fold.open = false))")


def test_a_page_of_the_book_has_a_slider(site):
    assert any('type="range"' in path.read_text(encoding="utf-8") for path in site.glob("*.html"))
