r"""Scores of one point compared with what other models, which were not trained on it, say of the same point.

The attacker sees any score of each point under the target, and has shadow models of which it knows the members. An easy
point has a large margin whether it was trained on or not; what it has more than under the other models is left after
calibration. Scores stay (models, points), larger for likelier members where they were before. A model's own membership
never enters its own calibration, and `without` keeps it out of everyone else's, too. Nothing here trains.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import references


def calibrated(
    scores: Float[Tensor, "models n"],
    member: Bool[Tensor, "models n"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    without: int | None = None,
    target: int | None = None,
) -> Float[Tensor, "targets n"]:
    r"""Each score minus the mean over the *other* models that were not trained on the point.

    $$ \tilde s_i(x) = s_i(x) - \frac{1}{|R_i(x)|} \sum_{j \in R_i(x)} s_j(x), \qquad
       R_i(x) = \{ j \ne i, \text{without} : x \notin D_j \} $$

    A point that all others were trained on takes the mean of these means over the points that have references.

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

    Raises:
        ValueError: if shapes differ, a score is not finite (put a finite end in place of a boundary
            that was not reached), `without` or a partner is no model, or no point has a reference.
    """
    models, points = arguments.truth("member", member, "models n").shape
    arguments.real("scores", scores, "models n", models=models, n=points)
    arguments.filled("member", member)
    if without is not None:
        arguments.count("without", without, most=models - 1)
    reference = 1 - torch.eye(models, dtype=scores.dtype, device=scores.device)  # of a row's model, by column
    if without is not None:
        reference[:, without] = 0
    if target is not None:
        arguments.count("target", target, most=models - 1)
    if partner is not None:
        arguments.whole("partner", partner, "models", most=models - 1, models=models)
        reference.scatter_(1, partner.long()[:, None], 0)
    asked = references.rows(models, target)
    reference, own = reference[asked], scores[asked]
    outside = (~member).to(scores.dtype)
    count, total = reference @ outside, reference @ (outside * scores)
    known = count > 0
    if not bool(known.any(-1).all()):
        raise ValueError(
            "`member` must leave each model points of which it has references; some model has no reference at all. "
            "Train more models, or each on fewer points."
        )
    mean = total / count.clamp_min(1)
    usual = (mean * known).sum(-1, keepdim=True) / known.sum(-1, keepdim=True)
    return own - torch.where(known, mean, usual)
