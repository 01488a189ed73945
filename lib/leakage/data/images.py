r"""Grey images of handwritten digits, at any resolution up to their own, and random splits of them.

Pixels are numbers in [0, 1]; even digits are labelled +1, odd ones -1. A split holds row numbers, not images, so that
many runs with thousands of fresh points each need little memory. Nothing here is standardised or trained.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from leakage import arguments, draws
from leakage.data.datasets import format_error, read_payload
from leakage.data.tabular import load_digits

_IMAGES_MAGIC = 2051  # idx: unsigned bytes, three axes
_LABELS_MAGIC = 2049  # idx: unsigned bytes, one axis
_SIDE = 28


@dataclass(frozen=True, eq=False)
class DigitImages:
    """Square images, grey values from 0 (background) to 1, with the digits they show."""

    pixels: Float[Tensor, "n s s"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Float[Tensor, "n d"]:
        """The pixels of an image in one row."""
        return self.pixels.flatten(1)


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of training sets, balanced in labels, and of fresh points; within a run no row occurs twice."""

    train: Int64[Tensor, "runs n"]
    fresh: Int64[Tensor, "runs t"]


def load(source: str, *, dtype: torch.dtype = torch.float32) -> DigitImages:
    """`mnist`: the 10,000 test images of MNIST, 28 pixels wide; `digits`: those of scikit-learn, 8 pixels wide."""
    return SOURCES[arguments.check_choice("source", source, SOURCES)](dtype)


def resize(pixels: Float[Tensor, "n s s"], *, side: int) -> Float[Tensor, "n side side"]:
    """Images shrunk to `side` pixels a side by bicubic interpolation; unchanged at their own side.

    The kernel is as wide as the new pixels (antialiasing), so that every old pixel counts. It has negative lobes:
    results can leave [0, 1] a little next to sharp edges, and are not clipped.
    """
    if side == pixels.shape[-1]:
        return pixels
    return interpolate(pixels.unsqueeze(1), size=(side, side), mode="bicubic", antialias=True).squeeze(1)


def parity(digits: Int[Tensor, "*shape"], *, dtype: torch.dtype = torch.float32) -> Float[Tensor, "*shape"]:
    """+1 for even digits, -1 for odd ones."""
    return 1 - 2 * (digits % 2).to(dtype)


def balanced_split(
    labels: Float[Tensor, " n"], *, rows_per_class: int, fresh: int, runs: int, generator: torch.Generator
) -> Split:
    """For each run a random training set with `rows_per_class` rows of either label ±1, and `fresh` of the other rows.

    Both are uniform over all such sets and in random order; runs are independent.
    """
    rarer, train = int(min((labels > 0).sum(), (labels < 0).sum())), 2 * rows_per_class
    if rows_per_class > rarer or train + fresh > len(labels):
        raise ValueError(
            f"`rows_per_class` must be at most {rarer}, and `fresh` at most {len(labels)} - 2 `rows_per_class`; "
            f"got {rows_per_class} and {fresh}."
        )
    first, second = draws.uniform((2, runs, len(labels)), generator=generator, dtype=torch.float32)
    order = first.argsort(dim=-1)
    even = labels[order] > 0
    rank = torch.where(even, even.cumsum(-1), (~even).cumsum(-1))
    # The training rows sort before all others. A second draw orders the rest: in the first, the rows right after the
    # training set are mostly of the label that was complete first.
    order = order.gather(-1, (second - (rank <= rows_per_class).to(second)).argsort(dim=-1))
    return Split(order[:, :train], order[:, train : train + fresh])


def load_mnist() -> tuple[UInt8[Tensor, "n 28 28"], Int64[Tensor, " n"]]:
    """The test set of MNIST: grey values from 0 (background) to 255, and the digits; errors as in `load`."""
    images = parse_mnist_images(read_payload("mnist", "images"), source="mnist/images")
    labels = parse_mnist_labels(read_payload("mnist", "labels"), source="mnist/labels")
    if len(images) != len(labels):
        raise format_error("mnist", "as many images as labels", f"{len(images):,} and {len(labels):,}")
    return images, labels


def parse_mnist_images(payload: bytes, *, source: str = "payload") -> UInt8[Tensor, "n 28 28"]:
    """The images of an idx payload: magic 2051, count, 28, 28 (big-endian), then one byte a pixel."""
    n, height, width = _idx_header(payload, magic=_IMAGES_MAGIC, axes=3, source=source)
    if (height, width) != (_SIDE, _SIDE):
        raise format_error(source, f"images of {_SIDE} by {_SIDE} pixels", f"{height} by {width}")
    return _bytes_after(payload, 16, n * height * width, source=source).reshape(n, height, width)


def parse_mnist_labels(payload: bytes, *, source: str = "payload") -> Int64[Tensor, " n"]:
    """The labels of an idx payload: magic 2049, count (big-endian), then one byte a label, 0 to 9."""
    (n,) = _idx_header(payload, magic=_LABELS_MAGIC, axes=1, source=source)
    labels = _bytes_after(payload, 8, n, source=source).long()
    if n and int(labels.max()) > 9:
        raise format_error(source, "labels from 0 to 9", str(int(labels.max())))
    return labels


def _idx_header(payload: bytes, *, magic: int, axes: int, source: str) -> tuple[int, ...]:
    length = 4 * (1 + axes)
    if len(payload) < length:
        raise format_error(source, f"an idx header of {length} bytes", f"{len(payload)} bytes in all")
    found, *sizes = struct.unpack(f">{1 + axes}I", payload[:length])
    if found != magic:
        raise format_error(source, f"an idx file that begins with the number {magic}", str(found))
    return tuple(sizes)


def _bytes_after(payload: bytes, start: int, count: int, *, source: str) -> UInt8[Tensor, " count"]:
    if len(payload) - start != count:
        raise format_error(source, f"the {count:,} bytes of content its header promises", f"{len(payload) - start:,}")
    return torch.from_numpy(np.frombuffer(payload, dtype=np.uint8, offset=start).copy())


def _mnist_images(dtype: torch.dtype) -> DigitImages:
    grey, labels = load_mnist()
    return DigitImages(grey.to(dtype) / 255, labels)


def _digit_images(dtype: torch.dtype) -> DigitImages:
    digits = load_digits()
    return DigitImages(digits.features.reshape(-1, 8, 8).to(dtype), digits.labels)


SOURCES: Mapping[str, Callable[[torch.dtype], DigitImages]] = {"mnist": _mnist_images, "digits": _digit_images}
"""Loaders by name."""
