r"""Averages over the teacher's logit $Z \sim N(0, \kappa^2)$ and over the label it draws, $P(y = 1 \mid Z) = \rho'(Z)$.

Quadrature rules whose nodes follow the scale of the integrand, so that $\kappa = 100$, where $\rho'(Z)$ is a step,
costs no more than $\kappa = 1$; a Gauss-Hermite rule in Z would step over it. Float64, batched over leading dimensions;
rules come back with their nodes along a new last dimension. Nothing is random.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.theory.logistic.prox import curvature

SPAN = 8.5  # standard deviations that a rule covers: beyond them lies 2e-17 of the mass
NODES = 161  # of the rule in Z: 12 digits for κ up to 100
_FEWEST = 21  # nodes of a rule in Z: 4 digits at κ = 50; below, averages are off by anything
_WIDE = 1.1  # spread from which the logistic variable is the one to sum over
_LOGISTIC_STEP, _LOGISTIC_END = 0.55, 27.5  # both rules are good to 1e-12, which steps of 0.75 and 0.6 are not:
_NORMAL_STEP, _NORMAL_END = 0.5, 8.5  # they leave 1e-9 at spreads near 1
_CHUNK = 400  # integrals done together: their rule's nodes stay in the processor's cache


class Rule(NamedTuple):
    """Nodes and weights, which sum to 1 along the last dimension."""

    nodes: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


class LabelMoments(NamedTuple):
    r"""$\E[\rho'(-Z)]$, the chance of label 0, and $\E[\rho''(Z)]$, for Gaussian Z with given means and spread."""

    zero: Float[Tensor, "*b means"]
    slope: Float[Tensor, "*b means"]


def logit_rule(kappa: Float[Tensor, "*b"], *, nodes: int = NODES) -> Rule:
    r"""Nodes $Z = \sinh x$ with equal steps of x out to $\pm 8.5\kappa$, weights of $N(0, \kappa^2)$.

    The stretch puts as many nodes where Z is of order 1, where labels are drawn, as where it is of order κ. For
    $\kappa = 0$ every node is 0.
    """
    end = torch.asinh(SPAN * kappa)[..., None]
    x = end * torch.linspace(-1, 1, nodes, dtype=kappa.dtype, device=kappa.device)
    z = torch.sinh(x)
    scaled = z / kappa.clamp_min(torch.finfo(kappa.dtype).tiny)[..., None]
    weights = torch.exp(-scaled.square() / 2) * torch.cosh(x)
    return Rule(z, weights / weights.sum(-1, keepdim=True))


def average_over_points(values: Float[Tensor, "*b nodes"], rule: Rule) -> Float[Tensor, "*b"]:
    r"""$2\,\E[\rho'(Z)\,v(Z)]$, the mean over points of what is $v(Z)$ for label 1 and $v(-Z)$ for label 0."""
    return 2 * (rule.weights * torch.sigmoid(rule.nodes) * values).sum(-1)


def label_moments(mean: Float[Tensor, "b means"], spread: Float[Tensor, " b"]) -> LabelMoments:
    r"""The two logistic-normal integrals at $Z \sim N(m, v^2)$, to about 12 digits of 1.

    For $v \ge 1.1$ both are sums over the logistic variable U of $\rho'$:

    $$ \E[\rho'(-Z)] = \E\,\Phi\!\Bigl(-\frac{m + U}{v}\Bigr), \qquad
       \E[\rho''(Z)] = \E\,\frac1v\,\varphi\!\Bigl(\frac{m + U}{v}\Bigr), $$

    by the trapezoidal rule with step 0.55; below, the same rule over the normal variable with step 0.5. The trapezoidal
    rule is as good as exact for both: they are analytic in a strip, and vanish at its ends.
    """
    wide = spread >= _WIDE
    zero, slope = torch.empty_like(mean), torch.empty_like(mean)
    for chosen, rule in ((wide, _by_logistic), (~wide, _by_normal)):
        rows, spreads = mean[chosen].flatten(), spread[chosen, None].expand_as(mean[chosen]).flatten()
        parts = [rule(m, v) for m, v in zip(rows.split(_CHUNK), spreads.split(_CHUNK), strict=True)]
        zero[chosen], slope[chosen] = (torch.cat(part).view_as(mean[chosen]) for part in zip(*parts, strict=True))
    return LabelMoments(zero, slope)


def _by_logistic(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    u = _steps(_LOGISTIC_STEP, _LOGISTIC_END, mean)
    weights = curvature(u)
    weights = weights / weights.sum()
    scaled = (mean[:, None] + u).div_(math.sqrt(2) * spread[:, None])
    zero = torch.erfc(scaled) @ weights / 2  # twice as fast as the normal distribution function
    return zero, scaled.square_().neg_().exp_() @ weights / (spread * math.sqrt(2 * math.pi))


def _by_normal(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    x = _steps(_NORMAL_STEP, _NORMAL_END, mean)
    weights = torch.exp(-x.square() / 2)
    weights = weights / weights.sum()
    zero = (mean[:, None] + spread[:, None] * x).neg_().sigmoid_()
    return zero @ weights, (zero - zero.square()) @ weights


def _steps(step: float, end: float, like: Tensor) -> Tensor:
    count = round(end / step)
    return step * torch.arange(-count, count + 1, dtype=like.dtype, device=like.device)
