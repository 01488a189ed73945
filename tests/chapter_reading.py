"""A chapter taken apart for the contract: its sections, code cells and prose, and nothing of what they mean.

Read with the same jupytext that the build uses. Prose is what a reader sees as sentences, titles and table cells:
program code, formulas, roles, link targets and the options of directives are not. Nothing here judges anything.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import jupytext
import yaml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

SECTIONS = (
    "The game",
    "The idea",
    "The experiments",
    "What held, what did not, what is undecided",
    "Your turn",
    "Appendix",
)
TITLE = ""  # what stands before the first section
_GAME, IDEA, EXPERIMENTS, VERDICTS, YOUR_TURN, APPENDIX = SECTIONS

# The MyST that the book is rendered with.
CONFIG = yaml.safe_load((Path(__file__).parents[1] / "_config.yml").read_text(encoding="utf-8"))["parse"]
MARKDOWN = create_md_parser(MdParserConfig(enable_extensions={*CONFIG["myst_enable_extensions"]}), RendererHTML)
DIRECTIVE = re.compile(r"\{(?P<name>[\w:.+-]+)\}\s*(?P<argument>.*)")
OPTIONS = re.compile(r"\A(?:---\n(?:.*\n)*?---\n|(?::[\w-]+:.*\n)+)")
# Directives whose body is not prose, and those whose argument is a file or a key rather than a title.
VERBATIM = frozenset(
    {"math", "code", "code-block", "code-cell", "literalinclude", "include", "bibliography", "raw", "toctree"}
)
NO_TITLE = VERBATIM | {"figure", "image", "glue", "glue:any", "glue:figure", "glue:math", "glue:md", "glue:text"}
ADDRESS = re.compile(r"https?://[^\s)>]+")


@dataclass(frozen=True)
class Block:
    """A code cell, or the Markdown between two code cells or headings of the second level."""

    kind: str
    source: str
    section: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(self.metadata.get("tags", ()))

    @property
    def hidden(self) -> bool:
        """Whether a reader of the page cannot see the code at all."""
        return bool(self.tags & {"remove-cell", "remove-input"})

    @property
    def plain(self) -> bool:
        """Whether the page shows the code at once; what is tagged `hide-input` it folds away."""
        return not self.hidden and "hide-input" not in self.tags

    @property
    def figure(self) -> Mapping[str, Any] | None:
        """The figure that the cell declares, if it declares one."""
        return self.metadata.get("mystnb", {}).get("figure")

    @property
    def readable(self) -> str:
        """The Markdown that this block puts on the page; of a code cell, the caption of its figure."""
        return self.source if self.kind == "markdown" else str((self.figure or {}).get("caption", ""))

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @functools.cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def __str__(self) -> str:
        where = self.section or "the title block"
        return f"{where}, the {'cell' if self.kind == 'code' else 'text'} that begins {self.source.strip()[:60]!r}"


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book with what its claims file declares; `visitors` are the texts of the other pages."""

    name: str
    text: str
    declaration: Mapping[str, Any]
    visitors: tuple[str, ...] = ()

    @functools.cached_property
    def notebook(self) -> Any:
        return jupytext.reads(self.text, fmt="md:myst")

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(_blocks(self.notebook.cells))

    @property
    def code(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.kind == "code")

    @property
    def markdown(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.kind == "markdown")

    @property
    def claims(self) -> tuple[Mapping[str, Any], ...]:
        """All that the chapter has to judge: the paper's claims, our own findings and errata."""
        return tuple(self.declaration.get("claims") or ())

    @functools.cached_property
    def imports(self) -> tuple[tuple[Block, str, str], ...]:
        """Every import as cell, module, and the name it binds."""
        found = []
        for block in self.code:
            for node in ast.walk(block.tree):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    origin = node.module if isinstance(node, ast.ImportFrom) else None
                    names = [(alias.asname or alias.name).split(".")[0] for alias in node.names]
                    modules = [origin or alias.name for alias in node.names]
                    found += [(block, module, name) for module, name in zip(modules, names, strict=True)]
        return tuple(found)

    def calls(self, name: str) -> Iterator[tuple[Block, ast.Call]]:
        """Every call of a function or method called `name`, with the cell it stands in."""
        for block in self.code:
            yield from ((block, call) for call in block.calls if called(call) == name)


def read_chapter(path: Path) -> Chapter:
    """The chapter at book/<name>.md with its declarations in book/claims/<name>.yml."""
    declaration = yaml.safe_load((path.parent / "claims" / f"{path.stem}.yml").read_text(encoding="utf-8"))
    others = tuple(page.read_text(encoding="utf-8") for page in sorted(path.parent.glob("*.md")) if page != path)
    return Chapter(path.stem, path.read_text(encoding="utf-8"), declaration, others)


def called(call: ast.Call) -> str:
    """The last name of what is called: `show` for `figures.show(...)`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def literal(call: ast.Call) -> str | None:
    """The first argument if it is a string written out, else None."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def prose(source: str) -> str:
    """The sentences, titles and table cells of a piece of Markdown, formulas and roles included."""
    return "\n\n".join(token.content for token in _inline(source))


def words(source: str, *, titles: bool = True) -> str:
    """The prose of a piece of Markdown without formulas, code, roles and addresses: what a reader reads as words."""
    kept = {"text": str, "image": str, "softbreak": lambda _: "\n", "hardbreak": lambda _: "\n"}
    texts = (
        "".join(kept.get(part.type, lambda _: " ")(part.content) for part in t.children)
        for t in _inline(source, titles)
    )
    return ADDRESS.sub(" ", "\n\n".join(texts))


def headings(source: str, level: int) -> list[str]:
    """The headings of one level in a piece of Markdown."""
    pairs = pairwise(_tokens(source))
    return [text.content for mark, text in pairs if (mark.type, mark.tag) == ("heading_open", f"h{level}")]


@functools.cache
def _tokens(source: str) -> list[Token]:
    return MARKDOWN.parse(source)


def _inline(source: str, titles: bool = True) -> Iterator[Token]:
    """Sentences, titles and table cells: outside code and formulas, without options of directives."""
    before = ""
    for token in _tokens(source):
        directive = DIRECTIVE.fullmatch(token.info.strip()) if token.type in ("fence", "colon_fence") else None
        if token.type == "inline" and (titles or before != "heading_open"):
            yield token
        elif directive:
            if directive["name"] not in NO_TITLE:
                yield from _inline(directive["argument"])
            if directive["name"] not in VERBATIM:
                yield from _inline(OPTIONS.sub("", token.content), titles)
        before = token.type


def _blocks(cells: list[Any]) -> Iterator[Block]:
    section = ""
    for cell in cells:
        if cell.cell_type == "code":
            yield Block("code", cell.source, section, cell.metadata)
            continue
        for piece in _split_at_headings(cell.source):
            found = headings(piece, 2)
            section = found[0] if found else section
            yield Block("markdown", piece, section, cell.metadata)


def _split_at_headings(source: str) -> Iterator[str]:
    """Split Markdown before each heading of the second level, wherever its label stands; fenced text is left whole."""
    lines = source.splitlines()
    starts = [token.map[0] for token in _tokens(source) if token.type == "heading_open" and token.tag == "h2"]
    for start, end in pairwise([0, *starts, len(lines)]):
        if any(line.strip() for line in lines[start:end]):
            yield "\n".join(lines[start:end])
