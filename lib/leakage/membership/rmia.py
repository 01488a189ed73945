"""RMIA: the share of a population whose ratio of likelihoods, target to shadow models, is at most that of a point.

Its source says "reference models" for shadow models.
"""

import math
from functools import partial

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.membership.shadow_models import map_columns, shadow_matrix, shadow_means, target_rows
from leakage.metrics.scores import argsort_rows, sort_rows
from leakage.threads import map_threads

SLOPE = 0.3
"""The slope a that the authors use for CIFAR-10."""
_LEAST_LIKELIHOOD = 1e-300  # mean over shadow models, in units of a point's largest likelihood
_DECIMALS = 9  # of the logarithm of a ratio, so that ratios of equal models tie; rounding errors are below 1e-11


def rmia(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    gamma: float = 1.0,
    population: Float[Tensor, "*e models z"] | None = None,
    offline: bool = False,
    slope: float = SLOPE,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""The share of a population that a point dominates, less one half.

    $$ s(x) = \Pr_z\Bigl(\frac{\Lambda(x)}{\Lambda(z)} \ge \gamma\Bigr) - \tfrac12, \qquad
       \Lambda(x) = \frac{p_\theta(x)}{\tfrac12 \bar p_1(x) + \tfrac12 \bar p_0(x)}, $$

    with $p = e^{-\ell}$, and $\bar p_1$, $\bar p_0$ its means over shadow models that were trained on x, or were not.
    Offline, and where no shadow model was trained on x, $\bar p_1 = a \bar p_0 + 1 - a$. Where all were,
    the denominator is $\bar p_1$. Without a population, z is any of the scored points: with $\gamma = 1$ half of them
    then have positive scores. Within one target, scores rank points as $\Lambda$ does, up to ties.

    Source: Zarifzadeh, Liu, Shokri (2024), eqs. (2) and (8), with their linear approximation of $\bar p_1$.

    Args:
        losses: of every model on every point, in nats.
        population: losses of every model on other points z, on which no model was trained.
        slope: a, in [0, 1].
    """
    matrix = shadow_matrix(len(member), partner, target=target, device=member.device)
    log_ratio = partial(_log_ratio, matrix=matrix, rows=target_rows(target), offline=offline, slope=slope)
    (own,) = map_columns(log_ratio, losses, member)
    rows = compared = own.split(1, -2)
    if population is not None:
        (others,) = map_columns(log_ratio, population, member.new_zeros(population.shape[-2:]))
        compared = others.split(1, -2)
    share = partial(_share_dominated, log_gamma=math.log(gamma))
    return torch.cat(map_threads(share, zip(rows, compared, strict=True)), -2).sub_(0.5)


def _share_dominated(
    ratios: tuple[Float64[Tensor, "*e 1 points"], Float64[Tensor, "*e 1 z"]], *, log_gamma: float
) -> Float64[Tensor, "*e 1 points"]:
    """The share of the second ratios that each of the first reaches with γ, in logarithms."""
    own, compared = ratios
    order = argsort_rows(own)  # ascending numbers are found several times as fast
    ascending = own.gather(-1, order)
    ranked = (ascending if compared is own else sort_rows(compared)).round(decimals=_DECIMALS)
    dominated = torch.searchsorted(ranked, (ascending - log_gamma).round_(decimals=_DECIMALS), right=True)
    return torch.empty_like(own).scatter_(-1, order, dominated.double() / ranked.shape[-1])


def _log_ratio(
    losses: Tensor, member: Tensor, *, matrix: Tensor, rows: slice, offline: bool, slope: float
) -> tuple[Float64[Tensor, "*e targets points"]]:
    r"""$\log \Lambda$, with likelihoods in units of a point's largest, so that large losses do not round to 0."""
    losses = losses.double()
    least = losses.amin(-2, keepdim=True)
    likelihood = (least - losses).exp()
    count_in, mean_in = shadow_means(likelihood, member, matrix)
    count_out, mean_out = shadow_means(likelihood, ~member, matrix)
    log_in, log_out = (mean.clamp_min(_LEAST_LIKELIHOOD).log() - least for mean in (mean_in, mean_out))
    log_a, log_rest = losses.new_tensor([slope, 1 - slope]).log()
    log_p1 = torch.logaddexp(log_out + log_a, log_rest)
    if not offline:
        log_p1 = torch.where(count_in > 0, log_in, log_p1)
    log_mean = torch.where(count_out > 0, torch.logaddexp(log_p1, log_out) - math.log(2), log_in)
    return (-losses[..., rows, :] - log_mean,)
