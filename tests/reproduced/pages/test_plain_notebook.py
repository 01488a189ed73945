"""A notebook for download reads as prose: no markup of the site is left, and its parameters can be edited."""

import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from reproduced.pages.plain_notebook import SiteNames, to_plain_markdown

NAMES = SiteNames(
    equations={"eq-law": "3"},
    figures={"fig-one": "Figure 4.2"},
    titles={"kkt_margin": "On the margin", "ch-one": "One"},
    citations={"tan": ("Tan et al.", "2022"), "ye": ("Ye", "2021")},
    address="https://example.org/book",
)
GLUED = new_output(
    "display_data",
    data={"application/papermill.record/text/plain": "'0.25'"},
    metadata={"scrapbook": {"name": "share", "mime_prefix": "application/papermill.record/"}},
)


def made(*cells, **options):
    notebook = new_notebook(cells=[*cells, new_code_cell("glue(…)", outputs=[GLUED])])
    return to_plain_markdown(notebook, NAMES, options.get("folder", Path()), options.get("note", ""))


@pytest.mark.parametrize(
    ("myst", "expected"),
    [
        ("It is {glue:text}`share`, or {glue:text}`absent`.", "It is 0.25, or (not run)."),
        ("A {term}`coin` and an {term}`advantage <membership advantage>`", "A coin and an advantage"),
        ("See {eq}`eq-law` in {numref}`fig-one`.", "See (3) in Figure 4.2."),
        ("{cite:t}`tan` say; others {cite:p}`tan,ye`", "Tan et al. (2022) say; others (Tan et al., 2022; Ye, 2021)"),
        ("{doc}`kkt_margin` and {ref}`there <ch-one>` and {ref}`ch-one`", "On the margin and there and One"),
        ("{prf:ref}`the law <thm>`", "the law"),
        ("{source}`lib/a.py`", "[`lib/a.py`](https://example.org/book/blob/main/lib/a.py)"),
        ("(ch-one)=\n# One\n\ntext", "# One\n\ntext"),
        ("$$\nx = 1\n$$ (eq-law)", "$$\nx = 1 \\tag{3}\n$$"),
        (
            ":::{admonition} The answer\n:class: tip\n\n**Yes.** {glue:text}`share`\n:::",
            "**The answer**\n\n**Yes.** 0.25",
        ),
        (":::{prf:theorem} Limit\n:label: thm\n:nonumber:\n\nAll $x$.\n:::", "**Theorem** (Limit).\nAll $x$."),
        ("::::{prf:proof}\nOne.\n:::{note}\nTwo.\n:::\n::::", "*Proof.*\nOne.\n\n**Note**\n\nTwo."),
        ("`{term}` in code stays, as does $\\{a\\}$", "`{term}` in code stays, as does $\\{a\\}$"),
    ],
)
def test_markup_becomes_the_words_of_the_site(myst, expected):
    assert made(new_markdown_cell(myst)).cells[0].source == expected


def test_a_listing_shows_the_lines_that_the_site_shows(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text("def f():\n    one = 1\n    return one\n", "utf-8")
    myst = "```{literalinclude} /lib/a.py\n:pyobject: f\n:lines: 2-3\n:dedent: 4\n```"
    shown = made(new_markdown_cell(myst), folder=tmp_path).cells[0].source
    assert shown == "```python\none = 1\nreturn one\n```"


def test_captions_stand_under_figures_and_hidden_cells_are_folded():
    figure = {"mystnb": {"figure": {"caption": "It falls, {eq}`eq-law`.", "name": "fig-one"}}, "tags": ["hide-input"]}
    first, caption, last = made(new_code_cell("draw()", metadata=figure)).cells
    assert first.metadata["jupyter"] == {"source_hidden": True}
    assert caption.source == "**Figure 4.2.** It falls, (3)."
    assert not last.outputs
    assert "jupyter" not in last.metadata


def test_injected_parameters_stand_in_the_cell_that_is_edited():
    parameters = new_code_cell(
        '# "ci": minutes\nprofile = "ci"  # or "paper"\nseed = 0', metadata={"tags": ["parameters"]}
    )
    injected = new_code_cell('# Parameters\nprofile = "smoke"\nseed = 7\n', metadata={"tags": ["injected-parameters"]})
    first, _ = made(parameters, injected).cells
    assert first.source == '# "ci": minutes\nprofile = "smoke"  # or "paper"\nseed = 7'


def test_the_note_comes_first_and_the_notebook_that_was_given_is_unchanged():
    notebook = new_notebook(cells=[new_markdown_cell("{term}`coin`")])
    noted = to_plain_markdown(notebook, NAMES, Path(), "from a build")
    assert [cell.source for cell in noted.cells] == ["from a build", "coin"]
    assert re.fullmatch(r"\{term\}`coin`", notebook.cells[0].source)
