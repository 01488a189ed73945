"""From an executed chapter to a page in layers: the answer first, verdicts as chips, everything else one click below.

A notebook is read from top to bottom because it is executed so; a page need not be. Here the cells of an executed
notebook get the order of a reader: code that is folded anyway moves to one fold at the end of its section, what was
judged in a section becomes a strip of chips, and the picture that tells the story comes to the top. What is shown is
an output of the run or a field of its findings; nothing is executed, computed or lost.

A heading of the fourth level opens a fold, which ends at the next heading (`sphinx_extension` makes it one). For
download the notebook is offered as it was executed.
"""

import ast
import base64
import copy
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from reproduced import figure_files
from reproduced.claims.ledger import JUDGEMENT_KEY
from reproduced.pages.called_sources import CalledSources
from reproduced.pages.findings import ChapterFindings, Judgement
from reproduced.pages.jinja_environment import fill_template
from reproduced.pages.summaries import duration, verdict_counts
from reproduced.run.chapter_cache import EXECUTION_KEY

FOLD_COMMENT = "fold"  # marks a section that is a fold: its heading is then text, without a level
STORY = "story"  # tag of the cell whose picture stands at the top
FIGURES = "_static/figures"  # the folder of what pages offer of a figure, and of its pictures for phones
STORIES = "_static/story"  # the folder of these pictures, in the staged tree and on the site
NOTEBOOKS = "notebooks"  # the folder of generated files with the notebooks for download
ORIGINS = "origins.json"  # the generated file with the sentence under each page
FOLD_LEVEL = 4  # the level of heading that opens a fold
_HIDDEN, _NO_INPUT, _NO_CELL = "hide-input", "remove-input", "remove-cell"
_NOT_VISIBLE = {_HIDDEN, _NO_INPUT, _NO_CELL}
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,}|:{3,})")
_HOW_IT_IS_DRAWN = {"code_prompt_show": "How it is drawn", "code_prompt_hide": "Hide how it is drawn"}
_INLINE = re.compile(r'src="data:image/png;base64,([A-Za-z0-9+/=]+)"')
_WORDS_A_MINUTE = 230
_MOST_CHIPS = 3  # of a section that are seen: eighteen in a row are read by nobody
_UNREAD = re.compile(r"\$\$.*?\$\$|^ *[`:]{3,}.*$|^:[\w-]+:.*$|^\([^)]+\)=$", re.DOTALL | re.MULTILINE)


@dataclass
class _Section:
    """A heading of level 1 to 3 and the cells below it: those that are seen, then those in folds.

    The level is 0 for cells before the first heading.
    """

    level: int = 0
    seen: list[NotebookNode] = field(default_factory=list)
    folded: list[NotebookNode] = field(default_factory=list)


def arrange(notebook: NotebookNode, findings: ChapterFindings | None, sources: CalledSources | None = None) -> None:
    """Give the cells of an executed notebook the order of a page; without findings verdicts stay plain lines.

    With `sources`, that of what visible cells call stands below them.
    """
    claims = {one.claim.id: one for one in findings.judgements} if findings else {}
    sections = [_Section()]
    for level, cell in chain.from_iterable(map(_split, notebook.cells)):
        if 0 < level < FOLD_LEVEL:
            sections.append(_Section(level))
        section = sections[-1]
        (section.folded if level == FOLD_LEVEL or section.folded else section.seen).append(cell)
    tally = [new_markdown_cell(_tally(findings, sections))] if findings else []
    stories = [one for section in sections for cell in (*section.seen, *section.folded) if (one := _take_story(cell))]
    notebook.cells = []
    for section in sections:
        is_title = section.level == 1
        if is_title:
            section.seen[:1] = _split_before_answer(section.seen[0])
        cells = _arrange_section(section, claims, tally if is_title else [], sources)
        if is_title:
            cells[1:1] = stories
        notebook.cells += cells


def story_picture(notebook: NotebookNode) -> bytes | None:
    """The picture that tells the story of a chapter, as PNG; None if it has none."""
    for cell in notebook.cells:
        if STORY in _tags(cell):
            for output in cell.get("outputs", ()):
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output["data"]["image/png"])
    return None


def extract_pictures(notebook: NotebookNode, folder: str) -> dict[str, bytes]:
    """Take the pictures out of HTML to files in `folder`, so that a browser loads them when they are seen; by name."""
    files: dict[str, bytes] = {}

    def name(found: re.Match[str]) -> str:
        content = base64.b64decode(found[1])
        file = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
        files[file] = content
        return f'loading="lazy" src="{folder}/{file}"'

    for output in _outputs(notebook):
        if "text/html" in output.get("data", {}):
            output["data"]["text/html"] = _INLINE.sub(name, output["data"]["text/html"])
    return files


def offer_files(notebook: NotebookNode, folder: str) -> dict[str, bytes]:
    """Take the files of its figures out of a notebook, and lead to them in `folder` below each figure; by name.

    A picture for phones has the name that the page gives to the picture in its place.
    """
    files, cells = {}, []
    for cell in notebook.cells:
        cells.append(cell)
        for output in cell.get("outputs", ()):
            found = figure_files.read_files(output.get("metadata", {}).pop(figure_files.METADATA, {}))
            if for_phones := found.pop("png", b""):
                shown = base64.b64decode(output["data"]["image/png"])
                files[f"{hashlib.sha256(shown).hexdigest()}.png"] = for_phones
            name = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
            stem = name or hashlib.sha256(b"".join(found.values())).hexdigest()[:16]
            named = {f"{stem}.{ending}": content for ending, content in found.items()}
            if named:
                cells.append(new_markdown_cell(fill_template("figure_files.html", folder=folder, names=list(named))))
            files |= named
    notebook.cells = cells
    return files


def copy_alt_texts(notebook: NotebookNode) -> None:
    """Give each cell the alt text of its picture, where the page's renderer looks for it."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell.metadata.setdefault("mystnb", {}).setdefault("image", {})["alt"] = alt


def add_first_cell(notebook: NotebookNode, repository: str) -> NotebookNode:
    """A copy for download, with a cell that fetches the book's sources, if their address and commit are known.

    The files of figures are left out.
    """
    whole = copy.deepcopy(notebook)
    for output in _outputs(whole):
        output.get("metadata", {}).pop(figure_files.METADATA, None)
    if repository and (commit := notebook.metadata[EXECUTION_KEY]["commit"]):
        source = fill_template("first_cell.txt", repository=repository, commit=commit)
        whole.cells.insert(0, new_code_cell(source.strip()))
    return whole


def chip(judgement: Judgement, code: str = "") -> str:
    """A verdict as Markdown: sign, claim and value on one line, and in a fold how it was judged, by which `code`."""
    return fill_template("chip.md", one=judgement, code=code)


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _is_hidden(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and _HIDDEN in _tags(cell)


def _outputs(notebook: NotebookNode) -> Iterator[Any]:
    return (output for cell in notebook.cells for output in cell.get("outputs", ()))


def _split(cell: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """A cell as pieces with the level of the heading each begins with, 0 for none: cut before each, outside fences."""
    if cell.cell_type != "markdown":
        yield 0, cell
        return
    lines, fence = cell.source.splitlines(), ""
    cuts = [(0, 0)]  # the line and the level of each piece
    for number, line in enumerate(lines):
        marks = _FENCE.match(line)
        if fence:
            fence = "" if marks and marks["marks"].startswith(fence) and not line.strip(" `~:") else fence
        elif marks:
            fence = marks["marks"]
        elif heading := re.match(r"(#{1,4}) ", line):
            is_labelled = number > cuts[-1][0] and re.fullmatch(r"\([^)\s]+\)=", lines[number - 1])
            cuts.append((number - bool(is_labelled), len(heading[1])))
    for (start, level), (end, _) in pairwise([*cuts, (len(lines), 0)]):
        text = "\n".join(lines[start:end]).strip()
        if text or len(cuts) == 1:
            text = _mark_fold(text) if level == FOLD_LEVEL else text if len(cuts) > 1 else cell.source
            yield level, new_markdown_cell(text, metadata=copy.deepcopy(cell.metadata))


def _split_before_answer(cell: NotebookNode) -> list[NotebookNode]:
    """The first cell of a page as two, title and question, then the answer; as one if it has no box."""
    question, box, rest = cell.source.partition("\n:::{admonition}")
    return [
        new_markdown_cell(text.strip(), metadata=copy.deepcopy(cell.metadata))
        for text in (question, box + rest)
        if text
    ]


def _mark_fold(text: str) -> str:
    """The Markdown of a fold, with the comment after its heading that says so to the renderer."""
    return re.sub(r"^(#{4} .*)\n*", rf"\1\n\n% {FOLD_COMMENT}\n\n", text, count=1, flags=re.MULTILINE).strip()


def _take_story(cell: NotebookNode) -> NotebookNode | None:
    """The output of a cell that tells the story, as a cell of its own; what is left of the cell has none."""
    if STORY not in _tags(cell) or not cell.get("outputs"):
        return None
    metadata = copy.deepcopy(cell.metadata) | {"tags": [_NO_INPUT, STORY]}
    story = new_code_cell(cell.source, metadata=metadata, outputs=cell.outputs, execution_count=cell.execution_count)
    cell.outputs = []
    cell.metadata.pop("mystnb", None)
    return story


def _arrange_section(
    section: _Section, claims: Mapping[str, Judgement], top: list[NotebookNode], sources: CalledSources | None
) -> list[NotebookNode]:
    """The cells of a section: what is seen, `top`, its chips, the folds, and last one fold with the hidden code.

    Of the chips those of what is seen come first, and all beyond `_MOST_CHIPS` are in a fold of their own. The source
    of what visible cells call is behind the chips, or at the end of the fold that they are in.
    """
    judged = [chip(*one) for cell in (*section.seen, *section.folded) for one in _take_verdicts(cell, claims)]
    code = []
    for cell in section.seen:
        if _is_hidden(cell):
            if cell.source.strip():
                tags = [tag for tag in _tags(cell) if tag not in (_HIDDEN, "full-width", "parameters")]
                code.append(new_code_cell(cell.source, metadata={"tags": tags}, execution_count=cell.execution_count))
            _retag(cell, _NO_INPUT if cell.get("outputs") else _NO_CELL)
    for cell in section.folded:
        _open_in_fold(cell)
    more = len(judged) - _MOST_CHIPS
    if more > 1:
        rest = "\n".join(judged[_MOST_CHIPS:])
        judged = [*judged[:_MOST_CHIPS], f":::::::{{fold}} {more} more verdicts\n{rest}\n:::::::"]
    chips = [new_markdown_cell("\n".join(judged))] if judged else []
    heading = [new_markdown_cell(_mark_fold("#### The code of this section"))] if code else []
    called = _show_sources(section.seen, sources)
    folds = [cell for fold in _group_folds(section.folded) for cell in (*fold, *_show_sources(fold, sources))]
    return [*section.seen, *top, *chips, *called, *folds, *heading, *code]


def _group_folds(cells: Iterable[NotebookNode]) -> list[list[NotebookNode]]:
    """The cells of each fold: the first cell of one has its mark."""
    folds: list[list[NotebookNode]] = []
    for cell in cells:
        if not folds or (cell.cell_type == "markdown" and f"% {FOLD_COMMENT}" in cell.source):
            folds.append([])
        folds[-1].append(cell)
    return folds


def _show_sources(cells: Iterable[NotebookNode], sources: CalledSources | None) -> list[NotebookNode]:
    """A cell with the source of what the visible ones of these call, if there is any."""
    visible = [cell.source for cell in cells if cell.cell_type == "code" and not {*_tags(cell)} & _NOT_VISIBLE]
    text = sources.below(visible) if sources else ""
    return [new_markdown_cell(text)] if text else []


def _take_verdicts(cell: NotebookNode, claims: Mapping[str, Judgement]) -> list[tuple[Judgement, str]]:
    """What a cell judged, each with the statement that did it; their outputs are taken out of the cell."""
    outputs = cell.get("outputs", [])
    taken = [one for one in outputs if one.get("metadata", {}).get(JUDGEMENT_KEY, {}).get("id") in claims]
    if not taken:
        return []
    cell.outputs = [one for one in outputs if one not in taken]
    statements, judges_only = _judging_statements(cell.source)
    if judges_only and not cell.outputs:
        _retag(cell, _NO_CELL)  # nothing is left to show
    ids = [one["metadata"][JUDGEMENT_KEY]["id"] for one in taken]
    return [(claims[name], statements.get(name, "")) for name in ids]


def _judging_statements(source: str) -> tuple[dict[str, str], bool]:
    """The statements `….judge("id", …)` of a cell, by id, and whether it has no others."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return {}, False
    found = []
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="judge"), args=[ast.Constant(value=str(name)), *_])):
                found.append((name, ast.get_source_segment(source, statement) or ""))
    return dict(found), len(found) == len(body)


def _retag(cell: NotebookNode, tag: str) -> None:
    kept = [one for one in _tags(cell) if one not in (_HIDDEN, _NO_INPUT, _NO_CELL)]
    cell.metadata["tags"] = [*kept, tag]


def _open_in_fold(cell: NotebookNode) -> None:
    """Show the code of a cell in a fold, for a reader has opened it already; how a picture is drawn stays hidden."""
    if _is_hidden(cell):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
            cell.metadata["mystnb"] = cell.metadata.get("mystnb", {}) | _HOW_IT_IS_DRAWN
        else:
            cell.metadata["tags"] = [tag for tag in _tags(cell) if tag != _HIDDEN]


def _tally(findings: ChapterFindings, sections: Iterable[_Section]) -> str:
    """How many claims of which kind have which verdict, and how long reading and running take."""
    texts = (cell.source for section in sections for cell in section.seen if cell.cell_type == "markdown")
    minutes = max(1, round(sum(len(_UNREAD.sub(" ", text).split()) for text in texts) / _WORDS_A_MINUTE))
    counts = verdict_counts(findings.judgements)
    return f":::{{div}} tally\n{counts}. Read in {minutes} min, run in {duration(findings.run['seconds'])}.\n:::"
