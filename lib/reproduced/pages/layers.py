"""From an executed chapter to a page in layers: the answer first, verdicts as chips, everything else one click below.

A notebook is read from top to bottom because it is executed so; a page need not be. Here the cells of an executed
notebook get the order of a reader: code that is folded anyway moves to one fold at the end of its section, what was
judged in a section becomes a strip of chips, and the picture that tells the story comes to the top. What is shown is
an output of the run or a field of its ledger; nothing is executed, computed or lost.

A heading of the fourth level opens a fold, which ends at the next heading (see `folds`, which makes it one).
"""

import ast
import base64
import copy
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from reproduced.claims.ledger import RECORD
from reproduced.pages.chips import chip
from reproduced.pages.tables import verdict_counts

MARK = "fold"  # the comment that marks a section as a fold, for a section does not keep the level of its heading
STORY = "story"  # tag of the cell whose picture stands at the top
FOLD = 4  # the level of heading that opens a fold
_HIDDEN, _NO_INPUT, _NO_CELL = "hide-input", "remove-input", "remove-cell"
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,}|:{3,})")
_HOW_IT_IS_DRAWN = {"code_prompt_show": "How it is drawn", "code_prompt_hide": "Hide how it is drawn"}
_INLINE = re.compile(r'src="data:image/png;base64,([A-Za-z0-9+/=]+)"')
_WORDS_A_MINUTE = 230
_UNREAD = re.compile(r"\$\$.*?\$\$|^ *[`:]{3,}.*$|^:[\w-]+:.*$|^\([^)]+\)=$", re.DOTALL | re.MULTILINE)


@dataclass
class _Piece:
    """A code cell, or Markdown that begins with a heading or has none; `level` is 0 for what has none."""

    cell: NotebookNode
    level: int = 0


@dataclass
class _Part:
    """What stands between two headings that open no fold: first what is seen, then the folds."""

    pieces: list[_Piece] = field(default_factory=list)

    @property
    def seen(self) -> list[_Piece]:
        return list(takewhile(lambda piece: piece.level != FOLD, self.pieces))


def arrange(
    notebook: NotebookNode,
    ledger: Mapping[str, Any] | None,
    record: Mapping[str, Any] | None = None,
    seeds: Mapping[str, str] | None = None,
) -> None:
    """Give the cells of an executed notebook the order of a page.

    Args:
        notebook: executed; its cells are replaced.
        ledger: what was judged; None where the chapter did not come to its end, so that verdicts stay plain lines.
        record: the ledger of a full-scale run, shown beside it.
        seeds: what the replications of each claim say, in words, by id.
    """
    full = {claim["id"]: claim for claim in (record or {}).get("claims", ())}
    judged = (ledger or {}).get("claims", ())
    again = seeds or {}
    claims = {one["id"]: one | {"full": full.get(one["id"]), "seeds": again.get(one["id"], "")} for one in judged}
    parts = [_Part([])]
    for piece in chain.from_iterable(map(_split, notebook.cells)):
        if 0 < piece.level < FOLD:
            parts.append(_Part([]))
        parts[-1].pieces.append(piece)
    story = [told for part in parts for piece in part.pieces if (told := _story(piece.cell))]
    arranged = [_arranged(part, claims) for part in parts]
    first = next((number for number, part in enumerate(parts) if part.pieces and part.pieces[0].level == 1), None)
    if first is not None:
        at = len(parts[first].seen)
        told = [new_markdown_cell(_told(ledger, parts))] if ledger else []
        arranged[first][at:at] = [*told, *story]
    notebook.cells = [*chain.from_iterable(arranged)]


def picture(notebook: NotebookNode) -> bytes | None:
    """The picture that tells the story of a chapter, as PNG; None if it has none."""
    for cell in notebook.cells:
        if STORY in cell.metadata.get("tags", ()):
            for output in cell.get("outputs", ()):
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output["data"]["image/png"])
    return None


def pictures_as_files(notebook: NotebookNode, folder: str) -> dict[str, bytes]:
    """Take the pictures out of pieces of HTML, so that a browser loads them when they are seen; what they are, by name.

    Args:
        notebook: executed; its HTML is changed.
        folder: where the files will be, as the page addresses it.
    """
    files: dict[str, bytes] = {}

    def name(found: re.Match[str]) -> str:
        content = base64.b64decode(found[1])
        file = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
        files[file] = content
        return f'loading="lazy" src="{folder}/{file}"'

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", {}):
                output["data"]["text/html"] = _INLINE.sub(name, output["data"]["text/html"])
    return files


def _split(cell: NotebookNode) -> Iterator[_Piece]:
    """A cell as pieces: Markdown is cut before each heading, outside fences."""
    if cell.cell_type != "markdown":
        yield _Piece(cell)
        return
    lines, start, fence = cell.source.splitlines(), 0, ""
    cuts: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        marks = _FENCE.match(line)
        if fence:
            fence = "" if marks and marks["marks"].startswith(fence) and not line.strip(" `~:") else fence
        elif marks:
            fence = marks["marks"]
        elif heading := re.match(r"(#{1,4}) ", line):
            labelled = number > start and re.fullmatch(r"\([^)\s]+\)=", lines[number - 1])
            cuts.append((number - bool(labelled), len(heading[1])))
            start = number
    if not cuts:
        yield _Piece(cell)
        return
    ends = [*(at for at, _ in cuts[1:]), len(lines)]
    if before := "\n".join(lines[: cuts[0][0]]).strip():
        yield _Piece(_markdown(cell, before))
    for (at, level), end in zip(cuts, ends, strict=True):
        text = "\n".join(lines[at:end]).strip()
        yield _Piece(_markdown(cell, _marked(text) if level == FOLD else text), level)


def _marked(text: str) -> str:
    """The Markdown of a fold, with the comment after its heading that says so to the renderer."""
    return re.sub(r"^(#{4} .*)\n*", rf"\1\n\n% {MARK}\n\n", text, count=1, flags=re.MULTILINE).strip()


def _markdown(cell: NotebookNode, source: str) -> NotebookNode:
    return new_markdown_cell(source, metadata=copy.deepcopy(cell.metadata))


def _story(cell: NotebookNode) -> NotebookNode | None:
    """The output of a cell that tells the story, as a cell of its own; what is left of the cell has none."""
    tags = cell.metadata.get("tags", [])
    if STORY not in tags or not cell.get("outputs"):
        return None
    metadata = copy.deepcopy(cell.metadata) | {"tags": [_NO_INPUT, STORY]}
    told = new_code_cell(cell.source, metadata=metadata, outputs=cell.outputs, execution_count=cell.execution_count)
    cell.outputs = []
    cell.metadata.pop("mystnb", None)
    return told


def _arranged(part: _Part, claims: Mapping[str, Mapping[str, Any]]) -> list[NotebookNode]:
    """The cells of a part: what is seen, its chips, the folds, and the code that nobody need see in a fold."""
    seen, judged, folded = part.seen, [], []
    for piece in part.pieces:
        if piece.cell.cell_type == "code":
            judged += _take_verdicts(piece.cell, claims)
    rest = part.pieces[len(seen) :]
    shown = []
    for piece in seen:
        cell = piece.cell
        if cell.cell_type == "code" and _HIDDEN in cell.metadata.get("tags", ()):
            if cell.source.strip():
                folded.append(_input(cell))
            _retag(cell, _NO_INPUT if cell.get("outputs") else _NO_CELL)
        shown.append(cell)
    chips = [new_markdown_cell(_strip(judged))] if judged else []
    return [*shown, *chips, *(_unfolded(piece.cell) for piece in rest), *_code(folded)]


def _take_verdicts(cell: NotebookNode, claims: Mapping[str, Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """What a cell judged, each with the statement that did it; the outputs are taken out of the cell.

    A cell of nothing but such statements has nothing left to show.
    """
    outputs = cell.get("outputs", [])
    taken = [one for one in outputs if one.get("metadata", {}).get(RECORD, {}).get("id") in claims]
    if not taken:
        return []
    cell.outputs = [one for one in outputs if one not in taken]
    statements = _judging(cell.source)
    if statements is not None and not cell.outputs:
        _retag(cell, _NO_CELL)
    known = statements or _judging(cell.source, only=False) or {}
    ids = [one["metadata"][RECORD]["id"] for one in taken]
    return [(claims[name], known.get(name, "")) for name in ids]


def _judging(source: str, *, only: bool = True) -> dict[str, str] | None:
    """The statements `….judge("id", …)` of a cell by id; None if it has others, too, and `only` these are asked for."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return None
    found = {}
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="judge"), args=[ast.Constant(value=str(name)), *_])):
                found[name] = ast.get_source_segment(source, statement) or ""
            case _ if only:
                return None
    return found


def _retag(cell: NotebookNode, tag: str) -> None:
    kept = [one for one in cell.metadata.get("tags", ()) if one not in (_HIDDEN, _NO_INPUT, _NO_CELL)]
    cell.metadata["tags"] = [*kept, tag]


def _input(cell: NotebookNode) -> NotebookNode:
    """The code of a cell alone."""
    tags = [tag for tag in cell.metadata.get("tags", ()) if tag not in (_HIDDEN, "full-width", "parameters")]
    return new_code_cell(cell.source, metadata={"tags": tags}, execution_count=cell.execution_count)


def _unfolded(cell: NotebookNode) -> NotebookNode:
    """A cell of a fold: what a reader has opened need not be opened twice, but for how a picture is drawn."""
    if cell.cell_type == "code" and _HIDDEN in cell.metadata.get("tags", ()):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
            cell.metadata["mystnb"] = cell.metadata.get("mystnb", {}) | _HOW_IT_IS_DRAWN
        else:
            cell.metadata["tags"] = [tag for tag in cell.metadata.tags if tag != _HIDDEN]
    return cell


def _code(cells: Sequence[NotebookNode]) -> list[NotebookNode]:
    if not cells:
        return []
    return [new_markdown_cell(_marked("#### The code of this section")), *cells]


def _strip(judged: Iterable[tuple[Mapping[str, Any], str]]) -> str:
    return "\n".join(chip(claim, code, claim["full"], claim["seeds"]) for claim, code in judged)


def _told(ledger: Mapping[str, Any], parts: Iterable[_Part]) -> str:
    """How many claims of which kind have which verdict, and how long reading and running take."""
    words = sum(
        _words(piece.cell.source) for part in parts for piece in part.seen if piece.cell.cell_type == "markdown"
    )
    minutes = max(1, round(words / _WORDS_A_MINUTE))
    counts = verdict_counts([ledger])
    return f":::{{div}} tally\n{counts}. Read in {minutes} min, run in {duration(ledger['seconds'])}.\n:::"


def _words(source: str) -> int:
    return len(_UNREAD.sub(" ", source).split())


def duration(seconds: float) -> str:
    """A time as a reader says it: `8 s`, `3 min 20 s`, `1 h 5 min`."""
    if seconds < 0:
        raise ValueError(f"`seconds` must not be negative, got {seconds!r}.")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
