"""The public data sets: where each comes from, whether it is on this machine, and how to fetch it.

A checksum is that of the *payload*, the bytes left after unpacking, because mirrors compress the same payload
differently. A set with a damaged file counts as absent, and reading that file is an error. Only `fetch` uses the
network or writes, and it never overwrites or deletes a file. A download goes to a temporary folder and is moved to its
place once the checksum of its payload matches.
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

from leakage import arguments

FETCH_COMMAND = ".venv/bin/leakage data"
"""Fetches a data set by name, as a reader of this repository can type it."""
_LONGEST_EXCERPT = 200  # characters of a file's text in an error message


class DataAbsent(FileNotFoundError):
    """A data set is not on this machine; the message says how to get it."""


class DataDamaged(ValueError):
    """A file does not have the registered content or form; the message says what was expected and what was found."""


class DownloadFailed(OSError):
    """A download did not finish because of the network, the server or the disk; the message says what to do."""


class ServerUnreachable(DownloadFailed):
    """A server did not answer or broke off, so other servers may not answer either."""


@dataclass(frozen=True)
class DataFile:
    """One payload of a data set.

    Attributes:
        path: below the data folder, with forward slashes; the ending says how the file is packed (`.tgz`: an archive,
            `.gz`: compressed, any other: not packed).
        url: download address; None if no known address has exactly this payload.
        size, sha256: bytes and hexadecimal checksum of the payload.
        member: name of the payload inside an archive.
    """

    name: str
    path: str
    url: str | None
    size: int
    sha256: str
    member: str = ""


@dataclass(frozen=True)
class Dataset:
    """A data set; with `any_file`, its files are forms of the same content, and one of them is enough."""

    name: str
    title: str
    files: tuple[DataFile, ...]
    licence: str
    source: str
    citation: str
    any_file: bool = False

    def file(self, name: str) -> DataFile:
        """The file called `name`; raises `ValueError` with the known names if there is none."""
        arguments.check_choice("file", name, [file.name for file in self.files])
        return next(file for file in self.files if file.name == name)


def _mnist(name: str, stem: str, size: int, sha256: str) -> DataFile:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{stem}.gz"
    return DataFile(name, f"mnist/{stem}.gz", url, size, sha256)


def _multi30k(name: str, size: int, sha256: str) -> DataFile:
    url = f"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}.gz"
    return DataFile(name, f"multi30k/{name}.gz", url, size, sha256)


_MNIST_IMAGES = "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
_MNIST_LABELS = "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
_ALL = (
    Dataset(
        "mnist",
        "MNIST, test set",
        (
            _mnist("images", "t10k-images-idx3-ubyte", 7_840_016, _MNIST_IMAGES),
            _mnist("labels", "t10k-labels-idx1-ubyte", 10_008, _MNIST_LABELS),
        ),
        "CC BY-SA 3.0",
        "http://yann.lecun.com/exdb/mnist/",
        "LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition (1998)",
    ),
    Dataset(
        "location",
        "Location-30",
        (
            DataFile(
                "bangkok",
                "location/dataset_location.tgz",
                "https://raw.githubusercontent.com/privacytrustlab/datasets/master/dataset_location.tgz",
                size=4_492_469,
                sha256="2ca8f7fc231251e089823e44d39f2d1eed124574cc351c7f80368cfe631dd718",
                member="bangkok",
            ),
        ),
        "none stated; published for research",
        "https://github.com/privacytrustlab/datasets",
        "Yang, Zhang, Qu: Participatory Cultural Mapping Based on Collective Behavior Data … (2016); Shokri, Stronati, "
        "Song, Shmatikov: Membership Inference Attacks Against Machine Learning Models (2017)",
    ),
    Dataset(
        "adult",
        "Adult, training part",
        (
            DataFile(
                "adult.csv",
                "adult/adult.csv",
                None,
                size=3_518_615,
                sha256="c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418",
            ),
            DataFile(
                "adult.data",
                "adult/adult.data",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",
                # Computed, not downloaded: a test rewrites adult.csv in this form and compares.
                size=3_974_305,
                sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
        ),
        "CC BY 4.0",
        "https://archive.ics.uci.edu/dataset/2/adult",
        "Becker, Kohavi: Adult. UCI Machine Learning Repository (1996), doi:10.24432/C5XW20",
        any_file=True,
    ),
    Dataset(
        "multi30k",
        "Multi30k, task 1, English and German",
        (
            _multi30k("train.en", 1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
            _multi30k("train.de", 2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
            _multi30k("val.en", 63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
            _multi30k("val.de", 75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
            _multi30k(
                "test_2016_flickr.en", 62_076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"
            ),
            _multi30k(
                "test_2016_flickr.de", 70_649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"
            ),
        ),
        "research use (captions derive from Flickr30k)",
        "https://github.com/multi30k/dataset",
        "Elliott, Frank, Sima'an, Specia: Multi30K: Multilingual English-German Image Descriptions (2016)",
    ),
)

DATASETS: dict[str, Dataset] = {entry.name: entry for entry in _ALL}


def data_folder() -> Path:
    """The data folder: `$LEAKAGE_DATA`, else `$XDG_CACHE_HOME/leakage`, else `~/.cache/leakage`. It need not exist."""
    chosen = os.environ.get("LEAKAGE_DATA", "")
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))  # ignored if relative, as the XDG specification demands
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "leakage"
    except RuntimeError as error:
        raise DataAbsent(
            f"the folder of data is not known: there is no home for {chosen or '~/.cache/leakage'}; set HOME, or "
            "LEAKAGE_DATA to a folder."
        ) from error


@dataclass(frozen=True)
class FileStatus:
    """The state of a file on this machine; `verified` says that its payload has the registered checksum."""

    file: DataFile
    path: Path
    state: Literal["verified", "damaged", "absent"]
    detail: str = ""


def status(name: str) -> tuple[FileStatus, ...]:
    """The state of each file of data set `name`; unpacks and hashes the files."""
    return tuple(_inspect(file, data_folder() / file.path)[0] for file in _dataset(name).files)


def is_available(name: str) -> bool:
    """Whether data set `name` is on this machine with all its files verified, or one if it has several forms."""
    return _is_complete(_dataset(name), status(name))


def best_file(name: str) -> str:
    """Which file to read of a set in several forms: the first verified one, else a damaged one, else the first."""
    order = ("verified", "damaged", "absent")
    return min(status(name), key=lambda found: order.index(found.state)).file.name


def checksum(name: str) -> str:
    """One SHA-256 over the verified payloads of data set `name`, in hexadecimal; "absent" if it is not available.

    Content keys use it: it changes whenever a loader might return something else.
    """
    found = status(name)
    if not _is_complete(_dataset(name), found):
        return "absent"
    text = "\n".join(f"{one.file.name} {one.file.sha256}" for one in found if one.state == "verified")
    return hashlib.sha256(text.encode()).hexdigest()


def describe_damage(name: str) -> tuple[str, ...]:
    """One line for each damaged file of data set `name`: the file, what is wrong with it, and the cure."""
    return tuple(_damage(name, found) for found in status(name) if found.state == "damaged")


def read_payload(name: str, file: str) -> bytes:
    """The unpacked bytes of one file of data set `name`, with verified SHA-256.

    Raises:
        DataAbsent: if the file is not on this machine.
        DataDamaged: if it cannot be unpacked, or its payload is not the registered one.
    """
    entry = _dataset(name).file(file)
    found, packed = _inspect(entry, data_folder() / entry.path)
    if found.state == "absent":
        raise DataAbsent(
            f"{_dataset(name).title} is absent: there is no {found.path}. {_fetch(name)}, "
            f"or set LEAKAGE_DATA to a folder that has {entry.path}."
        )
    if found.state == "damaged":
        raise DataDamaged(_damage(name, found))
    return _unpack(entry, packed)


def fetch(name: str, *, timeout: float = 30.0, retries: int = 2) -> tuple[FileStatus, ...]:
    """Download the missing files of data set `name`, verify them, and return the state of all its files.

    Args:
        timeout: seconds to wait for an answer, and for the next bytes of one.
        retries: further attempts after a failed download, after one second, then two.

    Raises:
        DataDamaged: if a damaged file occupies the place, which stays as it is, or if the download has another
            payload, which is not kept.
        DownloadFailed: if the network, the server or the disk fails.
    """
    dataset, found = _dataset(name), status(name)
    if _is_complete(dataset, found):
        return found
    missing = [one for one in found if one.file.url and one.state != "verified"]
    if damaged := [one for one in missing if one.state == "damaged"]:
        raise DataDamaged(_damage(name, damaged[0]))
    for one in missing:
        try:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=one.path.parent, prefix=".download-") as temporary:
                download = _download(one.file, Path(temporary), timeout=timeout, retries=retries)
                arrived = _inspect(one.file, download)[0]
                if arrived.state != "verified":
                    raise DataDamaged(
                        f"{dataset.title}: {one.file.url} now sends another file, which was not kept: "
                        f"{arrived.detail}. Get it from {dataset.source} and put it at {one.path}."
                    )
                download.chmod(0o644)  # pooch makes it readable by its owner alone
                os.replace(download, one.path)
        except DownloadFailed:
            raise
        except OSError as error:
            raise DownloadFailed(
                f"{one.path} cannot be written ({error.strerror or error}). "
                "Set LEAKAGE_DATA to a folder you may write to."
            ) from error
    return status(name)


def format_error(source: str, expected: str, found: str) -> DataDamaged:
    """The error of a parser; `source` is `<data set>/<file>`, and `found` is cut short if it is long."""
    name = source.partition("/")[0]
    found = found if len(found) <= _LONGEST_EXCERPT else f"{found[:_LONGEST_EXCERPT]}…"
    return DataDamaged(
        f"{source}: expected {expected}, found {found}. Move the file away. {_fetch(name)}, "
        "or set LEAKAGE_DATA to a folder with a good copy."
    )


def split_lines(payload: bytes, encoding: str, *, source: str) -> list[str]:
    """The lines of a text that ends with a line break; raises `DataDamaged` for any other."""
    try:
        text = payload.decode(encoding)
    except UnicodeDecodeError as error:
        raise format_error(source, encoding, f"byte 0x{payload[error.start]:02x} at {error.start:,}") from error
    *lines, rest = text.split("\n")  # splitlines() would also split at separators inside a sentence
    if rest or not lines:
        raise format_error(source, "a line break after the last row", repr(text[-20:]))
    return lines


def _dataset(name: str) -> Dataset:
    return DATASETS[arguments.check_choice("name", name, DATASETS)]


def _is_complete(dataset: Dataset, found: Sequence[FileStatus]) -> bool:
    verified = sum(one.state == "verified" for one in found)
    return verified > 0 if dataset.any_file else verified == len(dataset.files)


def _fetch(name: str) -> str:
    """How to get a data set, with the book's repository and without."""
    anywhere = f"`leakage.data.datasets.fetch({name!r})`"
    return f"Fetch it in the book's repository by `{FETCH_COMMAND} {name}`, or anywhere in Python by {anywhere}"


def _damage(name: str, found: FileStatus) -> str:
    return (
        f"{_dataset(name).title}: {found.path} is refused: {found.detail}. Move it away. "
        f"{_fetch(name)}, or set LEAKAGE_DATA to a folder with a good copy."
    )


def _download(file: DataFile, folder: Path, *, timeout: float, retries: int) -> Path:
    """Fetch a file into a folder with pooch, and return its path."""
    import pooch  # here, because in a notebook its progress bar warns of missing widgets

    pooch.get_logger().setLevel("WARNING")
    name = Path(file.path).name
    # Only the checksum of the payload is known, not that of the download: pooch checks nothing, `fetch` does.
    source = pooch.create(folder, base_url="", registry={name: None}, urls={name: file.url}, retry_if_failed=retries)
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=timeout)
    try:
        # pooch's own downloader does not fit the protocol that it declares for one
        return Path(source.fetch(name, downloader=downloader))  # pyright: ignore[reportArgumentType]
    except requests.HTTPError as error:
        raise DownloadFailed(f"{file.url} answers: {error}. Try again later.") from error
    except requests.RequestException as error:
        raise ServerUnreachable(f"{file.url} cannot be fetched ({error}). Check the network and try again.") from error


def _inspect(file: DataFile, path: Path) -> tuple[FileStatus, bytes]:
    """The state of the file at `path`, and its packed content."""
    try:
        packed = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(file, path, "absent"), b""
    except OSError as error:
        return FileStatus(file, path, "damaged", f"it cannot be read ({error.strerror})"), b""
    fault = _fault(file, packed)
    return FileStatus(file, path, "damaged" if fault else "verified", fault), packed


@functools.lru_cache(maxsize=32)  # a chapter asks again for every claim
def _fault(file: DataFile, packed: bytes) -> str:
    """Why the content is not the registered payload; "" if it is."""
    try:
        found = hashlib.sha256(_unpack(file, packed)).hexdigest()
    except (EOFError, KeyError, OSError, ValueError, tarfile.TarError, zlib.error) as error:
        return f"it cannot be unpacked ({error})"
    return "" if found == file.sha256 else f"its payload has SHA-256 {found}, not {file.sha256}"


def _unpack(file: DataFile, packed: bytes) -> bytes:
    """The payload, at most one byte longer than registered: more would only cost memory."""
    stream, most = io.BytesIO(packed), file.size + 1
    if file.path.endswith(".gz"):
        return gzip.GzipFile(fileobj=stream).read(most)
    if not file.path.endswith(".tgz"):
        return packed
    with tarfile.open(fileobj=stream, mode="r:gz") as archive:
        content = archive.extractfile(file.member)
        if content is None:
            raise ValueError(f"{file.member} is no file in it")
        return content.read(most)
