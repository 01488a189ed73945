"""Executed notebooks on disk: each says in its metadata what it was made of, under a digest of all that it holds.

A notebook is believed only if that digest is right. Any other (cut short, altered by hand, of another version of the
book, or no notebook at all) counts as absent, so that its chapter is executed again. Nothing here executes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from reproduced.run.storage import write_text

REPRO = "repro"  # metadata key of an executed notebook: its content key, its status and its provenance
PROVENANCE = ("commit", "dirty", "device", "device_name", "processor", "versions", "date")
_EXECUTION = ("key", "status", "error", "seconds", "durations", "profile", "seed", "data", "depends_on", "changed")
_DIGEST = "digest"


def write(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook that has all of `REPRO` but the digest, in one step."""
    content = json.loads(nbformat.writes(notebook))
    content["metadata"][REPRO][_DIGEST] = _digest(content)
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> NotebookNode | None:
    """The notebook as it was written; `None` if there is none, or not one to be believed."""
    try:
        text = path.read_text("utf-8")
        content = json.loads(text)
        said = content["metadata"][REPRO].pop(_DIGEST)
        good = said == _digest(content) and content["metadata"][REPRO].keys() == {*_EXECUTION, *PROVENANCE}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return nbformat.reads(text, as_version=4) if good else None


def repro(path: Path) -> dict[str, Any]:
    """What an executed notebook says of its execution; empty if there is none to be believed."""
    notebook = read(path)
    return {} if notebook is None else dict(notebook.metadata[REPRO])


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of a notebook's JSON, whatever its spaces and the order of its names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
