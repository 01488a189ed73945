"""Data sets on this machine: whether they are there, whether they are what they should be, and getting them.

A set is *available* only if its files are what the registry says: one that is damaged counts as absent, and reading it
is an error. Only `fetch` uses the network or writes, and only when it is called: reading a set that is absent raises
`DataAbsent` with the command to run. No payload is handed out before its SHA-256 was compared with the registry's or,
for a set the registry marks unverified, with the one pinned beside the file.
"""

import fcntl
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from leakage.data import registry, states, unpack
from leakage.data.download import DownloadBlocked, DownloadFailed, TooLarge, discard, download, note_of
from leakage.data.registry import DataAbsent, DataDamaged, DataFile, Dataset
from leakage.data.states import FileStatus, folder

PATIENCE = 30.0
"""Seconds to wait for an answer, and for the next bytes of one."""


def present(name: str) -> tuple[str, ...]:
    """The names of the files of data set `name` that are on this machine and good."""
    return tuple(found.file.name for found in status(name) if found.good)


def chosen(name: str) -> str:
    """The file to read of a set in several forms: the first good one; without one, what there is to complain of."""
    found = status(name)
    here = [entry for entry in found if entry.good] or [entry for entry in found if entry.state == "damaged"]
    return (here or found)[0].file.name


def available(name: str) -> bool:
    """Whether data set `name` is on this machine with all its files good; for a set in several forms one is enough."""
    return _complete(registry.dataset(name), status(name))


def status(name: str) -> tuple[FileStatus, ...]:
    """The state of each file of data set `name`; unpacks and hashes what is there."""
    return states.status(registry.dataset(name))


def checksum(name: str) -> str:
    """One SHA-256 over the good payloads that are here, in hexadecimal; "absent" for a set that is not `available`.

    It is meant for content keys: it changes whenever a loader might return something else. Where the registry has no
    checksum to compare a payload with, it begins with "unverified:".
    """
    found = [entry for entry in status(name) if entry.good]
    if not _complete(registry.dataset(name), found):
        return "absent"
    lines = "\n".join(f"{entry.file.name} {entry.sha256}" for entry in found)
    trusted = all(entry.state == "verified" for entry in found)
    return f"{'' if trusted else 'unverified:'}{hashlib.sha256(lines.encode()).hexdigest()}"


def complaints(name: str) -> tuple[str, ...]:
    """One line for each damaged file of data set `name`: which one, what is wrong with it, and the cure."""
    damaged = [found for found in status(name) if found.state == "damaged"]
    return tuple(_refusal(registry.dataset(name), found.file, found.detail) for found in damaged)


def read_payload(name: str, file: str) -> bytes:
    """The unpacked bytes of one file of data set `name`, after comparing their SHA-256.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it is truncated, corrupt, altered, or an archive that holds anything unexpected.
        ValueError: if `name` or `file` is not in the registry; the message lists what is.
    """
    dataset = registry.dataset(name)
    entry = dataset.file(file)
    path = states.place(entry)
    facts, problem = states.regular(path)
    if facts is None and not problem:
        raise DataAbsent(f"{absent(name, entry)} The data folder is {folder()}.")
    try:
        if problem:
            raise unpack.UnpackError(problem)
        payload = b"".join(unpack.chunks(path, entry, dataset.archive(entry.path)))
        states.compare(entry, len(payload), hashlib.sha256(payload).hexdigest())
    except unpack.UnpackError as error:
        raise DataDamaged(_refusal(dataset, entry, str(error))) from error
    return payload


def absent(name: str, file: DataFile | None = None) -> DataAbsent:
    """The error to raise where data set `name` is needed and not available.

    The words fit a missing file and a damaged one, and name no folder of this machine, for pages repeat them.
    """
    dataset = registry.dataset(name)
    missing = file or next((found.file for found in status(name) if not found.good), dataset.files[0])
    return DataAbsent(
        f"{dataset.title} is absent: the data folder has no good {missing.path}. Run `{registry.COMMAND} {name}`, "
        f"or set LEAKAGE_DATA to a folder that has {missing.path}."
    )


def fetch(
    name: str,
    *,
    progress: bool | None = None,
    patience: float = PATIENCE,
    until: float = math.inf,
    _schemes: tuple[str, ...] = ("https",),
) -> tuple[FileStatus, ...]:
    """Download what is missing or damaged of data set `name`, check it, and return the state of all its files.

    A download that breaks off is resumed by the next call. One that is complete and wrong is deleted, and whatever lay
    in its place before stays as it was. Files that are here and good are left alone; where the registry has no checksum
    for one of them, its own is pinned, so that it cannot change unseen from then on.

    Args:
        name: a data set of the registry.
        progress: show a bar; None shows it on a terminal only.
        patience: seconds to wait for an answer, and for the next bytes of one.
        until: when to stop waiting for more, by `time.monotonic`; what has arrived is kept.
        _schemes: the URL schemes allowed, for tests against a local server.

    Raises:
        DownloadFailed: if the network, the server or the disk fails; its kind `DownloadBlocked` if any other download
            would fail, too.
        DataDamaged: if what arrives is not what the registry or the pin of an earlier download says.
    """
    dataset = registry.dataset(name)
    if _missing(dataset):
        with _alone():
            for path in _missing(dataset):  # looked at again: another process may have brought it meanwhile
                _fetch_path(dataset, path, progress=progress, patience=patience, until=until, schemes=_schemes)
                _pin_what_is_here(dataset, brought=path)
    _pin_what_is_here(dataset)
    return status(name)


def _complete(dataset: Dataset, found: Sequence[FileStatus]) -> bool:
    good = sum(entry.good for entry in found)
    return good > 0 if dataset.any_file else good == len(dataset.files)


def _missing(dataset: Dataset) -> tuple[str, ...]:
    """The packed files to download."""
    found = states.status(dataset)
    if _complete(dataset, found):
        return ()
    return tuple(dict.fromkeys(entry.file.path for entry in found if entry.file.url and not entry.good))


def _refusal(dataset: Dataset, file: DataFile, detail: str) -> str:
    return f"{dataset.title}: {states.place(file)} is refused: {detail}. {states.cure(dataset, file)}"


def _fetch_path(
    dataset: Dataset,
    relative: str,
    *,
    progress: bool | None,
    patience: float,
    until: float,
    schemes: tuple[str, ...],
) -> None:
    """Download one packed file, check all payloads in it, and only then move it into place."""
    archive = dataset.archive(relative)
    url, target = archive[0].url, folder() / relative
    assert url is not None, "only files with an address are fetched"
    partial = states.partial(target)
    for path in (partial, note_of(partial)):
        if problem := states.regular(path)[1]:  # a pipe would keep its writer waiting
            raise DownloadFailed(f"{path} is in the way: {problem}. Move it away.")
    with _made(target.parent):
        try:
            limit = unpack.download_limit(archive)
            download(url, partial, limit=limit, progress=progress, patience=patience, until=until, _schemes=schemes)
            found = states.measured(partial, archive)
            for file in archive:
                states.compare(file, *found[file.name])
            os.replace(partial, target)
        except (TooLarge, unpack.UnpackError) as error:
            discard(partial)
            pinned = not all(file.verified for file in archive) and states.pin_of(target).exists()
            accept = " To accept what is sent now, delete the pin." if pinned else ""
            raise DataDamaged(
                f"{dataset.title}: what {url} sends is refused and was deleted: {error}. "
                f"Try again later; if it stays so, get the file from {dataset.source} and put it at {target}.{accept}"
            ) from error
        except DownloadFailed:
            raise
        except OSError as error:
            raise DownloadFailed(
                f"{target} cannot be put there ({error.strerror}). Move away what is in its place, "
                "or set LEAKAGE_DATA to a folder you may write to."
            ) from error
        discard(partial)  # the note is left


def _pin_what_is_here(dataset: Dataset, *, brought: str = "") -> None:
    """Pin unverified files, which came with a download if they are `brought`, and were put there by hand otherwise.

    A file is pinned once it is in its place: a pin without one would refuse what a server sends next. A folder that
    cannot be written leaves files unpinned.
    """
    found = states.status(dataset)
    for path in dict.fromkeys(entry.file.path for entry in found if entry.state == "unverified"):
        here = [entry for entry in found if entry.file.path == path]
        with suppress(OSError):
            url = here[0].file.url if path == brought else None
            states.pin(dataset, here[0].path, {e.file.name: (e.size, e.sha256) for e in here}, url=url)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the data folder, made if need be; two downloads of one file would spoil each other."""
    root = folder()
    path = root / ".lock"
    if problem := states.regular(path)[1]:
        raise DownloadBlocked(f"{path} is in the way: {problem}. Move it away.")
    with _made(root):
        try:
            lock = path.open("a")
        except OSError as error:
            raise DownloadBlocked(
                f"{root} cannot be written ({error.strerror}). Set LEAKAGE_DATA to a folder you may write to."
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())
            except BlockingIOError:
                held = False
            except OSError as error:
                raise DownloadBlocked(
                    f"{root} cannot be locked ({error.strerror}). Set LEAKAGE_DATA to a folder on another disk."
                ) from error
            if not held:  # by another process, or by one that ended and removed the lock just now
                raise DownloadBlocked(f"another process is fetching data into {root}. Run the command again after it.")
            try:
                yield
            finally:
                path.unlink(missing_ok=True)


@contextmanager
def _made(wanted: Path) -> Iterator[None]:
    """The folder `wanted`, made if need be; folders made here that end up empty are removed again."""
    missing = [parent for parent in (wanted, *wanted.parents) if not os.path.exists(parent)]
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadBlocked(
            f"{wanted} cannot be made ({error.strerror}). Set LEAKAGE_DATA to a folder you may write to."
        ) from error
    try:
        yield
    finally:
        for made in missing:
            if os.path.isdir(made) and not os.listdir(made):
                made.rmdir()
