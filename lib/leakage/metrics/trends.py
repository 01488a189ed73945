"""How one quantity depends on another: slopes, rank correlations, and curves read where another crosses a target."""

import math
from typing import Any

import torch
from jaxtyping import Float, Float64, Real
from scipy import stats
from torch import Tensor

from leakage.metrics.scores import round_ties


def slope(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    r"""The least-squares slope of y in x, $\sum (x - \bar x)(y - \bar y) / \sum (x - \bar x)^2$."""
    x, y = x.double(), y.double()
    centred = x - x.mean()
    return float((centred @ (y - y.mean())) / centred.square().sum())


def rank_correlation(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    """Spearman's rank correlation, from -1 to 1; equal values share their mean rank. 0 if all x or all y are equal.

    Values that agree to nine digits count as equal (`scores.round_ties`).
    """
    x, y = (round_ties(values.double()) for values in (x, y))
    if bool((x == x[0]).all() or (y == y[0]).all()):
        return 0.0
    found: Any = stats.spearmanr(x.cpu().numpy(), y.cpu().numpy())
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
