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
import time
from dataclasses import dataclass
from pathlib import Path

from leakage.data import unpack
from leakage.data.registry import DataFile, Dataset

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
        """Whether the file may be read; otherwise it counts as absent."""
        return self.state in ("verified", "pinned", "unverified")


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


def partial(path: Path) -> Path:
    """Where a download of the packed file at `path` grows."""
    return path.with_name(f"{path.name}.part")


def pin_of(file: DataFile) -> Path | None:
    """Where the pin of a file lies that the registry has no checksum of; None without one."""
    path = folder() / f"{file.path}.pin.json"
    return path if not file.verified and os.path.lexists(path) else None


def status(dataset: Dataset, file: DataFile) -> FileStatus:
    """The state of one file of a data set; unpacks and hashes what is there."""
    path = folder() / file.path
    try:
        size, sha256 = measured(path, dataset.archive(file.path))[file.name]
        compare(file, size, sha256)
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(file, path, "partial" if os.path.lexists(partial(path)) else "absent")
    except unpack.UnpackError as error:
        return FileStatus(file, path, "damaged", detail=str(error))
    unregistered = "pinned" if pin_of(file) else "unverified"
    return FileStatus(file, path, "verified" if file.verified else unregistered, size, sha256)


def compare(file: DataFile, size: int, sha256: str) -> None:
    """Hold a payload against the registry, or against the pin.

    Raises:
        UnpackError: if it differs, or the pin is not readable.
    """
    if file.size is not None and size != file.size:
        raise unpack.UnpackError(f"its payload must have {file.size:,} bytes and has {size:,}")
    expected, by_whom = file.sha256, ""
    if target := pin_of(file):
        by_whom = f" by the pin {target}"
        try:
            with open(target, encoding="utf-8", opener=unpack.promptly) as record:
                expected = str(json.load(record)["payloads"][file.name]["sha256"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise unpack.UnpackError(f"the pin {target} is not readable; delete it to accept the file") from error
    if expected is not None and sha256 != expected:
        raise unpack.UnpackError(f"its payload must have SHA-256 {expected}{by_whom} and has {sha256}")


def measured(path: Path, archive: tuple[DataFile, ...]) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of each payload in a packed file, by name, found once for each version of the file.

    Raises:
        FileNotFoundError: if there is none, or `NotADirectoryError`.
        UnpackError: as `unpack.payloads`.
    """
    with unpack.refusals():
        facts = path.stat()
    version = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    # Two changes within one tick of the file system's clock have one time stamp: what is that new is looked at anew.
    now = time.time_ns()
    return _measured(path, archive, version if now - max(version[-2:]) > _SETTLED else (now,))


@functools.lru_cache(maxsize=256)
def _measured(path: Path, archive: tuple[DataFile, ...], version: tuple[int, ...]) -> dict[str, tuple[int, str]]:
    found = unpack.payloads(path, archive)
    return {file.name: (len(payload), hashlib.sha256(payload).hexdigest()) for file, payload in found}


def pin(path: Path, payloads: dict[str, tuple[int, str]], *, url: str | None) -> None:
    """Write down the checksums of a packed file for which none are registered, unless an earlier pin did.

    Args:
        path: where the packed file lies.
        payloads: bytes and SHA-256 by name.
        url: where the file comes from; None for one that was put there by hand.

    Raises:
        OSError: if the folder cannot be written.
    """
    target = path.with_name(f"{path.name}.pin.json")
    if target.exists():
        return
    found = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in payloads.items()}
    record = {"url": url, "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "payloads": found}
    scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
