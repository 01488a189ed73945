r"""Calibration: a point's score minus its mean score under models that were not trained on it.

An easy point has a large margin whether a model was trained on it or not; the difference to other models remains.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.membership.shadow_models import map_columns, shadow_matrix, shadow_means, target_rows
from leakage.metrics.scores import round_digits


def calibrate_scores(
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

    A point that all others were trained on takes the mean of these means over the other points.

    Scores are rounded to nine digits first (`metrics.scores.round_digits`): sums of such numbers are exact in any order
    if they are of like size. So a score that equals the mean has the difference 0, and equal differences tie.

    Source: offline calibration by difference, Watson et al. (2022).

    **A leak to avoid.** Which points have model i in their means *is* the membership of i. An attack that is fitted on
    a shadow model j and aimed at the target i must therefore take $\tilde s_j$ with `without=i`. That j is a shadow
    model of i leaks nothing: the attacker knows $D_j$.

    Args:
        scores: $s_i(x)$, larger for likelier members.
        without: a model that is no shadow model of any other. Its own row is calibrated by all others.
    """
    matrix = shadow_matrix(len(member), partner, target=target, device=member.device)
    if without is not None:
        matrix[:, without] = 0
    find_means = partial(_scores_and_means, matrix=matrix, rows=target_rows(target))
    own, has_shadows, mean = map_columns(find_means, scores, member)
    if not bool(has_shadows.all()):
        mean_of_means = (mean * has_shadows).sum(-1, keepdim=True) / has_shadows.sum(-1, keepdim=True)
        mean = torch.where(has_shadows, mean, mean_of_means)
    return own.sub_(mean)


def _scores_and_means(scores: Tensor, member: Tensor, *, matrix: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """The scores of the targets, whether they have shadow models, and the mean of these."""
    scores = round_digits(scores.double())
    count, mean = shadow_means(scores, ~member, matrix)
    return scores[rows], count > 0, mean
