"""What `leakage data` does: list the data sets or fetch them, and say in lines what came of it.

Lines come as things happen. A damaged file is replaced only where its set was asked for by name; everywhere else it is
named, with the cure, and left as it is.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from leakage import content_keys
from leakage.claims import declarations
from leakage.data import fetch, registry, states
from leakage.data.download import DownloadBlocked

HURRIED = 5.0
"""Seconds that a build waits for a server before it goes on without."""
BUDGET = 120.0
"""Seconds that a build gives all its downloads together: a server may send a byte now and then for ever."""


class Line(NamedTuple):
    """One line, and whether it is of something that went wrong."""

    text: str
    fault: bool = False


def needed(root: Path | None) -> tuple[str, ...]:
    """The data sets without which some claim of the book at `root` is not run, in the order of the registry.

    Raises:
        FileNotFoundError: if there is no book.
        ValueError: if a claims file is wrong.
    """
    files = sorted((content_keys.find_root(root) / "book" / "claims").glob("*.yml"))
    names = {name for file in files for claim in declarations.load(file).by_id.values() for name in claim.needs}
    return tuple(name for name in registry.DATASETS if name in names)


def listing() -> Iterator[Line]:
    """Every data set of the registry with its states, checksums and size, then the folder."""
    for name, entry in registry.DATASETS.items():
        found = fetch.status(name)
        here = [_words(file) for file in found if file.state != "absent"]
        told = ", ".join(dict.fromkeys(here)) or "absent"
        yield Line(f"{name:<16} {told:<20} {_size(entry, found):>11} MB  {entry.title} ({entry.licence})")
        for file in entry.files:
            yield Line(f"{'':<16} {file.name}: SHA-256 {file.sha256 or 'not registered'}")
        yield from (Line(text, fault=True) for text in fetch.complaints(name))
    yield Line(f"\nFolder: {states.folder()} (set LEAKAGE_DATA to change it)")


def fetch_named(names: Iterable[str]) -> Iterator[Line]:
    """Fetch what is missing or damaged of these data sets; one that cannot be had keeps no other away."""
    for name in names:
        damaged = {found.path for found in fetch.status(name) if found.state == "damaged"}
        try:
            states = fetch.fetch(name)
        except (OSError, registry.DataDamaged) as error:
            yield Line(str(error), fault=True)
            continue
        for found in states:
            replaced = ", replaced a damaged file" if found.good and found.path in damaged else ""
            yield Line(f"{found.path}: {_words(found)}{replaced}", fault=not (found.good or fetch.available(name)))


def fetch_needed(root: Path | None, *, hurried: bool) -> Iterator[Line]:
    """Fetch those `needed` data sets that are absent; name damaged files and leave them as they are.

    Args:
        root: the book, or a folder in it; by default the current one.
        hurried: for a build: say nothing of what is here, and give up soon where there is no network.
    """
    try:
        names = needed(root)
    except (OSError, ValueError) as error:
        yield Line(str(error), fault=True)
        return
    complaints = {name: fetch.complaints(name) for name in names}
    here = {name for name in names if fetch.available(name)}
    # A set in several forms is whole where one of them is good.
    yield from (Line(text, fault=name not in here) for name, texts in complaints.items() for text in texts)
    if not hurried:
        yield from (Line(f"{name}: {_state(name)}") for name in names if name in here)
    missing = [n for n in names if n not in here and (not complaints[n] or registry.dataset(n).any_file)]
    patience, until = (HURRIED, time.monotonic() + BUDGET) if hurried else (fetch.PATIENCE, math.inf)
    for place, name in enumerate(missing):
        try:
            fetch.fetch(name, patience=patience, until=until)
            yield Line(f"{name}: {_state(name)}")
        except (OSError, registry.DataDamaged) as error:
            if not hurried or not isinstance(error, DownloadBlocked):
                yield Line(str(error), fault=True)
                continue
            later = "The book goes on without; `make data` tries again, OFFLINE=1 does not try."
            yield Line(f"not fetched: {', '.join(missing[place:])}. {error} {later}", fault=True)
            return


def _size(dataset: registry.Dataset, found: Sequence[states.FileStatus]) -> str:
    """Bytes of the payloads, in millions; at most so many where a file that is not here may have any size."""
    if dataset.any_file:  # one form is the whole set: the one that is here, or would be fetched
        found = sorted(found, key=lambda file: (not file.good, file.file.url is None))[:1]
    size = sum(file.size if file.good else file.file.at_most for file in found) / 1e6
    known = all(file.good or file.file.size is not None for file in found)
    return f"{'' if known else '≤ '}{size:.1f}"


def _state(name: str) -> str:
    good = [found for found in fetch.status(name) if found.good]
    return f"{', '.join(dict.fromkeys(map(_words, good)))}, in {states.folder()}"


def _words(found: states.FileStatus) -> str:
    """The state for a reader, who must not take a pin for a verification."""
    return "unverified, pinned" if found.state == "pinned" else found.state
