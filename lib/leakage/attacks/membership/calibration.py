r"""Scores of one point compared with what other models, which were not trained on it, say of the same point.

The attacker sees any score of each point under the target, and has shadow models of which it knows the members. An easy
point has a large margin whether it was trained on or not; what it has more than under the other models is left after
calibration. Scores stay (models, points), larger for likelier members where they were before. A model's own membership
never enters its own calibration, and `without` keeps it out of everyone else's, too. Points are gone through in blocks
(`blocks`), so scores may lie in a mapped file. Nothing here trains.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import blocks
from leakage.attacks.membership import references
from leakage.metrics.scores import round_ties


def calibrated(
    scores: Float[Tensor, "models n"],
    member: Bool[Tensor, "models n"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    without: int | None = None,
    target: int | None = None,
) -> Float64[Tensor, "targets n"]:
    r"""Each score minus the mean over the *other* models that were not trained on the point.

    $$ \tilde s_i(x) = s_i(x) - \frac{1}{|R_i(x)|} \sum_{j \in R_i(x)} s_j(x), \qquad
       R_i(x) = \{ j \ne i, \text{without} : x \notin D_j \} $$

    A point that all others were trained on takes the mean of these means over the points that have references.

    Scores are rounded to nine digits first (`metrics.scores.round_ties`): sums of such numbers are exact in any order
    if they are of like size. So a score that equals the mean has the difference 0, and equal differences tie.

    Source: offline calibration by difference, Watson et al. (2022).

    **A leak to avoid.** Which points have model i among their references *is* the membership of i. Whoever fits an
    attack on a shadow model j and aims it at the target i must therefore take $\tilde s_j$ with `without=i`.
    That j is among the references of i tells nothing: the attacker knows D_j.

    Args:
        scores: $s_i(x)$.
        member: whether model i was trained on x.
        partner: each model's partner, in complementary pairs: with it in, members would have one reference more.
        without: a model that is a reference for no other.
        target: calibrate this model's scores only; the result then has one row.

    Returns:
        The calibrated scores. The row `without` itself is calibrated by all others, as it is without this argument.
    """
    return _calibrated(scores, Tensor.double, member, partner, without=without, target=target)


def calibrated_losses(
    losses: Float[Tensor, "models n"],
    member: Bool[Tensor, "models n"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "targets n"]:
    """`calibrated` for whoever has losses, which are small for members: their negatives are the scores, in float64."""
    return _calibrated(losses, lambda some: -some.double(), member, partner, without=None, target=target)


def _calibrated(
    values: Float[Tensor, "models n"],
    scores: Callable[[Tensor], Tensor],
    member: Bool[Tensor, "models n"],
    partner: Int[Tensor, " models"] | None,
    *,
    without: int | None,
    target: int | None,
) -> Float64[Tensor, "targets n"]:
    """`calibrated`, where `scores` makes them of the values of a block, in float64."""
    models, points = member.shape
    parts = blocks.of(member.shape)
    reference = 1 - torch.eye(models, dtype=torch.float64, device=values.device)  # of a row's model, by column
    if without is not None:
        reference[:, without] = 0
    if partner is not None:
        reference.scatter_(1, partner.long()[:, None], 0)
    asked = references.rows(models, target)
    reference = reference[asked]

    @lru_cache(maxsize=1)  # a single block is compared once
    def compared(place: int) -> tuple[Tensor, Tensor, Tensor]:
        some, outside = round_ties(scores(values[:, parts[place]])), (~member[:, parts[place]]).double()
        count, total = reference @ outside, reference @ (outside * some)
        return some[asked], count > 0, total / count.clamp_min(1)

    def summed(place: int) -> tuple[Tensor, Tensor]:
        _, known, mean = compared(place)
        return (mean * known).sum(-1, keepdim=True), known.sum(-1, keepdim=True)

    total, count = summed(0)
    for place in range(1, len(parts)):
        total, count = (one + more for one, more in zip((total, count), summed(place), strict=True))
    found = blocks.room(len(reference), points, device=values.device)
    for place in reversed(range(len(parts))):  # the last one is compared
        own, known, mean = compared(place)
        found[:, parts[place]] = own - torch.where(known, mean, total / count)
    return found
