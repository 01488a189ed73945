"""The book as a tree of pages, and the site made from it.

The staged tree is a copy of `book/` in which the chapters are executed notebooks and `_generated/` holds what the
ledgers say; the library's source lies beside them for pages that show it. jupyter-book renders it and executes nothing.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from leakage import store
from reproduced.pages import contents, downloads, generated, layers, tree
from reproduced.pages.library import PAGE, Library
from reproduced.run import chapter_cache, replications
from reproduced.run.book import GENERATED, Book, code, copy_tree, read_mapping, write_json, write_notebook, write_text
from reproduced.run.chapter_cache import REPRO
from reproduced.run.data_command import lacking_data

_FRAMES = "_static/frames"  # where the pictures of sliders lie, for a page and in the staged tree
_WARNING = re.compile(r"WARNING|ERROR|CRITICAL|Exception")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Rendered:
    """How rendering ended: the exit status of jupyter-book and the lines in which it complains."""

    status: int
    complaints: tuple[str, ...]


def stage(book: Book, profile: str, ledgers: Mapping[str, Mapping[str, Any]], notes: Mapping[str, str]) -> list[str]:
    """Make the staged tree anew; return the chapters that stand there as a note only, for want of an execution.

    Args:
        book: where everything lies.
        profile: whose executions are shown.
        ledgers: of the chapters that were executed to their end, by name.
        notes: what a page must tell its reader before anything else, by chapter.
    """
    if book.staged.exists():
        shutil.rmtree(book.staged)
    copy_tree(book.folder, book.staged)
    for package in book.packages:
        copy_tree(package, book.staged / "lib" / package.name)
    library = read_library(book)
    repository = read_mapping(book.root / "_config.yml").get("repository", {}).get("url", "")
    seeds = replications.sentences(book)
    absent = []
    for chapter in book.chapters:
        notebook, page = chapter_cache.read(book.executed(profile, chapter)), book.staged / f"{chapter}.md"
        if notebook is not None:
            write_notebook(
                book.staged / GENERATED / downloads.FOLDER / f"{chapter}.ipynb",
                downloads.download(notebook, repository),
            )
            copy_alt_texts(notebook)
            if png := layers.picture(notebook):
                store.write(book.staged / GENERATED / layers.STORY / f"{chapter}.png", png)
            for name, content in layers.pictures_as_files(notebook, _FRAMES).items():
                store.write(book.staged / _FRAMES / name, content)
            if library is not None:
                notebook.cells.append(
                    new_markdown_cell(f"#### The library behind this\n\n{library.of_chapter(chapter)}")
                )
            layers.arrange(notebook, ledgers.get(chapter), contents.record(book, chapter), seeds.get(chapter))
            told = (_failure(notebook), notes.get(chapter), _lacking(book, chapter, ledgers))
            _note_at_the_top(notebook, "\n\n".join(filter(None, told)))
            write_notebook(page.with_suffix(".ipynb"), notebook)
            page.unlink()
        else:
            absent.append(chapter)
            write_text(page, placeholder(page.read_text("utf-8"), chapter, profile))
    _generate(book, ledgers, library)
    return absent


def read_library(book: Book) -> Library | None:
    """The library behind the chapters, for a book with a page about it."""
    if PAGE not in book.pages:
        return None
    known = tree.modules(book.library / "leakage")
    used = {name: tree.used(code(book.notebook(name)), known, "leakage") for name in book.chapters}
    return Library(book.library / "leakage", used)


def copy_alt_texts(notebook: NotebookNode) -> None:
    """Give each cell the alt text of its picture, where the page's renderer looks for it."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt:
                cell.metadata.setdefault("mystnb", {}).setdefault("image", {})["alt"] = alt


def _lacking(book: Book, chapter: str, ledgers: Mapping[str, Mapping[str, Any]]) -> str:
    """What the page could not judge for want of data, and what it shows instead."""
    sentence = lacking_data(book, {chapter: ledgers[chapter]}) if chapter in ledgers else ""
    instead = (
        "Captions and sentences about these data describe a build that has them; where a figure or table names other "
        "data in their place, it shows those, and no claim is judged by it."
    )
    return sentence and f"{sentence} {instead}"


def _failure(notebook: NotebookNode) -> str:
    error = notebook.metadata[REPRO].get("error")
    if not error:
        return ""
    return f"This chapter stopped in code cell {error['cell']} of {error['cells']}, so its claims are not judged."


def _note_at_the_top(notebook: NotebookNode, note: str) -> None:
    first = next((cell for cell in notebook.cells if cell.cell_type == "markdown"), None)
    if note and first is not None:
        first["source"] = with_note(first["source"], note)


def with_note(source: str, note: str) -> str:
    """Markdown with a warning after its title, or at its beginning if it has none."""
    box = f"```{{warning}}\n{note}\n```"
    title = re.search(r"^# .*$", source, flags=re.MULTILINE)
    return f"{source[: title.end()]}\n\n{box}\n{source[title.end() :]}" if title else f"{box}\n\n{source}"


def placeholder(source: str, chapter: str, profile: str) -> str:
    """A page for a chapter without results: its labels and its title, so that other pages can still point to it."""
    title = re.search(r"^# (.*)$", source, flags=re.MULTILINE)
    labels = re.findall(r"^\([^)\s]+\)=$", source[: title.start()] if title else "", flags=re.MULTILINE)
    note = f"This chapter was not executed in this build. Run `leakage build {chapter} --profile {profile}`."
    return with_note("\n".join([*labels, f"# {title[1] if title else chapter}", ""]), note)


def _generate(book: Book, ledgers: Mapping[str, Mapping[str, Any]], library: Library | None) -> None:
    pages = generated.pages(book, ledgers)
    if library is not None:
        pages |= {f"{PAGE}.md": library.contents()}
        pages |= {f"../{PAGE}/{name}.md": text for name, text in library.pages().items()}
    for name, text in pages.items():
        write_text(book.staged / GENERATED / name, text)
    write_json(book.staged / GENERATED / "claims.json", {"chapters": list(ledgers.values())})


def render(book: Book, *, strict: bool) -> Rendered:
    """Render the staged tree from nothing; if `strict`, warnings count as errors. The site is there either way."""
    output = book.build / "site"
    shutil.rmtree(output, ignore_errors=True)
    command: Sequence[str | Path] = [
        *(sys.executable, "-P", "-m", "reproduced.run.run_chapters", Path(sys.executable).with_name("jupyter-book")),
        *("build", book.staged, "--config", book.root / "_config.yml", "--toc", book.root / "_toc.yml"),
        *("--path-output", output, "-n", "--keep-going", *(["-W"] if strict else [])),
    ]
    variables = os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    reading, held = os.pipe()  # jupyter-book ends with this process, however it ends, for then the pipe does
    try:
        process = subprocess.run(
            command, stdin=reading, capture_output=True, encoding="utf-8", errors="replace", env=variables
        )
    finally:
        os.close(reading)
        os.close(held)
    lines = _COLOUR.sub("", f"{process.stdout}\n{process.stderr}").splitlines()
    write_text(book.build / "logs" / "site.log", "\n".join(lines) + "\n")
    complaints = dict.fromkeys(line.strip() for line in lines if _WARNING.search(line))
    return Rendered(process.returncode, tuple(complaints))
