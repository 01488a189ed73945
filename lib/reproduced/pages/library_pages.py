"""The pages *Library*: what somebody else would import, and the experiments of the book, made from their docstrings.

One page for each package of `leakage` and of `reproduced.studies`, on it a section for each of its modules, in it an
entry for each public class, method and function. The source is read, never imported; docstrings are MyST Markdown with
Google's sections. What runs and shows the book has no page. Nothing here writes.
"""

import ast
import re
import textwrap
from ast import get_docstring
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAGE = "library"  # the page of the book below which these stand
PACKAGES = ("leakage", "reproduced")
_LIBRARY, _EXPERIMENTS = "leakage", "reproduced.studies"  # the packages with pages
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?: +.*(?:\n|$)|\n(?= ))*)", re.MULTILINE)
_CODE = re.compile(r"(?<![`}])`([A-Za-z_][\w.]*)`(?!`)")
_Entry = ast.FunctionDef | ast.ClassDef


def find_modules(package: Path) -> dict[str, Path]:
    """Dotted path → file of every module of a package, in order; the package itself comes first."""
    found = {path.relative_to(package.parent).with_suffix("").parts: path for path in package.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in sorted(found.items())}


def parse(source: str) -> ast.Module:
    """The syntax tree of `source`; of what is no Python, which fails where it is run, an empty one."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def imported_modules(source: str, known: Collection[str]) -> frozenset[str]:
    """Which of the known modules `source` imports, anywhere in it; a package that only leads to one does not count."""
    return frozenset(_imports(parse(source), known)) & frozenset(known)


def _imports(tree: ast.Module, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def page_file(page: str) -> str:
    """The file of the repository from which a page is made: `theory.kkt` → `lib/leakage/theory/kkt/__init__.py`."""
    package = _EXPERIMENTS.partition(".")[0] if _is_below(f"reproduced.{page}", _EXPERIMENTS) else _LIBRARY
    return "/".join(["lib", *dict.fromkeys([package, *page.split(".")]), "__init__.py"])


def _is_below(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


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


@dataclass(frozen=True)
class Library:
    """The packages in the folder `lib`; `sources` is the Python text of each chapter."""

    lib: Path
    sources: Mapping[str, str]

    @cached_property
    def all_modules(self) -> dict[str, Path]:
        """Dotted path → file of every module of both packages."""
        return {name: path for package in PACKAGES for name, path in find_modules(self.lib / package).items()}

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted path → file of every module that has a place here."""
        has_place = (_LIBRARY, _EXPERIMENTS)
        return {name: path for name, path in self.all_modules.items() if any(_is_below(name, one) for one in has_place)}

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
        """What each module of both packages imports of the others; a package as a whole does not count."""
        sources = {name: path.read_text("utf-8") for name, path in self.all_modules.items()}
        return {name: self._imported(source) - {name} for name, source in sources.items()}

    @cached_property
    def chapters(self) -> dict[str, frozenset[str]]:
        """What each chapter imports itself."""
        return {name: self._imported(source) for name, source in self.sources.items()}

    def _imported(self, source: str) -> frozenset[str]:
        return imported_modules(source, self.all_modules.keys() - {*PACKAGES})

    @cached_property
    def dependencies(self) -> dict[str, frozenset[str]]:
        """All that each chapter imports, and what that imports, to the ground."""
        return {name: self._closure(own) for name, own in self.chapters.items()}

    def _closure(self, starts: Iterable[str]) -> frozenset[str]:
        pending, found = [*starts], set[str]()
        while pending:
            if (name := pending.pop()) not in found:
                found.add(name)
                pending += self.imports[name]
        return frozenset(found)

    def page(self, module: str) -> str:
        """Where a module stands: a package on a page of its own, a module on its package's."""
        own = module if self.modules[module].name == "__init__.py" else module.rpartition(".")[0]
        return _short(own)

    def pages(self) -> dict[str, str]:
        """Name → Markdown of each page, in the order of the tree."""
        return {
            page: "\n\n".join([f"# `{page}`", self._opening(package), *map(self._section, modules)]) + "\n"
            for page, (package, *modules) in self._by_page(self.modules).items()
        }

    def contents(self) -> str:
        """The list of the pages with the first sentence of each, the experiments apart."""
        parts: dict[bool, list[str]] = {False: ["## What to import\n"], True: ["\n## Experiments\n"]}
        for page, (package, *_) in self._by_page(self.modules).items():
            sentence = re.split(r"(?<=\.)\s", get_docstring(self.names[package]) or "", maxsplit=1)[0]
            line = f"- {_link_page(page)}: {' '.join(sentence.split())}"
            parts[_is_below(package, _EXPERIMENTS)].append(line)
        return "\n".join(line for part in parts.values() if len(part) > 1 for line in part) + "\n"

    def imports_of(self, chapter: str) -> str:
        """What a chapter imports itself, with links, page by page."""
        lines = [
            f"- {_link_page(page)}: {', '.join(map(_link_module, own))}"
            for page, modules in self._by_page(self.modules).items()
            if (own := [module for module in modules if module in self.chapters[chapter]])
        ]
        head = f"What this chapter imports of the [library](/{PAGE}.md); the pages lead back.\n"
        return "\n".join(["```{seealso}", head, *lines, "```"])

    def _by_page(self, modules: Iterable[str]) -> dict[str, list[str]]:
        listed: dict[str, list[str]] = {}
        for module in modules:
            listed.setdefault(self.page(module), []).append(module)
        return listed

    def _section(self, module: str) -> str:
        imports = sorted(self.imports[module] & self.modules.keys())
        lines = {
            "Imports": [f"{{py:mod}}`{_short(name)} <{name}>`" for name in imports],
            "Chapters": [f"{{doc}}`/{chapter}`" for chapter, modules in self.dependencies.items() if module in modules],
            "Source": [self._source(module, "")],
        }
        entries = [self._entry(module, entry.name) for entry in public_entries(self.names[module])]
        title = f"## `{module.rpartition('.')[2]}`"
        neighbours = " · ".join(f"{head}: {', '.join(links)}" for head, links in lines.items() if links)
        return "\n\n".join([title, self._opening(module), neighbours, *entries])

    def _opening(self, name: str) -> str:
        return f"```{{py:module}} {name}\n```\n\n{self._text(name)}"

    def _source(self, module: str, anchor: str) -> str:
        file = f"lib/{self.modules[module].relative_to(self.lib).as_posix()}"
        return f"{{source}}`{'source' if anchor else file} <{file}{anchor}>`"

    def _entry(self, module: str, name: str, fence: str = "::::") -> str:
        """A function or class as a directive of Sphinx's Python domain, which search and links know."""
        node = self.names[f"{module}.{name}"]
        assert isinstance(node, _Entry)
        lines = self.modules[module].read_text("utf-8").splitlines()
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        head = lines[first - 1 : max(node.lineno, node.body[0].lineno - 1)]
        if isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            head += [line for field in fields for line in lines[field.lineno - 1 : field.end_lineno]]
        is_property = any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)
        kind = "class" if isinstance(node, ast.ClassDef) else "method" if "." in name else "function"
        kind = "property" if is_property else kind
        code = textwrap.dedent("\n".join(head))
        parts = [
            f"{fence}{{py:{kind}}} {name}" + "\n:no-contents-entry:" * ("." in name),
            f"[{self._source(module, f'#L{first}')}]{{.library-source}}",
            f"```python\n{code}\n```",
            self._text(f"{module}.{name}", least=module.count(".") + 1),
        ]
        methods = [self._entry(module, f"{name}.{method.name}", ":::") for method in public_entries(node)]
        return "\n\n".join([*parts, *methods]) + f"\n{fence}"

    def _text(self, name: str, least: int = 0) -> str:
        """The docstring of `name` as Markdown: sections as lists, code spans that name something as links to it."""
        node, words = self.names[name], name.split(".")
        text = _SECTION.sub(_format_section, (get_docstring(node) or "") + "\n")
        scopes = [*(words[:depth] for depth in range(len(words), 0, -1)), [_LIBRARY]]
        # Beside a function a bare word is more often a key of its results than a module: `least` words of a scope.
        variables = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}

        def linked(span: re.Match[str]) -> str:
            reached = (scope for scope in scopes if "." in span[1] or len(scope) >= least)
            target = next((path for scope in reached if (path := ".".join([*scope, span[1]])) in self.names), name)
            own = target == name or span[1] in variables
            return span[0] if own else f"{{py:obj}}`{span[1]} <{target}>`"

        return _CODE.sub(linked, text).strip()


def _link_page(page: str) -> str:
    return f"[`{page}`](/{PAGE}/{page}.md)"


def _link_module(module: str) -> str:
    return f"{{py:obj}}`{module.rpartition('.')[2]} <{module}>`"


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
