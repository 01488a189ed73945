"""The package as a tree of modules: which there are, and which import which, read from their text.

A module is named by its dotted path without the package in front, as `theory.ridge`; a package is named by its folder,
and its room is the first word. Nothing here imports what it reads.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from pathlib import Path

Graph = Mapping[str, Set[str]]


def modules(package: Path) -> dict[str, Path]:
    """Dotted path → file of every module below `package`, in order; the package itself is the empty name."""
    names = {path.relative_to(package).with_suffix("").parts: path for path in package.rglob("*.py")}
    return {".".join(name).removesuffix("__init__").rstrip("."): path for name, path in sorted(names.items())}


def parsed(source: str) -> ast.Module:
    """The syntax tree of `source`; of what is no Python, which fails where it is run, an empty one."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def imported(source: str, known: Collection[str]) -> Iterator[str]:
    """Every module that `source` imports, anywhere in it; `from a import b` is `a.b` where that is a known module."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                yield full if full in known else origin


def used(source: str, known: Iterable[str], package: str) -> frozenset[str]:
    """Which of the known modules of `package` `source` imports; the package itself does not count."""
    full = {f"{package}.{name}": name for name in known if name}
    return frozenset(full[name] for name in imported(source, full) if name in full)


def imports(package: Path) -> dict[str, frozenset[str]]:
    """Which modules of `package` each of them imports."""
    found = modules(package)
    return {name: used(path.read_text("utf-8"), found, package.name) - {name} for name, path in found.items()}


def room(module: str) -> str:
    """The part of the package that a module is in."""
    return module.partition(".")[0]


def reach(graph: Graph, starts: Iterable[str]) -> frozenset[str]:
    """All that the starts import, and what that imports, to the ground; with a start only if something leads to it."""
    pending, found = [target for start in starts for target in graph[start]], set[str]()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph[name]
    return frozenset(found)
