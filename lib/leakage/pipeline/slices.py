"""What a few claims need of a chapter: the cells that judge them, and those whose names these cells use.

A cell is kept if it judges a wanted claim, if it binds or changes a name that a kept cell after it uses, or if it
cannot be read as Python. So a slice may keep more than is needed, and a generator that several cells draw from may be
further on in the whole chapter than in a slice of it: the numbers are other draws of the same law.
"""

import ast
import copy
import symtable
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from nbformat import NotebookNode

_CHANGING = {name for kind in (list, dict, set) for name in dir(kind)} - {
    name for kind in (tuple, MappingProxyType, frozenset) for name in dir(kind)
}
_PARAMETERS = ("parameters", "injected-parameters")


@dataclass
class _Names:
    """What a piece of a cell uses from before it, what it surely binds anew, and what it may bind or change."""

    uses: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)


def needed(sources: Sequence[str], ids: Collection[str]) -> list[int]:
    """Numbers of the code cells, counted from 0, that the claims need; the cells before the first name included.

    Args:
        sources: the Python text of each code cell, in order.
        ids: the wanted claims; a cell judges those whose id stands in it as a text.
    """
    wanted, kept = set[str](), list[int]()
    for number in reversed(range(len(sources))):
        try:
            tree = ast.parse(sources[number])
        except SyntaxError:  # magic of the notebook: nobody knows what it does
            kept.append(number)
            continue
        cell = _names(tree.body)
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if (cell.binds | cell.changes) & wanted or not texts.isdisjoint(ids):
            kept.append(number)
            wanted = (wanted - cell.binds) | cell.uses
    return kept[::-1]


def cut(notebook: NotebookNode, ids: Collection[str]) -> NotebookNode:
    """The notebook with no other code cells than those that the claims need and those of its parameters."""
    trimmed = copy.deepcopy(notebook)
    code = [cell for cell in trimmed.cells if cell.cell_type == "code"]
    keep = {id(code[number]) for number in needed([cell.source for cell in code], ids)}
    trimmed.cells = [
        cell
        for cell in trimmed.cells
        if id(cell) in keep or cell.cell_type != "code" or set(_PARAMETERS) & set(cell.metadata.get("tags", ()))
    ]
    return trimmed


def _names(statements: Iterable[ast.stmt]) -> _Names:
    """The names of statements that are run one after the other."""
    found = _Names()
    for statement in statements:
        match statement:
            case ast.For(target=target, iter=before, body=body, orelse=otherwise):
                _then(found, _simple(before))
                _then(found, _Names(binds=_stored(target)))
                _perhaps(found, [*body, *otherwise])
            case ast.If(test=test, body=body, orelse=otherwise) | ast.While(test=test, body=body, orelse=otherwise):
                _then(found, _simple(test))
                _perhaps(found, body)
                _perhaps(found, otherwise)
            case ast.With(items=items, body=body):
                for item in items:
                    _then(found, _simple(item.context_expr))
                    _then(found, _Names(binds=_stored(item.optional_vars)))
                _then(found, _names(body))
            case ast.Try(body=body, handlers=handlers, orelse=otherwise, finalbody=last):
                for part in (body, *(handler.body for handler in handlers), otherwise, last):
                    _perhaps(found, part)
            case _:
                _then(found, _simple(statement))
    return found


def _then(found: _Names, piece: _Names) -> None:
    found.uses |= piece.uses - found.binds
    found.binds |= piece.binds
    found.changes |= piece.changes


def _perhaps(found: _Names, statements: Iterable[ast.stmt]) -> None:
    """What may be run, or not, or several times."""
    piece = _names(statements)
    _then(found, _Names(piece.uses, set(), piece.binds | piece.changes))


def _simple(node: ast.AST) -> _Names:
    """The names of a statement or an expression; the variables of functions and comprehensions are their own."""
    top = symtable.symtable(ast.unparse(_Scoped().visit(copy.deepcopy(node))), "cell", "exec")
    uses = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    inner = [*top.get_children()]
    while inner:
        table = inner.pop()
        uses |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        inner += table.get_children()
    binds = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Subscript | ast.Attribute)]
    called = [node.func for node in ast.walk(node) if isinstance(node, ast.Call)]
    changing = [part for part in called if isinstance(part, ast.Attribute) and _in_place(part.attr)]
    changing += [part for part in parts if not isinstance(part.ctx, ast.Load)]
    changes = {name for part in changing for name in _owner(part)}
    if isinstance(node, ast.AugAssign):
        uses, changes, binds = uses | binds, changes | binds, set()
    return _Names(uses, binds, changes)


class _Scoped(ast.NodeTransformer):
    """Makes generators of comprehensions, whose variables Python 3.12 and later count among those around them."""

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    visit_SetComp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


def _in_place(method: str) -> bool:
    """Whether a method of that name changes what it belongs to: one of Python's containers, or PyTorch's with a _."""
    return method in _CHANGING or (method.endswith("_") and not method.startswith("_"))


def _stored(target: ast.expr | None) -> set[str]:
    """The names to which a loop, or a `with`, gives values."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)} if target else set()


def _owner(part: ast.expr) -> Iterator[str]:
    """The name whose object `part` is a part of."""
    while isinstance(part, ast.Subscript | ast.Attribute):
        part = part.value
    if isinstance(part, ast.Name):
        yield part.id
