"""Data sets on this machine: whether they are there, whether they are what they should be, and getting them.

A set is *available* only if its files are what the registry says: one that is damaged counts as absent, and reading it
is an error. Only `fetch` uses the network or writes, and it never overwrites or deletes a file that is there. No
payload is handed out before its SHA-256 was compared with the registry's.

Of the downloads themselves no checksum is known, only of the payloads in them. So a download goes to a temporary
folder first and is moved to its place once its payload is right. Payloads are unpacked in memory, no further than
their known size, and nothing of an archive but the one member is read.
"""

import functools
import gzip
import hashlib
import io
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import requests

from leakage.data import registry
from leakage.data.registry import DataAbsent, DataDamaged, DataFile, Dataset, folder


class DownloadFailed(OSError):
    """The network, the server or the disk did not let a download finish; the message says which, and what to do."""


class ServerUnreachable(DownloadFailed):
    """A server did not answer, or broke off; another one, at the moment, may not answer either."""


@dataclass(frozen=True)
class FileStatus:
    """What was found where a file should be.

    Attributes:
        file: the registry's entry.
        path: where it should be.
        state: `verified` if its payload has the registry's checksum, otherwise `damaged` or `absent`.
        detail: why a damaged file is refused; "" otherwise.
    """

    file: DataFile
    path: Path
    state: Literal["verified", "damaged", "absent"]
    detail: str = ""


def status(name: str) -> tuple[FileStatus, ...]:
    """The state of each file of data set `name`; unpacks and hashes what is there."""
    return tuple(_look(file, folder() / file.path)[0] for file in registry.dataset(name).files)


def available(name: str) -> bool:
    """Whether data set `name` is on this machine with all its files good; for a set in several forms one is enough."""
    return _complete(registry.dataset(name), status(name))


def good_file(name: str) -> str:
    """The file to read of a set in several forms: the first good one, else a damaged one, else the first."""
    order = ("verified", "damaged", "absent")
    return min(status(name), key=lambda found: order.index(found.state)).file.name


def checksum(name: str) -> str:
    """One SHA-256 over the good payloads that are here, in hexadecimal; "absent" for a set that is not `available`.

    It is meant for content keys: it changes whenever a loader might return something else.
    """
    found = status(name)
    if not _complete(registry.dataset(name), found):
        return "absent"
    lines = "\n".join(f"{one.file.name} {one.file.sha256}" for one in found if one.state == "verified")
    return hashlib.sha256(lines.encode()).hexdigest()


def complaints(name: str) -> tuple[str, ...]:
    """One line for each damaged file of data set `name`: which one, what is wrong with it, and the cure."""
    return tuple(_refusal(name, found) for found in status(name) if found.state == "damaged")


def read_payload(name: str, file: str) -> bytes:
    """The unpacked bytes of one file of data set `name`, after comparing their SHA-256.

    Raises:
        DataAbsent: if the file is not here.
        DataDamaged: if it cannot be unpacked, or its payload is not the registered one.
        ValueError: if `name` or `file` is not in the registry; the message lists what is.
    """
    entry = registry.dataset(name).file(file)
    found, packed = _look(entry, folder() / entry.path)
    if found.state == "absent":
        raise DataAbsent(
            f"{registry.dataset(name).title} is absent: there is no {found.path}. Run `{registry.COMMAND} {name}`, "
            f"or set LEAKAGE_DATA to a folder that has {entry.path}."
        )
    if found.state == "damaged":
        raise DataDamaged(_refusal(name, found))
    return _unpack(entry, packed)


def fetch(name: str, *, timeout: float = 30.0, retries: int = 2) -> tuple[FileStatus, ...]:
    """Download what is missing of data set `name`, check it, and return the state of all its files.

    Args:
        name: a data set of the registry.
        timeout: seconds to wait for an answer, and for the next bytes of one.
        retries: how often a download that failed is tried again, after a second, then two.

    Raises:
        DataDamaged: if a file is in the way that is not the registered one, which stays as it is, or if what arrives
            is not, which is not kept.
        DownloadFailed: if the network, the server or the disk fails.
    """
    dataset, found = registry.dataset(name), status(name)
    wanted = [] if _complete(dataset, found) else [one for one in found if one.file.url and one.state != "verified"]
    for one in wanted:
        if one.state == "damaged":
            raise DataDamaged(_refusal(name, one))
    for one in wanted:
        try:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=one.path.parent, prefix=".download-") as temporary:
                download = _download(one.file, Path(temporary), timeout=timeout, retries=retries)
                arrived = _look(one.file, download)[0]
                if arrived.state != "verified":
                    raise DataDamaged(
                        f"{dataset.title}: {one.file.url} now sends another file, which was not kept: "
                        f"{arrived.detail}. Get it from {dataset.source} and put it at {one.path}."
                    )
                download.chmod(0o644)  # pooch leaves it readable by its owner alone
                os.replace(download, one.path)
        except DownloadFailed:
            raise
        except OSError as error:
            raise DownloadFailed(
                f"{one.path} cannot be written ({error.strerror or error}). "
                "Set LEAKAGE_DATA to a folder you may write to."
            ) from error
    return status(name)


def _download(file: DataFile, into: Path, *, timeout: float, retries: int) -> Path:
    """Where pooch has put what the file's address sends."""
    import pooch  # only a download needs it, and in a notebook its progress bar warns of missing widgets

    pooch.get_logger().setLevel("WARNING")
    name = Path(file.path).name
    # The address belongs to a payload whose checksum is known, so the download's own need not be.
    source = pooch.create(into, base_url="", registry={name: None}, urls={name: file.url}, retry_if_failed=retries)
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=timeout)
    try:
        # pooch's own downloader does not fit the protocol that it declares for one
        return Path(source.fetch(name, downloader=downloader))  # pyright: ignore[reportArgumentType]
    except requests.HTTPError as error:
        raise DownloadFailed(f"{file.url} answers: {error}. Try again later.") from error
    except requests.RequestException as error:
        raise ServerUnreachable(f"{file.url} cannot be fetched ({error}). Check the network and try again.") from error


def _look(file: DataFile, path: Path) -> tuple[FileStatus, bytes]:
    """The state of the file at `path`, and its content, still packed."""
    try:
        packed = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(file, path, "absent"), b""
    except OSError as error:
        return FileStatus(file, path, "damaged", f"it cannot be read ({error.strerror})"), b""
    fault = _fault(file, packed)
    return FileStatus(file, path, "damaged" if fault else "verified", fault), packed


@functools.lru_cache(maxsize=32)  # a chapter asks once a claim
def _fault(file: DataFile, packed: bytes) -> str:
    """Why the content is not the registered payload; "" if it is."""
    try:
        payload = _unpack(file, packed)
    except (EOFError, KeyError, OSError, ValueError, tarfile.TarError, zlib.error) as error:
        return f"it cannot be unpacked ({error})"
    if len(payload) > file.size:
        return f"its payload has more than {file.size:,} bytes"
    found = hashlib.sha256(payload).hexdigest()
    return "" if found == file.sha256 else f"its payload has SHA-256 {found}, not {file.sha256}"


def _unpack(file: DataFile, packed: bytes) -> bytes:
    """The payload, up to one byte more than it should have."""
    stream, most = io.BytesIO(packed), file.size + 1
    if file.path.endswith(".gz"):
        return gzip.GzipFile(fileobj=stream).read(most)
    if not file.path.endswith(".tgz"):
        return stream.read(most)
    with tarfile.open(fileobj=stream, mode="r:gz") as archive:
        content = archive.extractfile(file.member)
        if content is None:
            raise ValueError(f"{file.member} is no file in it")
        return content.read(most)


def _complete(dataset: Dataset, found: Sequence[FileStatus]) -> bool:
    good = sum(one.state == "verified" for one in found)
    return good > 0 if dataset.any_file else good == len(dataset.files)


def _refusal(name: str, found: FileStatus) -> str:
    return (
        f"{registry.dataset(name).title}: {found.path} is refused: {found.detail}. Move it away and run "
        f"`{registry.COMMAND} {name}`, or set LEAKAGE_DATA to a folder with a good copy."
    )
