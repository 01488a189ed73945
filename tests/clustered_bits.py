"""Rows of bits around one random centre a class: easy enough to be learned, noisy enough to be memorised."""

import torch

from leakage.data.tabular import LabelledData
from reproduced.runtime import stream


def draw(n: int, *, features: int, classes: int, flip: float) -> LabelledData:
    """`n` rows; each bit of a row is its class's, flipped with probability `flip`."""
    generator = stream(0, "clustered bits")
    centres = torch.rand(classes, features, generator=generator) < 0.3
    labels = torch.randint(classes, (n,), generator=generator)
    flipped = torch.rand(n, features, generator=generator) < flip
    return LabelledData((centres[labels] ^ flipped).float(), labels)
