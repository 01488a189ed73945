"""The book on disk: where its parts lie, which chapters it has, which parameters they take, how files are written.

Whatever is wrong with a request or with the book is a `UserError`, raised before anything is executed or changed.
"""

import ast
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from leakage import arguments, store
from leakage.arguments import UserError
from reproduced import code_keys, repository, runtime
from reproduced.claims import declarations
from reproduced.claims.declarations import Declarations

STANDARD = {"profile": "ci", "seed": 0, "device": "auto"}  # every chapter takes exactly these, with these types
MARKER = ".leakage-build"  # in a build folder: whatever lies beside it may be overwritten and deleted by a build
GENERATED = "_generated"  # in the staged tree: what a build makes of what the chapters found, for pages to include
_NOT_PAGES = shutil.ignore_patterns(".*", "*.ipynb", "_build", GENERATED, "__pycache__", "*.egg-info", "*.partial")


@dataclass(frozen=True)
class Book:
    """The repository at `root`, built into the folder `build`."""

    root: Path
    build: Path

    @cached_property
    def chapters(self) -> tuple[str, ...]:
        """Chapters that exist and declare claims, in the order of the table of contents."""
        there = {p.stem for p in (self.folder / "claims").glob("*.yml") if (self.folder / f"{p.stem}.md").is_file()}
        listed = [name for name in self.pages if name in there]
        return (*listed, *sorted(there - set(listed)))

    @cached_property
    def pages(self) -> tuple[str, ...]:
        """Pages of the table of contents, in order."""
        contents = read_mapping(self.root / "_toc.yml")
        pages = [contents.get("root", "intro"), *_files(contents)]
        if wrong := [page for page in pages if not isinstance(page, str)]:
            raise UserError(f"_toc.yml: a page must be a name; got {arguments.shown(wrong[0])}.")
        return tuple(dict.fromkeys(pages))

    @property
    def folder(self) -> Path:
        """The sources of all pages."""
        return self.root / "book"

    @property
    def library(self) -> Path:
        """The folder of the packages that the chapters import: the repository's own, else the installed one."""
        own = self.root / "lib"
        return own if (own / "leakage").is_dir() else code_keys.LIB

    @property
    def packages(self) -> tuple[Path, ...]:
        """The packages in `library`."""
        return tuple(self.library / name for name in store.PACKAGES if (self.library / name).is_dir())

    @property
    def staged(self) -> Path:
        """The tree that is rendered: the pages with the chapters executed."""
        return self.build / "site-src"

    @property
    def site(self) -> Path:
        """The rendered site."""
        return self.build / "site" / "_build" / "html"

    def source(self, chapter: str) -> Path:
        return self.folder / f"{chapter}.md"

    def executed(self, profile: str, chapter: str) -> Path:
        return self.build / "executed" / profile / f"{chapter}.ipynb"

    def findings_file(self, chapter: str) -> Path:
        """The file of what the chapter's last execution found, in any profile."""
        return self.build / "claims" / f"{chapter}.json"

    def full_scale_file(self, chapter: str) -> Path:
        return self.folder / "records" / f"{chapter}.json"

    def declarations(self, chapter: str) -> Declarations:
        """The chapter's claims file; a `UserError` if it is wrong."""
        try:
            return declarations.load(self.folder / "claims" / f"{chapter}.yml")
        except ValueError as error:
            raise UserError(f"book/claims/{error}") from error

    def notebook(self, chapter: str) -> NotebookNode:
        """The chapter as a notebook; a `UserError` unless it has one `parameters` cell with the standard parameters."""
        try:
            notebook = jupytext.read(self.source(chapter))
        except Exception as error:  # whatever the converter raises of a text, the text is at fault
            raise UserError(f"book/{chapter}.md cannot be read: {error}.") from error
        found = defaults(notebook, chapter)
        if {name: type(value) for name, value in found.items()} != {n: type(v) for n, v in STANDARD.items()}:
            wanted = ", ".join(f"{name} = {value!r}" for name, value in STANDARD.items())
            raise UserError(f"book/{chapter}.md: the `parameters` cell must hold exactly {wanted}.")
        return notebook

    def choose(self, names: Sequence[str]) -> tuple[str, ...]:
        """The chapters named, all if none is, in the book's order; a `UserError` for a name that is no chapter."""
        names = [name.removeprefix("book/").removesuffix(".md") for name in names]
        if unknown := [name for name in names if name not in self.chapters]:
            known = ", ".join(self.chapters) or "none yet"
            raise UserError(f"{arguments.shown(unknown[0])} is no chapter; the chapters are: {known}.")
        return tuple(chapter for chapter in self.chapters if not names or chapter in names)

    def longest_first(self, chapters: Iterable[str]) -> list[str]:
        """The order in which chapters begin: a long one that begins late ends alone."""
        return sorted(chapters, key=lambda chapter: -self.declarations(chapter).minutes)

    def check_folder(self) -> None:
        """A `UserError` unless a build may write and delete in the build folder: it is new, empty or marked as one.

        `_build` of the repository needs no marker: a cache of the continuous integration may have created it.
        """
        folder, root = _real(self.build), _real(self.root)
        if root.is_relative_to(folder) or any(
            folder.is_relative_to(_real(part)) for part in (self.folder, *self.packages, self.root / ".git")
        ):
            raise UserError(f"{folder} is a folder of the book's sources; choose another with --build-dir.")
        own = self.root / "_build"
        marked = (folder == _real(own) and not own.is_symlink()) or (folder / MARKER).is_file()
        if folder.is_dir() and not marked and any(folder.iterdir()):
            raise UserError(f"{folder} has files in it that are no build's; choose a new or an empty folder.")


def open_book(root: Path | None = None, build: Path | None = None) -> Book:
    """The book at `root`, or the one around the current folder; built into `_build` unless told otherwise."""
    try:
        found = repository.find_root(root)
    except FileNotFoundError as error:
        raise UserError(str(error)) from error
    return Book(found, (build or found / "_build").absolute())


def code(notebook: NotebookNode) -> str:
    """The Python text of all code cells."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def defaults(notebook: NotebookNode, chapter: str) -> dict[str, Any]:
    """Names and default values in the `parameters` cell."""
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    if len(cells) != 1:
        raise UserError(f"book/{chapter}.md must have one cell tagged `parameters`; it has {len(cells)}.")
    try:
        body = ast.parse(cells[0].source).body
        assigned = [node for node in body if isinstance(node, ast.Assign)]
        return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in assigned}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: of nested brackets
        raise UserError(f"book/{chapter}.md: the `parameters` cell may only assign plain values ({error}).") from error


def parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options `profile`, `seed`, `device` (`None` if not given) and fill in defaults.

    Raises:
        UserError: naming the parameter, the rule and the value received.
    """
    chosen = STANDARD | {name: value for name, value in options.items() if value is not None}
    try:
        runtime.check_profile(chosen["profile"])
        runtime.check_seed(chosen["seed"])
        runtime.pick_device(chosen["device"])
    except ValueError as error:
        raise UserError(str(error)) from error
    return chosen


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def read_mapping(path: Path) -> dict[str, Any]:
    """The fields of a YAML file written by hand; a `UserError` if it is not one."""
    try:
        content = declarations.read_yaml(path)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not isinstance(content, dict):
        raise UserError(f"{path.name} must be a mapping.")
    return content


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in one step."""
    store.write(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON; NaN, which is not JSON, is an error."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook of format 4."""
    write_text(path, nbformat.writes(notebook) + "\n")


def copy_tree(source: Path, target: Path) -> None:
    """Copy the sources below `source` into a new folder; a link is copied as what it points to."""
    shutil.copytree(source, target, ignore=_NOT_PAGES)


def _files(node: Any) -> Iterator[Any]:
    """Every `file` of a table of contents, however deep."""
    if isinstance(node, dict):
        if "file" in node:
            yield node["file"]
        for value in node.values():
            yield from _files(value)
    elif isinstance(node, list):
        for value in node:
            yield from _files(value)
