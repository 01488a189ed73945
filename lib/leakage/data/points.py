"""Points with their classes: what attacks on classifiers are tried on, and how to read such data of your own."""

import os
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments, store


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
        return store.digest((self.features, self.labels))

    def to(self, device: torch.device | str) -> "Labelled":
        """The same data on another device."""
        return Labelled(self.features.to(device), self.labels.to(device))


def load_npz(path: str | os.PathLike[str]) -> Labelled:
    """The points `x` and classes `y` of an `.npz` file of your own, as float32 and int64, on the CPU.

    `np.savez(path, x=x, y=y)` writes such a file: `x` has one point a row, `y` the class of each, counted from 0.
    Nothing is scaled. Pickled objects are never read.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no such file; the message says what is wrong with it.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                x, y = arrays["x"], arrays["y"]
        except (EOFError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} must be an .npz file with arrays `x` and `y` of numbers: {error}.") from error
    if x.ndim != 2 or not x.size:
        raise ValueError(f"{path}: `x` must have one point a row, so a shape (n, d); got {x.shape}.")
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{path}: `x` must hold real numbers, got {x.dtype}.")
    if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: `y` must hold {len(x)} whole numbers, one a point; got {y.shape} of {y.dtype}.")
    classes = np.unique(y)
    if len(classes) < 2 or classes.tolist() != list(range(len(classes))):
        shown = ", ".join(map(str, classes[:8])) + ", …" * (len(classes) > 8)
        raise ValueError(f"{path}: `y` must hold all classes from 0 to k - 1, two or more; got {shown}.")
    with np.errstate(over="ignore"):  # what is too large for float32 is refused in the next lines
        features = torch.from_numpy(x.astype(np.float32))
    finite = features.isfinite().all(1)
    if not bool(finite.all()):
        raise ValueError(f"{path}: `x` must be finite in float32; row {int(finite.int().argmin())} is not.")
    return Labelled(features, torch.from_numpy(y.astype(np.int64)))
