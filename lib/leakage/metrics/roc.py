"""How well the scores of one model separate members from outsiders.

Larger scores mean likelier members, and a threshold calls a point a member if its score *reaches* it. `member` and
`outsider` are independent samples of finite scores; they are compared to nine digits (`scores.round_digits`), on their
own device. Intervals are over points. Numbers that are measured on the data they were tuned on say so.
"""

import functools
import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Real
from scipy import optimize, special, stats
from torch import Tensor
from torch.nn.functional import pad

from leakage.metrics.estimates import (
    Estimate,
    as_sample,
    clopper_pearson_ends,
    newcombe_interval,
    wilson_interval,
)
from leakage.metrics.scores import Scores, round_digits

_EXACT_KS = 1000  # observations up to which the exact law of the two-sample statistic is affordable


class RocCurve(NamedTuple):
    """The corners of a ROC curve, from (0, 0) to (1, 1): the shares of scores that reach each of `thresholds`.

    These fall from infinity, which flags nobody; the others are scores that were given, of each tie the lowest.
    """

    fpr: Float[Tensor, " corners"]
    tpr: Float[Tensor, " corners"]
    thresholds: Float[Tensor, " corners"]


class KsTest(NamedTuple):
    """Result of `ks_test`: the statistic, its p-value, and the distance of the laws with an interval.

    A large p-value is no evidence that two laws are equal; the upper end of `distance` bounds how far apart they are.
    """

    statistic: float
    p_value: float
    distance: Estimate


def membership_advantage(
    *, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], threshold: float, level: float = 0.95
) -> Estimate:
    r"""The membership advantage $\mathrm{TPR} - \mathrm{FPR}$ of a fixed threshold, in [-1, 1]; conservative.

    The threshold must not depend on these scores: take it from `calibrate_threshold` on others.
    """
    hits, alarms = map(int, Scores.from_groups(member=member, outsider=outsider).count_flagged(threshold))
    return newcombe_interval((hits, len(member)), (alarms, len(outsider)), level=level)


def best_advantage(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], level: float = 0.95) -> Estimate:
    r"""The largest advantage that any threshold has *on these very scores*, in [0, 1].

    $$ \max_t \, \big(\hat F_{\text{outsider}}(t) - \hat F_{\text{member}}(t)\big), $$

    the one-sided Kolmogorov–Smirnov distance. The threshold is chosen on the data on which it is measured, so the
    estimate is optimistic, by some $0.9/\sqrt n$ where nothing leaks (two samples of n); `calibrate_threshold` with
    `membership_advantage` is not. The interval is for the best advantage of the laws and holds for every pair of laws:
    it adds the Dvoretzky–Kiefer–Wolfowitz bands of both samples, each at half the error; it is wide and conservative.

    Source of the bands: P. Massart (1990), Annals of Probability 18.
    """
    best = float(Scores.from_groups(member=member, outsider=outsider).best_advantage())
    half = _dkw_bands(member, outsider, level=level)
    n = len(member) + len(outsider)
    return Estimate(best, max(best - half, 0.0), min(best + half, 1.0), n=n, level=level)


def roc_curve(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"]) -> RocCurve:
    """The ROC curve, one corner for each distinct score: tied scores make one slanted step, in nobody's favour."""
    levels, hits, alarms = _corners(Scores.from_groups(member=member, outsider=outsider))
    given = torch.cat([as_sample(member, "member"), as_sample(outsider, "outsider")]).sort().values
    lowest = torch.searchsorted(round_digits(given), levels[1:])  # rounding keeps the order
    thresholds = torch.cat([levels[:1], given[lowest]])
    return RocCurve(fpr=alarms.double() / len(outsider), tpr=hits.double() / len(member), thresholds=thresholds)


def auc(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], level: float = 0.95) -> Estimate:
    r"""The area under the ROC curve, $\Pr(s_m > s_o) + \tfrac12 \Pr(s_m = s_o)$; two scores or more of either kind.

    The interval is Wilson's for a share, with the number of pairs that these samples are worth,

    $$ N = A' (1 - A') / V', $$

    where A' and DeLong's variance V' are those of both samples with one more score above all others and one more below.
    The added scores matter for small or nearly separated samples, whose plain variance is too small. The interval is
    conservative for few scores and near 0 and 1. For perfectly separated or all-equal scores it is exact: min(m, n)
    independent pairs all had the same outcome.

    Source: E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson (1988), Biometrics 44; E. B. Wilson (1927), JASA 22; the
    added scores, after A. Agresti, B. A. Coull (1998), The American Statistician 52, are ours.
    """
    ranked = Scores.from_groups(member=member, outsider=outsider)
    area, n = float(ranked.auc()), len(member) + len(outsider)
    if area in (0.0, 1.0) or bool(ranked.ordered[0] == ranked.ordered[-1]):
        unseen = 1 - ((1 - level) / 2) ** (1 / min(len(member), len(outsider)))
        return Estimate(area, area * (1 - unseen), area * (1 - unseen) + unseen, n=n, level=level)
    shares = _shares_below(ranked.inside, ranked.outside), _shares_below(ranked.outside, ranked.inside)
    variance = sum(float(share.var()) / len(share) for share in shares)
    smoothed = float(shares[0].mean())
    size, quantile = smoothed * (1 - smoothed) / variance, float(special.ndtri((1 + level) / 2))
    return Estimate(area, *wilson_interval(area, size=size, quantile=quantile), n=n, level=level)


def tpr_at_fpr(
    *, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], fpr: float, level: float = 0.95
) -> Estimate:
    """The share of members found while at most a share `fpr` of these outsiders is flagged; conservative interval.

    A member counts as found if it scores strictly above the first outsider that must not be flagged: ties count against
    the attacker. The interval is that of `tpr_bounds`, and allows for the sampling of members and threshold.

    Fewer than `1 / fpr` outsiders cannot show so small a rate, and raise a `ValueError`; `tpr_bounds` takes any number.
    """
    ranked = Scores.from_groups(member=member, outsider=outsider)
    found = float(ranked.tpr_at_fprs([fpr]))
    low, high = tpr_bounds(ranked, fpr=fpr, level=level)
    return Estimate(found, low, high, n=len(member) + len(outsider), level=level)


def tpr_bounds(ranked: Scores, *, fpr: float, level: float = 0.95) -> tuple[float, float]:
    r"""Bounds of the true positive rate of the *laws* at a false positive rate of `fpr`; conservative.

    The quantity bounded is the largest rate of members that *exceed* a threshold which at most a share `fpr` of the
    outsiders' law exceeds; ties so count against the attacker:

    $$ \theta = \Pr(s_m > q), \qquad q = \min\{t : \Pr(s_o > t) \le \text{fpr}\} . $$

    With the outsiders in falling order $x_1 \ge \dots \ge x_n$, $x_0 = \infty$, $x_{n+1} = -\infty$, with
    $N(x)$ members above x, $B \sim \text{Bin}(n, \text{fpr})$ and the ends of Clopper and Pearson for m members at a
    one-sided error ε,

    $$ \text{low} = \min_j \text{CP}^-\big(N(x_j);\, \varepsilon(\Pr(B \le j))\big), \quad
       \text{high} = \max_j \text{CP}^+\big(N(x_{j+1});\, \varepsilon(\Pr(B \ge j))\big), \quad
       \varepsilon(p) = \Phi\big({-\sqrt{c - z^2}}\big), \quad z = \max(0, \Phi^{-1}(1 - p)), $$

    over the ranks with $z^2 \le c$, where $\tfrac12 \Pr(\chi^2_1 > c) + \tfrac14 \Pr(\chi^2_2 > c)$ is half the
    error. If J outsiders reach q, then $x_J \ge q$, and low exceeds θ only if the p-values of J and of the members
    beyond q, which are independent and at least uniform, have $z^2 + z'^2 > c$; high likewise, with the outsiders
    beyond q. So each end holds at any size, for all laws, with ties. Sharing the error between ranks and members on a
    circle, not a rectangle, makes the ends narrower where both matter.

    Where n·fpr < 1 the outsiders show little of q: low is 0 unless $(1 - \text{fpr})^n$ is below some 0.01, and high
    still holds. Source: own derivation.
    """
    members, outsiders = int(ranked.inside[-1]), int(ranked.outside[-1])
    (lower, under), (upper, over) = _rank_errors(outsiders, float(fpr), float(level))
    low, _ = clopper_pearson_ends(_members_beyond(ranked, lower), members, error=under)
    _, high = clopper_pearson_ends(_members_beyond(ranked, upper + 1), members, error=over)
    return float(low.min()), float(high.max())


def calibrate_threshold(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"]) -> float:
    """The threshold with the largest advantage on these scores; judge it on others with `membership_advantage`.

    Of several best ones it is the one that flags fewest. It lies midway between the last score that it includes and the
    next one. `inf`, which flags nobody, if no score is worth including.
    """
    thresholds, hits, alarms = _corners(Scores.from_groups(member=member, outsider=outsider))
    chosen = int((hits * len(outsider) - alarms * len(member)).argmax())
    if chosen == 0:
        return math.inf
    # The last corner includes everybody and gains nothing, so there is always a next score below the chosen one.
    included, next_below = thresholds[chosen : chosen + 2].tolist()
    middle = (included + next_below) / 2
    return middle if float(round_digits(thresholds.new_tensor(middle))) > next_below else included


def ks_test(sample_a: Real[Tensor, " m"], sample_b: Real[Tensor, " n"], *, level: float = 0.95) -> KsTest:
    """The two-sided two-sample Kolmogorov–Smirnov test of whether two samples follow one law.

    The p-value is exact up to 1000 observations in each sample and asymptotic above, where it can be up to 6 % too
    small; ties make it conservative. The interval of the distance adds the bands of both samples, as in
    `best_advantage`, and is conservative.
    """
    a, b = as_sample(sample_a, "sample_a"), as_sample(sample_b, "sample_b")
    method = "exact" if max(len(a), len(b)) <= _EXACT_KS else "asymp"
    with warnings.catch_warnings():
        # An exact p-value of 1 can exceed 1 by rounding; SciPy then warns and returns the asymptotic 1.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        statistic, p_value = tuple(stats.ks_2samp(a.cpu().numpy(), b.cpu().numpy(), method=method))
    found, half = float(statistic), _dkw_bands(a, b, level=level)
    distance = Estimate(found, max(found - half, 0.0), min(found + half, 1.0), n=min(len(a), len(b)), level=level)
    return KsTest(found, float(p_value), distance)


def _dkw_bands(*samples: Tensor, level: float) -> float:
    """The sum of the Dvoretzky–Kiefer–Wolfowitz bands of two distribution functions, each at half the error."""
    return sum(math.sqrt(math.log(4 / (1 - level)) / (2 * len(sample))) for sample in samples)


def _corners(ranked: Scores) -> tuple[Float[Tensor, " corners"], Int[Tensor, " corners"], Int[Tensor, " corners"]]:
    """Infinity and every distinct score, falling, with the numbers of members and outsiders that reach it."""
    first = (ranked.inside + ranked.outside).unique().flip(0)  # places, each of the first of a tie
    thresholds = torch.cat([ranked.ordered.new_full((1,), math.inf), ranked.ordered[first[1:]]])
    return thresholds, *ranked.count_from(first)


def _shares_below(own: Int[Tensor, " corners"], other: Int[Tensor, " corners"]) -> Float[Tensor, " shares"]:
    """For each score of one kind, ascending, the share of the other kind that is below; ties count half.

    Both kinds have one more score above all others and one more below.
    """
    steps, below = pad(own.diff(), (1, 1), value=1), other[1:] + other[:-1] + 2
    twice = torch.cat([below.new_ones(1), below, 2 * other[-1:] + 3])
    return (twice.double() / (2 * other[-1] + 4)).repeat_interleave(steps)


@functools.lru_cache(maxsize=64)
def _rank_errors(
    outsiders: int, fpr: float, level: float
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The ranks of the lower and of the upper end in `tpr_bounds`, with the error left to the members at each."""
    ranks, radius = stats.binom(outsiders, fpr), _squared_radius((1 - level) / 2)
    smallest = special.ndtr(-math.sqrt(radius))  # tails below it have z² > c
    first, median, last = int(ranks.ppf(smallest)), int(ranks.ppf(0.5)), int(ranks.isf(smallest))
    # Beyond the median z stays 0, and the ranks there bound less tightly than the median itself.
    lower, upper = np.arange(first, median + 1), np.arange(median, last + 1)
    scores = (-special.ndtri(tails).clip(max=0) for tails in (ranks.cdf(lower), ranks.sf(upper - 1)))
    under, over = (special.ndtr(-np.sqrt((radius - np.square(z)).clip(0))) for z in scores)
    return (lower, under), (upper, over)


def _squared_radius(error: float) -> float:
    """c of `tpr_bounds`: two normal variables, negative ones set to 0, have a sum of squares above it at this rate."""

    def excess(squared: float) -> float:
        return float(special.chdtrc(1, squared) / 2 + special.chdtrc(2, squared) / 4 - error)

    found = optimize.brentq(excess, 0.0, float(special.chdtri(2, error)), xtol=1e-12)
    return float(found)  # pyright: ignore[reportArgumentType]


def _members_beyond(ranked: Scores, ranks: np.ndarray) -> np.ndarray:
    """How many members exceed the outsiders of these ranks; 1 is the highest, 0 above all and n + 1 below all."""
    others = ranked.outside[-1] - torch.as_tensor(ranks, device=ranked.outside.device)
    place = torch.searchsorted(ranked.outside, others, right=True).clamp_max(len(ranked.ordered))
    return ranked.count_from(place)[0].cpu().numpy()
