r"""Means over the reference models of a target: all others that have seen a point, or that have not.

Numbers come in as (models, points), of which leading dimensions are independent; what goes out has a row for each
target: every model, or the one named. The target never is a reference, nor is its partner, where models come in
complementary pairs; in independent subsets (`partner=None`) all others are. No number of the target enters a sum to be
taken out again: what that rounds away would depend on whether the target is a member. Nothing here trains or draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor


class Means(NamedTuple):
    """Over how many references of one kind, and their mean; 0 where there is none."""

    count: Float64[Tensor, "targets points"]
    mean: Float64[Tensor, "*e targets points"]


def rows(models: int, target: int | None) -> slice:
    """The rows of the targets: all, or that of one."""
    return slice(0, models) if target is None else slice(target, target + 1)


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
    (mean,) = several((values,), kind, partner, target=target)
    return mean


def several(
    tables: Sequence[Float64[Tensor, "*e models points"]],
    kind: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> list[Means]:
    """`means` of several tables, over the same references."""
    weight = _weight(kind, partner, target)
    count = weight @ kind.double()
    least = count.clamp_min(1)
    return [Means(count, weight @ (values * kind) / least) for values in tables]


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
