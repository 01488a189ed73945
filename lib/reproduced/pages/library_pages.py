"""The pages *Library*: what somebody else would import, and the package of each paper, made from their docstrings.

One page for each package of `leakage` and of `reproduced.papers`. A page begins with the package's docstring and the
example in it; then each module has a section, with an entry for each public class, method and function. The source is
read, never imported; docstrings are MyST Markdown with Google's sections. What runs and shows the book has no page.
Nothing here writes.
"""

import ast
import re
import textwrap
from ast import get_docstring
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from leakage.store import PACKAGES
from reproduced.code_keys import find_modules, imported_files
from reproduced.pages.jinja_environment import fill_template

PAGE = "library"  # the page of the book below which these stand
_LIBRARY, _PAPERS = "leakage", "reproduced.papers"  # the packages with pages
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?: +.*(?:\n|$)|\n(?= ))*)", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<![`}])`([A-Za-z_][\w.]*)`(?!`)")
_Entry = ast.FunctionDef | ast.ClassDef


def parse(source: str) -> ast.Module:
    """The syntax tree of `source`; of what is no Python, which fails where it is run, an empty one."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def imported_modules(source: str, known: Collection[str]) -> frozenset[str]:
    """Which of the known modules `source` imports, anywhere in it; of `a.b` only that, not the package `a`."""
    found: set[str] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else f"{node.module}" for name in full}
    return frozenset(found) & frozenset(known)


def page_file(page: str) -> str:
    """The file of the repository from which a page is made: `metrics` → `lib/leakage/metrics/__init__.py`."""
    package = _PAPERS.partition(".")[0] if _is_below(f"reproduced.{page}", _PAPERS) else _LIBRARY
    return "/".join(["lib", *dict.fromkeys([package, *page.split(".")]), "__init__.py"])


def _is_below(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _parents(path: str) -> Iterator[str]:
    """`a.b`, then `a`, of `a.b.c`."""
    while path := path.rpartition(".")[0]:
        yield path


def _short(module: str) -> str:
    """The name of a module on a page, without the package that all share."""
    return module.partition(".")[2] or module


def public_entries(body: ast.Module | _Entry) -> list[_Entry]:
    """The classes and functions of a module, or the methods of a class, that are for its callers."""
    if isinstance(body, ast.FunctionDef):
        return []
    found = [node for node in body.body if isinstance(node, _Entry)]
    return [
        node for node in found if not node.name.startswith("_") or (node.name == "__call__" and get_docstring(node))
    ]


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _bound_names(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines as function, class or constant."""
    if isinstance(statement, _Entry):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


@dataclass(frozen=True)
class Library:
    """The packages in the folder `lib`; `sources` is the Python text of each chapter."""

    lib: Path
    sources: Mapping[str, str]

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted path → file of every module that has a place here, in order; a package comes before its modules."""
        found = sorted(find_modules(self.lib).items())
        return {name: path for name, path in found if _is_below(name, _LIBRARY) or _is_below(name, _PAPERS)}

    @cached_property
    def names(self) -> dict[str, ast.Module | _Entry]:
        """All that a code span may mean, by dotted path: modules, what is public in them, the methods of that."""
        found: dict[str, ast.Module | _Entry] = {}
        for module, path in self.modules.items():
            found[module] = parse(path.read_text("utf-8"))
            for entry in public_entries(found[module]):
                found[f"{module}.{entry.name}"] = entry
                found |= {f"{module}.{entry.name}.{method.name}": method for method in public_entries(entry)}
        return found

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """What each module here imports of the others; a package as a whole does not count."""
        sources = {name: path.read_text("utf-8") for name, path in self.modules.items()}
        return {name: self._imported(source) - {name} for name, source in sources.items()}

    @cached_property
    def chapters(self) -> dict[str, frozenset[str]]:
        """What each chapter imports itself."""
        return {name: self._imported(source) for name, source in self.sources.items()}

    def _imported(self, source: str) -> frozenset[str]:
        return imported_modules(source, self.modules.keys() - {*PACKAGES})

    @cached_property
    def dependencies(self) -> dict[str, set[str]]:
        """All that each chapter imports, and all that these import in turn."""
        files = {name: imported_files(source, lib=self.lib) for name, source in self.sources.items()}
        return {name: {one for one, path in self.modules.items() if path in files[name]} for name in files}

    def page(self, module: str) -> str:
        """Where a module stands: a package on a page of its own, a module on its package's."""
        own = module if self.modules[module].name == "__init__.py" else module.rpartition(".")[0]
        return _short(own)

    def pages(self) -> dict[str, str]:
        """Name → Markdown of each page, in the order of the tree."""
        return {
            page: fill_template("library_page.md", library=self, page=page, package=package, modules=modules)
            for page, (package, *modules) in self._by_page(self.modules).items()
        }

    def contents(self) -> str:
        """The tree of the pages with the first sentence of each, the papers apart."""
        parts: dict[str, dict[str, str]] = {"What to import": {}, "A package for each paper": {}}
        for page, (package, *_) in self._by_page(self.modules).items():
            parts["A package for each paper" if _is_below(package, _PAPERS) else "What to import"][page] = package
        return fill_template("library_contents.md", library=self, parts=parts)

    def imports_of(self, chapter: str) -> str:
        """What a chapter imports itself, with links, page by page."""
        own = self.chapters[chapter]
        pages = {page: [one for one in modules if one in own] for page, modules in self._by_page(self.modules).items()}
        return fill_template("library_imports.md", pages=pages)

    def _by_page(self, modules: Iterable[str]) -> dict[str, list[str]]:
        listed: dict[str, list[str]] = {}
        for module in modules:
            listed.setdefault(self.page(module), []).append(module)
        return listed

    def depth(self, package: str) -> int:
        """How many packages a package is in, among those with pages: 0 for `leakage` and for `reproduced.papers`."""
        return sum(parent in self.modules for parent in _parents(package))

    def first_sentence(self, module: str) -> str:
        sentence = re.split(r"(?<=[.?])\s", get_docstring(self.names[module]) or "", maxsplit=1)[0]
        return " ".join(sentence.split())

    def chapters_with(self, module: str) -> list[str]:
        """The chapters that depend on a module."""
        return [chapter for chapter, modules in self.dependencies.items() if module in modules]

    def file(self, module: str) -> str:
        """The file of a module in the repository."""
        return f"lib/{self.modules[module].relative_to(self.lib).as_posix()}"

    def entries(self, name: str) -> list[str]:
        """What is public in a module or a class, by dotted path."""
        return [f"{name}.{node.name}" for node in public_entries(self.names[name])]

    def entry(self, path: str) -> dict[str, Any]:
        """A function or class as a directive of Sphinx's Python domain shows it."""
        module, node = next(module for module in _parents(path) if module in self.modules), self.names[path]
        assert isinstance(node, _Entry)
        name = path.removeprefix(f"{module}.")
        lines, first = self._lines(module), _first_line(node)
        head = lines[first - 1 : max(node.lineno, node.body[0].lineno - 1)]
        if isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            head += [line for field in fields for line in lines[field.lineno - 1 : field.end_lineno]]
        is_property = any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)
        kind = "class" if isinstance(node, ast.ClassDef) else "method" if "." in name else "function"
        return {
            "kind": "property" if is_property else kind,
            "name": name,
            "source": f"{self.file(module)}#L{first}-L{node.end_lineno}",
            "code": textwrap.dedent("\n".join(head)),
            "text": self.text(path, least=module.count(".") + 1),
            "methods": self.entries(path),
        }

    def is_entry(self, path: str) -> bool:
        """Whether a dotted path is that of a public function or class of a module."""
        return path.rpartition(".")[0] in self.modules and isinstance(self.names.get(path), _Entry)

    @cached_property
    def uses(self) -> dict[str, list[str]]:
        """What each function and class uses of what is private in its module, or constant, in the module's order."""
        found: dict[str, list[str]] = {}
        for path in filter(self.is_entry, self.names):
            module, _, name = path.rpartition(".")
            named, used = self._definitions[module], [name]
            for one in used:  # it grows
                inner = dict.fromkeys(node.id for node in ast.walk(named[one]) if isinstance(node, ast.Name))
                private = (n for n in inner if n in named and (n.startswith("_") or not isinstance(named[n], _Entry)))
                used += [n for n in private if n not in used]
            found[path] = [f"{module}.{one}" for one in named if one in used and one != name]
        return found

    @cached_property
    def _definitions(self) -> dict[str, dict[str, ast.stmt]]:
        """The statement that defines each name of each module."""
        bodies = {module: node.body for module, node in self.names.items() if isinstance(node, ast.Module)}
        return {
            module: {name: statement for statement in body for name in _bound_names(statement)}
            for module, body in bodies.items()
        }

    def source(self, path: str, *, but: Collection[str] = (), most: int | None = None) -> str:
        """The source of a function or class, below the constants and above the functions that it `uses`.

        What is in `but` is left out. Where more than `most` lines would be shown these are, too, and of a function or
        class that is longer itself only the head is shown.
        """
        module, _, name = path.rpartition(".")
        named, lines = self._definitions[module], self._lines(module)
        parts = [named[one.rpartition(".")[2]] for one in self.uses[path] if one not in but]

        def text(*parts: ast.stmt) -> list[str]:
            return ["\n".join(lines[_first_line(part) - 1 : part.end_lineno]) for part in parts]

        own = text(named[name])
        constants = "\n".join(text(*(part for part in parts if not isinstance(part, _Entry))))
        whole = [*filter(None, [constants]), *own, *text(*(part for part in parts if isinstance(part, _Entry)))]
        for shown in (whole, own):
            if most is None or len("\n\n\n".join(shown).splitlines()) <= most:
                return "\n\n\n".join(shown)
        return f"{self.entry(path)['code']}\n    ..."

    def shown_before(self, path: str) -> dict[str, str]:
        """What a function or class uses, and the function or class above it on its page that uses it, too."""
        siblings = self.entries(path.rpartition(".")[0])
        above = siblings[: siblings.index(path)]
        users = {one: next((other for other in above if one in self.uses[other]), "") for one in self.uses[path]}
        return {one: user for one, user in users.items() if user}

    def _lines(self, module: str) -> list[str]:
        return self.modules[module].read_text("utf-8").splitlines()

    def text(self, name: str, least: int = 0) -> str:
        """The docstring of `name` as Markdown: sections as lists, code spans that name something as links to it.

        Fenced blocks stay as they are.
        """
        node, words = self.names[name], name.split(".")
        text = (get_docstring(node) or "") + "\n"
        scopes = [*(words[:depth] for depth in range(len(words), 0, -1)), [_LIBRARY]]
        # A bare word is sought in scopes of `least` words or more. In `leakage.metrics.roc` a scope has at least 3:
        # `auc` leads to `leakage.metrics.roc.auc`, but `models` does not lead to `leakage.models`.
        variables = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}

        def linked(span: re.Match[str]) -> str:
            reached = (scope for scope in scopes if "." in span[1] or len(scope) >= least)
            target = next((path for scope in reached if (path := ".".join([*scope, span[1]])) in self.names), name)
            own = target == name or span[1] in variables
            return span[0] if own else f"{{py:obj}}`{span[1]} <{target}>`"

        prose_and_code = _FENCED.split(text)  # in turn
        prose_and_code[::2] = (_CODE.sub(linked, _SECTION.sub(_format_section, part)) for part in prose_and_code[::2])
        return "".join(prose_and_code).strip()


def _format_section(section: re.Match[str]) -> str:
    """A section `Args:` and the like: a word in bold type before a list of what it describes, or before its text."""
    body = textwrap.dedent(section[2]).strip()
    entries = re.split(r"\n(?=\S)", body)
    if not all(re.match(r"[`*\w][\w`*., ]*:", entry) for entry in entries):
        return f"**{section[1]}:** {body}\n"
    return f"**{section[1]}**\n\n" + "\n".join(map(_format_item, entries)) + "\n\n"


def _format_item(entry: str) -> str:
    name, text = re.split(r":\s*", entry, maxsplit=1)
    first, _, rest = text.partition("\n")
    return f"- {name if '`' in name else f'`{name}`'}: {first}\n{textwrap.indent(textwrap.dedent(rest), '  ')}".rstrip()
