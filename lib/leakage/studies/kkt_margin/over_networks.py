"""What independent networks have in common, with intervals over networks: rates of their points, and their scatter."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from leakage import arguments
from leakage.metrics import trends
from leakage.metrics.estimates import Estimate, clopper_pearson, mean_interval


def rate(shares: Float[Tensor, " networks"], *, points: int) -> Estimate:
    """The mean share over independent networks, each asked about `points` points.

    The interval is the wider one, at either end, of Student's over networks and the exact one over all points: the
    first sees how networks differ, the second how few points there are. Where all shares are 0 the first is empty.

    Raises:
        ValueError: if there are fewer than two networks, a share is not in [0, 1], or there is no point.
    """
    arguments.real("shares", shares, "networks", least=0, most=1)
    between = mean_interval(shares)
    within = clopper_pearson(round(float(shares.double().sum()) * points), len(shares) * points)
    low, high = max(0.0, min(between.low, within.low)), min(1.0, max(between.high, within.high))
    return Estimate(between.estimate, low, high, within.n)


def above(answers: Float[Tensor, "networks points"], level: float) -> Estimate:
    """The `rate` of answers larger than a level in size.

    Raises:
        ValueError: as `rate`.
    """
    arguments.real("answers", answers, "networks points")
    return rate((answers.abs() > level).double().mean(-1), points=answers.shape[-1])


def variation(values: Float[Tensor, " networks"]) -> Estimate:
    """The coefficient of variation of positive values over networks, with the interval of a normal sample's deviation.

    Raises:
        ValueError: if there are fewer than two values, or one is not positive.
    """
    many = len(arguments.real("values", values, "networks", above=0))
    arguments.count("the number of values", many, least=2)
    found = float(values.std() / values.mean())
    low, high = (found * math.sqrt((many - 1) / stats.chi2.ppf(level, many - 1)) for level in (0.975, 0.025))
    return Estimate(found, low, high, many)


def rank_correlation(places: Sequence[float], shares: Sequence[Float[Tensor, " networks"]]) -> Estimate:
    """Spearman's rank correlation of place and share, the mean over sequences with one network at every place.

    Raises:
        ValueError: if there are not as many places as shares, fewer than two of them or fewer than two networks.
    """
    grid = torch.tensor(places, dtype=torch.float64)
    sequences = torch.stack(list(shares)).T.double().cpu()
    return mean_interval(torch.tensor([trends.rank_correlation(grid, own) for own in sequences]))
