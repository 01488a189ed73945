"""How one quantity goes with another: least-squares slopes and rank correlations of paired numbers.

Nothing here fits a model of the book; these are summaries that rules are stated in.
"""

from typing import Any

from jaxtyping import Real
from scipy import stats
from torch import Tensor

from leakage import arguments
from leakage.intervals import as_sample


def slope(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    r"""The least-squares slope of y in x, $\sum (x - \bar x)(y - \bar y) / \sum (x - \bar x)^2$.

    Raises:
        ValueError: if there are not as many x as y, fewer than two, more than one axis, one is not finite, or all x are
            equal.
    """
    x, y = _pairs(x, y)
    centred = x - x.mean()
    # In units of the largest, so that no square over- or underflows.
    unit = centred.abs().max()
    centred = centred / unit
    return float(((centred @ (y - y.mean())) / centred.square().sum()) / unit)


def rank_correlation(x: Real[Tensor, " n"], y: Real[Tensor, " n"]) -> float:
    """Spearman's rank correlation of x and y, from -1 to 1; equal values share their mean rank. 0 if all y are equal.

    Raises:
        ValueError: as `slope`.
    """
    x, y = _pairs(x, y)
    if bool((y == y[0]).all()):
        return 0.0
    found: Any = stats.spearmanr(x.cpu().numpy(), y.cpu().numpy())
    return float(found.statistic)


def _pairs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x, y = as_sample(x, "x", least=2), as_sample(y, "y", least=2)
    arguments.tensor("x", x, "n")
    arguments.tensor("y", y, "n", n=len(x))
    if bool((x == x[0]).all()):
        raise ValueError("`x` must not be constant: nothing can go with it.")
    return x, y
