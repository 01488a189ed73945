"""A page in layers: what a reader sees first, what opens on a click, and that nothing of the run is lost on the way."""

import base64
import copy
import gzip
import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from reproduced import figure_files
from reproduced.figures import figure, png
from reproduced.pages import page_layout
from reproduced.pages.findings import FullScale
from reproduced.pages.page_layout import add_first_cell, chip
from small_book import claim, findings, judgement

PNG = base64.b64encode(b"a picture").decode()
FIELDS = {"claim": "That $|x| < 2$ and <b>bold</b>.", "paper": "1.05", "shows": "about {x}"}
JUDGED = judgement(verdict="held in part", reason="Only for small $x$.", fields=FIELDS)
FULL = FullScale("held", JUDGED.values)


def code(source: str, *tags: str, data: dict | None = None, claim: str = "", **metadata):
    outputs = [new_output("display_data", data)] if data else []
    outputs += [new_output("display_data", {"text/plain": ""}, metadata={"claim": {"id": claim}})] if claim else []
    return new_code_cell(source, metadata={"tags": [*tags], **metadata}, outputs=outputs)


def arranged(*cells, judged=JUDGED):
    """The cells of a page; without a judgement it has no findings."""
    notebook = new_notebook(cells=[copy.deepcopy(cell) for cell in cells])
    page_layout.arrange(notebook, findings(judged) if judged else None)
    return notebook.cells


def texts(cells) -> list[str]:
    return [cell.source for cell in cells if "remove-cell" not in cell.metadata.get("tags", ())]


ANSWER = ":::{admonition} The answer\nYes.\n:::"
TITLE = new_markdown_cell(f"(ch-t)=\n# Title\n\nThe question.\n\n{ANSWER}\n\n#### Set-up\n\nSizes.")


def test_a_page_opens_with_question_story_answer_and_tally_before_the_first_fold():
    story = code("draw()", "hide-input", "story", data={"image/png": PNG}, mystnb={"figure": {"name": "fig-s"}})
    cells = arranged(TITLE, code("import t", "hide-input"), new_markdown_cell("## End"), story)
    question, told, answer, tally, setup, imports = cells[:6]
    assert question.source == "(ch-t)=\n# Title\n\nThe question."
    assert answer.source == ANSWER
    assert "◐ 1 held in part" in tally.source
    assert "run in 1 min 15 s" in tally.source
    assert told.outputs[0].data["image/png"] == PNG
    assert told.metadata == {"tags": ["remove-input", "story"], "mystnb": {"figure": {"name": "fig-s"}}}
    assert setup.source.startswith(f"#### Set-up\n\n% {page_layout.FOLD_COMMENT}\n\n")
    assert imports.metadata.tags == []  # who opens the fold sees the code
    assert [cell.source for cell in cells[-2:]] == [
        f"#### The code of this section\n\n% {page_layout.FOLD_COMMENT}",
        "draw()",
    ]
    assert page_layout.story_picture(new_notebook(cells=cells)) == b"a picture"
    assert page_layout.story_picture(new_notebook(cells=cells[:1])) is None


def test_hidden_code_moves_to_the_end_of_its_section_and_its_output_stays():
    cells = arranged(
        new_markdown_cell("### One"),
        code("a = 1", "hide-input"),
        code("attack()"),
        code("draw(a)", "hide-input", data={"image/png": PNG}),
        new_markdown_cell("So what.\n\n#### A control\n\nMore."),
        code("b = 2", "hide-input"),
        code("draw(b)", "hide-input", data={"image/png": PNG}),
        new_markdown_cell("### Two"),
    )
    fold = f"\n\n% {page_layout.FOLD_COMMENT}"
    assert texts(cells) == [
        *["### One", "attack()", "draw(a)", "So what.", f"#### A control{fold}\n\nMore.", "b = 2", "draw(b)"],
        *[f"#### The code of this section{fold}", "a = 1", "draw(a)", "### Two"],
    ]
    shown, control, drawn = (cells[n] for n in (3, 6, 7))
    assert (shown.metadata.tags, len(shown.outputs)) == (["remove-input"], 1)
    assert control.metadata.tags == []
    assert drawn.metadata.tags == ["hide-input"]
    assert drawn.metadata.mystnb["code_prompt_show"] == "How it is drawn"


def test_what_is_judged_in_a_section_stands_in_a_strip_before_its_folds():
    judging = 'ledger.judge(\n    "t.one",\n    x=x,\n)'
    cells = arranged(new_markdown_cell("### One\n\nWords.\n\n#### How"), code(judging, claim="t.one"))
    heading, strip, fold = texts(cells)
    assert heading == "### One\n\nWords."
    assert strip == chip(JUDGED, judging)
    assert fold.startswith("#### How")
    assert not any(cell.get("outputs") for cell in cells)
    mixed = arranged(new_markdown_cell("### One"), code(f"x = 1\n{judging}", claim="t.one"))
    assert [cell.source for cell in mixed] == ["### One", f"x = 1\n{judging}", chip(JUDGED, judging)]


def test_a_section_shows_three_verdicts_and_folds_the_others():
    judging = (code('ledger.judge("t.one", x=x)', claim="t.one") for _ in range(5))
    _, strip = texts(arranged(new_markdown_cell("### One"), *judging))
    seen, folded = strip.split(":::::::{fold} 2 more verdicts")
    assert (seen.count("{claim} t.one"), folded.count("{claim} t.one")) == (3, 2)


def test_a_chip_says_what_its_claim_shows_and_marks_what_is_exact():
    plain, exact = chip(JUDGED), chip(replace(JUDGED, claim=claim(exact=True)))
    assert "*measured: about 1.00 [0.90, 1.10]; the paper 1.05*" in plain
    assert (":class: held-in-part\n" in plain, ":class: held-in-part exact\n" in exact) == (True, True)
    assert "**◐ held in part, exact**" in exact
    assert "ours" not in chip(replace(JUDGED, values={}))


def test_what_was_found_at_full_scale_stands_beside_it():
    other, agreed = (chip(replace(JUDGED, full_scale=replace(FULL, verdict=v))) for v in ("held", "held in part"))
    assert "*measured: about 1.00 [0.90, 1.10]; at full scale: ✓ held; the paper 1.05*" in other
    assert "**At full scale.** ✓ held: `x` " in other
    assert ("at full scale:" in agreed, "**At full scale.** ◐ held in part: `x` " in agreed) == (False, True)
    assert "full scale" not in chip(replace(JUDGED, full_scale=FullScale("held in part", {})))
    earlier = chip(replace(JUDGED, full_scale=replace(FULL, is_current=False)))
    assert "at full scale: ✓ held (by an earlier rule)" in earlier
    assert "**At full scale.** ✓ held (by an earlier rule): `x` " in earlier
    assert "at full scale: ✓ held" in chip(replace(JUDGED, verdict="not run", full_scale=FULL))


def test_the_frames_of_a_slider_become_files_and_a_text_that_names_one_stays():
    page = f'<img src="data:image/png;base64,{PNG}" alt="a"><p>src="data:text/plain,x"</p>'
    notebook = new_notebook(cells=[TITLE, code("frames()", data={"text/html": page})])
    ((name, content),) = page_layout.extract_pictures(notebook, "_static/frames").items()
    assert content == b"a picture"
    assert notebook.cells[1].outputs[0].data["text/html"] == (
        f'<img loading="lazy" src="_static/frames/{name}" alt="a"><p>src="data:text/plain,x"</p>'
    )


def test_the_files_of_a_figure_are_offered_below_it_and_not_in_the_download():
    picture, ax = figure()
    ax.plot([1, 2], [3, 4])
    png(picture)
    for_phones = base64.b64encode(gzip.compress(png(picture))).decode()
    files = figure_files.compressed_files(picture) | {"png": for_phones}
    kept = {figure_files.METADATA: files, "image/png": {"alt": "A line."}}
    cell = code("draw()", data={"image/png": PNG}, mystnb={"figure": {"name": "fig-a"}})
    cell.outputs[0].metadata = kept
    notebook = new_notebook(cells=[cell, code("draw()", data={"image/png": PNG})], metadata={"repro": {"commit": None}})
    download = add_first_cell(notebook, "")
    assert download.cells[0].outputs[0].metadata == {"image/png": {"alt": "A line."}}
    files = page_layout.offer_files(notebook, "_static/figures")
    small = f"{hashlib.sha256(base64.b64decode(PNG)).hexdigest()}.png"
    assert {name for name, content in files.items() if len(content) > 20} == {small, "fig-a.csv", "fig-a.svg"}
    drawn, links, other = notebook.cells  # what was executed before there were files has none
    assert drawn.outputs[0].metadata == {"image/png": {"alt": "A line."}}
    assert ('href="_static/figures/fig-a.csv"' in links.source, "SVG" in links.source) == (True, True)
    assert other.cell_type == "code"


HEADINGS = st.sampled_from(
    ["", "# a\n", "## b\n", "(l)=\n### c\n", "#### d\n", "```\n# no heading\n```\n", "$$\nx\n$$\n"]
)


@given(st.lists(st.one_of(HEADINGS, st.sampled_from(["!hide", "!plain", "!remove", "!claim"])), max_size=12))
def test_no_output_and_no_word_is_lost_and_code_keeps_its_order(parts):
    cells = []
    for number, part in enumerate(parts):
        tags = {"!hide": ["hide-input"], "!remove": ["remove-cell"]}.get(part, [])
        if part.startswith("!"):
            claim = "t.one" if part == "!claim" else ""
            cells.append(code(f"x = {number}", *tags, data={"text/plain": f"{number}"}, claim=claim))
        else:
            cells.append(new_markdown_cell(f"{part}\nword{number}"))
    after = arranged(*cells)
    seen = "\n".join(cell.source for cell in after)
    assert all(f"word{number}" in seen for number, part in enumerate(parts) if not part.startswith("!"))
    outputs = [output.data["text/plain"] for cell in after for output in cell.get("outputs", ())]
    assert outputs == [f"{number}" for number, part in enumerate(parts) if part.startswith("!")]
    assert seen.count("{claim} t.one") == parts.count("!claim")
    assert all(f"x = {number}" in seen for number, part in enumerate(parts) if part.startswith("!"))


def test_a_downloaded_notebook_fetches_the_book_only_where_there_is_none(tmp_path, monkeypatch):
    executed = new_notebook(cells=[TITLE], metadata={"repro": {"commit": "f00d"}})
    first, title = add_first_cell(executed, "https://example.org/book").cells
    assert title.source == TITLE.source
    assert len(executed.cells) == 1
    assert add_first_cell(executed, "").cells == executed.cells
    unknown = new_notebook(cells=[TITLE], metadata={"repro": {"commit": None}})
    assert add_first_cell(unknown, "https://example.org/book").cells == unknown.cells
    called, status = [], 1

    def run(command):
        Path("book-sources").mkdir(exist_ok=True)
        called.append(f"{command[-1]}")
        return SimpleNamespace(returncode=status)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("sys.path", [*sys.path])
    exec(first.source, {})
    assert called == []
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="could not be fetched or installed"):
        exec(first.source, {})
    assert not Path("book-sources").exists()
    status = 0
    called.clear()
    for _ in range(2):  # the second time its kernel began again
        monkeypatch.chdir(tmp_path)
        exec(first.source, {})
        assert called == ["book-sources", "f00d", "./book-sources[book]"]
        assert Path.cwd() == tmp_path / "book-sources"
        assert f"{Path.cwd() / 'lib'}" in sys.path
