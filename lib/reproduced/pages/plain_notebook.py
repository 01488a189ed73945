"""From an executed chapter to a notebook that reads as prose in any viewer: plain Markdown, with its numbers.

A chapter is written in MyST, which JupyterLab and Colab show as raw markup. Here roles become the words that the site
shows (numbers of the run, citations, numbers of figures and equations), directives become plain paragraphs, captions
stand under their figures, and cells that the site folds away are folded. Parameters that were injected stand in the
parameters cell itself, so that whoever edits them there changes the run. Nothing is executed.
"""

import ast
import copy
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

_ROLE = re.compile(r"\{(?P<name>[a-z:]+)\}`(?P<text>[^`]+)`")
_TITLED = re.compile(r"(?P<title>.*?)\s*<(?P<target>[^<>]+)>", re.DOTALL)
_OPENING = re.compile(r"(?P<marks>`{3,}|:{3,})\{(?P<name>[a-z:-]+)\} *(?P<title>.*)")
_OPTION = re.compile(r":(?P<key>[\w-]+):\s*(?P<value>.*)")
_LABEL = re.compile(r"^\([^)\s]+\)=\n+", re.MULTILINE)
_EQUATION = re.compile(r"\n?\$\$ *\((?P<label>[^)\s]+)\)")
_ASSIGNED = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)
_NAMES = {"prf:theorem": "Theorem", "prf:lemma": "Lemma", "prf:algorithm": "Algorithm", "prf:proof": "Proof"}


@dataclass(frozen=True)
class SiteNames:
    """What the site calls things: numbers and titles by label, citations by key, and where its pages are."""

    equations: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)  # "Figure 1.3"
    titles: Mapping[str, str] = field(default_factory=dict)  # of pages and of labelled headings
    citations: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # ("Tan et al.", "2022")
    address: str = ""  # of the public repository


def to_plain_markdown(notebook: NotebookNode, names: SiteNames, folder: Path, note: str = "") -> NotebookNode:
    """A copy of an executed notebook in plain Markdown; `folder` holds the sources that listings show.

    `note` becomes the first line.
    """
    made = copy.deepcopy(notebook)
    _merge_parameters(made)
    numbers = glued_numbers(made)

    def text(markdown: str) -> str:
        return _plain_text(markdown, numbers, names, folder)

    cells: list[NotebookNode] = [new_markdown_cell(note)] if note else []
    for cell in made.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = text(cell.source)
            continue
        if "hide-input" in cell.metadata.get("tags", ()):
            cell.metadata["jupyter"] = {"source_hidden": True}
        cell["outputs"] = [one for one in cell.get("outputs", ()) if "scrapbook" not in one.get("metadata", {})]
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if caption := figure.get("caption"):
            number = names.figures.get(figure.get("name", ""), "Figure")
            cells.append(new_markdown_cell(f"**{number}.** {text(caption)}"))
    made.cells = cells
    return made


def glued_numbers(notebook: NotebookNode) -> dict[str, str]:
    """What the cells of a notebook gave to its prose, by name."""
    found = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if about := output.get("metadata", {}).get("scrapbook"):
                content = output["data"][f"{about['mime_prefix']}text/plain"]
                found[about["name"]] = str(ast.literal_eval("".join(content)))
    return found


def _merge_parameters(notebook: NotebookNode) -> None:
    """Move the values of papermill's cell into the cell of the parameters, which keeps its comments."""
    tagged = {tag: cell for cell in notebook.cells for tag in cell.metadata.get("tags", ())}
    injected, parameters = tagged.get("injected-parameters"), tagged.get("parameters")
    if injected is None or parameters is None:
        return
    values = dict(_ASSIGNED.findall(injected.source))

    def given(found: re.Match[str]) -> str:
        _, mark, comment = found[2].partition("  #")
        return f"{found[1]} = {values.get(found[1], found[2].removesuffix(mark + comment))}{mark}{comment}"

    parameters.source = _ASSIGNED.sub(given, parameters.source)
    notebook.cells = [cell for cell in notebook.cells if cell is not injected]


def _plain_text(markdown: str, numbers: Mapping[str, str], names: SiteNames, folder: Path) -> str:
    text = _LABEL.sub("", _without_directives(markdown, folder))
    text = _EQUATION.sub(lambda found: f" \\tag{{{names.equations.get(found['label'], '?')}}}\n$$", text)
    return _ROLE.sub(lambda role: _words(role["name"], role["text"], numbers, names), text).strip()


def _words(role: str, text: str, numbers: Mapping[str, str], names: SiteNames) -> str:
    """What the site shows for a role."""
    titled = _TITLED.fullmatch(text)
    title, target = (titled["title"], titled["target"]) if titled else ("", text)
    target = target.strip()
    simple: dict[str, Callable[[], str]] = {
        "glue:text": lambda: numbers.get(target.partition(":")[0], "(not run)"),
        "eq": lambda: f"({names.equations.get(target, '?')})",
        "numref": lambda: names.figures.get(target, "the figure"),
        "cite:t": lambda: "; ".join(f"{who} ({year})" for who, year in _cited(target, names)),
        "cite:p": lambda: f"({'; '.join(f'{who}, {year}' for who, year in _cited(target, names))})",
        "source": lambda: f"[`{target}`]({names.address}/blob/main/{target})" if names.address else f"`{target}`",
    }
    if role in simple:
        return simple[role]()
    return title or names.titles.get(target.lstrip("/"), target)


def _cited(keys: str, names: SiteNames) -> list[tuple[str, str]]:
    return [names.citations.get(key.strip(), (key.strip(), "")) for key in keys.split(",")]


def _without_directives(markdown: str, folder: Path) -> str:
    """Markdown with directives as plain paragraphs; what stands in one may have others."""
    lines, out = markdown.splitlines(), []
    place = 0
    while place < len(lines):
        opening = _OPENING.fullmatch(lines[place].strip())
        place += 1
        if opening is None:
            out.append(lines[place - 1])
            continue
        end = next(n for n in range(place, len(lines) + 1) if n == len(lines) or lines[n].strip() == opening["marks"])
        options, body = {}, lines[place:end]
        while body and (option := _OPTION.fullmatch(body[0].strip())):
            options[option["key"]] = option["value"]
            body = body[1:]
        inner = _without_directives("\n".join(body), folder).strip()
        out += ["", _paragraphs(opening["name"], opening["title"].strip(), options, inner, folder), ""]
        place = end + 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out))


def _paragraphs(name: str, title: str, options: Mapping[str, str], inner: str, folder: Path) -> str:
    if name == "literalinclude":
        return f"```python\n{_listing(folder / title.lstrip('/'), options)}\n```"
    if name in _NAMES:
        head = f"**{_NAMES[name]}**" + f" ({title})" * bool(title)
        return f"{head}.\n{inner}" if name != "prf:proof" else f"*Proof.*\n{inner}"
    head = title if name in ("admonition", "fold") else name.capitalize() if name in ("note", "warning", "tip") else ""
    return f"**{head}**\n\n{inner}" if head else inner


def _listing(file: Path, options: Mapping[str, str]) -> str:
    """The lines that `literalinclude` shows, by Sphinx's own reader."""
    from sphinx.directives.code import LiteralIncludeReader

    given: dict[str, object] = {
        key: value.strip("\"'") if key.startswith(("start", "end")) else value for key, value in options.items()
    }
    if "dedent" in given:
        given["dedent"] = int(str(given["dedent"])) if given["dedent"] else None
    read = LiteralIncludeReader(str(file), given, SimpleNamespace(source_encoding="utf-8-sig"))  # type: ignore[arg-type]
    return textwrap.dedent(read.read()[0]).rstrip()
