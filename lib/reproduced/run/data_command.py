"""What `leakage data` does: list the data sets or fetch them.

Lines come as things happen. A damaged file is named, with the cure, and left as it is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from leakage.data import datasets
from reproduced import repository

HURRIED_SECONDS = 5.0
"""Seconds that a build waits for a server before it goes on without."""


class Line(NamedTuple):
    """One line, and whether it is of something that went wrong."""

    text: str
    fault: bool = False


def needed_datasets(root: Path | None) -> tuple[str, ...]:
    """The data sets without which some claim of the book at `root` is not run, in the order of the registry.

    Raises:
        FileNotFoundError: if there is no book.
        ValueError: if a claims file is wrong.
    """
    from reproduced.claims import declarations  # late, for data are fetched without the book's packages, too

    files = sorted((repository.find_root(root) / "book" / "claims").glob("*.yml"))
    names = {name for file in files for claim in declarations.load(file).by_id.values() for name in claim.needs}
    return tuple(name for name in datasets.DATASETS if name in names)


def list_datasets() -> Iterator[Line]:
    """Every data set of the registry with its states, checksums and size, then the folder."""
    for name, entry in datasets.DATASETS.items():
        here = [found for found in datasets.status(name) if found.state != "absent"]
        states = ", ".join(dict.fromkeys(found.state for found in here)) or "absent"
        shown = entry.files if not entry.any_file else [here[0].file if here else entry.files[-1]]
        size = sum(file.size for file in shown) / 1e6
        yield Line(f"{name:<16} {states:<20} {size:>5.1f} MB  {entry.title} ({entry.licence})")
        for file in entry.files:
            yield Line(f"{'':<16} {file.name}: SHA-256 {file.sha256}")
        yield from (Line(text, fault=True) for text in datasets.describe_damage(name))
    yield Line(f"\nFolder: {datasets.data_folder()} (set LEAKAGE_DATA to change it)")


def fetch_needed(root: Path | None, *, hurried: bool) -> Iterator[Line]:
    """Fetch `needed_datasets`; a book that cannot be read, or a folder that is not known, is one line."""
    try:
        names = needed_datasets(root)
        datasets.data_folder()
    except (OSError, ValueError) as error:
        yield Line(str(error), fault=True)
    else:
        yield from fetch(names, hurried=hurried)


def fetch(names: Sequence[str], *, hurried: bool = False) -> Iterator[Line]:
    """Fetch those of the data sets that are absent; name damaged files. A failure does not stop the others.

    If `hurried`, for a build, say nothing of what is here, and give up soon where there is no network.
    """
    patience = {"timeout": HURRIED_SECONDS, "retries": 0} if hurried else {}
    for place, name in enumerate(names):
        try:
            if datasets.is_available(name):
                # A set in several forms is whole where one of them is good.
                yield from (Line(text) for text in datasets.describe_damage(name))
                if hurried:
                    continue
            else:
                datasets.fetch(name, **patience)
            yield Line(f"{name}: verified, in {datasets.data_folder()}")
        except (OSError, datasets.DataDamaged) as error:
            if not hurried or not isinstance(error, datasets.ServerUnreachable):
                yield Line(str(error), fault=True)
                continue
            missing = ", ".join(one for one in names[place:] if not datasets.is_available(one))
            later = "The book goes on without; `make data` tries again, OFFLINE=1 does not try."
            yield Line(f"not fetched: {missing}. {error} {later}", fault=True)
            return
