"""Margins of networks, shares of points on and above them, and intervals over independent networks."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy import special
from torch import Tensor

from leakage.metrics.estimates import Estimate, clopper_pearson, mean_interval, wilson_interval
from reproduced import statistics

_AT_EACH_END = 0.02  # of a sequence: with less, the interval of ten sequences of five places covered too little


class Margin(NamedTuple):
    r"""The margin of trained networks, which their owner knows.

    Attributes:
        absolute: $\min_i |\Phi(x_i)|$, the m of Smorodinsky et al., Assumption 2.1.
        signed: $\min_i y_i \Phi(x_i)$: the same number where all labels are fitted, and not positive elsewhere.
    """

    absolute: Float[Tensor, "*b"]
    signed: Float[Tensor, "*b"]

    @property
    def exists(self) -> Bool[Tensor, "*b"]:
        """Whether the network fits all its labels; without that no theorem speaks about it."""
        return self.signed > 0


def network_margin(signed_outputs: Float[Tensor, "*b n"]) -> Margin:
    r"""Both readings of the margin, from $y_i \Phi(x_i)$ of all training points."""
    return Margin(signed_outputs.abs().amin(-1), signed_outputs.amin(-1))


def share_up_to(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, slack: float = 0.1
) -> Float[Tensor, "*b"]:
    r"""The share of points with $|\Phi(x)| \le (1 + \text{slack})\, m$.

    The quantity of the panels (a) in Figures 1 to 5 of Smorodinsky et al., who do not spell it out. Of n training
    points it is at least 1/n if m is their $\min |\Phi|$.
    """
    return (outputs.abs() <= (1 + slack) * margin.unsqueeze(-1)).to(outputs).mean(-1)


def share_above(
    outputs: Float[Tensor, "*#b t"], margin: Float[Tensor, "*#b"], *, slack: float = 0.0
) -> Float[Tensor, "*b"]:
    r"""The share of points with $|\Phi(x)| \ge (1 - \text{slack})\, m$.

    The quantity of the panels (b) in the same figures, without slack. With a margin that the attacker estimated
    (`margin.shadow_margin`) it is a rate of the attack: of true positives on members, of false ones on fresh points.
    """
    return (outputs.abs() >= (1 - slack) * margin.unsqueeze(-1)).to(outputs).mean(-1)


def share_interval(shares: Float[Tensor, " networks"], *, points: int) -> Estimate:
    """The mean share over independent networks, each asked about `points` points.

    Either end of the interval is the wider one of Student's interval over networks, which sees how networks differ, and
    the exact one over all points, which sees how few points there are. (Where all shares are 0 the first is empty.)
    Together they are conservative; but if most networks have no share and few have a large one, ten networks may not
    show it, and the interval covers less.
    """
    between = mean_interval(shares)
    within = clopper_pearson(round(float(shares.double().sum()) * points), len(shares) * points)
    low, high = max(0.0, min(between.low, within.low)), min(1.0, max(between.high, within.high))
    return Estimate(between.estimate, low, high, within.n)


def share_above_interval(answers: Float[Tensor, "networks points"], level: float) -> Estimate:
    """The `share_interval` of answers whose size is above a level, as conservative."""
    return share_interval((answers.abs() > level).double().mean(-1), points=answers.shape[-1])


def variation_coefficient(values: Float[Tensor, " networks"]) -> Estimate:
    r"""The coefficient of variation K of positive values over networks, with the interval of normal ones.

    $$ \Big[\frac K{\sqrt{A(u_{.975})}}, \frac K{\sqrt{A(u_{.025})}}\Big], \qquad
       A(u) = K^2 \Big(\frac{u + 2}n - 1\Big) + \frac u{n - 1}, $$

    with the quantiles u of the χ² law of n - 1 degrees of freedom; where A is not positive, there is no upper end. It
    allows for the error of the mean, and holds for K up to about 1/3.

    Source: M. G. Vangel (1996), The American Statistician 50 (McKay's interval, modified).
    """
    many = len(values)
    found = float(values.std() / values.mean())
    quantiles = (2 * float(special.gammaincinv((many - 1) / 2, level)) for level in (0.975, 0.025))
    sizes = [found**2 * ((u + 2) / many - 1) + u / (many - 1) for u in quantiles]
    low, high = (found / math.sqrt(size) if size > 0 else math.inf for size in sizes)
    return Estimate(found, low, high, many)


def rank_correlation(places: Sequence[float], shares: Sequence[Float[Tensor, " networks"]]) -> Estimate:
    r"""Spearman's rank correlation of place and share, the mean over sequences with one network at every place.

    A correlation lies within ±1, takes few values and may be the same in all sequences, so Student's interval is too
    narrow; for three sequences it covers 76 %. This one is Wilson's for the share $(1 + \bar\rho)/2$ with Student's
    quantile and the size $p (1 - p) / V$, where p and V are the mean of the shares and its variance, with a fiftieth of
    a sequence added at each end. It is conservative.
    """
    grid = torch.tensor(places, dtype=torch.float64)
    sequences = torch.stack(list(shares)).T.double()
    found = torch.tensor([statistics.rank_correlation(grid, own) for own in sequences], dtype=torch.float64)
    many = len(found)
    values, weights = torch.ones(many + 2, dtype=torch.float64), torch.ones(many + 2, dtype=torch.float64)
    values[:many], values[-1], weights[many:] = (1 + found) / 2, 0.0, _AT_EACH_END
    mean = float((weights * values).sum() / weights.sum())
    variance = float((weights * (values - mean).square()).sum() / (weights.sum() - 1) / many)
    quantile = float(special.stdtrit(many - 1, 0.975))
    middle = float(found.mean())
    ends = wilson_interval(min(max((1 + middle) / 2, 0.0), 1.0), size=mean * (1 - mean) / variance, quantile=quantile)
    return Estimate(middle, *(2 * end - 1 for end in ends), n=many)
