"""Tables in a browser: the scoreboard filters, keeps its filter in the address, and is whole without scripts."""

import pytest

pytestmark = pytest.mark.site

ROWS = "#claims tbody tr"
FORMULAS = "() => [...document.querySelectorAll('#claims .math')].every(one => one.querySelector('mjx-container'))"


@pytest.fixture
def board(opened):
    page = opened("scoreboard").page
    page.wait_for_selector(".table-filters")
    return page


def everything(board) -> int:
    """Ask for all rows; how many there are."""
    board.get_by_role("button", name="show all").click()
    return board.locator(ROWS).count()


def test_the_scoreboard_opens_on_what_did_not_simply_hold_and_says_so(board):
    opening = {"did-not-hold", "held-in-part", "undecided"}
    assert set(board.locator(ROWS).evaluate_all("rows => rows.map(row => row.dataset.verdict)")) == opening
    shown, told = board.locator(ROWS).count(), board.locator(".dt-info")
    assert told.inner_text().endswith(f"claims; shown: the {shown} that did not simply hold.")
    assert "#" not in board.url
    whole = everything(board)
    assert told.inner_text() == f"{whole} claims; all are shown."
    board.reload()
    board.wait_for_selector(".table-filters")
    assert board.locator(ROWS).count() == whole > shown


def test_the_scoreboard_fits_a_window_of_1280_pixels(board):
    everything(board)
    widths = "box => [box.scrollWidth, box.clientWidth]"
    table, room = board.locator(".claims-box").evaluate(widths)
    assert table <= room


def test_a_search_looks_at_all_claims_and_show_all_ends_it(board):
    board.locator(".dt-search input").fill("threshold")
    board.wait_for_function("location.hash.includes('search=threshold')")
    assert "held" in board.locator(ROWS).evaluate_all("rows => rows.map(row => row.dataset.verdict)")
    found = board.locator(ROWS).count()
    assert everything(board) > found
    assert board.locator(".dt-search input").input_value() == ""
    assert board.get_by_role("button", name="show all").is_disabled()


def test_a_button_filters_and_the_address_keeps_the_filter(board):
    whole = everything(board)
    board.get_by_role("button", name="held in part").click()
    held = board.locator(ROWS).count()
    assert 0 < held < whole
    assert set(board.locator(ROWS).evaluate_all("rows => rows.map(row => row.dataset.verdict)")) == {"held-in-part"}
    assert "verdict=held-in-part" in board.url
    board.reload()
    board.wait_for_selector(".table-filters")
    assert board.locator(ROWS).count() == held
    assert board.get_by_role("button", name="held in part").get_attribute("aria-pressed") == "true"
    board.get_by_role("button", name="show all").click()
    assert board.locator(ROWS).count() == whole


def test_filters_of_two_kinds_are_both_applied_and_formulas_survive(board):
    board.goto(f"{board.url.partition('#')[0]}#chapter=min_norm&kind=theorem")
    board.wait_for_function("document.querySelectorAll('#claims tbody tr').length < 60")
    told = board.locator(ROWS).evaluate_all("rows => rows.map(row => [row.dataset.chapter, row.dataset.kind])")
    assert {tuple(one) for one in told} == {("min_norm", "theorem")}
    board.wait_for_function(FORMULAS)


def test_a_link_to_a_row_shows_it_whatever_is_filtered(opened):
    page = opened("scoreboard").page
    everything(page)
    row = page.locator(ROWS).last.get_attribute("id")
    page.goto(f"{page.url.partition('#')[0]}#verdict=did-not-hold")
    page.goto(f"{page.url.partition('#')[0]}#{row}")
    page.wait_for_function(f"document.querySelector('#{row} details').open")
    assert page.locator(f"#{row}").is_visible()


def test_from_disk_and_without_scripts_the_table_is_whole(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "scoreboard.html").as_uri())
    assert page.locator(ROWS).count() > 200
    assert page.locator(ROWS).last.is_visible()
    context.close()


def test_the_verdicts_of_a_chapter_open_on_what_was_not_simply_held(opened):
    page = opened("min_norm").page
    rows = page.locator("table:has(th p:text-is('why')) tbody tr")
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    shown = page.locator("table:has(th p:text-is('why')) tbody tr:visible")
    assert 0 < shown.count() < rows.count()
    assert not [text for text in shown.locator("td").all_text_contents() if text.strip().startswith("✓")]
    page.locator(".table-filters button", has_text="all ").first.click()
    assert shown.count() == rows.count()


def test_on_a_phone_rows_are_cards_that_say_what_each_value_is(opened):
    page = opened("scoreboard", width=390).page
    page.wait_for_selector(".filters")
    assert not page.locator(".table-filters").is_visible(), "the rows stand first"
    cell = page.locator(f"{ROWS} td.measured").first
    assert cell.evaluate("cell => getComputedStyle(cell).display") == "block"
    assert cell.get_attribute("data-label") == "measured"


def test_pages_without_such_a_table_do_not_load_its_script(site):
    assert "dataTables" not in (site / "glossary.html").read_text(encoding="utf-8")
    assert "dataTables" in (site / "scoreboard.html").read_text(encoding="utf-8")
