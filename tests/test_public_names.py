"""What the library offers is used by itself, a chapter, a benchmark or an example that runs, not by its tests alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext

from reproduced.pages.library_pages import find_modules

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib"
CELL = re.compile(r"^```\{literalinclude\} /lib/(?P<file>\S+)\.py\n:pyobject: (?P<name>\w+)", re.MULTILINE)

ELSEWHERE = frozenset(
    {
        "reproduced.pages.sphinx_extension:setup",
        "reproduced.command_line:main",
    }
)
"""Called by whom no syntax tree of ours shows: Sphinx, and the command that `pyproject.toml` installs."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of both packages; by file the benchmarks, the examples that tests run and the chapters' cells."""
    for name, path in (find_modules(LIBRARY / "leakage") | find_modules(LIBRARY / "reproduced")).items():
        yield name, ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        yield path.name, ast.parse(path.read_text(encoding="utf-8"))
    for page in ("README.md", "book/audit_your_model.md"):
        examples = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
        yield page, ast.parse("\n".join(examples))
    for path in sorted((ROOT / "book").glob("*.md")):
        if (text := path.read_text(encoding="utf-8")).startswith("---\njupytext:"):
            cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
            shown = [f"from {file.replace('/', '.')} import {name}" for file, name in CELL.findall(text)]
            yield path.name, ast.parse("\n".join([*shown, *cells]))


def defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Every public name that a module defines, and with its class every public method of a class of its own kind.

    A class that extends another's may define what only the other calls.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = [target.id for target in targets if isinstance(target, ast.Name)]  # of several, one is often unused
            yield from ((name, node) for name in found if not name.startswith("_"))
        elif isinstance(node, ast.FunctionDef) and any(isinstance(mark, ast.Call) for mark in node.decorator_list):
            continue  # whoever decorates it was told of it, as the command line is
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            if isinstance(node, ast.ClassDef) and set(bases) <= {"NamedTuple", "Protocol", "Enum", "TypedDict"}:
                methods = (part for part in node.body if isinstance(part, ast.FunctionDef))
                yield from ((f".{part.name}", part) for part in methods if not part.name.startswith("_"))


def used(source: str, tree: ast.Module, modules: frozenset[str]) -> Iterator[tuple[str, ast.AST]]:
    """Every use of a name as `module:name`, of an attribute of whatever else as `.name`, with the place."""
    aliases, nodes = {}, list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                if full in modules:
                    aliases[name.asname or name.name] = full
                else:
                    yield f"{node.module}:{name.name}", node
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield f"{source}:{node.id}", node
        elif isinstance(node, ast.Attribute):
            owner = aliases.get(node.value.id) if isinstance(node.value, ast.Name) else None
            yield (f"{owner}:{node.attr}" if owner else f".{node.attr}"), node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield f".{node.value}", node  # for `getattr`


def idle(trees: dict[str, ast.Module]) -> list[str]:
    """Every public name of the library that nothing among `trees` uses outside its own definition."""
    modules = frozenset(name for name in trees if name.startswith("leakage"))
    uses: dict[str, list[tuple[str, ast.AST]]] = {}
    for source, tree in trees.items():
        for name, node in used(source, tree, modules):
            uses.setdefault(name, []).append((source, node))
    found = []
    for module in sorted(modules):
        for name, definition in defined(trees[module]):
            wanted = name if name.startswith(".") else f"{module}:{name}"
            places = uses.get(wanted, [])
            if any(source != module for source, _ in places):
                continue
            inside = {id(node) for node in ast.walk(definition)}
            if all(id(node) in inside for _, node in places):
                found.append(f"{module}:{name}")
    return found


def test_every_public_name_is_used_by_more_than_its_tests():
    unused = set(idle(dict(sources()))) - ELSEWHERE
    assert not unused, f"use them in a chapter or the library, or delete them with their tests: {sorted(unused)}"


def test_an_idle_name_is_found():
    library = (
        "def asked(): ...\ndef again(): return again()\nclass Law:\n    def drawn(self): ...\n    def kept(self): ..."
    )
    trees = {
        "leakage.law": ast.parse(library),
        "chapter.md": ast.parse("from leakage import law\nlaw.asked()\nlaw.Law().kept()"),
    }
    assert idle(trees) == ["leakage.law:again", "leakage.law:.drawn"]
    trees["other.md"] = ast.parse("from leakage.law import again\nagain().drawn()")
    assert idle(trees) == []
