"""The book as a tree of pages, and the site made from it.

The staged tree is a copy of `book/` in which the chapters are executed notebooks and `_generated/` holds what the
chapters found; the packages lie beside them for pages that show their source. jupyter-book renders it and executes
nothing: pages that are notebooks without claims are executed here before, unless an earlier build did.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jupytext
import nbformat
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from sphinx_external_toc.parsing import parse_toc_yaml

from leakage import arguments, store
from reproduced import code_keys, repository
from reproduced.pages import claim_tables, glossary, page_layout, summaries
from reproduced.pages.called_sources import CalledSources
from reproduced.pages.findings import ChapterFindings, read_chapters, read_full_scale, sort_for_reading
from reproduced.pages.library_pages import PAGE, Library
from reproduced.pages.page_layout import NOTEBOOKS, ORIGINS, STORIES
from reproduced.pages.summaries import lacking_data
from reproduced.run import chapter_cache, replications
from reproduced.run.book import (
    GENERATED,
    Book,
    UserError,
    code,
    copy_tree,
    read_mapping,
    write_json,
    write_notebook,
    write_text,
)
from reproduced.run.chapter_cache import EXECUTION_KEY, Plan, execution_provenance
from reproduced.run.executor import SCRIPT, ending_pipe, run_chapter

_FRAMES = "_static/frames"  # the pictures of sliders, relative to a page and to the staged tree
_SMALL = "Executed in the profile `smoke`, which only tries the code: its numbers, in the answer too, mean nothing."
_WARNING = re.compile(r"WARNING|ERROR|CRITICAL|Exception")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INSTEAD = (
    "Captions and sentences about these data describe a build that has them; where a figure or table names other data "
    "in their place, it shows those, and no claim is judged by it."
)


def check(book: Book) -> None:
    """Read everything that the pages will need; a `UserError` if something is wrong with it."""
    pages = book.pages  # reads the table of contents strictly
    try:
        parse_toc_yaml(book.root / "_toc.yml")
    except Exception as error:  # whatever the renderer's reader raises, it shall raise it now
        raise UserError(f"_toc.yml is no table of contents: {error}.") from error
    if missing := [page for page in pages if not (book.folder / f"{page}.md").is_file()]:
        raise UserError(f"_toc.yml lists {arguments.shown(missing[0])}, but the book has no such page.")
    read_mapping(book.root / "_config.yml")
    replications.read(book)
    for chapter in read_chapters(book):
        read_full_scale(book, chapter)


def stage(
    book: Book,
    profile: str,
    notebooks: Mapping[str, NotebookNode],
    findings: Mapping[str, ChapterFindings],
    notes: Mapping[str, str],
) -> list[str]:
    """Make the staged tree anew, with `notes` at the top of chapters; return the chapters that were not executed.

    The cells of `notebooks`, the executed chapters by name, get the order of a page.
    """
    if book.staged.exists():
        shutil.rmtree(book.staged)
    copy_tree(book.folder, book.staged)
    for package in book.packages:
        copy_tree(package, book.staged / "lib" / package.name)
    library = read_library(book) if PAGE in book.pages else None
    for name, notebook in notebooks.items():
        _stage_download(book, name, notebook)
        if png := page_layout.story_picture(notebook):
            store.write(book.staged / STORIES / f"{name}.png", png)
        for file, content in page_layout.extract_pictures(notebook, _FRAMES).items():
            store.write(book.staged / _FRAMES / file, content)
        sources = None
        if library is not None:
            cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
            sources = CalledSources(library, name, cells)
            notebook.cells.append(new_markdown_cell(f"#### The library behind this\n\n{library.imports_of(name)}"))
        lacking = lacking_data([findings[name]]) if name in findings else ""
        small = _SMALL if notebook.metadata[EXECUTION_KEY]["profile"] == "smoke" else ""
        told = (_failure_text(notebook), small, notes.get(name), lacking and f"{lacking} {_INSTEAD}")
        _stage_notebook(book, name, notebook, findings.get(name), "\n\n".join(filter(None, told)), sources)
    absent = [name for name in book.chapters if name not in notebooks]
    for name in absent:
        page = book.staged / f"{name}.md"
        write_text(page, placeholder(page.read_text("utf-8"), name, profile))
    for file, text in generate(book, findings).items():
        write_text(book.staged / GENERATED / file, text)
    if library is not None:
        write_text(book.staged / GENERATED / f"{PAGE}.md", library.contents())
        for name, text in library.pages().items():
            write_text(book.staged / PAGE / f"{name}.md", text)
    write_json(book.staged / GENERATED / "claims.json", {"chapters": [one.as_json for one in findings.values()]})
    write_json(book.staged / GENERATED / ORIGINS, summaries.origins(findings))
    return absent


def read_library(book: Book) -> Library:
    """The library behind the chapters."""
    return Library(book.library, {name: code(book.notebook(name)) for name in book.chapters})


def execute_pages(book: Book) -> list[str]:
    """Execute the staged pages that are notebooks and judge no claim; return a sentence for each that failed.

    What an earlier build made of the same text, code, records and versions is kept.
    """
    faults = []
    for name in book.pages:
        page = book.staged / f"{name}.md"
        if not page.is_file() or not (text := page.read_text("utf-8")).startswith("---\njupytext:"):
            continue
        source, target = jupytext.reads(text, fmt="md:myst"), book.executed("pages", name)
        plan = Plan(book, name, source, {}, target, key=_page_key(book, source))
        if notebook := _read_page(plan):
            _stage_page(book, name, notebook)
            continue
        with ending_pipe() as pipe:
            execution = run_chapter(plan, pipe=pipe)
        plan.working_notebook.unlink(missing_ok=True)
        if execution.error:
            faults.append(execution.summary(name))
        if execution.notebook:
            notebook = nbformat.reads(execution.notebook, as_version=4)
            notebook.metadata[EXECUTION_KEY] = execution_provenance(book, "cpu") | {"key": plan.key}
            if not execution.error:
                write_notebook(plan.target, notebook)
            _stage_page(book, name, notebook)
    return faults


def _page_key(book: Book, source: NotebookNode) -> str:
    """Digest of all that the execution of a page depends on: its text, the code that it imports, records, versions."""
    files = code_keys.imported_files(code(source), lib=book.library) | {*(book.folder / "records").glob("*.json")}
    digests = sorted((path.name, code_keys.file_digest(path)) for path in files)
    text = [(cell.source, cell.metadata) for cell in source.cells]
    return store.digest([text, digests, code_keys.environment(book.root)])


def _read_page(plan: Plan) -> NotebookNode | None:
    """The page as an earlier build executed it; `None` if there is none that this plan would make again."""
    try:
        notebook = nbformat.read(plan.target, as_version=4)
        return notebook if notebook.metadata[EXECUTION_KEY]["key"] == plan.key else None
    except (OSError, ValueError, LookupError):
        return None


def _stage_page(book: Book, name: str, notebook: NotebookNode) -> None:
    _stage_download(book, name, notebook)
    _stage_notebook(book, name, notebook, None, "")


def _stage_download(book: Book, name: str, notebook: NotebookNode) -> None:
    """Keep the notebook as it was executed, for download."""
    offered = page_layout.add_first_cell(notebook, repository.public_address(book.root))
    write_notebook(book.staged / GENERATED / NOTEBOOKS / f"{name}.ipynb", offered)


def _stage_notebook(
    book: Book,
    name: str,
    notebook: NotebookNode,
    findings: ChapterFindings | None,
    note: str,
    sources: CalledSources | None = None,
) -> None:
    """Put a notebook in the place of its source, in the order of a page, with a note at its top."""
    page_layout.copy_alt_texts(notebook)
    page_layout.arrange(notebook, findings, sources)
    for file, content in page_layout.offer_files(notebook, page_layout.FIGURES).items():
        store.write(book.staged / page_layout.FIGURES / file, content)
    first = next((cell for cell in notebook.cells if cell.cell_type == "markdown"), None)
    if note and first is not None:
        first["source"] = add_note(first["source"], note)
    page = book.staged / f"{name}.md"
    write_notebook(page.with_suffix(".ipynb"), notebook)
    page.unlink()


def _failure_text(notebook: NotebookNode) -> str:
    error = notebook.metadata[EXECUTION_KEY].get("error")
    if not error:
        return ""
    return f"This chapter stopped in code cell {error['cell']} of {error['cells']}, so its claims are not judged."


def add_note(source: str, note: str) -> str:
    """Markdown with a warning after its title, or at its beginning if it has none."""
    box = f"```{{warning}}\n{note}\n```"
    title = re.search(r"^# .*$", source, flags=re.MULTILINE)
    return f"{source[: title.end()]}\n\n{box}\n{source[title.end() :]}" if title else f"{box}\n\n{source}"


def placeholder(source: str, chapter: str, profile: str) -> str:
    """A page for a chapter without results: its labels and its title, so that other pages can still point to it."""
    title = re.search(r"^# (.*)$", source, flags=re.MULTILINE)
    labels = re.findall(r"^\([^)\s]+\)=$", source[: title.start()] if title else "", flags=re.MULTILINE)
    note = f"This chapter was not executed in this build. Run `leakage build {chapter} --profile {profile}`."
    return add_note("\n".join([*labels, f"# {title[1] if title else chapter}", ""]), note)


def generate(book: Book, findings: Mapping[str, ChapterFindings]) -> dict[str, str]:
    """Every text that the pages include, by the name of its file; the pictures of the chapters must be staged."""
    judgements, chapters = sort_for_reading(findings.values()), read_chapters(book)
    absent = [chapters[name].title for name in book.chapters if name not in findings]
    stories = {name: f"{STORIES}/{name}.png" for name in book.chapters}
    pictures = {name: path for name, path in stories.items() if (book.staged / path).is_file()}
    planned = [chapter for chapter in chapters.values() if chapter.question]
    of_chapters = [one.withdrawn for one in findings.values()]
    withdrawn = sum(number for number, _ in of_chapters), sum(flips for _, flips in of_chapters)
    texts = {
        "scoreboard.md": claim_tables.scoreboard(judgements, absent, lacking_data(findings.values()), withdrawn),
        "flips.md": claim_tables.flips(replications.flips(replications.read(book)), judgements),
        "claims.csv": claim_tables.scoreboard_csv(judgements),
        "wrong_papers.md": claim_tables.wrong_papers(judgements),
        "tally.md": summaries.tally(judgements),
        "chapters.md": summaries.chapter_rows(planned, findings, pictures),
        "status.md": summaries.status(findings),
    }
    if (citation := book.root / "CITATION.cff").is_file():
        address, (commit, *_) = repository.public_address(book.root), chapter_cache.read_commit(book.root)
        texts["cite.md"] = summaries.bibtex(read_mapping(citation), address, commit)
    page = book.folder / "glossary.md"
    if page.is_file():
        sources = {name: book.source(name).read_text("utf-8") for name in book.chapters}
        labels = {name: chapters[name].label for name in book.chapters}
        texts["../glossary.md"] = glossary.link_chapters(page.read_text("utf-8"), sources, labels)
    return texts


def _site_config(book: Book) -> Path:
    """The book's configuration with the address of its repository; without one, no button leads there."""
    config = yaml.safe_load((book.root / "_config.yml").read_text("utf-8"))
    address = repository.public_address(book.root)
    if address:
        config["repository"] = {**config.get("repository", {}), "url": address}
    else:
        config = {key: value for key, value in config.items() if key not in ("repository", "launch_buttons")}
        kept = {key: value for key, value in config.get("html", {}).items() if not re.fullmatch("use_.*_button", key)}
        config["html"] = kept
    path = book.build / "_config.yml"
    write_text(path, yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    return path


def render(book: Book, *, strict: bool) -> tuple[int, list[str]]:
    """Render the staged tree from nothing: the exit status of jupyter-book, and the lines in which it complains.

    If `strict`, warnings count as errors, but the site is made all the same.
    """
    output = book.build / "site"
    shutil.rmtree(output, ignore_errors=True)
    command: Sequence[str | Path] = [
        *(*SCRIPT, Path(sys.executable).with_name("jupyter-book")),
        *("build", book.staged, "--config", _site_config(book), "--toc", book.root / "_toc.yml"),
        *("--path-output", output, "-n", "--keep-going", *(["-W"] if strict else [])),
    ]
    variables = os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}
    with ending_pipe() as pipe:
        process = subprocess.run(
            command, stdin=pipe, capture_output=True, encoding="utf-8", errors="replace", env=variables
        )
    lines = _COLOUR.sub("", f"{process.stdout}\n{process.stderr}").splitlines()
    write_text(book.build / "logs" / "site.log", "\n".join(lines) + "\n")
    complaints = dict.fromkeys(line.strip() for line in lines if _WARNING.search(line))
    return process.returncode, [*complaints]
