"""Points with their classes: what attacks on classifiers are tried on."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments, fingerprints


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
