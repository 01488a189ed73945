"""LiRA: the likelihood ratio of a point's logit under shadow models that saw the point and others that did not."""

import math
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.membership.posterior import logit_of_loss
from leakage.membership.shadow_models import map_columns, shadow_matrix, shadow_means, target_rows

_LEAST_VARIANCE = 1e-6  # of logits; less is the rounding of losses near 0, not evidence
_DECIMALS = 9  # of a score, so that equal ratios tie; rounding errors are below 1e-11


class _Fit(NamedTuple):
    """The logits of shadow models of one kind: mean (NaN without any) and unbiased variance (NaN of fewer than two)."""

    mean: Float64[Tensor, "*e targets points"]
    variance: Float64[Tensor, "*e targets points"]


def lira(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    variance: Literal["fixed", "own"] = "fixed",
    offline: bool = False,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    """`lira_of_logits` where only losses were kept, by `posterior.logit_of_loss`."""
    return lira_of_logits(logit_of_loss(losses), member, partner, variance=variance, offline=offline, target=target)


def lira_of_logits(
    logits: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    variance: Literal["fixed", "own"] = "fixed",
    offline: bool = False,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""The log-likelihood ratio of a logit under two Gaussians fitted to those of the target's shadow models, in nats.

    $$ s(x) = \log N(\phi; \mu_1(x), \sigma_1^2) - \log N(\phi; \mu_0(x), \sigma_0^2),
       \qquad \phi = \log \tfrac{p}{1-p}, $$

    with $\mu_1, \sigma_1^2$ of the shadow models trained on x and $\mu_0, \sigma_0^2$ of the others. Offline
    $s(x) = (\phi - \mu_0(x)) / \sigma_0$, which ranks points as $\Pr(Z \le \phi)$ under $Z \sim N(\mu_0, \sigma_0^2)$.

    Where a point has no shadow model of one kind, its mean is that of the other kind, moved by the mean difference
    $\mu_1 - \mu_0$ over the points that have both. Where it has fewer than two, its variance is the fixed one. If no
    point allows an estimate, a `ValueError` is raised.

    Source: Carlini et al. (2022), Algorithm 1; offline eq. (4). Departure: a fixed variance is the mean of the points'
    unbiased variances; the authors' code takes the variance of all logits, which adds how points differ.

    Args:
        logits: $\phi$ of the true label (`posterior.label_logit`).
        variance: `fixed` for one $\sigma_1$ and one $\sigma_0$ per target; `own` for a pair per point.
    """
    matrix = shadow_matrix(len(member), partner, target=target, device=member.device)
    fit = partial(_fit_shadows, matrix=matrix, rows=target_rows(target))
    phi, *moments = map_columns(fit, logits, member)
    seen, unseen = _Fit(*moments[:2]), _Fit(*moments[2:])
    gap = _mean_of_known(seen.mean - unseen.mean)
    fixed = [_fixed_variance(kind) for kind in ((unseen,) if offline else (unseen, seen))]
    return map_columns(partial(_score, gap=gap, fixed=fixed, own=variance == "own"), phi, *moments)[0]


def _fit_shadows(logits: Tensor, member: Tensor, *, matrix: Tensor, rows: slice) -> tuple[Tensor, ...]:
    """The logits of the targets, and `_Fit` of the shadow models that saw a point and of those that did not."""
    phi = logits.double() - logits.double().mean(-2, keepdim=True)  # a shift of a point's logits changes no ratio
    moments = []
    for kind in (member, ~member):
        weight = kind.double()
        count, mean = shadow_means(phi, weight, matrix)
        # Differences from a mean of this kind, since squares of numbers far from 0 lose the digits of their variance.
        centre = (phi * weight).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True).clamp_min(1)
        gaps = (phi - centre) * weight
        squares = matrix @ gaps.square() - count * (mean - centre).square()
        moments += [
            _choose(count > 0, mean, math.nan),
            _choose(count > 1, squares.clamp_min(0) / (count - 1), math.nan),
        ]
    return phi[..., rows, :], *moments


def _choose(known: Tensor, table: Tensor, other: Tensor | float) -> Tensor:
    """The table where it is known, which is usually everywhere, and other numbers elsewhere."""
    return table if bool(known.all()) else table.where(known, other)


def _mean_of_known(table: Float64[Tensor, "*b points"]) -> Float64[Tensor, "*b 1"]:
    """`nanmean`, which takes ten times as long, since it counts in int64."""
    return table.nansum(-1, keepdim=True) / (~table.isnan()).sum(-1, keepdim=True, dtype=torch.int32)


def _fixed_variance(fit: _Fit) -> Float64[Tensor, "*e targets 1"]:
    fixed = _mean_of_known(fit.variance)
    if bool(fixed.isnan().any()):
        raise ValueError(
            "no point has two shadow models of each kind; train more, or set `offline=True` if none saw it."
        )
    return fixed


def _score(phi: Tensor, *moments: Tensor, gap: Tensor, fixed: list[Tensor], own: bool) -> tuple[Tensor]:
    """The scores of some points: online where there are two fixed variances, else offline."""
    seen, unseen = _Fit(*moments[:2]), _Fit(*moments[2:])
    outside = _gaussian(unseen, seen.mean - gap, fixed[0], own=own)
    if len(fixed) == 1:
        score = (phi - outside[0]) / outside[1].sqrt()
    else:
        inside = _gaussian(seen, unseen.mean + gap, fixed[1], own=own)
        score = _log_normal(phi, *inside) - _log_normal(phi, *outside)
    return (score.round(decimals=_DECIMALS),)


def _gaussian(fit: _Fit, other_mean: Tensor, fixed: Tensor, *, own: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance of one kind, also at points with too few shadow models of this kind."""
    mean = _choose(~fit.mean.isnan(), fit.mean, other_mean)
    if bool(mean.isnan().any()):
        raise ValueError("no point has shadow models of both kinds; if none saw the points, set `offline=True`.")
    variance = _choose(~fit.variance.isnan(), fit.variance, fixed) if own else fixed
    return mean, variance.clamp_min(_LEAST_VARIANCE)


def _log_normal(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return ((x - mean).square() / variance + variance.log()) / -2  # without its constant: a ratio does not see it
