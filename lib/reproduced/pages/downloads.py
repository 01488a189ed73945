"""The notebooks that a page offers for download: as they were executed, after a cell that makes them run elsewhere.

The page itself shows the cells in a reader's order (`layers`), in which nothing could be executed.
"""

import copy
from string import Template

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from reproduced.run.chapter_cache import REPRO

FOLDER = "notebooks"  # below the folder of what a build generates
BRANCH = "notebooks"  # of the public repository, on which .github/workflows/book.yml puts them
_FIRST_CELL = Template("""\
# Outside the book's repository this fetches it, as it was when this notebook was executed, and installs what it needs.
import os, pathlib, subprocess, sys
here = pathlib.Path.cwd()
if not any((folder / "book" / "claims").is_dir() for folder in (here, *here.parents)):
    subprocess.run(["git", "clone", "--quiet", "$repository", "book-sources"], check=True)
    subprocess.run(["git", "-C", "book-sources", "checkout", "--quiet", "$commit"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "./book-sources[book]"], check=True)
    os.chdir("book-sources")""")


def download(notebook: NotebookNode, repository: str) -> NotebookNode:
    """A copy of an executed notebook that fetches the book's sources at its commit where it finds none around it.

    Args:
        notebook: executed.
        repository: the address of the book's sources; "" if nobody can fetch them, and then there is no such cell.
    """
    whole = copy.deepcopy(notebook)
    if not repository:
        return whole
    commit = notebook.metadata[REPRO]["commit"] or "main"
    whole.cells.insert(0, new_code_cell(_FIRST_CELL.substitute(repository=repository, commit=commit)))
    return whole
