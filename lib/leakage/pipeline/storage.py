"""Files that are there completely or as they were before, whenever the writer is killed."""

import json
import os
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode


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
