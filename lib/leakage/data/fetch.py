"""Data files on this machine: whether they are there, whether they are what they should be, and getting them.

Files lie below `$LEAKAGE_DATA` (which may be read-only) or, without it, in the user's cache folder. Only `fetch` uses
the network or writes, and only when it is called: reading a set that is absent raises `DataAbsent` with the command to
run. No payload is handed out before its SHA-256 was compared with the registry's, or, for a set the registry marks
unverified, with the one pinned beside the file at the first download.
"""

import datetime
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leakage.data import registry, unpack
from leakage.data.download import DownloadFailed, TooLarge, discard, download
from leakage.data.registry import DataAbsent, DataDamaged, DataFile, Dataset

STATES = ("verified", "pinned", "unverified", "damaged", "partial", "absent")


@dataclass(frozen=True)
class FileStatus:
    """What was found where a file should be.

    Attributes:
        file: the registry's entry.
        path: where it should be.
        state: `verified` (payload has the registry's checksum), `pinned` (it has the one of the first download),
            `unverified` (nothing to compare with), `damaged`, `partial` (a download to be resumed) or `absent`.
        sha256: of the payload found; "packed:" and that of the packed file where it does not unpack; "" without a file.
        detail: why a damaged file is refused; "" otherwise.
    """

    file: DataFile
    path: Path
    state: str
    sha256: str = ""
    detail: str = ""


@dataclass(frozen=True)
class _Expected:
    """What a payload must be: by the registry or by a pin; None where neither says."""

    size: int | None
    sha256: str | None


def folder() -> Path:
    """The data folder: `$LEAKAGE_DATA`, else `$XDG_CACHE_HOME/leakage`, else `~/.cache/leakage`. It need not exist."""
    chosen = os.environ.get("LEAKAGE_DATA", "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "leakage"


def present(name: str) -> tuple[str, ...]:
    """The names of the files of data set `name` that are on this machine, good or not."""
    return tuple(file.name for file in registry.dataset(name).files if _path(file).is_file())


def available(name: str) -> bool:
    """Whether data set `name` is on this machine; no file is opened, for a damaged one is refused when it is read."""
    dataset = registry.dataset(name)
    return bool(present(name)) if dataset.any_file else len(present(name)) == len(dataset.files)


def status(name: str) -> tuple[FileStatus, ...]:
    """The state of each file of data set `name`; unpacks and hashes what is there."""
    dataset = registry.dataset(name)
    return tuple(_file_status(dataset, file) for file in dataset.files)


def checksum(name: str) -> str:
    """One SHA-256 over the payloads that are here, in hexadecimal, or "absent".

    It is meant for content keys: it changes whenever a loader might return something else. A damaged file gives a
    checksum of its own rather than an error, for the error belongs to whoever reads it.
    """
    if not available(name):
        return "absent"
    lines = [f"{found.file.name} {found.sha256}" for found in status(name) if found.sha256]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_payload(name: str, file: str) -> bytes:
    """The unpacked bytes of one file of data set `name`, after comparing their SHA-256.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is truncated, corrupt, altered, or an archive that holds anything unexpected.
        ValueError: if `name` or `file` is not in the registry; the message lists what is.
    """
    dataset = registry.dataset(name)
    entry = dataset.file(file)
    path = _path(entry)
    if not path.is_file():
        raise absent(name, entry)
    try:
        expected = _expected(entry)
        payload = b"".join(unpack.chunks(path, entry, dataset.archive(entry.path)))
        _compare(len(payload), hashlib.sha256(payload).hexdigest(), expected)
    except unpack.UnpackError as error:
        raise DataDamaged(f"{dataset.title}: {path} is refused: {error}. {_cure(dataset)}") from error
    return payload


def absent(name: str, file: DataFile | None = None) -> DataAbsent:
    """The error to raise where data set `name` is needed and not here."""
    dataset = registry.dataset(name)
    missing = file or next(file for file in dataset.files if not _path(file).is_file())
    return DataAbsent(
        f"{dataset.title} is absent: no {_path(missing)}. Run `leakage data {name}`, "
        f"or set LEAKAGE_DATA to a folder that has {missing.path}."
    )


def fetch(name: str, *, progress: bool | None = None, _schemes: tuple[str, ...] = ("https",)) -> tuple[FileStatus, ...]:
    """Download what is missing or damaged of data set `name`, check it, and return the state of all its files.

    A download that breaks off is resumed by the next call. One that is complete and wrong is deleted, and whatever lay
    in its place before stays as it was. Files that are here and good are left alone.

    Args:
        name: a data set of the registry.
        progress: show a bar; None shows it on a terminal only.
        _schemes: the URL schemes allowed, for tests against a local server.

    Raises:
        DownloadFailed: if the network, the server or the disk fails.
        DataDamaged: if what arrives is not what the registry or the pin of an earlier download says.
    """
    dataset = registry.dataset(name)
    good = {s.file.name for s in status(name) if s.state in ("verified", "pinned", "unverified")}
    if not (dataset.any_file and good):
        wanted = [file for file in dataset.files if file.url and file.name not in good]
        for path in dict.fromkeys(file.path for file in wanted):
            _fetch_path(dataset, path, progress=progress, schemes=_schemes)
    return status(name)


def _path(file: DataFile) -> Path:
    return folder() / file.path


def _cure(dataset: Dataset) -> str:
    return f"Delete it and run `leakage data {dataset.name}`, or set LEAKAGE_DATA to a folder with a good copy."


def _file_status(dataset: Dataset, file: DataFile) -> FileStatus:
    path = _path(file)
    if not path.is_file():
        return FileStatus(file, path, "partial" if _partial(path).exists() else "absent")
    sha256 = ""
    try:
        expected = _expected(file)
        size, sha256 = _measure(path, file, dataset)
        _compare(size, sha256, expected)
    except unpack.UnpackError as error:
        # A file that does not even unpack is told apart by its packed bytes.
        return FileStatus(file, path, "damaged", sha256 or f"packed:{_hash_of_file(path)}", str(error))
    pinned = "pinned" if expected.sha256 else "unverified"
    return FileStatus(file, path, "verified" if file.verified else pinned, sha256)


def _hash_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _measure(path: Path, file: DataFile, dataset: Dataset) -> tuple[int, str]:
    """Bytes and SHA-256 of a payload, without holding it in memory."""
    size, digest = 0, hashlib.sha256()
    for piece in unpack.chunks(path, file, dataset.archive(file.path)):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


def _compare(size: int, sha256: str, expected: _Expected) -> None:
    if expected.size is not None and size != expected.size:
        raise unpack.UnpackError(f"its payload must have {expected.size:,} bytes and has {size:,}")
    if expected.sha256 is not None and sha256 != expected.sha256:
        raise unpack.UnpackError(f"its payload must have SHA-256 {expected.sha256} and has {sha256}")


def _expected(file: DataFile) -> _Expected:
    """The registry's word on a payload, or the pin's where the registry has none."""
    pin = _pin_path(_path(file))
    if file.verified or not pin.exists():
        return _Expected(file.size, file.sha256)
    try:
        record = json.loads(pin.read_text(encoding="utf-8"))["payloads"][file.name]
        return _Expected(int(record["bytes"]), str(record["sha256"]))
    except (ValueError, KeyError, TypeError) as error:
        raise unpack.UnpackError(f"the pin {pin} is not readable; delete it to accept the file unverified") from error


def _pin_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.pin.json")


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _fetch_path(dataset: Dataset, relative: str, *, progress: bool | None, schemes: tuple[str, ...]) -> None:
    """Download one packed file, check all payloads in it, and only then move it into place."""
    archive = dataset.archive(relative)
    url, target = archive[0].url, folder() / relative
    assert url is not None, "only files with an address are fetched"
    partial = _partial(target)
    with _folder_for(target):
        try:
            limit = unpack.download_limit(archive)
            download(url, partial, limit=limit, progress=progress, _schemes=schemes)
            payloads = {file.name: _checked(partial, file, dataset) for file in archive}
            if not all(file.verified for file in archive):
                _pin(target, url, payloads)
            os.replace(partial, target)
        except (TooLarge, unpack.UnpackError) as error:
            discard(partial)
            raise DataDamaged(
                f"{dataset.title}: what {url} sends is refused and was deleted: {error}. "
                f"Try again later; if it stays so, get the file from {dataset.source} and put it at {target}."
            ) from error
        discard(partial)  # the note is left


def _checked(partial: Path, file: DataFile, dataset: Dataset) -> dict[str, int | str]:
    size, sha256 = _measure(partial, file, dataset)
    _compare(size, sha256, _expected(file))
    return {"bytes": size, "sha256": sha256}


def _pin(target: Path, url: str, payloads: dict[str, dict[str, int | str]]) -> None:
    """Write down what an unverified download contained, unless an earlier one did."""
    pin = _pin_path(target)
    if pin.exists():
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    scratch = pin.with_name(f"{pin.name}.tmp")
    record = {"url": url, "downloaded": today, "payloads": payloads}
    scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(scratch, pin)


@contextmanager
def _folder_for(target: Path) -> Iterator[None]:
    """The folder of `target`, made if need be; folders made here that end up empty are removed again."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadFailed(
            f"{target.parent} cannot be made ({error.strerror}). Set LEAKAGE_DATA to a folder you may write to."
        ) from error
    try:
        yield
    finally:
        for made in missing:
            if made.is_dir() and not any(made.iterdir()):
                made.rmdir()
