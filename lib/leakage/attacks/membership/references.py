r"""Means over the reference models of a target: all others that have seen a point, or that have not.

Numbers come in as (models, points), of which leading dimensions are independent; what goes out has a row for each
target: every model, or the one named. The target never is a reference, nor is its partner, where models come in
complementary pairs; in independent subsets (`partner=None`) all others are. No number of the target enters a sum to be
taken out again: what that rounds away would depend on whether the target is a member. Nothing here trains or draws.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

_CLOSE = 0.01  # of a sum of squares: two digits may be rounded away


class Means(NamedTuple):
    """Over how many references of one kind, and their mean; 0 where there is none."""

    count: Float64[Tensor, "targets points"]
    mean: Float64[Tensor, "*e targets points"]


def rows(models: int, target: int | None) -> slice:
    """The rows of the targets: all, or that of one."""
    return slice(0, models) if target is None else slice(target, target + 1)


class Spread(NamedTuple):
    """As `Means`, and the sum of the squares of the distances from the mean."""

    count: Float64[Tensor, "targets points"]
    mean: Float64[Tensor, "*e targets points"]
    squares: Float64[Tensor, "*e targets points"]


def means(
    values: Float64[Tensor, "*e models points"],
    kind: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Means:
    """The mean over the references of one kind, for each target and point.

    Args:
        values: finite numbers.
        kind: of which models the mean is taken, at each point: `member`, or its opposite.
        partner: each model's partner; without it, all other models are references.
        target: the one target wanted; by default every model is the target once.
    """
    weight = _weight(kind, partner, target)
    count = weight @ kind.double()
    return Means(count, weight @ (values * kind) / count.clamp_min(1))


def spread(
    values: Float64[Tensor, "*e models points"],
    kind: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Spread:
    """`means`, and the squares of what is left of each value.

    Where values lie close together, far from 0, the sum of their squares less that of the mean rounds to anything: at
    such points a second pass adds up the squares of the differences.
    """
    weight, inside = _weight(kind, partner, target), kind.double()
    count, known = weight @ inside, values * kind
    mean, whole = weight @ known / count.clamp_min(1), weight @ known.square()
    squares = whole - count * mean.square()
    close = ((squares < _CLOSE * whole) & (count > 1)).flatten(0, -2).any(0)
    if bool(close.any()):
        values, inside, middle = values[..., close], inside[:, close], mean[..., close]
        again = torch.empty_like(middle)
        for place, one in enumerate(weight):
            again[..., place, :] = one @ (values - middle[..., place, None, :]).square_().mul_(inside)
        squares[..., close] = again
    return Spread(count, mean, squares)


def counts(
    kind: Bool[Tensor, "models points"], partner: Int[Tensor, " models"] | None = None, *, target: int | None = None
) -> Float64[Tensor, "targets points"]:
    """How many references are of one kind, for each target and point; the arguments are those of `means`."""
    return _weight(kind, partner, target) @ kind.double()


def _weight(
    kind: Bool[Tensor, "models points"], partner: Int[Tensor, " models"] | None, target: int | None
) -> Float64[Tensor, "targets models"]:
    """Which models are references of each target: 1 or 0."""
    models = torch.arange(len(kind), device=kind.device)
    reference = models[:, None] != models
    if partner is not None:
        reference &= partner[:, None] != models
    return reference[rows(len(kind), target)].double()
