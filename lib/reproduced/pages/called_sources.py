"""The source of what a chapter's cells call, read from the code when the page is made.

Names are followed through the chapter's imports, and through its own names for `partial` and `grids.keep`. Methods of
objects are not followed: the class stands where its name is called.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from reproduced.pages.jinja_environment import fill_template
from reproduced.pages.library_pages import Library, parse

_TITLE = "What these calls run"
_MOST_LINES = 120  # of what one call runs; the page of the library shows all
_WRAPPERS = ("partial", "keep")  # what gives a function of the library another name


class CalledSources:
    """The functions and classes of the library behind the cells of one chapter, each shown once on its page."""

    def __init__(self, library: Library, chapter: str, cells: Iterable[str]) -> None:
        self._library, self._chapter = library, chapter
        self._called = find_calls(library, cells)
        self._shown: set[str] = set()

    def below(self, cells: Iterable[str]) -> str:
        """A fold with the source of what these cells call, as Markdown; empty if that is nothing of the library."""
        called = dict.fromkeys(path for cell in cells for path in self._called.get(cell, ()))
        before = [path for path in called if path in self._shown]
        parts = {path: self._show(path) for path in called if path not in self._shown}
        return fill_template(
            "called_sources.md",
            title=_TITLE,
            parts=parts,
            before=before,
            file=lambda path: self._library.entry(path)["source"],
            label=lambda path: re.sub(r"[._]+", "-", f"{self._chapter}.{path}").lower(),
        ).strip()

    def _show(self, path: str) -> str:
        code = self._library.source(path, but=self._shown, most=_MOST_LINES)
        self._shown |= {path, *self._library.uses[path]}
        return code


def find_calls(library: Library, cells: Iterable[str]) -> dict[str, list[str]]:
    """Which functions and classes of the library each cell calls or hands over, by the cell's text, in its order."""
    bound: dict[str, list[str]] = {}  # a name of the chapter → what it may stand for
    found = {}
    for cell in cells:
        called: list[str] = []
        for statement in parse(cell).body:
            here = list(dict.fromkeys(_follow(library, statement, bound)))
            called += here
            if isinstance(statement, ast.Import):
                bound |= {alias.asname: [alias.name] for alias in statement.names if alias.asname}
                bound |= {first: [first] for alias in statement.names if (first := alias.name.partition(".")[0])}
            elif isinstance(statement, ast.ImportFrom):
                bound |= {alias.asname or alias.name: [f"{statement.module}.{alias.name}"] for alias in statement.names}
            elif isinstance(statement, ast.Assign):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                bound |= dict.fromkeys(names, here if _is_wrapper(statement.value) else [])
        found[cell] = list(dict.fromkeys(called))
    return found


def _is_wrapper(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _WRAPPERS


def _follow(library: Library, statement: ast.stmt, bound: dict[str, list[str]]) -> Iterator[str]:
    """The dotted path of each function or class of the library that a statement names."""
    nodes = ast.walk(statement)
    names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)]
    for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)):
        first, dot, rest = ast.unparse(node).partition(".")
        for path in bound.get(first, ()):
            if library.is_entry(f"{path}{dot}{rest}"):
                yield f"{path}{dot}{rest}"
