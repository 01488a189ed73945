"""Rows of numbers with their classes, by the name of the data set: what attacks on classifiers are tried on.

`load` gives float32, encoded as the book's studies want it; the strict parsers are in modules of their own. Encodings
are fixed by all rows of a set, so that they say nothing about a split. Nothing here shuffles or splits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments, fingerprints
from leakage.data import adult, binary_rows, embedded, newsgroups


@dataclass(frozen=True, eq=False)
class Labelled:
    """Points and their classes; the tensors are not to be changed.

    Attributes:
        features: one point a row.
        labels: the class of each, counted from 0.

    Raises:
        TypeError: if a part is no tensor.
        ValueError: if the shapes do not fit, or a dtype is another.
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]

    def __post_init__(self) -> None:
        arguments.real("features", self.features, "n d")
        arguments.whole("labels", self.labels, "n", n=len(self.features))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many there are, if the last one occurs."""
        return int(self.labels.max()) + 1

    @cached_property
    def content_key(self) -> str:
        """SHA-256 of the tensors, in hexadecimal, taken once: what results that depend on these data are kept under."""
        return fingerprints.fingerprint((self.features, self.labels))

    def to(self, device: torch.device | str) -> "Labelled":
        """The same data on another device."""
        return Labelled(self.features.to(device), self.labels.to(device))


def load(name: str) -> Labelled:
    """The data set called `name`, on the CPU.

    Raises:
        ValueError: if it is not in `LOADERS`.
        DataAbsent: if its file is not here.
        DataDamaged: if that is not what it should be.
    """
    return LOADERS[arguments.choice("name", name, LOADERS)]()


def _bits(name: str) -> Labelled:
    rows = binary_rows.load(name)
    return Labelled(rows.features.float(), rows.labels)


def _adult() -> Labelled:
    """Numbers standardised and words one-hot."""
    people = adult.load()
    return Labelled(adult.encode(people).float(), people.over_50k.long())


def _newsgroups() -> Labelled:
    """Weights of the most frequent words; the thesis keeps all 134,410."""
    messages = newsgroups.load()
    return Labelled(newsgroups.tf_idf(messages)[0], messages.labels)


def _digits() -> Labelled:
    """Black and white, so that they are bits like the places of Location-30."""
    digits = embedded.digits()
    return Labelled((digits.features >= 0.5).float(), digits.labels)


def _tumours() -> Labelled:
    """Measurements standardised."""
    tumours = embedded.breast_cancer()
    centred = tumours.features - tumours.features.mean(0)
    return Labelled((centred / tumours.features.std(0)).float(), tumours.labels)


LOADERS: Mapping[str, Callable[[], Labelled]] = {
    **{name: partial(_bits, name) for name in binary_rows.NAMES},
    "adult": _adult,
    "20newsgroups": _newsgroups,
    "digits": _digits,
    "breast-cancer": _tumours,
}
"""Where the data come from, by name; the last two are always here."""
