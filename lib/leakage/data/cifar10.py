"""CIFAR-10's small colour photographs, read strictly from the binary form.

A record is one byte for the class and 3,072 for the image: 32 rows of 32 red values, then the green ones, then the blue
ones. Pixels stay bytes from 0 to 255 until `standardised` is asked for numbers. Nothing here shuffles or augments.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from leakage.arguments import choice, precision
from leakage.data import fetch
from leakage.data.registry import malformed

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_PARTS = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}


@dataclass(frozen=True, eq=False)
class ColourImages:
    """Photographs with their labels.

    Attributes:
        images: red, green and blue values from 0 to 255.
        labels: positions in `CLASSES`.
    """

    images: UInt8[Tensor, "n 3 32 32"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)


def load(part: str = "train") -> ColourImages:
    """The training part (50,000 images, in the order of its five files) or the test part (10,000) of CIFAR-10.

    Args:
        part: `train` or `test`.

    Raises:
        DataAbsent: if the archive is not here.
        DataDamaged: if it is not what it should be.
    """
    choice("part", part, _PARTS)
    return parse(b"".join(fetch.read_payload("cifar10-binary", file) for file in _PARTS[part]), source="cifar10-binary")


def parse(payload: bytes, *, source: str = "payload") -> ColourImages:
    """Images and labels from records of 3,073 bytes.

    Raises:
        DataDamaged: if a record is unfinished, there is none, or a label is not 0 to 9; `source` is named.
    """
    if not payload or len(payload) % _RECORD:
        raise malformed(source, f"whole records of {_RECORD:,} bytes", f"{len(payload):,} bytes")
    records = np.frombuffer(payload, dtype=np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() >= len(CLASSES):
        wrong = int((labels >= len(CLASSES)).argmax())
        raise malformed(source, f"a class from 0 to 9 in record {wrong + 1:,}", str(labels[wrong]))
    images = torch.from_numpy(records[:, 1:].copy()).unflatten(-1, _SHAPE)
    return ColourImages(images, torch.from_numpy(labels.astype(np.int64)))


def standardised(
    images: UInt8[Tensor, "n 3 h w"], *, like: UInt8[Tensor, "m 3 h w"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n 3 h w"]:
    """Colour values less their mean and over their standard deviation, both of each colour and over all of `like`.

    Raises:
        ValueError: if the images are not bytes, `dtype` is not floating-point, or a colour of `like` is the same
            everywhere.
    """
    dtype = precision("dtype", dtype)
    if images.dtype != torch.uint8 or like.dtype != torch.uint8:
        raise ValueError(f"`images` and `like` must hold bytes (torch.uint8), got {images.dtype} and {like.dtype}.")
    # Counts of the 256 values: their moments in float64 without a copy of all pixels in it.
    values = torch.arange(256, device=like.device, dtype=torch.float64)
    counts = torch.stack([torch.bincount(like[:, colour].flatten().int(), minlength=256) for colour in range(3)])
    shares = counts.double() / counts.sum(-1, keepdim=True)
    mean = shares @ values
    deviation = (shares @ values.square() - mean.square()).clamp_min(0).sqrt()
    if not bool((deviation > 0).all()):
        raise ValueError("`like` must vary in each colour; a constant one cannot be standardised.")
    return ((images.to(dtype) - mean.to(dtype)[:, None, None]) / deviation.to(dtype)[:, None, None]).contiguous()
