"""What independent networks have in common, with intervals over networks: rates of their points, and their scatter."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.metrics import trends
from leakage.metrics.estimates import mean_interval
from leakage.metrics.intervals import Estimate, clopper_pearson, wilson

_AT_EACH_END = 0.02  # of a sequence: the least with which ten sequences of five places and more were covered


def rate(shares: Float[Tensor, " networks"], *, points: int) -> Estimate:
    """The mean share over independent networks, each asked about `points` points.

    The interval is the wider one, at either end, of Student's over networks and the exact one over all points: the
    first sees how networks differ, the second how few points there are. Where all shares are 0 the first is empty.
    Together they are conservative; but where few of ten networks have a large share and most have none, the ten do not
    show it, and the interval covers less.

    Raises:
        ValueError: if there are fewer than two networks, a share is not in [0, 1], or there is no point.
    """
    arguments.real("shares", shares, "networks", least=0, most=1)
    between = mean_interval(shares)
    within = clopper_pearson(round(float(shares.double().sum()) * points), len(shares) * points)
    low, high = max(0.0, min(between.low, within.low)), min(1.0, max(between.high, within.high))
    return Estimate(between.estimate, low, high, within.n)


def above(answers: Float[Tensor, "networks points"], level: float) -> Estimate:
    """The `rate` of answers larger than a level in size, as conservative.

    Raises:
        ValueError: as `rate`.
    """
    arguments.real("answers", answers, "networks points")
    return rate((answers.abs() > level).double().mean(-1), points=answers.shape[-1])


def variation(values: Float[Tensor, " networks"]) -> Estimate:
    r"""The coefficient of variation K of positive values over networks, with the interval of normal ones.

    $$ \Big[\frac K{\sqrt{A(u_{.975})}}, \frac K{\sqrt{A(u_{.025})}}\Big], \qquad
       A(u) = K^2 \Big(\frac{u + 2}n - 1\Big) + \frac u{n - 1}, $$

    with the quantiles u of the χ² law of n - 1 degrees; where A is not positive, there is no upper end. It allows for
    the error of the mean, and holds for a K up to some 1/3.

    Source: M. G. Vangel (1996), The American Statistician 50 (McKay's interval, modified).

    Raises:
        ValueError: if there are fewer than two values, or one is not positive.
    """
    many = len(arguments.real("values", values, "networks", above=0))
    arguments.count("the number of values", many, least=2)
    found = float(values.std() / values.mean())
    quantiles = (2 * float(special.gammaincinv((many - 1) / 2, level)) for level in (0.975, 0.025))
    low, high = (
        found / math.sqrt(size) if size > 0 else math.inf
        for u in quantiles
        for size in [found**2 * ((u + 2) / many - 1) + u / (many - 1)]
    )
    return Estimate(found, low, high, many)


def rank_correlation(places: Sequence[float], shares: Sequence[Float[Tensor, " networks"]]) -> Estimate:
    r"""Spearman's rank correlation of place and share, the mean over sequences with one network at every place.

    A correlation lies within ±1, takes few values and may be the same in all sequences, so Student's interval is too
    narrow; that of three sequences covers 76 %. This one is Wilson's for the share $(1 + \bar\rho)/2$ with Student's
    quantile and the size $p (1 - p) / V$, where p and V are the mean of the shares and its variance with a fiftieth of
    a sequence more at each end. It is conservative.

    Raises:
        ValueError: if there are not as many places as shares, fewer than two of them or fewer than two networks.
    """
    grid = torch.tensor(places, dtype=torch.float64)
    sequences = torch.stack(list(shares)).T.double().cpu()
    found = torch.tensor([trends.rank_correlation(grid, own) for own in sequences], dtype=torch.float64)
    many = arguments.count("the number of networks", len(found), least=2)
    values, weights = torch.ones(many + 2, dtype=torch.float64), torch.ones(many + 2, dtype=torch.float64)
    values[:many], values[-1], weights[many:] = (1 + found) / 2, 0.0, _AT_EACH_END
    mean = float((weights * values).sum() / weights.sum())
    variance = float((weights * (values - mean).square()).sum() / (weights.sum() - 1) / many)
    quantile = float(special.stdtrit(many - 1, 0.975))
    middle = float(found.mean())
    ends = wilson(min(max((1 + middle) / 2, 0.0), 1.0), size=mean * (1 - mean) / variance, quantile=quantile)
    return Estimate(middle, *(2 * end - 1 for end in ends), n=many)
