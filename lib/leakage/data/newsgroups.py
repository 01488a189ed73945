"""20 Newsgroups: messages to twenty Usenet groups, split by date, and their words as numbers.

The archive holds one file a message, `20news-bydate-<part>/<group>/<number>`, in Latin-1. It is read as a stream and
never extracted. Texts come as they are, with headers, quotations and signatures, which name the group now and then.
Features are scikit-learn's TF-IDF. Nothing here shuffles.
"""

import io
import re
import tarfile
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int64
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from leakage.arguments import choice, count
from leakage.data import fetch, unpack
from leakage.data.registry import malformed

COUNTS = {"train": 11_314, "test": 7_532}
GROUPS = 20
_NAME = re.compile(r"20news-bydate-(train|test)/([a-z0-9.-]+)/([0-9]+)")
_FOLDER = re.compile(r"20news-bydate-(train|test)(/[a-z0-9.-]+)?/?")
_LARGEST = 1 << 20  # bytes of a message; the longest known ones have some 160,000
_MOST = 1 << 28  # bytes of all together, packed as they are in an archive; they have some 40 million


@dataclass(frozen=True, eq=False)
class MessageSet:
    """Messages with their groups.

    Attributes:
        texts: by group, then by number.
        labels: positions in `groups`.
        groups: the names, by alphabet.
    """

    texts: tuple[str, ...]
    labels: Int64[Tensor, " n"]
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


def load(part: str = "train") -> MessageSet:
    """The 11,314 earlier messages (`train`) or the 7,532 later ones (`test`).

    Args:
        part: `train` or `test`.

    Raises:
        DataAbsent: if the archive is not here.
        DataDamaged: if it is not what it should be.
    """
    choice("part", part, COUNTS)
    return parse(fetch.read_payload("20newsgroups", "20news-bydate"), part=part, source="20newsgroups/20news-bydate")


def parse(
    payload: bytes, *, part: str, messages: int | None = None, groups: int = GROUPS, source: str = "payload"
) -> MessageSet:
    """Messages of one part from the packed archive.

    Args:
        payload: the `tar.gz` archive itself.
        part: `train` or `test`.
        messages: how many there must be; by default as many as in the real set.
        groups: how many groups there must be.
        source: what errors call the payload.

    Raises:
        DataDamaged: if the archive is corrupt, holds anything but messages and their folders, a message twice, or
            another number of messages or groups; `source` is named.
    """
    choice("part", part, COUNTS)
    messages = COUNTS[part] if messages is None else messages
    found: dict[tuple[str, int], str] = {}
    try:
        for name, content in unpack.members(io.BytesIO(payload), limit=_MOST, check=_check):
            where, group, number = name.split("/")
            if where.endswith(part) and (group, int(number)) in found:
                raise unpack.UnpackError(f"{group}/{number} twice")
            if where.endswith(part):  # in Latin-1, as scikit-learn reads them: every byte is a sign
                found[group, int(number)] = content.decode("latin-1")
    except unpack.UnpackError as error:
        expected = f"a packed archive of messages of at most {_LARGEST:,} bytes, each once, and their folders"
        raise malformed(source, expected, str(error)) from error
    names = tuple(sorted({group for group, _ in found}))
    if len(found) != messages or len(names) != groups:
        expected = f"{messages:,} {part} messages to {groups} groups"
        raise malformed(source, expected, f"{len(found):,} to {len(names)}")
    ordered = sorted(found)
    labels = torch.tensor([names.index(group) for group, _ in ordered], dtype=torch.int64)
    return MessageSet(tuple(found[key] for key in ordered), labels, names)


def tf_idf(
    training: MessageSet, *others: MessageSet, features: int = 2_000
) -> tuple[Float32[Tensor, "n features"], ...]:
    r"""The weights of the most frequent words in each message, for the training set and any others.

    scikit-learn's `TfidfVectorizer` with its defaults: lower-case words of two signs or more, counts times
    $1 + \log((1 + n)/(1 + n_w))$, every row of length 1. Words and frequencies $n_w$ are those of the training set.

    Raises:
        ValueError: if `features` is not positive, or larger than the number of words.
    """
    features = count("features", features, least=1)
    vectoriser = TfidfVectorizer(max_features=features)
    rows = [vectoriser.fit_transform(training.texts), *(vectoriser.transform(other.texts) for other in others)]
    if rows[0].shape[1] < features:
        raise ValueError(f"`features` must be at most {rows[0].shape[1]}, the words of the set; got {features}.")
    return tuple(torch.from_numpy(table.toarray()).float() for table in rows)


def _check(info: tarfile.TarInfo) -> None:
    form, most = (_FOLDER, 0) if info.isdir() else (_NAME, _LARGEST)
    if not form.fullmatch(info.name) or info.size > most:
        raise unpack.UnpackError(f"{info.name[:60]!r} of {info.size:,} bytes")
