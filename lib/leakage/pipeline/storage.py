"""Files that are there completely or as they were before, whenever the writer is killed; trees that can be written to.

A build folder is told by the file `MARKER` in it: whatever lies beside it may be overwritten and deleted by a build.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

MARKER = ".leakage-build"
MARKED = "This folder was made by `leakage build`, which may overwrite and delete everything in it.\n"


def write_text(path: Path, text: str) -> None:
    """Write `text` beside `path`, then move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON; NaN, which is not JSON, is an error."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook of format 4."""
    write_text(path, nbformat.writes(notebook) + "\n")


def copy_tree(source: Path, target: Path, *, ignore: Callable[[str, list[str]], set[str]]) -> None:
    """Copy the contents of all files below `source` into a new folder, and none of their modes.

    The copy of a tree that nobody may write to is made to be written to, and deleted.

    Args:
        source: a folder; a link in it is copied as what it points to.
        target: must not exist.
        ignore: names to leave out of a folder, as `shutil.ignore_patterns` gives it.
    """
    target.mkdir(parents=True)
    names = sorted(os.listdir(source))
    for name in sorted(set(names) - ignore(str(source), names)):
        if (source / name).is_dir():
            copy_tree(source / name, target / name, ignore=ignore)
        else:
            shutil.copyfile(source / name, target / name)
