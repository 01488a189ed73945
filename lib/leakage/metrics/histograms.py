"""The advantage of an attacker who estimates both laws by histograms, and its bias.

This is the estimator of `tan2022parameters`, kept for comparison: it tests on the draws to which it was fitted, so it
shows an advantage where there is none (`histogram_null_bias`), and it misses differences finer than a bin. Leading axes
are a batch. Nothing here draws or trains.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

from leakage.metrics.estimates import as_sample


class Histograms(NamedTuple):
    """Two histograms over the same bins; the masses of each sum to 1."""

    edges: Float[Tensor, "*batch edges"]
    member: Float[Tensor, "*batch bins"]
    outsider: Float[Tensor, "*batch bins"]


def histograms(
    *,
    member: Real[Tensor, "*batch m"],
    outsider: Real[Tensor, "*batch n"],
    edges: int = 150,
    percentiles: tuple[float, float] = (0.01, 99.99),
    outside: Literal["drop", "clip"] = "drop",
) -> Histograms:
    """Histograms of both samples over equal bins between two percentiles of the pooled sample.

    Source: `tan2022parameters`, appendix D. In the text the outer edges are the minimum and maximum; in the released
    plotting code, followed here, the 0.01 and 99.99 percentiles, with 150 edges (149 bins), and values outside are
    dropped. Masses are shares of the values kept, because in the text they sum to 1.

    Args:
        member: values under the first law.
        outsider: values under the second law.
        edges: number of edges, at least 2, one more than bins.
        percentiles: positions of the outer edges, in percent, interpolated linearly.
        outside: `drop` values beyond the outer edges, or `clip` them into the outer bins.
    """
    member, outsider = as_sample(member, "member"), as_sample(outsider, "outsider")
    low, high = (_percentile(torch.cat([member, outsider], dim=-1), percent) for percent in percentiles)
    grid = torch.lerp(low, high, torch.linspace(0, 1, edges, dtype=torch.float64, device=low.device))
    return Histograms(grid, *(_masses(sample, grid, outside) for sample in (member, outsider)))


def histogram_advantage(
    *,
    member: Real[Tensor, "*batch m"],
    outsider: Real[Tensor, "*batch n"],
    edges: int = 150,
    percentiles: tuple[float, float] = (0.01, 99.99),
    outside: Literal["drop", "clip"] = "drop",
) -> Float[Tensor, "*batch"]:
    r"""The plug-in advantage of a likelihood-ratio attacker who estimates both laws by histograms.

    $$ \sum_b \max\big(0,\, \hat f_b^{\text{member}} - \hat f_b^{\text{outsider}}\big) $$

    Where nothing leaks its mean is `histogram_null_bias`. Source and options: see `histograms`.
    """
    both = histograms(member=member, outsider=outsider, edges=edges, percentiles=percentiles, outside=outside)
    return (both.member - both.outsider).clamp(min=0).sum(-1)


def histogram_null_bias(masses: Float[Tensor, "*batch bins"], *, samples: float) -> Float[Tensor, "*batch"]:
    r"""The mean of `histogram_advantage` if both laws are the same.

    $$ \tfrac12 \sum_b \mathbb E |\hat f_b - \hat f_b'| \approx \sum_b \tfrac{\lambda_b}{S}
       \big(I_0(2\lambda_b) + I_1(2\lambda_b)\big) e^{-2\lambda_b}, \qquad \lambda_b = S f_b (1 - f_b) $$

    The right-hand side is the mean absolute difference of two Poisson counts with the binomial's variance. From 30
    draws on its error is at most 0.7 %, in full bins, where it is $\sum_b \sqrt{f_b (1 - f_b) / \pi S}$, and in empty
    ones.

    Source: own derivation; the Poisson case is T. A. Ramasubban (1958), Biometrika 45.

    Args:
        masses: $f_b$, the law's mass in each bin, at most 1 in total; in practice the mean of both histograms.
        samples: $S$, draws of each histogram; for unequal sizes their harmonic mean.
    """
    rate = samples * masses * (1 - masses)
    return (rate * (torch.special.i0e(2 * rate) + torch.special.i1e(2 * rate))).sum(-1) / samples


def _percentile(values: Float[Tensor, "*batch n"], percent: float) -> Float[Tensor, "*batch 1"]:
    """Linear interpolation between two order statistics, as `numpy.percentile`; `torch.quantile` limits the size."""
    position = percent / 100 * (values.shape[-1] - 1)
    below, above = (values.kthvalue(whole(position) + 1, keepdim=True).values for whole in (math.floor, math.ceil))
    return torch.lerp(below, above, position - math.floor(position))


def _masses(values: Float[Tensor, "*batch n"], grid: Float[Tensor, "*batch edges"], outside: str) -> Tensor:
    """Shares of the values in each bin, closed below and, the last one, above; with `drop`, of those in any bin."""
    bins = grid.shape[-1] - 1
    cell = torch.searchsorted(grid[..., 1:-1].contiguous(), values.contiguous(), right=True)
    if outside == "drop":  # into a further cell, which is cut off
        cell.masked_fill_((values < grid[..., :1]) | (values > grid[..., -1:]), bins)
    counts = values.new_zeros((*grid.shape[:-1], bins + 1)).scatter_add(-1, cell, torch.ones_like(values))[..., :bins]
    return counts / counts.sum(-1, keepdim=True)
