"""Data sets on this machine: whether they are there, whether they are what they should be, and getting them.

A set is *available* only if its files are what the registry says: one that is damaged counts as absent, and reading it
is an error. Only `fetch` uses the network or writes, and only when it is called: reading a set that is absent raises
`DataAbsent` with the command to run. No payload is handed out before its SHA-256 was compared with the registry's or,
for a set the registry marks unverified, with the one pinned beside the file.
"""

import fcntl
import hashlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from leakage.data import registry, states, unpack
from leakage.data.download import DownloadBlocked, DownloadFailed, TooLarge, download
from leakage.data.registry import DataAbsent, DataDamaged, DataFile, Dataset
from leakage.data.states import FileStatus, folder

PATIENCE = 30.0
"""Seconds to wait for an answer, and for the next bytes of one."""


def chosen(name: str) -> str:
    """The file to read of a set in several forms: the first good one; without one, what there is to complain of."""
    return min(status(name), key=lambda found: (not found.good, found.state != "damaged")).file.name


def available(name: str) -> bool:
    """Whether data set `name` is on this machine with all its files good; for a set in several forms one is enough."""
    return _complete(registry.dataset(name), status(name))


def status(name: str) -> tuple[FileStatus, ...]:
    """The state of each file of data set `name`; unpacks and hashes what is there."""
    dataset = registry.dataset(name)
    return tuple(states.status(dataset, file) for file in dataset.files)


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
    found = unpack.payloads(folder() / entry.path, dataset.archive(entry.path))
    try:
        (payload,) = [payload for one, payload in found if one.name == file]
        states.compare(entry, len(payload), hashlib.sha256(payload).hexdigest())
    except (FileNotFoundError, NotADirectoryError):
        raise DataAbsent(f"{absent(name, entry)} The data folder is {folder()}.") from None
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
        patience: seconds to wait for an answer, and for the next bytes of one.
        until: when to stop waiting for more, by `time.monotonic`; what has arrived is kept.
        _schemes: the URL schemes allowed, for tests against a local server.

    Raises:
        DownloadFailed: if the network, the server or the disk fails; its kind `DownloadBlocked` if any other download
            would fail, too.
        DataDamaged: if what arrives is not what the registry or the pin of an earlier download says.
    """
    dataset, found = registry.dataset(name), status(name)
    wanted = () if _complete(dataset, found) else [entry.file for entry in found if entry.file.url and not entry.good]
    for path, url in dict.fromkeys((str(file.path), str(file.url)) for file in wanted):
        archive, target = dataset.archive(path), folder() / path
        with _held(target) as sink:
            if archive[0].packing == "plain" and not archive[0].verified:
                sink.truncate(0)  # nothing would tell that it is put together from two versions
                sink.seek(0)
            limit = unpack.download_limit(archive)
            try:
                download(url, sink, limit=limit, patience=patience, until=until, _schemes=_schemes)
                payloads = states.measured(Path(sink.name), archive)
                for file in archive:
                    states.compare(file, *payloads[file.name])
            except (TooLarge, unpack.UnpackError) as error:
                sink.truncate(0)
                pinned = any(states.pin_of(file) for file in archive)
                accept = " To accept what is sent now, delete the pin." if pinned else ""
                raise DataDamaged(
                    f"{dataset.title}: what {url} sends is refused and was deleted: {error}. Try again later; if it "
                    f"stays so, get the file from {dataset.source} and put it at {target}.{accept}"
                ) from error
            os.replace(sink.name, target)
        _pin(dataset, path, url=url)
    for file in dataset.files:
        _pin(dataset, file.path, url=None)
    return status(name)


def _pin(dataset: Dataset, path: str, *, url: str | None) -> None:
    """Pin what came from `url`, or was put there by hand. A folder that cannot be written leaves it unpinned."""
    here = [found for found in status(dataset.name) if found.file.path == path and found.state == "unverified"]
    if here:
        with suppress(OSError):
            states.pin(here[0].path, {found.file.name: (found.size, found.sha256) for found in here}, url=url)


@contextmanager
def _held(target: Path) -> Iterator[io.BufferedWriter]:
    """The file in which a download of `target` grows, for no other process, and gone afterwards if it is empty."""
    path = states.partial(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", opener=unpack.promptly) as sink:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not (path.exists() and os.path.samestat(os.fstat(sink.fileno()), path.stat())):
                raise BlockingIOError  # the other process put it into its place just now
            try:
                yield sink
            finally:
                sink.flush()
                if not os.fstat(sink.fileno()).st_size:
                    path.unlink()
    except DownloadFailed:
        raise
    except BlockingIOError as error:
        raise DownloadBlocked(f"another process is fetching {target}. Run the command again after it.") from error
    except OSError as error:
        raise DownloadBlocked(
            f"{target} cannot be put there ({error.strerror}). Move away what is in its way, or set LEAKAGE_DATA to a "
            "folder you may write to."
        ) from error


def _complete(dataset: Dataset, found: Sequence[FileStatus]) -> bool:
    good = sum(entry.good for entry in found)
    return good > 0 if dataset.any_file else good == len(dataset.files)


def _refusal(dataset: Dataset, file: DataFile, detail: str) -> str:
    again = f"`{registry.COMMAND} {dataset.name}`"
    again = f"Run {again} to replace it" if file.url else f"Delete it and run {again}"
    trust = f"; if you trust the file, delete the pin {pin}" if (pin := states.pin_of(file)) else ""
    return (
        f"{dataset.title}: {folder() / file.path} is refused: {detail}. {again}, or set LEAKAGE_DATA to a folder with "
        f"a good copy{trust}."
    )
