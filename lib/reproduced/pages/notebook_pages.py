"""Pages that are notebooks but judge no claim, such as *Performance*: executed anew whenever the book is staged."""

import os

import jupytext

from reproduced.pages import downloads, layers
from reproduced.pages.render import copy_alt_texts
from reproduced.run.book import GENERATED, Book, read_mapping, write_notebook
from reproduced.run.chapter_cache import REPRO, execution_provenance
from reproduced.run.run_chapters import kernel_variables


def execute_pages(book: Book) -> list[str]:
    """Execute every staged page that is still a notebook in Markdown; return a sentence for each that failed.

    A page shows its error. It runs in the staged tree, beside the records, with the variables of a chapter's kernel.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    faults, repository = [], read_mapping(book.root / "_config.yml").get("repository", {}).get("url", "")
    for name in book.pages:
        page = book.staged / f"{name}.md"
        if not page.is_file() or not page.read_text("utf-8").startswith("---\njupytext:"):
            continue
        notebook = jupytext.read(page)
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": book.staged}},
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        )
        try:
            client.execute(env=os.environ | kernel_variables(library=book.library, build=book.build))
        except CellExecutionError as error:
            faults.append(f"{name}: {error.ename}: {error.evalue}")
        notebook.metadata[REPRO] = execution_provenance(book, "cpu")
        offered = downloads.download(notebook, repository)
        write_notebook(book.staged / GENERATED / downloads.FOLDER / f"{name}.ipynb", offered)
        copy_alt_texts(notebook)
        layers.arrange(notebook, None)
        write_notebook(page.with_suffix(".ipynb"), notebook)
        page.unlink()
    return faults
