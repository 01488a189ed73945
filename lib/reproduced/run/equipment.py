"""What a machine has that results depend on: code, versions, data, the kind of device; and how two machines differ.

It is asked of every machine that executes chapters for another. Nothing here executes or writes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from leakage import content_keys, runtime
from reproduced.run.book import Book
from reproduced.run.plan import Checksum, differences, registered_checksum

Equipment = Mapping[str, Mapping[str, Any]]
_VERSIONS = "version of"


@dataclass(frozen=True)
class Needs:
    """What is asked about: packages and data by their names, and the device that this parameter means."""

    packages: tuple[str, ...]
    data: tuple[str, ...]
    device: str


def needs(book: Book, chapters: Iterable[str], device: str) -> Needs:
    """What the chapters of a book depend on: the packages of its lock, and all data that their claims files declare."""
    lock = book.root / "requirements.txt"
    pins = lock.read_text("utf-8").splitlines() if lock.is_file() else []
    packages = (Requirement(line).name for line in pins if line.strip() and not line.startswith("#"))
    data = {name for chapter in chapters for name in book.declarations(chapter).data}
    return Needs(tuple(packages), tuple(sorted(data)), device)


def equipment(
    needs: Needs, package: Path = content_keys.PACKAGE, *, checksum: Checksum = registered_checksum
) -> Equipment:
    """What this machine has: every file of the package by its digest, versions, checksums, the kind of device.

    The runner in the package counts as well, which no content key holds: it executes the chapter, here or there.
    """
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    versions = content_keys.environment(None) | {name: _version(name) for name in needs.packages}
    return {
        "file": {path.relative_to(package.parent).as_posix(): content_keys.file_digest(path) for path in files},
        _VERSIONS: {name: version for name, version in versions.items() if version is not None},
        "data": {name: checksum(name) for name in needs.data},
        "kind of": {"device": content_keys.device_kind(runtime.pick_device(needs.device))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def unlike(wanted: Equipment, found: Equipment) -> list[str]:
    """Names of what is other on the second machine than on the first.

    A package that only one of them has is no difference: a chapter that needs it fails without it.
    """
    both = wanted[_VERSIONS].keys() & found[_VERSIONS].keys()
    one, other = ({**side, _VERSIONS: {n: side[_VERSIONS][n] for n in both}} for side in (wanted, found))
    return [*differences(one, other)]
