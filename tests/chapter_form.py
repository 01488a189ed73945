"""How a chapter is laid out: each rule is a function from a chapter to the sentences that say how it breaks the rule.

The rules read the source; they run no cell. What they find names the section and the beginning of the cell or text, and
says what to do. tests/test_chapters.py applies them to the book, and each to a small chapter that breaks it.
"""

import ast
import re
import sys

import yaml

from chapter_language import pointers
from chapter_reading import EXPERIMENTS, IDEA, SECTIONS, TITLE, VERDICTS, YOUR_TURN, Block, Chapter, headings, words

PARAMETERS = {"profile": "ci", "seed": 0, "device": "auto"}
MOST_LINES = 25
MOST_CHARACTERS = 88  # of a line of code that a page shows at once
ANSWER = ":::{admonition} The answer"
FOLD = 4  # the level of heading that opens a fold
HEADER = """\
jupytext:
  formats: md:myst
  text_representation:
    extension: .md
    format_name: myst
  notebook_metadata_filter: -jupytext.text_representation.jupytext_version,-jupytext.text_representation.format_version
kernelspec:
  display_name: Python 3
  language: python
  name: python3
"""
MAY_IMPORT = frozenset({"leakage", "myst_nb", "numpy", "sklearn", "torch"}) | sys.stdlib_module_names


def header_is_the_projects(chapter: Chapter) -> list[str]:
    wanted, found = yaml.safe_load(HEADER), yaml.safe_load(chapter.text.split("\n---\n")[0].removeprefix("---\n"))
    return [] if found == wanted else [f"the header must say exactly what every chapter's says, not {found}"]


def sections_are_the_six(chapter: Chapter) -> list[str]:
    titles = [title for block in chapter.markdown for title in headings(block.source, 1)]
    found = [title for block in chapter.markdown for title in headings(block.source, 2)]
    faults = [] if len(titles) == 1 else [f"one title, with one #; found {titles}"]
    return faults if found == [*SECTIONS] else [*faults, f"the sections must be {[*SECTIONS]}; found {found}"]


def parameters_stand_in_the_second_cell(chapter: Chapter) -> list[str]:
    places = [number for number, block in enumerate(chapter.code) if "parameters" in block.tags]
    if places != [1]:
        return [f"the second code cell, and no other, is tagged `parameters`; tagged are {[n + 1 for n in places]}"]
    wanted = [f"{name} = {value!r}" for name, value in PARAMETERS.items()]
    found = [ast.unparse(node) for node in chapter.code[1].tree.body]
    return [] if found == wanted else [f"the parameters are {wanted}; found {found}"]


def first_cell_imports(chapter: Chapter) -> list[str]:
    faults = []
    for block, module, _ in chapter.imports:
        if block is not chapter.code[0] and block.section != YOUR_TURN:
            faults.append(f"{block}: import {module} in the first code cell")
        if module.split(".")[0] not in MAY_IMPORT:
            faults.append(
                f"{block}: a chapter imports leakage, torch, numpy, sklearn, the standard library, not {module}"
            )
    if not chapter.code or not all(isinstance(n, ast.Import | ast.ImportFrom) for n in chapter.code[0].tree.body):
        faults.append("the first code cell holds the imports and nothing else")
    return faults


def prose_stands_between_code_cells(chapter: Chapter) -> list[str]:
    faults, before = [], None
    for block in chapter.blocks:
        if block.kind == "markdown":
            before = before if not _sentences(block) else None
        elif block.plain:
            faults += [f"{block}: no sentence stands between this cell and the one before it"] if before else []
            before = block
    return faults


def the_answer_stands_first(chapter: Chapter) -> list[str]:
    """The answer, then a fold with the set-up; the picture that tells the story comes from where all is measured."""
    faults, first = [], chapter.blocks[0].source if chapter.blocks else ""
    if ANSWER not in first:
        faults.append(f"the title block gives the answer, in `{ANSWER}`, before any code")
    if not any(headings(block.source, FOLD) for block in chapter.markdown if block.section == TITLE):
        faults.append("the code cells of the title block stand in a fold, `#### Set-up`")
    stories = [block.section for block in chapter.code if "story" in block.tags]
    if stories != [VERDICTS]:
        faults.append(f"one cell is tagged `story`, in {VERDICTS!r}; found in {stories}")
    return faults


def experiments_have_names_of_their_own(chapter: Chapter) -> list[str]:
    found = [title for block in chapter.markdown if block.section == EXPERIMENTS for title in headings(block.source, 3)]
    faults = [f"{title!r} heads {found.count(title)} experiments" for title in {*found} if found.count(title) > 1]
    return faults + [
        f"{title!r}: a question or a finding, not the paper's numbering" for title in found if "(Fig" in title
    ]


def shown_code_fits_the_page(chapter: Chapter) -> list[str]:
    return [
        f"{block}: {length} characters in a line that the page shows, at most {MOST_CHARACTERS}"
        for block in chapter.code
        if block.plain and (length := max(map(len, block.source.splitlines()), default=0)) > MOST_CHARACTERS
    ]


def cells_are_short(chapter: Chapter) -> list[str]:
    return [
        f"{block}: {lines} lines, at most {MOST_LINES}; move the rest into lib/"
        for block in chapter.code[1:]  # the first holds the imports and nothing else
        if (lines := len(block.source.splitlines())) > MOST_LINES
    ]


def definitions_stand_where_code_is_explained(chapter: Chapter) -> list[str]:
    return [
        f"{block}: `{node.name}` is defined here; only {IDEA!r} and {YOUR_TURN!r} may define"
        for block in chapter.code
        if block.section not in (IDEA, YOUR_TURN)
        for node in ast.walk(block.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


def library_source_is_shown(chapter: Chapter) -> list[str]:
    shown = [block for block in chapter.markdown if block.section == IDEA and "{literalinclude}" in block.source]
    return [] if shown else [f"{IDEA!r} shows no source of the library; use `literalinclude`"]


def places_are_named_not_pointed_at(chapter: Chapter) -> list[str]:
    return [
        f"{block}: {pointer!r} points up or down the page; name the place with numref, eq or prf:ref"
        for block in chapter.blocks
        for pointer in pointers(words(block.readable))
    ]


def _sentences(block: Block) -> bool:
    return bool(re.search(r"[A-Za-z]{2}", words(block.source, titles=False)))


RULES = (
    header_is_the_projects,
    sections_are_the_six,
    parameters_stand_in_the_second_cell,
    first_cell_imports,
    the_answer_stands_first,
    experiments_have_names_of_their_own,
    shown_code_fits_the_page,
    prose_stands_between_code_cells,
    cells_are_short,
    definitions_stand_where_code_is_explained,
    library_source_is_shown,
    places_are_named_not_pointed_at,
)
