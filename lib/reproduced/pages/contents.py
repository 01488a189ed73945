"""What the pages read besides chapters and claims: contents, plan of the chapters and kept records, read strictly.

A build reads all of it before it executes anything: a fault is a `UserError` that names file, place and rule. Nothing
here writes.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from sphinx_external_toc.parsing import parse_toc_yaml

from leakage import arguments
from reproduced.claims import measurements
from reproduced.claims.texts import SIGNS
from reproduced.run import replications
from reproduced.run.book import Book, UserError, lost_links, read_json, read_mapping

_Rule = tuple[str, Callable[[Any], bool]]  # what a value must be, in words and as a test


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


_TEXT: _Rule = ("text", _is_text)
_Rules = Mapping[str, _Rule]
_PLANNED: _Rules = {
    "name": (
        "the stem of a page, of letters, digits and _",
        lambda v: _is_text(v) and bool(re.fullmatch("[A-Za-z0-9_]+", v)),
    ),
    # The title stands in the line that opens a fence, which a backtick would undo.
    "title": ("text without a backtick", lambda value: _is_text(value) and "`" not in value),
    # A number that was measured would stand there although another run measures another.
    "answer": ("text without a decimal", lambda value: _is_text(value) and not re.search(r"[0-9][.,]?[0-9]", value)),
} | dict.fromkeys(("number", "question", "paper", "authors", "year", "key"), _TEXT)
_LEDGER: _Rules = dict.fromkeys(("profile", "device", "date"), _TEXT) | {
    "commit": ("text or null", lambda value: value is None or _is_text(value)),
    "dirty": ("true or false", lambda value: isinstance(value, bool)),
    "seed": ("a whole number", lambda value: type(value) is int),
}
_VERDICT: _Rules = {
    "values": ("measurements by name", lambda value: value is None or _are_measurements(value)),
    "id": _TEXT,
    "verdict": (f"one of {', '.join(SIGNS)}", lambda value: _is_text(value) and value in SIGNS),
}


def _are_measurements(values: Any) -> bool:
    try:
        return all(_is_text(one["name"]) and measurements.from_json(one["measured"]) for one in values)
    except (TypeError, KeyError, ValueError):
        return False


def check(book: Book) -> None:
    """Read everything that the pages will need; a `UserError` if something is wrong with it."""
    for path in (path for folder in (book.folder, *book.packages) for path in lost_links(folder)):
        raise UserError(f"{path} is a link to {arguments.shown(os.readlink(path))}, where nothing is.")
    _check_contents(book)
    read_mapping(book.root / "_config.yml")
    planned_chapters(book)
    replications.read(book)
    for chapter in book.chapters:
        record(book, chapter)


def planned_chapters(book: Book) -> list[dict[str, Any]]:
    """The chapters of `book/chapters.yml`, in its order; none without the file."""
    path = book.folder / "chapters.yml"
    if not path.is_file():
        return []
    entries = _list(read_mapping(path), "chapters", path.name)
    for number, entry in enumerate(entries, start=1):
        _look(entry, f"{path.name}, chapter {number}", _PLANNED)
        if unknown := sorted(set(entry) - set(_PLANNED)):
            raise UserError(f"{path.name}, chapter {number}: unknown field {unknown[0]}; known: {', '.join(_PLANNED)}.")
    names = [entry["name"] for entry in entries]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path.name}: {repeated[0]} stands there twice.")
    return [{name: " ".join(text.split()) for name, text in entry.items()} for entry in entries]


def record(book: Book, chapter: str) -> dict[str, Any]:
    """The record of a full-scale run, which the chapter shows beside its own verdicts; empty where there is none."""
    path = book.record(chapter)
    if not path.is_file():
        return {}
    found = read_json(path)
    _look(found, path.name, _LEDGER)
    for number, claim in enumerate(_list(found, "claims", path.name), start=1):
        _look(claim, f"{path.name}, claim {number}", _VERDICT)
    return found


def _check_contents(book: Book) -> None:
    """That the renderer will take the table of contents, and that its pages exist."""
    pages = book.pages  # reads it strictly
    try:
        parse_toc_yaml(book.root / "_toc.yml")
    except Exception as error:  # whatever the renderer's reader raises, it shall raise it now
        raise UserError(f"_toc.yml is no table of contents: {error}.") from error
    if missing := [page for page in pages if not (book.folder / f"{page}.md").is_file()]:
        raise UserError(f"_toc.yml lists {arguments.shown(missing[0])}, but the book has no such page.")


def _list(content: Mapping[str, Any], name: str, whose: str) -> list[Any]:
    if not isinstance(content.get(name), list):
        raise UserError(f"{whose}: `{name}` must be a list; got {arguments.shown(content.get(name))}.")
    return content[name]


def _look(entry: Any, whose: str, rules: _Rules) -> None:
    if not isinstance(entry, dict):
        raise UserError(f"{whose} must be a mapping of fields; got {arguments.shown(entry)}.")
    for name, (rule, fits) in rules.items():
        if not fits(entry.get(name)):
            raise UserError(f"{whose}: `{name}` must be {rule}; got {arguments.shown(entry.get(name))}.")
