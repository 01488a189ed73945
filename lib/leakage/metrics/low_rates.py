"""Bounds of the true positive rate at a low false positive rate, where the threshold is known from few outsiders.

Scores are larger for likelier members. The bounds are over points, of members and of outsiders; nothing here draws.
"""

import functools
import math
from bisect import bisect_left

import numpy as np
import torch
from scipy import optimize, special

from leakage.metrics.intervals import at_least, at_most, exact_ends
from leakage.metrics.scores import Scores


def tpr_bounds(ranked: Scores, *, fpr: float, level: float = 0.95) -> tuple[float, float]:
    r"""Between which bounds the true positive rate of the *laws* lies at a false positive rate of `fpr`; conservative.

    What is bounded is the most that is found by accusing whoever *exceeds* some threshold, at most a share `fpr` of all
    outsiders there are; ties so count against the attacker:

    $$ \theta = \Pr(s_m > q), \qquad q = \min\{t : \Pr(s_o > t) \le \text{fpr}\} . $$

    With the outsiders in falling order $x_1 \ge \dots \ge x_n$, $x_0 = \infty$, $x_{n+1} = -\infty$, with
    $N(x)$ members above x, $B \sim \text{Bin}(n, \text{fpr})$ and the ends of Clopper and Pearson for m members at a
    one-sided error ε,

    $$ \text{low} = \min_j \text{CP}^-\big(N(x_j);\, \varepsilon(\Pr(B \le j))\big), \quad
       \text{high} = \max_j \text{CP}^+\big(N(x_{j+1});\, \varepsilon(\Pr(B \ge j))\big), \quad
       \varepsilon(p) = \Phi\big({-\sqrt{c - z^2}}\big), \quad z = \max(0, \Phi^{-1}(1 - p)), $$

    over the ranks with $z^2 \le c$, where $\tfrac12 \Pr(\chi^2_1 > c) + \tfrac14 \Pr(\chi^2_2 > c)$ is half the
    error. If J outsiders reach q, then $x_J \ge q$ and low misses θ only if the p-values of J and of the members
    beyond q, which are independent and at least uniform, have $z^2 + z'^2 > c$; high likewise, with those beyond q. So
    each end holds at any size, for all laws, with ties. To share the error between ranks and members on a circle, not a
    rectangle, makes the ends narrower wherever both matter.

    Where n·fpr < 1 the outsiders show little of q: low is 0 unless $(1 - \text{fpr})^n$ is below some 0.01, and high
    holds all the same. Source: own derivation.

    Args:
        ranked: the scores of one model (`Scores.from_groups`), however few.
        fpr: false positive rate allowed, in (0, 1).
        level: coverage of the interval.
    """
    members = len(ranked.member)
    (lower, under), (upper, over) = _rank_errors(len(ranked.outsider), float(fpr), float(level))
    low, _ = exact_ends(_members_beyond(ranked, lower), members, error=under)
    _, high = exact_ends(_members_beyond(ranked, upper + 1), members, error=over)
    return float(low.min()), float(high.max())


@functools.lru_cache(maxsize=64)
def _rank_errors(
    outsiders: int, fpr: float, level: float
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The ranks that take part in the lower end and in the upper one, with the error left to the members at each."""
    below, above = (functools.partial(side, trials=outsiders, chance=fpr) for side in (at_most, at_least))
    radius, ranks = _radius((1 - level) / 2), range(outsiders + 1)
    beyond = float(special.ndtr(-math.sqrt(radius)))  # no rank with a smaller tail takes part
    first, middle = (bisect_left(ranks, tail, key=below) for tail in (beyond, 0.5))
    last = bisect_left(ranks, -beyond, key=lambda rank: -above(rank + 1))
    # Beyond the median z stays 0, and the ranks there bound less tightly than the median itself.
    lower, upper = np.arange(first, middle + 1), np.arange(middle, last + 1)
    left = (-special.ndtri(tails).clip(max=0) for tails in (below(lower), above(upper)))
    under, over = (special.ndtr(-np.sqrt((radius - np.square(z)).clip(0))) for z in left)
    return (lower, under), (upper, over)


def _radius(error: float) -> float:
    """c: so far from the origin, squared, is a pair of normal variables, negative ones put to 0, at this rate."""

    def excess(squared: float) -> float:
        return float(special.chdtrc(1, squared) / 2 + special.chdtrc(2, squared) / 4 - error)

    found = optimize.brentq(excess, 0.0, float(special.chdtri(2, error)), xtol=1e-12)
    return float(found)  # pyright: ignore[reportArgumentType]


def _members_beyond(ranked: Scores, ranks: np.ndarray) -> np.ndarray:
    """How many members exceed the outsiders of these ranks, 1 the highest; 0 is above everybody, n + 1 below."""
    ends = ranked.outsider.new_tensor([math.inf])
    falling = torch.cat([ends, ranked.outsider.flip(0), -ends])
    cuts = falling[torch.as_tensor(ranks, device=falling.device)]
    return (len(ranked.member) - torch.searchsorted(ranked.member, cuts, right=True)).cpu().numpy()
