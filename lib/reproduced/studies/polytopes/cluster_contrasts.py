r"""The numbers that the claims about networks on Clusters2D compare, one for each network, from a measured group.

Densities, counts and speeds are compared by logarithms, so that the mean over networks is the mean of a ratio.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from leakage.metrics.estimates import mean_interval, median
from leakage.metrics.intervals import Estimate
from reproduced.studies.polytopes.cluster_statistics import LOOKS, Group, History, Looks, Motion

_NEAR, _FAR = 0.03, 0.1  # distances from the data that count as near and far, in units of the square's side
_FIRST = range(1, 6)  # the epochs in which training begins


class Contrasts(NamedTuple):
    """One number for each network.

    Attributes:
        near_to_far: the logarithm of cells per area closer than 0.03 to the data over those at 0.1 or more.
        other_near_to_far: the same for the data of the other networks.
        parallelism_gain: the parallelism of hyperedges in the gaps minus that all over the window.
        gap_length_ratio: hyperedge per area in the gaps over that all over the window.
        rim_length_ratio: the same behind the discs.
        growth: the logarithm of the final number of cells over that at epoch 0.
        early_order: the mean of the gradients' order in epochs 1 to 5.
        final_order: the gradients' order at the end.
        early_components: the largest number of pieces of the boundary in epochs 1 to 5.
        final_components: the number of pieces at the end.
    """

    near_to_far: Float[Tensor, " models"]
    other_near_to_far: Float[Tensor, " models"]
    parallelism_gain: Float[Tensor, " models"]
    gap_length_ratio: Float[Tensor, " models"]
    rim_length_ratio: Float[Tensor, " models"]
    growth: Float[Tensor, " models"]
    early_order: Float[Tensor, " models"]
    final_order: Float[Tensor, " models"]
    early_components: Real[Tensor, " models"]
    final_components: Real[Tensor, " models"]


def contrasts(measured: Group, looks: Looks = LOOKS) -> Contrasts:
    """The numbers of every network of a group, which was looked at in epochs 0 to 5 and at distances 0.03 and 0.1."""
    epochs = measured.epochs.tolist()
    near, far = looks.distances.index(_NEAR), looks.distances.index(_FAR)
    portrait, history = measured.portrait, measured.history
    by_place = [
        (cells.per_area(0, near) / cells.per_area(far, len(looks.distances))).log()
        for cells in (portrait.own, portrait.other)
    ]
    begun, first = epochs.index(0), [epochs.index(epoch) for epoch in _FIRST]
    return Contrasts(
        *by_place,
        parallelism_gain=portrait.gap.parallelism - portrait.window.parallelism,
        gap_length_ratio=portrait.gap.length / portrait.window.length,
        rim_length_ratio=portrait.rim.length / portrait.window.length,
        growth=(history.cells[-1] / history.cells[begun]).log(),
        early_order=history.gradient_order[first].mean(0),
        final_order=history.gradient_order[-1],
        early_components=history.components[first].amax(0),
        final_components=history.components[-1],
    )


class Beginnings(NamedTuple):
    """How the training of each network begins.

    Attributes:
        first_cells: the logarithm of the mean number of cells in epochs 1 to 3 over that at epoch 0.
        initial_order: the gradients' order before training.
        early_order: the mean of the gradients' order in epochs 1 to 5.
        one_piece: whether the boundary has one piece in each of epochs 1 to 5.
    """

    first_cells: Float[Tensor, " models"]
    initial_order: Float[Tensor, " models"]
    early_order: Float[Tensor, " models"]
    one_piece: Bool[Tensor, " models"]


def beginnings(history: History) -> Beginnings:
    """The numbers of every network of a history whose first six epochs are 0 to 5."""
    cells, components, order = (part[:6] for part in (history.cells, history.components, history.gradient_order))
    return Beginnings(
        first_cells=(cells[1:4].double().mean(0) / cells[0]).log(),
        initial_order=order[0],
        early_order=order[1:].mean(0),
        one_piece=(components[1:] == 1).all(0),
    )


def last_to_first(measure: str, *, motions: Mapping[str, Motion]) -> dict[str, Estimate]:
    """By phase, the median over networks of how much faster the last layer is than the first; conservative.

    A network counts as 1 if neither layer moves, or if one of them has no hyperedge in the window. If only one layer
    stands still the ratio is 0 or infinity, which a median bears and a mean of logarithms does not.

    `measure` is a field of `Motion`, or `carried`, which compares what moves the last layer: the area moved by the
    layers before it over the area moved by itself.
    """
    ratios = {
        phase: motion.upstream[:, -1] / motion.own[:, -1]
        if measure == "carried"
        else getattr(motion, measure)[:, -1] / getattr(motion, measure)[:, 0]
        for phase, motion in motions.items()
    }
    return {phase: median(torch.where(ratio.isnan(), 1.0, ratio).clamp(max=_MOST)) for phase, ratio in ratios.items()}


_MOST = 1e9  # in place of an infinite ratio


def geometric_mean(logarithms: Float[Tensor, " models"]) -> Estimate:
    """The geometric mean of ratios, given their logarithms, with the interval of the mean logarithm."""
    mean = mean_interval(logarithms)
    low, middle, high = (math.exp(value) for value in (mean.low, mean.estimate, mean.high))
    return Estimate(middle, low, high, mean.n, mean.level)
