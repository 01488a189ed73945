"""The form of a chapter: each rule is a function from a chapter to the sentences that say how it breaks the rule.

A chapter is read with the same jupytext that the build uses, and no cell is run. Prose is what a reader sees as
sentences, titles and table cells: program code, formulas, roles, link targets and options of directives are not. A
fault names the section and the beginning of the cell or text, and says what to do. tests/test_chapters.py applies the
rules to the book, and each to a small chapter that breaks it.
"""

import ast
import builtins
import functools
import re
import sys
from collections import Counter
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

from leakage.data import datasets
from reproduced.pages.called_sources import find_calls
from reproduced.pages.library_pages import Library

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
ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"\{(?P<name>[\w:.+-]+)\}\s*(?P<argument>.*)")
OPTIONS = re.compile(r"\A(?:---\n(?:.*\n)*?---\n|(?::[\w-]+:.*\n)+)")
# Directives whose body is not prose, and those whose argument is a file or a key rather than a title.
VERBATIM = frozenset(
    {"math", "code", "code-block", "code-cell", "literalinclude", "include", "bibliography", "raw", "toctree"}
)
NO_TITLE = VERBATIM | {"figure", "image", "glue", "glue:any", "glue:figure", "glue:math", "glue:md", "glue:text"}
DEVICE_WORDS = frozenset({"device", "cpu", "cuda"})
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


PARAMETERS = {"profile": "ci", "seed": 0, "device": "auto"}
ANSWER = ":::{admonition} The answer"
MOST_CALL_LINES = 10  # of a cell that shows what runs
LEAST_VISIBLE = 0.08  # of the lines of code of a chapter
# What an experiment calls: the rooms of the papers, attacks and trainers; not data and metrics.
RUNNING = ("reproduced.papers.", *(f"leakage.{part}." for part in ("audit", "inversion", "membership", "trainers")))
MOST_NUMBERS = 4  # in the sentences of an answer; its fold may hold more
MOST_ANSWER_WORDS = 80
FOLD = 4  # the level of heading that opens a fold
EXERCISES = range(3, 6)  # how many a chapter has
EXERCISE = "Exercise: "
HEADER = """\
jupytext:
  formats: md:myst
  text_representation:
    extension: .md
    format_name: myst
  notebook_metadata_filter: -jupytext.text_representation.jupytext_version,-jupytext.text_representation.format_version
kernelspec:
  name: python3
  display_name: Python 3 (ipykernel)
  language: python
"""
PACKAGES = frozenset({"leakage", "reproduced", "myst_nb", "numpy", "sklearn", "torch"})
MAY_IMPORT = PACKAGES | sys.stdlib_module_names
# What a cell whose code the page does not show may use of the imports: it reports, it computes no result.
REPORTING = frozenset({"Count", "Exact", "Ledger", "Table", "figures", "glue", "math", "table"})
SHOWING = ("figures.show", "figures.frames")

GLUE_ROLE = re.compile(r"\{glue(?::\w+)?\}`([^`]+)`")
GLUE_DIRECTIVE = re.compile(r"^\s*(?:`{3,}|:{3,})\{glue(?::\w+)?\}\s+(\S+)", re.MULTILINE)
_ROLE_TARGET = re.compile(r" <[^<>]*>(?=`)")
_NAMED_CLAIMS = re.compile(r"Claims: `[\w.]+`(?:, `[\w.]+`)*\.?")

_NUMBER = r"\d+\.\d+(?:[eE][+-]?\d+)?"
_DECIMAL = re.compile(rf"(?<![\w.]){_NUMBER}(?![.\d]*[A-Za-z_])")
_BARE_FORMULA = re.compile(
    rf"(?<![\\$])\$\s*(?:\\(?:approx|sim|pm|leq?|geq?|ll|gg)\b|[=<>≈~±+-]|\s)*({_NUMBER})\s*(?:\\?%)?\s*\$(?!\$)"
)
# A number after one of these is the name of a place in a text, of a version or of a licence.
_NAMED = "|".join(
    (
        "Theorem|Thm|Lemma|Proposition|Prop|Corollary|Cor|Definition|Remark|Assumption|Algorithm",
        "Chapter|Section|Sec|Appendix|Table|Figure|Fig|Equation|Eqn?|arXiv:|version|v|CC BY|CC BY-SA",
    )
)
_ONE_NAME = r"\(?[A-Z]?\.?\d+(?:\.\d+)*\)?(?:\([a-z]\))?"
_NAMED_NUMBER = re.compile(
    rf"\b(?:{_NAMED})s?\.?[\s~]*{_ONE_NAME}(?:(?:,| and|,? or|–|-| to)[\s~]*{_ONE_NAME})*|§\s*{_ONE_NAME}",
    re.IGNORECASE,
)


def header_is_the_projects(chapter: Chapter) -> list[str]:
    wanted, found = yaml.safe_load(HEADER), yaml.safe_load(chapter.text.split("\n---\n")[0].removeprefix("---\n"))
    return [] if found == wanted else [f"the header must say exactly what every chapter's says, not {found}"]


def sections_are_the_six(chapter: Chapter) -> list[str]:
    titles = [title for block in chapter.markdown for title in headings(block.source, 1)]
    found = [title for block in chapter.markdown for title in headings(block.source, 2)]
    faults = [] if len(titles) == 1 else [f"one title, with one #; found {titles}"]
    return faults if found == [*SECTIONS] else [*faults, f"the sections must be {[*SECTIONS]}; found {found}"]


def parameters_stand_in_the_second_cell(chapter: Chapter) -> list[str]:
    places = [number for number, block in enumerate(chapter.code) if "parameters" in block.tags]
    if places != [1]:
        return [f"the second code cell, and no other, is tagged `parameters`; tagged are {[n + 1 for n in places]}"]
    wanted = [f"{name} = {value!r}" for name, value in PARAMETERS.items()]
    found = [ast.unparse(node) for node in chapter.code[1].tree.body]
    return [] if found == wanted else [f"the parameters are {wanted}; found {found}"]


def first_cell_imports(chapter: Chapter) -> list[str]:
    faults = []
    for block, module, _ in chapter.imports:
        if block is not chapter.code[0] and block.section != YOUR_TURN:
            faults.append(f"{block}: import {module} in the first code cell")
        if module.split(".")[0] not in MAY_IMPORT:
            faults.append(
                f"{block}: a chapter imports {', '.join(sorted(PACKAGES))}, the standard library, not {module}"
            )
    if not chapter.code or not all(isinstance(n, ast.Import | ast.ImportFrom) for n in chapter.code[0].tree.body):
        faults.append("the first code cell holds the imports and nothing else")
    return faults


def prose_stands_between_code_cells(chapter: Chapter) -> list[str]:
    faults, before = [], None
    for block in chapter.blocks:
        if block.kind == "markdown":
            before = before if not _sentences(block) else None
        elif block.plain:
            faults += [f"{block}: no sentence stands between this cell and the one before it"] if before else []
            before = block
    return faults


def the_answer_stands_first(chapter: Chapter) -> list[str]:
    """The answer, then a fold with the set-up; the picture that tells the story comes from where all is measured."""
    faults, first = [], chapter.blocks[0].source if chapter.blocks else ""
    if ANSWER not in first:
        faults.append(f"the title block gives the answer, in `{ANSWER}`, before any code")
    if not any(headings(block.source, FOLD) for block in chapter.markdown if block.section == TITLE):
        faults.append("the code cells of the title block stand in a fold, `#### Set-up`")
    stories = [block.section for block in chapter.code if "story" in block.tags]
    if stories != [VERDICTS]:
        faults.append(f"one cell is tagged `story`, in {VERDICTS!r}; found in {stories}")
    return faults


def the_answer_names_its_claims(chapter: Chapter) -> list[str]:
    """Its last line names the claims that carry its sentences; these are short, and a fold holds the rest."""
    box = chapter.blocks[0].source.partition(ANSWER)[2].partition("\n:::")[0].strip().splitlines() or [""]
    if not _NAMED_CLAIMS.fullmatch(box[-1]):
        cure = "as `Claims: `id`, `id``"
        return [f"the last line of the answer names the claims that carry it, {cure}; found {box[-1]!r}"]
    seen = re.sub(r"^```\{fold\}.*?^```$", "", "\n".join(box[:-1]), flags=re.MULTILINE | re.DOTALL)
    sentences = "\n".join(line for line in seen.splitlines() if not line.startswith((":", "|")))
    named = re.findall(r"`([^`]+)`", box[-1])
    expected = {claim["id"]: claim.get("expected") for claim in chapter.claims}
    faults = [
        f"the answer rests on {name}, which the claims file does not declare" for name in named if name not in expected
    ]
    if "undecided" in map(expected.get, named) and "undecided" not in sentences:
        faults.append("the answer rests on an undecided claim, and no sentence of it says `undecided`")
    numbers = len(_glue_keys(sentences))
    if numbers > MOST_NUMBERS:
        faults.append(f"the answer's sentences hold {numbers} glued numbers, at most {MOST_NUMBERS}; use its fold")
    words = len(_ROLE_TARGET.sub("", sentences).split())
    if words > MOST_ANSWER_WORDS:
        faults.append(f"the answer has {words} words, at most {MOST_ANSWER_WORDS}; the rest stands in its fold")
    return faults


def definitions_stand_where_code_is_explained(chapter: Chapter) -> list[str]:
    return [
        f"{block}: `{node.name}` is defined here; only {IDEA!r} and {YOUR_TURN!r} may define"
        for block in chapter.code
        if block.section not in (IDEA, YOUR_TURN)
        for node in ast.walk(block.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


def shown_sources_are_found(chapter: Chapter) -> list[str]:
    return [
        f"{path} has no {text}"
        for path, options in re.findall(r"```\{literalinclude\} /(\S+)\n((?::.*\n)*)", chapter.text)
        for text in re.findall(r":(?:start|end)-\w+: *(.+)", options)
        if text.strip('"') not in (ROOT / path).read_text("utf-8")
    ]


def typed_decimals(prose: str, words: str) -> list[str]:
    """Decimals among the words, and formulas that hold nothing but one; numbers that name a place do not count."""
    return [match.group(0) for match in _DECIMAL.finditer(_NAMED_NUMBER.sub(" ", words))] + _BARE_FORMULA.findall(prose)


def results_are_not_typed(chapter: Chapter) -> list[str]:
    faults = []
    for block in chapter.blocks:
        if block.section not in (TITLE, EXPERIMENTS, VERDICTS):
            continue
        typed = typed_decimals(prose(block.readable), words(block.readable))
        faults += [f"{block}: {number} is typed; a result reaches the text through glue" for number in typed]
    return faults


def every_claim_is_judged(chapter: Chapter) -> list[str]:
    judged, faults = _written_out(chapter, "judge", "the claim's id")
    declared = [claim["id"] for claim in chapter.claims]
    faults += [f"{name} is declared and never judged" for name in declared if not judged[name]]
    faults += [f"{name} is judged and not declared" for name in judged if name not in declared]
    return faults


def generated_tables_are_shown(chapter: Chapter) -> list[str]:
    places = {name: {block.section for block, _ in chapter.calls(name)} for name in ("declared", "verdicts")}
    wanted = {"declared": APPENDIX, "verdicts": VERDICTS}
    return [
        f"`ledger.{name}()` belongs in {wanted[name]!r}; found in {sorted(places[name]) or 'no section'}"
        for name in wanted
        if places[name] != {wanted[name]}
    ]


def glue_is_defined_and_used(chapter: Chapter) -> list[str]:
    defined, faults = _written_out(chapter, "glue", "the name")
    used = {key for block in chapter.blocks for key in _glue_keys(block.readable) if "::" not in key}
    visited = {
        key.split("::")[1].split(":")[0]
        for text in chapter.visitors
        for key in _glue_keys(text)
        if key.split("::")[0].split(".")[0] == chapter.name and "::" in key
    }
    plain = {key.split(":")[0] for key in used}
    faults += [f"the text uses {key!r}, which no cell glues" for key in sorted(plain - defined.keys())]
    faults += [f"a cell glues {key!r}, which no text uses" for key in sorted(defined.keys() - plain - visited)]
    return faults + [f"{key!r} is glued {times} times" for key, times in defined.items() if times > 1]


def figures_are_labelled(chapter: Chapter) -> list[str]:
    faults, names = [], Counter()
    for block in chapter.code:
        calls = [call for call in block.calls if ast.unparse(call.func) in SHOWING]
        figure = block.figure or {}
        # A slider is one piece of HTML with a caption of its own; everything else gets both from the cell.
        captioned = any(keyword.arg == "caption" for call in calls for keyword in call.keywords)
        missing = [part for part in ("name", "caption") if not captioned and not str(figure.get(part) or "").strip()]
        names[figure.get("name")] += bool(figure)
        if calls and missing:
            faults.append(
                f"{block}: it shows a figure without {' and '.join(missing)} (`mystnb: figure:` in the cell's options)"
            )
        if figure and not calls:
            faults.append(f"{block}: it declares a figure and shows none with {' or '.join(SHOWING)}")
        if len(calls) > 1:
            faults.append(f"{block}: one figure to a cell, so that each has its caption")
        faults += [
            f"{block}: `{ast.unparse(call.func)}` needs `alt`, words for who cannot see it"
            for call in calls
            if not _has_alt(call)
        ]
    return faults + [f"the figure name {name!r} is used {times} times" for name, times in names.items() if times > 1]


def absent_data_are_shown_as_absent(chapter: Chapter) -> list[str]:
    """Where all that a part judges needs data, each figure and table names the stand-in, or says "not run" itself."""
    needs = {claim["id"] for claim in chapter.claims if claim.get("needs")}
    part: list[Block] = []
    faults = []
    for block in (*chapter.blocks, Block("markdown", "## The end", "")):
        if block.kind == "code":
            part.append(block)
        elif headings(block.source, 2) or headings(block.source, 3):
            calls = [(one, call) for one in part for call in one.calls]
            judged = {literal(call) for _, call in calls if called(call) == "judge"}
            for one, call in calls if judged and judged <= needs else ():
                given = {keyword.arg for keyword in call.keywords}
                shown = ast.unparse(call.func) in (*SHOWING, "Table")
                if shown and "stand_in" not in given and "not run" not in one.source:
                    faults.append(f"{one}: `{ast.unparse(call.func)}` needs `stand_in`, for where the data are absent")
            part = []
    return faults


def hidden_cells_only_report(chapter: Chapter) -> list[str]:
    imported, faults = {name for _, _, name in chapter.imports}, []
    for block in chapter.code:
        if not block.hidden:
            continue
        nodes = list(ast.walk(block.tree))
        doing = [n for n in nodes if isinstance(n, ast.stmt) and not isinstance(n, ast.Expr | ast.If)]
        used = {n.id for n in nodes if isinstance(n, ast.Name)} & imported - REPORTING
        faults += [
            f"{block}: hidden, with `{ast.unparse(n).splitlines()[0]}`; it may only call and branch" for n in doing
        ]
        faults += [f"{block}: hidden, and uses `{name}`; show what computes a result" for name in sorted(used)]
    return faults


def experiments_are_called_in_sight(chapter: Chapter) -> list[str]:
    """A section with an experiment shows, be it in a fold, a cell of at most `MOST_CALL_LINES` lines that calls one."""
    called = find_calls(_library(), [block.source for block in chapter.code])
    sections: dict[str, list[Block]] = {}
    title = ""
    for block in chapter.blocks:
        if block.section == EXPERIMENTS and block.kind == "code":
            sections.setdefault(title, []).append(block)
        else:
            title = next(iter(headings(block.source, 3)[-1:]), title)
    faults = []
    for title, blocks in sections.items():
        running = [block for block in blocks if any(path.startswith(RUNNING) for path in called[block.source])]
        if running and not any(b.plain and len(b.source.splitlines()) <= MOST_CALL_LINES for b in running):
            faults.append(
                f"{title}: show the call that runs its experiment, in a cell of {MOST_CALL_LINES} lines at most"
            )
    return faults


def enough_code_is_visible(chapter: Chapter) -> list[str]:
    """At least `LEAST_VISIBLE` of the lines of code are shown where they stand; a fold counts as opened."""
    lines = [(len(block.source.splitlines()), block.plain) for block in chapter.code]
    share = sum(count for count, plain in lines if plain) / max(1, sum(count for count, _ in lines))
    return (
        []
        if share >= LEAST_VISIBLE
        else [f"{share:.1%} of the lines of code are visible, at least {LEAST_VISIBLE:.0%}"]
    )


def exercises_stand_alone(chapter: Chapter) -> list[str]:
    """Each is a question, the heading of the fold with its solution, and its code runs after the set-up alone."""
    begun = _bound(*(block.tree for block in chapter.code if block.section == TITLE))
    solutions: dict[str, list[Block]] = {}
    title = ""
    for block in chapter.blocks:
        if block.section == YOUR_TURN and block.kind == "code" and title.startswith(EXERCISE):
            solutions[title].append(block)
        elif block.section == YOUR_TURN:
            for title in headings(block.source, FOLD):
                solutions |= {title: []} if title.startswith(EXERCISE) else {}
        else:
            title = ""
    faults = [f"{title!r} asks no question" for title in solutions if not title.endswith("?")]
    if len(solutions) not in EXERCISES:
        faults.append(f"{len(solutions)} exercises, `#### {EXERCISE}…?`; want {EXERCISES[0]} to {EXERCISES[-1]}")
    for title, blocks in solutions.items():
        trees = [block.tree for block in blocks]
        used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if strange := sorted(used - begun - _bound(*trees) - vars(builtins).keys()):
            faults.append(f"{title!r} uses {', '.join(strange)}, which neither it nor the set-up makes")
    return faults


def _bound(*trees: ast.Module) -> set[str | None]:
    """The names that these cells import, define or assign."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = [a for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names]
    return {
        *((alias.asname or alias.name).split(".")[0] for alias in imported),
        *(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)),
        *(node.arg for node in nodes if isinstance(node, ast.arg)),
        *(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)),
    }


@functools.cache
def _library() -> Library:
    return Library(ROOT / "lib", {})


def data_read_is_declared(chapter: Chapter) -> list[str]:
    declared = set(chapter.declaration.get("data") or ())
    read = {name for name in datasets.DATASETS if any(chapter.calls(f"load_{name}"))}
    for function in ("is_available", "load", "read_payload", "fetch"):
        read |= {literal(call) for _, call in chapter.calls(function)} & datasets.DATASETS.keys()
    needed = {name for claim in chapter.claims for name in claim.get("needs") or ()}
    return [
        *(
            f"the cells read {name}; declare it under `data`, so that its checksum counts"
            for name in sorted(read - declared)
        ),
        *(f"`data` declares {name}, which no cell reads through leakage.data" for name in sorted(declared - read)),
        *(f"a claim needs {name}, which `data` does not declare" for name in sorted(needed - declared)),
    ]


def no_cell_names_a_device(chapter: Chapter) -> list[str]:
    """But the parameters and `runtime.begin`: a chapter holds tensors of the CPU; experiments move what gains by it."""
    beginning = {id(node) for _, call in chapter.calls("begin") for node in ast.walk(call)}
    if not beginning:  # a page that runs no experiment
        return []
    return [
        f"{block}: `{ast.unparse(node)}` names a device; give the experiment the run; it returns tensors of the CPU"
        for block in chapter.code
        if "parameters" not in block.tags
        for node in ast.walk(block.tree)
        if id(node) not in beginning
        and any(getattr(node, part, None) in DEVICE_WORDS for part in ("attr", "arg", "id", "value"))
    ]


def _sentences(block: Block) -> bool:
    return bool(re.search(r"[A-Za-z]{2}", words(block.source, titles=False)))


def _written_out(chapter: Chapter, function: str, what: str) -> tuple[Counter[str], list[str]]:
    """How often each text is the first argument of a function, and the calls in which it is no text."""
    names = [(block, literal(call)) for block, call in chapter.calls(function)]
    faults = [
        f"{block}: write {what} out in `{function}`, so that a search finds it" for block, name in names if not name
    ]
    return Counter(name for _, name in names if name), faults


def _glue_keys(text: str) -> list[str]:
    return GLUE_ROLE.findall(text) + GLUE_DIRECTIVE.findall(text)


def _has_alt(call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg in ("alt", "alts")]
    return any(not isinstance(value, ast.Constant) or bool(str(value.value or "").strip()) for value in given)


RULES = (
    header_is_the_projects,
    sections_are_the_six,
    parameters_stand_in_the_second_cell,
    first_cell_imports,
    the_answer_stands_first,
    the_answer_names_its_claims,
    prose_stands_between_code_cells,
    definitions_stand_where_code_is_explained,
    shown_sources_are_found,
    results_are_not_typed,
    every_claim_is_judged,
    generated_tables_are_shown,
    glue_is_defined_and_used,
    figures_are_labelled,
    absent_data_are_shown_as_absent,
    hidden_cells_only_report,
    experiments_are_called_in_sight,
    enough_code_is_visible,
    exercises_stand_alone,
    data_read_is_declared,
    no_cell_names_a_device,
)
