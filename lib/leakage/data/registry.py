"""Which public data sets there are: where each comes from, what it must contain, and under which licence.

A checksum is that of the *payload*, the bytes left after unpacking, because mirrors compress the same payload
differently. Nothing here opens a file or the network.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from leakage import arguments

COMMAND = ".venv/bin/leakage data"
"""What fetches a set by name, as a reader of this repository can type it."""
_SHOWN = 200  # characters of a finding, which may be a line of any length


class DataAbsent(FileNotFoundError):
    """A data set is not on this machine; the message says how to get it."""


class DataDamaged(ValueError):
    """A file is not what the registry or its format demands; the message says what was expected and what was found."""


def malformed(source: str, expected: str, found: str) -> DataDamaged:
    """The error a parser raises: `source` is `<data set>/<file>`, the rest are phrases; a long finding is cut short."""
    found = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
    return DataDamaged(
        f"{source}: expected {expected}, found {found}. Delete the file and fetch it again with `{COMMAND}`, "
        "or set LEAKAGE_DATA to a folder with a good copy."
    )


def lines(payload: bytes, encoding: str, *, source: str) -> list[str]:
    """The lines of a text that ends with a line break; raises `DataDamaged` for any other."""
    try:
        text = payload.decode(encoding)
    except UnicodeDecodeError as error:
        raise malformed(source, encoding, f"byte 0x{payload[error.start]:02x} at {error.start:,}") from error
    *found, rest = text.split("\n")  # splitlines() would also break at characters that may stand within a sentence
    if rest or not found:
        raise malformed(source, "a line break after the last row", repr(text[-20:]))
    return found


@dataclass(frozen=True)
class DataFile:
    """One payload of a data set.

    Attributes:
        name: what loaders call the payload, unique within its data set.
        path: where the file lies below the data folder, with forward slashes; its ending says how it is packed
            (`.tgz`: an archive, `.gz`: compressed, any other: not at all).
        url: where it can be downloaded; None where we know no address with exactly this payload.
        size: bytes of the payload.
        sha256: of the payload, in hexadecimal.
        member: the payload's name inside an archive.
    """

    name: str
    path: str
    url: str | None
    size: int
    sha256: str
    member: str = ""


@dataclass(frozen=True)
class Dataset:
    """A data set: its files, and what a reader should know before using it.

    Attributes:
        any_file: the files are different forms of the same content, so that any one of them is the whole set.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    licence: str
    source: str
    citation: str
    any_file: bool = False

    def file(self, name: str) -> DataFile:
        """The file called `name`; raises `ValueError` listing the names otherwise."""
        names = [file.name for file in self.files]
        if name not in names:
            raise ValueError(f"`file` must be one of {', '.join(names)} for data set {self.name}; got {name!r}.")
        return self.files[names.index(name)]


def dataset(name: str) -> Dataset:
    """The data set called `name`.

    Raises:
        ValueError: if there is none; the message lists the names there are.
    """
    return DATASETS[arguments.choice("name", name, DATASETS)]


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


def _mnist(name: str, stem: str, size: int, sha256: str) -> DataFile:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{stem}.gz"
    return DataFile(name, f"mnist/{stem}.gz", url, size, sha256)


def _multi30k(name: str, size: int, sha256: str) -> DataFile:
    url = f"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}.gz"
    return DataFile(name, f"multi30k/{name}.gz", url, size, sha256)


_MNIST = (
    _mnist(
        "images",
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _mnist(
        "labels", "t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
)
_LOCATION = DataFile(
    "bangkok",
    "location/dataset_location.tgz",
    "https://raw.githubusercontent.com/privacytrustlab/datasets/master/dataset_location.tgz",
    size=4_492_469,
    sha256="2ca8f7fc231251e089823e44d39f2d1eed124574cc351c7f80368cfe631dd718",
    member="bangkok",
)
_ADULT_CSV = DataFile(
    "adult.csv",
    "adult/adult.csv",
    None,
    size=3_518_615,
    sha256="c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418",
)
_ADULT_DATA = DataFile(
    "adult.data",
    "adult/adult.data",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",
    # Derived, not downloaded: a test rewrites adult.csv in this form and compares.
    size=3_974_305,
    sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
)
_MULTI30K = (
    _multi30k("train.en", 1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
    _multi30k("train.de", 2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
    _multi30k("val.en", 63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
    _multi30k("val.de", 75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
    _multi30k("test_2016_flickr.en", 62_076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"),
    _multi30k("test_2016_flickr.de", 70_649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"),
)

_ALL = (
    Dataset(
        "mnist",
        "MNIST, test set",
        _MNIST,
        "CC BY-SA 3.0",
        "http://yann.lecun.com/exdb/mnist/",
        "LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition (1998)",
    ),
    Dataset(
        "location",
        "Location-30",
        (_LOCATION,),
        "none stated; published for research",
        "https://github.com/privacytrustlab/datasets",
        "Yang, Zhang, Qu: Participatory Cultural Mapping Based on Collective Behavior Data … (2016); Shokri, Stronati, "
        "Song, Shmatikov: Membership Inference Attacks Against Machine Learning Models (2017)",
    ),
    Dataset(
        "adult",
        "Adult, training part",
        (_ADULT_CSV, _ADULT_DATA),
        "CC BY 4.0",
        "https://archive.ics.uci.edu/dataset/2/adult",
        "Becker, Kohavi: Adult. UCI Machine Learning Repository (1996), doi:10.24432/C5XW20",
        any_file=True,
    ),
    Dataset(
        "multi30k",
        "Multi30k, task 1, English and German",
        _MULTI30K,
        "research use (captions derive from Flickr30k)",
        "https://github.com/multi30k/dataset",
        "Elliott, Frank, Sima'an, Specia: Multi30K: Multilingual English-German Image Descriptions (2016)",
    ),
)

DATASETS: dict[str, Dataset] = {entry.name: entry for entry in _ALL}
