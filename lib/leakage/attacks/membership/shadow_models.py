r"""Membership by likelihood ratios over shadow models: LiRA and RMIA.

The attacker sees the loss (or the logit) of each point, knows its true label, and has shadow models of which it knows
the members. The conventions are those of `loss_threshold`: scores (models, points) are larger for likelier members and
positive where the attack says "member"; every model is the target once, and its references are all others but its
partner. Sums over references are sums over all models less two terms, so nothing is looped over. Nothing here trains or
draws.
"""

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership.loss_threshold import check_losses
from leakage.attacks.membership.posterior import logit
from leakage.data.membership_splits import check_pairs

_LEAST_VARIANCE = 1e-6  # of logits; less is the rounding of losses near 0, not evidence


def lira(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    variance: str = "fixed",
) -> Float64[Tensor, "*e models points"]:
    r"""`lira_of_logits` for whoever has losses only, by `posterior.logit`.

    Raises:
        ValueError: as `loss_threshold.global_thresholds`, if fewer than two references of a kind are left for some
            point, or the variance is unknown.
    """
    check_losses(losses, member, partner, least=2)
    return lira_of_logits(logit(losses), member, partner, variance=variance)


def lira_of_logits(
    logits: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    variance: str = "fixed",
) -> Float64[Tensor, "*e models points"]:
    r"""The log-likelihood ratio of a logit under two Gaussians fitted to the references (online LiRA), in nats.

    $$ s(x) = \log N(\phi; \mu_1(x), \sigma_1^2) - \log N(\phi; \mu_0(x), \sigma_0^2),
       \qquad \phi = \log \tfrac{p}{1-p} $$

    Source: Carlini et al. (2022), algorithm 1. Our fixed variances are means of the points' own unbiased ones; the
    authors' code takes the variance of all logits together, which includes how points differ from each other.

    Args:
        logits: φ of the true label, of every model on every point: `posterior.margin`, which rounds nothing away.
        member: who was trained on what.
        partner: each model's partner.
        variance: `fixed` for one $\sigma_1$ and one $\sigma_0$ for all points of a target, better with few references;
            `own` for one pair for each point.

    Raises:
        ValueError: if a logit is not finite, shapes do not fit, the design tells (see `check_pairs`), fewer than two
            references of a kind are left for some point, or the variance is unknown.
    """
    arguments.choice("variance", variance, VARIANCES)
    check_pairs(member, partner, least=2)
    arguments.real("logits", logits, "*e models points", models=member.shape[0], points=member.shape[1])
    phi = logits.double()
    phi = phi - phi.mean(-2, keepdim=True)  # a shift of each point changes no ratio and keeps the squares small
    score = torch.zeros_like(phi)
    for sign, kind in ((1, member), (-1, ~member)):
        mean, square = (_reference_mean(values, kind, partner) for values in (phi, phi.square()))
        count = len(partner) // 2 - 1
        spread = VARIANCES[variance]((square - mean.square()) * count / (count - 1)).clamp_min(_LEAST_VARIANCE)
        score -= sign * ((phi - mean).square() / spread + spread.log()) / 2
    return score


VARIANCES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "fixed": lambda spread: spread.mean(-1, keepdim=True),
    "own": lambda spread: spread,
}
"""How `lira` estimates $\\sigma^2$ from the points' own variances."""


def rmia(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    gamma: float = 1.0,
) -> Float64[Tensor, "*e models points"]:
    r"""How large a share of the pool a point dominates, less one half (RMIA, online).

    $$ s(x) = \Pr_z\Bigl(\frac{\Lambda(x)}{\Lambda(z)} \ge \gamma\Bigr) - \tfrac12, \qquad
       \Lambda(x) = \frac{p_\theta(x)}{\tfrac12 \bar p_1(x) + \tfrac12 \bar p_0(x)}, $$

    with $p = e^{-\ell}$, its mean over references that are trained on x ($\bar p_1$) or not ($\bar p_0$), and z a point
    of the pool, half of which are members. So with γ = 1 the attack accuses the half that ranks highest. The score
    rises with Λ(x): within one target any γ orders points as Λ does, up to the ties it makes.

    Source: Zarifzadeh, Liu, Shokri (2024), eqs. (2) and (8). There z is another sample of the population.

    Raises:
        ValueError: as `lira`, or if `gamma` is not positive.
    """
    arguments.number("gamma", gamma, above=0)
    check_losses(losses, member, partner, least=2)
    chance = torch.exp(-losses.double())
    average = (_reference_mean(chance, member, partner) + _reference_mean(chance, ~member, partner)) / 2
    # Logarithms: a chance may round to 0, its loss does not.
    ratio = -losses.double() - average.clamp_min(torch.finfo(torch.float64).tiny).log()
    below = torch.searchsorted(ratio.sort(-1).values, ratio - math.log(gamma), right=True)
    return below.double() / ratio.shape[-1] - 0.5


def _reference_mean(
    values: Float64[Tensor, "*e models points"], kind: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]
) -> Float64[Tensor, "*e models points"]:
    """For each target and point the mean over the references of one kind.

    Of target and partner exactly one is of that kind, and is taken out of the sum over all.
    """
    inside = values * kind
    own = inside + inside[..., partner, :]
    return (inside.sum(-2, keepdim=True) - own) / (len(partner) // 2 - 1)
