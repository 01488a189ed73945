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

MARKER = ".leakage-build"
GENERATED = "_generated"  # the folder of the staged pages that holds what a build says
MARKED = "This folder was made by `leakage build`, which may overwrite and delete everything in it.\n"
_NOT_PAGES = shutil.ignore_patterns(".*", "*.ipynb", "_build", GENERATED, "__pycache__", "*.egg-info", "*.partial")


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, then move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


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
    """Copy the contents of the sources below `source` into a new folder, and none of their modes.

    The copy of a tree that nobody may write to is made to be written to, and deleted.

    Args:
        source: a folder; a link in it is copied as what it points to.
        target: must not exist.
    """
    target.mkdir(parents=True)
    for path in _pages(source):
        if path.is_dir():
            copy_tree(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


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
