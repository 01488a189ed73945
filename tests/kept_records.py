"""Records of a book as its pages read them, whole or with one value broken."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from leakage.pipeline.book import Book


def keeper(root: Path, name: str, read: Callable[[Book], Any]) -> Callable[[Any], Any]:
    """A function that keeps a record under its name in a book, and reads it."""

    def keep(content: Any) -> Any:
        path = root / "book/records" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
        return read(Book(root, root / "_build"))

    return keep


def broken(record: Any, place: Sequence[Any], value: Any) -> Any:
    """A copy of the record with another value at a place."""
    found = within = copy.deepcopy(record)
    for step in place[:-1]:
        within = within[step]
    within[place[-1]] = value
    return found
