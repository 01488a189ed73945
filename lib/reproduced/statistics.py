"""Statistics that chapters report beside `leakage.metrics`: histograms, slopes, rank correlations and crossings.

The advantage between two histograms is the estimator of `tan2022parameters`, kept for comparison: it tests on the draws
to which it was fitted, so it shows an advantage where there is none (`histogram_null_bias`), and it misses differences
finer than a bin.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Real
from scipy import stats
from torch import Tensor

from leakage.metrics.estimates import Estimate, as_sample, mean_interval
from leakage.metrics.scores import round_digits


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
) -> Histograms:
    """Histograms of both samples over equal bins between two percentiles of the pooled sample.

    Source: `tan2022parameters`, appendix D. In the text the outer edges are the minimum and maximum; in the released
    plotting code, followed here, the 0.01 and 99.99 percentiles, with 150 edges (149 bins), and values outside are
    dropped. Masses are shares of the values kept, because in the text they sum to 1.

    Args:
        edges: number of edges, at least 2, one more than bins.
        percentiles: positions of the outer edges, in percent, interpolated linearly.
    """
    member, outsider = as_sample(member, "member"), as_sample(outsider, "outsider")
    pooled = torch.cat([member, outsider], dim=-1)
    ends = np.percentile(pooled.numpy(), percentiles, axis=-1, keepdims=True)
    low, high = torch.from_numpy(ends)
    grid = torch.lerp(low, high, torch.linspace(0, 1, edges, dtype=torch.float64))
    return Histograms(grid, *(_masses(sample, grid) for sample in (member, outsider)))


def histogram_advantage(
    *,
    member: Real[Tensor, "*batch m"],
    outsider: Real[Tensor, "*batch n"],
    edges: int = 150,
    percentiles: tuple[float, float] = (0.01, 99.99),
) -> Float[Tensor, "*batch"]:
    r"""The plug-in advantage of a likelihood-ratio attacker who estimates both laws by histograms.

    $$ \sum_b \max\big(0,\, \hat f_b^{\text{member}} - \hat f_b^{\text{outsider}}\big) $$

    Where nothing leaks its mean is `histogram_null_bias`. Source and options: see `histograms`.
    """
    both = histograms(member=member, outsider=outsider, edges=edges, percentiles=percentiles)
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


def _masses(values: Float[Tensor, "*batch n"], grid: Float[Tensor, "*batch edges"]) -> Tensor:
    """Shares of the values in each bin, closed below and, the last one, above, of those in any bin."""
    bins = grid.shape[-1] - 1
    cell = torch.searchsorted(grid[..., 1:-1].contiguous(), values.contiguous(), right=True)
    cell.masked_fill_((values < grid[..., :1]) | (values > grid[..., -1:]), bins)  # a further cell, which is cut off
    counts = values.new_zeros((*grid.shape[:-1], bins + 1)).scatter_add(-1, cell, torch.ones_like(values))[..., :bins]
    return counts / counts.sum(-1, keepdim=True)


def geometric_mean(logarithms: Float[Tensor, " n"]) -> Estimate:
    """The geometric mean of ratios, given their logarithms, with the interval of the mean logarithm."""
    mean = mean_interval(logarithms)
    return Estimate(*map(math.exp, (mean.estimate, mean.low, mean.high)), n=mean.n, level=mean.level)


def slope(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    r"""The least-squares slope of y in x, $\sum (x - \bar x)(y - \bar y) / \sum (x - \bar x)^2$."""
    x, y = x.double(), y.double()
    centred = x - x.mean()
    return float((centred @ (y - y.mean())) / centred.square().sum())


def rank_correlation(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    """Spearman's rank correlation, from -1 to 1; equal values share their mean rank. 0 if all x or all y are equal.

    Values that agree to nine digits count as equal (`scores.round_digits`).
    """
    x, y = (round_digits(values.double()) for values in (x, y))
    if bool((x == x[0]).all() or (y == y[0]).all()):
        return 0.0
    found: Any = stats.spearmanr(x.numpy(), y.numpy())
    return float(found.statistic)


def value_at_crossing(
    curve: Float[Tensor, "*b epochs"], value: Float[Tensor, "*b epochs"], *, target: float
) -> Float64[Tensor, "*b"]:
    """`value` where `curve` first crosses `target`, by linear interpolation between epochs; NaN if it never does.

    The curve must rise to the target if its first epoch is below it, and fall to it if its first epoch is above. A
    curve that starts on the target gives NaN: nobody saw it cross.
    """
    curve, value = curve.double(), value.double()
    towards = torch.where(curve[..., :1] > target, -1.0, 1.0)
    reached = towards * curve >= towards * target
    after = reached.to(torch.int8).argmax(-1, keepdim=True)
    valid = reached.any(-1, keepdim=True) & (after > 0)
    before = (after - 1).clamp_min(0)
    (low, high), (start, end) = ([line.gather(-1, place) for place in (before, after)] for line in (curve, value))
    share = (target - low) / torch.where(valid, high - low, 1.0)
    return torch.where(valid, start + share * (end - start), math.nan).squeeze(-1)
