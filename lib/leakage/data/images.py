r"""Small grey images of handwritten digits, at any resolution up to their own, and random splits of them.

Pixels are numbers in [0, 1] and the digits become labels: even is +1, odd is -1. A split holds row numbers, not images,
so that many runs with thousands of fresh points each cost little memory. Nothing here is standardised or trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.nn.functional import interpolate

from leakage import arguments
from leakage.data import embedded, mnist


@dataclass(frozen=True, eq=False)
class DigitImages:
    """Square images with the digits they show.

    Attributes:
        pixels: grey values from 0 (background) to 1.
        labels: the digits, 0 to 9.
    """

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
    """Row numbers of training sets and of fresh points; within a run no row occurs twice.

    Attributes:
        train: as many rows of either label.
        fresh: rows drawn from all others, whatever their labels.
    """

    train: Int64[Tensor, "runs n"]
    fresh: Int64[Tensor, "runs t"]


def load(source: str, *, dtype: torch.dtype = torch.float32) -> DigitImages:
    """`mnist`: the test images of MNIST, 28 pixels wide; `digits`: those of scikit-learn, 8 wide and always there.

    Raises:
        ValueError: if the source is unknown, or `dtype` not floating-point.
        DataAbsent: if the files of MNIST are not here.
    """
    dtype = arguments.precision("dtype", dtype)  # the pixels are shares of 1
    return SOURCES[arguments.choice("source", source, SOURCES)](dtype)


def resize(pixels: Float[Tensor, "n s s"], *, side: int) -> Float[Tensor, "n side side"]:
    """Images shrunk to `side` pixels a side by bicubic interpolation, and as they are at their own side.

    The kernel is widened to the new pixels' size (antialiasing), or most of the old pixels would not be seen. It has
    negative lobes: results can leave [0, 1] a little next to sharp edges, and are not clipped.

    Raises:
        ValueError: if the images are not square and finite, or `side` is not from 1 to their own.
    """
    own = arguments.real("pixels", pixels, "n s s").shape[-1]
    side = arguments.count("side", side, least=1, most=own)
    if side == own:
        return pixels
    return interpolate(pixels.unsqueeze(1), size=(side, side), mode="bicubic", antialias=True).squeeze(1)


def parity(digits: Int[Tensor, "*shape"], *, dtype: torch.dtype = torch.float32) -> Float[Tensor, "*shape"]:
    """+1 for even digits, -1 for odd ones.

    Raises:
        ValueError: if they are not whole numbers from 0 on.
    """
    arguments.whole("digits", digits)
    return 1 - 2 * (digits % 2).to(dtype)


def balanced_split(
    labels: Float[Tensor, " n"], *, rows_per_class: int, fresh: int, runs: int, generator: torch.Generator
) -> Split:
    """For each run a random training set with `rows_per_class` rows of either label, and `fresh` rows of the rest.

    Both are uniform over all such sets and in random order; runs are independent.

    Raises:
        ValueError: if a label is not ±1, a count is below its least value, or there are too few rows.
    """
    arguments.signs("labels", labels, "n")
    rows_per_class = arguments.count("rows_per_class", rows_per_class, least=1)
    fresh, runs = arguments.count("fresh", fresh), arguments.count("runs", runs, least=1)
    rarer = min(int((labels > 0).sum()), int((labels < 0).sum()))
    most = len(labels) - 2 * rows_per_class
    if rows_per_class > rarer or fresh > most:
        raise ValueError(
            f"`rows_per_class` must be 1 to {rarer}, `fresh` 0 to {max(most, 0)}, the rows that are left; "
            f"got {rows_per_class} and {fresh}."
        )
    first, second = torch.rand(
        (2, runs, len(labels)), dtype=torch.float32, generator=generator, device=generator.device
    )
    order = first.argsort(dim=-1)
    even = labels[order] > 0
    rank = torch.where(even, even.cumsum(-1), (~even).cumsum(-1))
    # The training rows sort before all others. A second draw orders the rest: in the first, what comes right after
    # the training set is mostly of the label that was complete first.
    order = order.gather(-1, (second - (rank <= rows_per_class).to(second)).argsort(dim=-1))
    train = 2 * rows_per_class
    return Split(order[:, :train], order[:, train : train + fresh])


def _mnist(dtype: torch.dtype) -> DigitImages:
    grey, labels = mnist.load()
    return DigitImages(grey.to(dtype) / 255, labels)


def _digits(dtype: torch.dtype) -> DigitImages:
    loaded = embedded.digits()
    return DigitImages(loaded.features.reshape(-1, 8, 8).to(dtype), loaded.labels)


SOURCES: Mapping[str, Callable[[torch.dtype], DigitImages]] = {"mnist": _mnist, "digits": _digits}
"""Where images come from, by name."""
