"""Two small real data sets that come with scikit-learn, so that every chapter has real data without a network.

They are read from text files of the installed package. Nothing here shuffles or splits.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int64
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """Rows of numbers with their classes."""

    features: Float64[Tensor, "n features"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def digits() -> EmbeddedSet:
    """1,797 handwritten digits of 8 × 8 pixels, row by row, as grey values in [0, 1] (the file's 0 to 16, over 16).

    Source: Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, test part, doi:10.24432/C50P49;
    CC BY 4.0.
    """
    return _embedded(load_digits(), unit=16)  # the pixels count the dark cells of a 4 × 4 block


def breast_cancer() -> EmbeddedSet:
    """569 tumours, 30 measurements each in the file's own units; label 0 is malignant, 1 benign.

    Source: Wolberg, Mangasarian, Street and Street (1993), Breast Cancer Wisconsin (Diagnostic), doi:10.24432/C5DW2B;
    CC BY 4.0.
    """
    return _embedded(load_breast_cancer(), unit=1)


def _embedded(bunch: Any, *, unit: float) -> EmbeddedSet:
    return EmbeddedSet(torch.from_numpy(bunch.data).double() / unit, torch.from_numpy(bunch.target).long())
