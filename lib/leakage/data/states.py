"""What lies in the data folder: where each file should be, what was found there, and what it is compared with.

The folder is `$LEAKAGE_DATA` (which may be read-only) or, without it, one in the user's cache. A file counts only after
its payload was unpacked and hashed; within a process this happens once for each version of a file. The checksum is the
registry's or, for a file that the registry marks unverified, the one *pinned* beside it. Only `pin` writes.
"""

import datetime
import functools
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from leakage.data import unpack
from leakage.data.registry import COMMAND, DataFile, Dataset

GOOD = frozenset({"verified", "pinned", "unverified"})
"""The states of a file that may be read; every other one counts as absence."""
_SETTLED = 2e9  # nanoseconds without a change after which no other change can have the same time stamp


@dataclass(frozen=True)
class FileStatus:
    """What was found where a file should be.

    Attributes:
        file: the registry's entry.
        path: where it should be.
        state: `verified` (payload has the registry's checksum), `pinned` (no checksum is registered; it has the pinned
            one), `unverified` (nothing to compare with), `damaged`, `partial` (a download to be resumed) or `absent`.
        size: bytes of the payload; 0 where none could be read.
        sha256: of the payload; "" where none could be read.
        detail: why a damaged file is refused; "" otherwise.
    """

    file: DataFile
    path: Path
    state: str
    size: int = 0
    sha256: str = ""
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether the file may be read."""
        return self.state in GOOD


@dataclass(frozen=True)
class _Measured:
    """The payloads of a packed file as (name, bytes, SHA-256), or why there are none."""

    payloads: tuple[tuple[str, int, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Expected:
    """What a payload must be: by the registry or by a pin; None where neither says."""

    size: int | None
    sha256: str | None
    pin: Path | None = None


def folder() -> Path:
    """The data folder: `$LEAKAGE_DATA`, else `$XDG_CACHE_HOME/leakage`, else `~/.cache/leakage`. It need not exist.

    A user without a home folder, as in some containers, gets `/var/cache/leakage`.
    """
    chosen = os.environ.get("LEAKAGE_DATA", "")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if cache.is_absolute():  # the XDG specification has relative paths ignored
        return cache / "leakage"
    try:
        return Path.home() / ".cache" / "leakage"
    except RuntimeError:
        return Path("/var/cache/leakage")


def place(file: DataFile) -> Path:
    """Where a packed file should be."""
    return folder() / file.path


def partial(path: Path) -> Path:
    """Where a download of the packed file at `path` grows."""
    return path.with_name(f"{path.name}.part")


def pin_of(path: Path) -> Path:
    """Where the pin of the packed file at `path` lies."""
    return path.with_name(f"{path.name}.pin.json")


def status(dataset: Dataset) -> tuple[FileStatus, ...]:
    """The state of each file of a data set; unpacks and hashes what is there."""
    return tuple(file_status(dataset, file) for file in dataset.files)


def compare(file: DataFile, size: int, sha256: str) -> None:
    """Hold a payload against the registry, or against the pin.

    Raises:
        UnpackError: if it differs, or the pin is not readable.
    """
    expected = _expected(file)
    pinned = f" by the pin {expected.pin}" if expected.pin else ""
    if expected.size is not None and size != expected.size:
        raise unpack.UnpackError(f"its payload must have {expected.size:,} bytes{pinned} and has {size:,}")
    if expected.sha256 is not None and sha256 != expected.sha256:
        raise unpack.UnpackError(f"its payload must have SHA-256 {expected.sha256}{pinned} and has {sha256}")


def cure(dataset: Dataset, file: DataFile) -> str:
    """What to do about a damaged file, in a sentence."""
    name, target = dataset.name, pin_of(place(file))
    again = f"Run `{COMMAND} {name}` to replace it" if file.url else f"Delete it and run `{COMMAND} {name}`"
    trust = "" if file.verified or not os.path.lexists(target) else f"; if you trust the file, delete the pin {target}"
    return f"{again}, or set LEAKAGE_DATA to a folder with a good copy{trust}."


def measured(path: Path, archive: tuple[DataFile, ...]) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of each payload in a packed file, by name, without holding one in memory.

    Raises:
        UnpackError: as `unpack.payloads`.
    """
    sizes = {file.name: 0 for file in archive}
    digests = {file.name: hashlib.sha256() for file in archive}
    for file, piece in unpack.payloads(path, archive):
        sizes[file.name] += len(piece)
        digests[file.name].update(piece)
    return {name: (sizes[name], digests[name].hexdigest()) for name in sizes}


def pin(dataset: Dataset, path: Path, payloads: dict[str, tuple[int, str]], *, url: str | None) -> None:
    """Write down the checksums of a packed file for which none are registered, unless an earlier pin did.

    Args:
        dataset: to which the file belongs.
        path: where the packed file lies.
        payloads: bytes and SHA-256 by name.
        url: where the file comes from; None for one that was put there by hand.

    Raises:
        OSError: if the folder cannot be written.
    """
    target = pin_of(path)
    if target.exists():
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in payloads.items()}
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    record = {"data set": dataset.name, "url": url, "date": today, "payloads": found}
    try:
        scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def file_status(dataset: Dataset, file: DataFile) -> FileStatus:
    path = place(file)
    facts, problem = regular(path)
    if facts is None and not problem:
        return FileStatus(file, path, "partial" if os.path.lexists(partial(path)) else "absent")
    found = _look(path, facts, dataset.archive(file.path)) if facts else _Measured(problem=problem)
    if found.problem:
        return FileStatus(file, path, "damaged", detail=found.problem)
    size, sha256 = next((size, sha256) for name, size, sha256 in found.payloads if name == file.name)
    try:
        compare(file, size, sha256)
    except unpack.UnpackError as error:
        return FileStatus(file, path, "damaged", size, sha256, str(error))
    pinned = "pinned" if os.path.lexists(pin_of(path)) else "unverified"
    return FileStatus(file, path, "verified" if file.verified else pinned, size, sha256)


def regular(path: Path) -> tuple[os.stat_result | None, str]:
    """The facts about a file, or why what lies there is none; neither where nothing does."""
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except OSError as error:
        return None, f"it cannot be read ({error.strerror})"
    if stat.S_ISREG(facts.st_mode):
        return facts, ""
    return None, f"it is no file but a {'folder' if stat.S_ISDIR(facts.st_mode) else 'pipe, socket or device'}"


def _look(path: Path, facts: os.stat_result, archive: tuple[DataFile, ...]) -> _Measured:
    """Measure a packed file, or remember what an earlier look at this version of it found."""
    changed = max(facts.st_mtime_ns, facts.st_ctime_ns)
    # Two changes within one tick of the file system's clock have one time stamp: what is that new is not remembered.
    if time.time_ns() - changed < _SETTLED:
        return _measured(path, archive)
    version = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return _remembered(path, version, archive)


def _measured(path: Path, archive: tuple[DataFile, ...]) -> _Measured:
    try:
        found = measured(path, archive)
    except unpack.UnpackError as error:
        return _Measured(problem=str(error))
    return _Measured(tuple((name, size, sha256) for name, (size, sha256) in found.items()))


@functools.lru_cache(maxsize=256)
def _remembered(path: Path, version: tuple[int, ...], archive: tuple[DataFile, ...]) -> _Measured:
    return _measured(path, archive)


def _expected(file: DataFile) -> _Expected:
    """The registry's word on a payload, or the pin's where the registry has none."""
    target = pin_of(place(file))
    if file.verified or not os.path.lexists(target):
        return _Expected(file.size, file.sha256)
    try:
        if regular(target)[0] is None:  # a pipe would keep its reader waiting
            raise ValueError("no file")
        record = json.loads(target.read_text(encoding="utf-8"))["payloads"][file.name]
        return _Expected(int(record["bytes"]), str(record["sha256"]), target)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise unpack.UnpackError(f"the pin {target} is not readable; delete it to accept the file") from error
