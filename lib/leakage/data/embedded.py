"""Two small real data sets that come with scikit-learn, so that every chapter has real data without a network.

They are read from text files of the installed package. Nothing here shuffles or splits.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int64
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor

_GREATEST_GREY = 16  # the digits' pixels count the dark cells of a 4 × 4 block


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """Rows of numbers with their classes, and what a reader should know of them."""

    name: str
    title: str
    features: Float64[Tensor, "n features"]
    labels: Int64[Tensor, " n"]
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    licence: str
    source: str
    citation: str

    def __len__(self) -> int:
        return len(self.labels)


def digits() -> EmbeddedSet:
    """1,797 handwritten digits of 8 × 8 pixels, row by row, as grey values in [0, 1] (the file's 0 to 16, over 16)."""
    bunch: Any = load_digits()
    return EmbeddedSet(
        name="digits",
        title="Optical recognition of handwritten digits, test part",
        features=torch.from_numpy(bunch.data).double() / _GREATEST_GREY,
        labels=torch.from_numpy(bunch.target).long(),
        feature_names=tuple(bunch.feature_names),
        label_names=tuple(str(name) for name in bunch.target_names),
        licence="CC BY 4.0",
        source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits (1998), doi:10.24432/C50P49",
    )


def breast_cancer() -> EmbeddedSet:
    """569 tumours, 30 measurements each in the file's own units; label 0 is malignant, 1 benign."""
    bunch: Any = load_breast_cancer()
    return EmbeddedSet(
        name="breast-cancer",
        title="Breast Cancer Wisconsin (Diagnostic)",
        features=torch.from_numpy(bunch.data).double(),
        labels=torch.from_numpy(bunch.target).long(),
        feature_names=tuple(str(name) for name in bunch.feature_names),
        label_names=tuple(str(name) for name in bunch.target_names),
        licence="CC BY 4.0",
        source="https://archive.ics.uci.edu/dataset/17/breast+cancer+wisconsin+diagnostic",
        citation="Wolberg, Mangasarian, Street, Street: Breast Cancer Wisconsin (1993), doi:10.24432/C5DW2B",
    )


EMBEDDED = {"digits": digits, "breast-cancer": breast_cancer}
