"""Files that are there completely or as they were before, whenever the writer is killed; trees that can be written to.

A build folder is told by the file `MARKER` in it: whatever lies beside it may be overwritten and deleted by a build.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from leakage import checked_files

MARKER = ".leakage-build"
GENERATED = "_generated"  # the folder of the staged pages that holds what a build says
MARKED = "This folder was made by `leakage build`, which may overwrite and delete everything in it.\n"
_NOT_PAGES = shutil.ignore_patterns(".*", "*.ipynb", "_build", GENERATED, "__pycache__", "*.egg-info", "*.partial")


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in one step."""
    checked_files.write(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON; NaN, which is not JSON, is an error."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_record(path: Path, origin: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> None:
    """Write a record of a run as JSON: a line that says where it comes from, and a line for each claim."""
    first = json.dumps({**origin, "claims": []}, ensure_ascii=False, allow_nan=False).removesuffix("]}")
    rows = ",\n".join(json.dumps(claim, ensure_ascii=False, allow_nan=False) for claim in claims)
    write_text(path, f"{first}\n{rows}\n]}}\n")


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook of format 4."""
    write_text(path, nbformat.writes(notebook) + "\n")


def copy_tree(source: Path, target: Path) -> None:
    """Copy the sources below `source` into a new folder; a link is copied as what it points to."""
    shutil.copytree(source, target, ignore=_NOT_PAGES)


def lost_links(source: Path) -> Iterator[Path]:
    """Links to nothing among what `copy_tree` would copy."""
    for path in _pages(source):
        if path.is_dir():
            yield from lost_links(path)
        elif not path.exists():
            yield path


def _pages(folder: Path) -> list[Path]:
    """What is in a folder of sources, in order, without what tools leave there."""
    names = os.listdir(folder)
    return [folder / name for name in sorted(set(names) - _NOT_PAGES(str(folder), names))]
