"""How one quantity goes with another: slopes and rank correlations, and curves read where another crosses a target.

Nothing here fits a model of the book; these are summaries that rules are stated in.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from leakage.metrics.scores import round_ties


def slope(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    r"""The least-squares slope of y in x, $\sum (x - \bar x)(y - \bar y) / \sum (x - \bar x)^2$."""
    x, y = x.double(), y.double()
    centred = x - x.mean()
    return float((centred @ (y - y.mean())) / centred.square().sum())


def rank_correlation(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    """Spearman's rank correlation of x and y, from -1 to 1; equal values share their mean rank. 0 if all y are equal.

    Values that agree to nine digits are equal (`scores.round_ties`).
    """
    from scipy import stats  # slow to import, and most who import this module do without it

    x, y = (round_ties(values.double()) for values in (x, y))
    if bool((x == x[0]).all() or (y == y[0]).all()):
        return 0.0
    found: Any = stats.spearmanr(x.cpu().numpy(), y.cpu().numpy())
    return float(found.statistic)


def at_crossing(
    level: Float[Tensor, "*b epochs"], value: Float[Tensor, "*b epochs"], *, target: float
) -> Float64[Tensor, "*b"]:
    """`value` where `level` first reaches `target`, by linear interpolation between epochs; NaN if it never does.

    `level` must rise to the target where its first epoch is below it, and fall to it where its first epoch is above; a
    curve that crosses several times is read where it crosses first. A curve that starts on the target has not been seen
    crossing it: NaN too, never the value at an end.
    """
    level, value = level.double(), value.double()
    towards = torch.where(level[..., :1] > target, -1.0, 1.0)
    reached = towards * level >= towards * target
    after = reached.to(torch.int8).argmax(-1, keepdim=True)
    valid = reached.any(-1, keepdim=True) & (after > 0)
    before = (after - 1).clamp_min(0)
    (low, high), (start, end) = ([curve.gather(-1, place) for place in (before, after)] for curve in (level, value))
    share = (target - low) / torch.where(valid, high - low, 1.0)
    return torch.where(valid, start + share * (end - start), math.nan).squeeze(-1)
