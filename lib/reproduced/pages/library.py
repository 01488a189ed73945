"""The pages *Library*: what somebody else would import, made from the docstrings of the tree as it stands.

One page for each package of `leakage`, on it a section for each of its modules, in it an entry for each public class,
method and function. The source is read, never imported; docstrings are MyST Markdown with Google's sections. What runs
the book (`pipeline`) has no page. Nothing here writes.
"""

import ast
import re
import textwrap
from ast import get_docstring
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reproduced.pages import tree

PAGE = "library"  # the page of the book below which these stand
EXPERIMENTS = "studies"  # listed apart: who takes a seed
_NO_PAGE = "pipeline"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?: +.*(?:\n|$)|\n(?= ))*)", re.MULTILINE)
_CODE = re.compile(r"(?<![`}])`([A-Za-z_][\w.]*)`(?!`)")
_Entry = ast.FunctionDef | ast.ClassDef


def public(body: ast.Module | _Entry) -> list[_Entry]:
    """The classes and functions of a module, or the methods of a class, that are for its callers."""
    if isinstance(body, ast.FunctionDef):
        return []
    found = [node for node in body.body if isinstance(node, _Entry)]
    return [
        node for node in found if not node.name.startswith("_") or (node.name == "__call__" and get_docstring(node))
    ]


@dataclass(frozen=True)
class Library:
    """The library in the folder `package`; `chapters` gives the modules that each chapter imports itself."""

    package: Path
    chapters: Mapping[str, frozenset[str]]

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted path → file of every module that has a place here; the package itself is the empty name."""
        return {name: path for name, path in tree.modules(self.package).items() if tree.room(name) != _NO_PAGE}

    @cached_property
    def names(self) -> dict[str, ast.Module | _Entry]:
        """All that a code span may mean, by dotted path: modules, what is public in them, the methods of that."""
        found: dict[str, ast.Module | _Entry] = {}
        for module, path in self.modules.items():
            found[module] = tree.parsed(path.read_text("utf-8"))
            for entry in public(found[module]):
                found[f"{module}.{entry.name}"] = entry
                found |= {f"{module}.{entry.name}.{method.name}": method for method in public(entry)}
        return found

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """What each module here imports of the others."""
        every = tree.imports(self.package)
        return {name: every[name].intersection(self.modules) for name in self.modules}

    @cached_property
    def behind(self) -> dict[str, frozenset[str]]:
        """What stands behind each chapter: what it imports, and all that this imports."""
        return {name: own | tree.reach(self.imports, own & self.modules.keys()) for name, own in self.chapters.items()}

    def page(self, module: str) -> str:
        """Where a module stands: a package on a page of its own, a module on its package's."""
        own = module if self.modules[module].name == "__init__.py" else module.rpartition(".")[0]
        return own or self.package.name

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
            parts[tree.room(page) == EXPERIMENTS].append(f"- {_page_link(page)}: {' '.join(sentence.split())}")
        return "\n".join(line for part in parts.values() if len(part) > 1 for line in part) + "\n"

    def of_chapter(self, chapter: str) -> str:
        """What a chapter imports itself, with links, page by page."""
        lines = [
            f"- {_page_link(page)}: {', '.join(map(self._link, own))}"
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

    def _link(self, name: str) -> str:
        return f"{{py:obj}}`{name.rpartition('.')[2]} <{self.package.name}.{name}>`"

    def _section(self, module: str) -> str:
        lines = {
            "Imports": [f"{{py:mod}}`{name} <{self.package.name}.{name}>`" for name in sorted(self.imports[module])],
            "Chapters": [f"{{doc}}`/{chapter}`" for chapter, modules in self.behind.items() if module in modules],
            "Source": [self._source(module, "")],
        }
        entries = [self._entry(module, entry.name) for entry in public(self.names[module])]
        title = f"## `{module.rpartition('.')[2]}`"
        neighbours = " · ".join(f"{head}: {', '.join(links)}" for head, links in lines.items() if links)
        return "\n\n".join([title, self._opening(module), neighbours, *entries])

    def _opening(self, name: str) -> str:
        return f"```{{py:module}} {self.package.name}.{name}".rstrip(".") + f"\n```\n\n{self._text(name)}"

    def _source(self, module: str, anchor: str) -> str:
        file = f"lib/{self.package.name}/{self.modules[module].relative_to(self.package).as_posix()}"
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
        methods = [self._entry(module, f"{name}.{method.name}", ":::") for method in public(node)]
        return "\n\n".join([*parts, *methods]) + f"\n{fence}"

    def _text(self, name: str, least: int = 0) -> str:
        """The docstring of `name` as Markdown: sections as lists, code spans that name something as links to it.

        A bare word is looked up in scopes of `least` words and more: beside a function it is more often a key of its
        results than a module of ours.
        """
        node, words = self.names[name], name.split(".")
        text = _SECTION.sub(_listed, (get_docstring(node) or "") + "\n")
        scopes = [words[:depth] for depth in range(len(words), -1, -1)]
        variables = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}

        def linked(span: re.Match[str]) -> str:
            reached = (scope for scope in scopes if "." in span[1] or len(scope) >= least)
            target = next((path for scope in reached if (path := ".".join([*scope, span[1]])) in self.names), name)
            own = target == name or span[1] in variables
            return span[0] if own else f"{{py:obj}}`{span[1]} <{self.package.name}.{target}>`"

        return _CODE.sub(linked, text).strip()


def _page_link(page: str) -> str:
    return f"[`{page}`](/{PAGE}/{page}.md)"


def _listed(section: re.Match[str]) -> str:
    """A section `Args:` and the like: a word in bold type before a list of what it describes, or before its text."""
    body = textwrap.dedent(section[2]).strip()
    entries = re.split(r"\n(?=\S)", body)
    if not all(re.match(r"[`*\w][\w`*., ]*:", entry) for entry in entries):
        return f"**{section[1]}:** {body}\n"
    return f"**{section[1]}**\n\n" + "\n".join(map(_item, entries)) + "\n\n"


def _item(entry: str) -> str:
    name, text = re.split(r":\s*", entry, maxsplit=1)
    first, _, rest = text.partition("\n")
    return f"- {name if '`' in name else f'`{name}`'}: {first}\n{textwrap.indent(textwrap.dedent(rest), '  ')}".rstrip()
