"""How well scores tell members from outsiders.

Scores are oriented: larger means "more likely a member", and a threshold calls a member whatever *reaches* it. `member`
and `outsider` are independent samples of finite scores of one model; they are compared to nine digits, on their own
device, by the counts of `scores`, and intervals are over points. Nothing here trains, draws or touches a file, and what
is measured on the data it was tuned on says so.
"""

import math
import warnings
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Real
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.metrics.estimates import as_sample
from leakage.metrics.intervals import Estimate, clopper_pearson, newcombe, wilson
from leakage.metrics.low_rates import tpr_bounds
from leakage.metrics.scores import Scores, round_ties

_EXACT_KS = 1000  # observations up to which the exact law of the two-sample statistic is affordable


class Evaluation(NamedTuple):
    """What a fixed threshold achieves."""

    advantage: Estimate
    tpr: Estimate
    fpr: Estimate


class Roc(NamedTuple):
    """The corners of a ROC curve, from (0, 0) to (1, 1); `thresholds` fall, and `inf` calls nobody a member."""

    fpr: Float[Tensor, " corners"]
    tpr: Float[Tensor, " corners"]
    thresholds: Float[Tensor, " corners"]


class KsTest(NamedTuple):
    """Kolmogorov and Smirnov's distance of two samples, how often one law gives a larger one, and that of the laws.

    A large p-value is no evidence that two laws are one; an upper end of `distance` says how far apart they can be.
    """

    statistic: float
    p_value: float
    distance: Estimate


def evaluate(
    *, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], threshold: float, level: float = 0.95
) -> Evaluation:
    """Advantage, true and false positive rate of calling a member whatever reaches `threshold`.

    The threshold must not depend on these scores: take it from `calibrate_threshold` on others. The rates carry exact
    binomial intervals, the advantage Newcombe's; all are conservative.

    Raises:
        ValueError: if a sample is empty, not finite or has more than one axis, or `threshold` is NaN.
    """
    arguments.number("threshold", threshold, finite=False)
    hits, alarms = map(int, _ranked(member, outsider).count_flagged(threshold))
    return Evaluation(
        advantage=newcombe((hits, len(member)), (alarms, len(outsider)), level=level),
        tpr=clopper_pearson(hits, len(member), level=level),
        fpr=clopper_pearson(alarms, len(outsider), level=level),
    )


def membership_advantage(
    *, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], threshold: float, level: float = 0.95
) -> Estimate:
    r"""The membership advantage $\mathrm{TPR} - \mathrm{FPR}$ of a fixed threshold, in [-1, 1]; see `evaluate`.

    The interval, Newcombe's, is conservative.
    """
    return evaluate(member=member, outsider=outsider, threshold=threshold, level=level).advantage


def best_advantage(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], level: float = 0.95) -> Estimate:
    r"""The largest advantage any one threshold has *on these very scores*, in [0, 1].

    $$ \max_t \, \big(\hat F_{\text{outsider}}(t) - \hat F_{\text{member}}(t)\big), $$

    the one-sided Kolmogorov–Smirnov distance. The threshold is chosen on the data it is measured on, so the estimate
    is optimistic, by some $0.9/\sqrt n$ where nothing leaks (two samples of n); `calibrate_threshold` and `evaluate`
    are not. The interval is for the best advantage of the laws themselves and is valid for every pair of laws: the
    Dvoretzky–Kiefer–Wolfowitz bands of the two samples, each at half the error, added up. So it is wide, and
    conservative.

    Source of the bands: P. Massart (1990), Annals of Probability 18.

    Raises:
        ValueError: as `evaluate`.
    """
    arguments.number("level", level, above=0, below=1)
    best = float(_ranked(member, outsider).best_advantage())
    half = _bands(member, outsider, level=level)
    n = len(member) + len(outsider)
    return Estimate(best, max(best - half, 0.0), min(best + half, 1.0), n=n, level=level)


def curve(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"]) -> Roc:
    """The ROC curve, one corner for each distinct score: tied scores make one slanted step, in no one's favour.

    Raises:
        ValueError: as `evaluate`.
    """
    thresholds, hits, alarms = _corners(_ranked(member, outsider))
    return Roc(fpr=alarms.double() / len(outsider), tpr=hits.double() / len(member), thresholds=thresholds)


def auc(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], level: float = 0.95) -> Estimate:
    r"""The area under the ROC curve, $\Pr(s_m > s_o) + \tfrac12 \Pr(s_m = s_o)$.

    The interval is Wilson's for a share, with the number of pairs that are worth as much as these samples,

    $$ N = A' (1 - A') / V', $$

    where A' and DeLong's variance V' are those of the samples with one more score above all others and one more below.
    They matter where a sample is small or nearly separated and the plain variance too small, and vanish against many.
    The interval is conservative for few scores and near 0 and 1. Perfectly separated or all-equal scores have an exact
    one: min(m, n) independent pairs all came out alike.

    Source: E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson (1988), Biometrics 44; E. B. Wilson (1927), JASA 22; the
    scores added, after A. Agresti, B. A. Coull (1998), The American Statistician 52, are ours.

    Raises:
        ValueError: as `evaluate`, or if a sample has fewer than two scores.
    """
    arguments.number("level", level, above=0, below=1)
    ranked = _ranked(member, outsider, least=2)
    area, n = float(ranked.auc()), len(member) + len(outsider)
    both = torch.cat([ranked.member, ranked.outsider])
    if area in (0.0, 1.0) or bool((both == both[0]).all()):
        unseen = 1 - ((1 - level) / 2) ** (1 / min(len(member), len(outsider)))
        return Estimate(area, area * (1 - unseen), area * (1 - unseen) + unseen, n=n, level=level)
    ends = both.new_tensor([-math.inf, math.inf])
    wider = Scores(
        *(torch.cat([ends[:1], kind, ends[1:]]) for kind in ranked[:2]), *(count + 2 for count in ranked[2:])
    )
    variance = sum(float(shares.var()) / len(shares) for shares in wider.placements())
    smoothed = float(wider.auc())
    size, quantile = smoothed * (1 - smoothed) / variance, float(special.ndtri((1 + level) / 2))
    return Estimate(area, *wilson(area, size=size, quantile=quantile), n=n, level=level)


def tpr_at_fpr(
    *, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], fpr: float, level: float = 0.95
) -> Estimate:
    """The share of members found while at most a share `fpr` of these outsiders is accused.

    A member counts as found if it scores strictly above the first outsider that must not be accused: ties are decided
    against the attacker. The interval is that of `tpr_bounds`: it allows for the sampling of the members and for that
    of the threshold, and is conservative.

    Args:
        member: scores of the members.
        outsider: scores of the outsiders, at least `1 / fpr`; for fewer see `tpr_bounds`.
        fpr: false positive rate allowed, in (0, 1).
        level: coverage of the interval.

    Raises:
        ValueError: as `evaluate`; if `fpr` is outside (0, 1); or if n·fpr < 1, where no rate that small can be seen.
    """
    arguments.number("level", level, above=0, below=1)
    ranked = _ranked(member, outsider)
    found = int(ranked.hits_at_fpr(arguments.number("fpr", fpr, above=0, below=1)))
    low, high = tpr_bounds(ranked, fpr=fpr, level=level)
    return Estimate(found / len(member), low, high, n=len(member) + len(outsider), level=level)


def calibrate_threshold(*, member: Real[Tensor, " m"], outsider: Real[Tensor, " n"], fpr: float | None = None) -> float:
    """The threshold an attacker would choose on these scores, to be judged on others with `evaluate`.

    Without `fpr` it maximises the advantage, and of several best ones takes the one that accuses fewest; with `fpr` it
    is the lowest that accuses at most this share of the outsiders. It lies midway between the last score it includes
    and the next one, so that it stands for neither. `inf`, calling nobody a member, if no score is worth including.

    Raises:
        ValueError: as `evaluate`, and with `fpr` as `tpr_at_fpr`.
    """
    ranked = _ranked(member, outsider)
    thresholds, hits, alarms = _corners(ranked)
    if fpr is None:
        chosen = int((hits * len(outsider) - alarms * len(member)).argmax())
    else:
        spared = ranked.threshold_at_fpr(arguments.number("fpr", fpr, above=0, below=1))
        chosen = int((thresholds > spared).sum()) - 1
    if chosen == 0:
        return math.inf
    # The last corner includes everybody and gains nothing, so there is always a next score below the chosen one.
    included, next_below = thresholds[chosen : chosen + 2].tolist()
    middle = (included + next_below) / 2
    return middle if float(round_ties(thresholds.new_tensor(middle))) > next_below else included


def ks_test(sample_a: Real[Tensor, " m"], sample_b: Real[Tensor, " n"], *, level: float = 0.95) -> KsTest:
    """Whether two samples follow one law: the two-sided two-sample Kolmogorov–Smirnov test.

    The interval of the distance adds up the bands of both samples, as that of `best_advantage` does, and is
    conservative.

    The p-value is exact up to 1000 observations in each sample and asymptotic above, where it can be up to 6 %
    too small; ties make it conservative.

    Raises:
        ValueError: if a sample is empty, not finite or has more than one axis, or `level` is outside (0, 1).
    """
    from scipy import stats  # slow to import, and most who import this module do without it

    arguments.number("level", level, above=0, below=1)
    a, b = _sample("sample_a", sample_a), _sample("sample_b", sample_b)
    method = "exact" if max(len(a), len(b)) <= _EXACT_KS else "asymp"
    with warnings.catch_warnings():
        # Where the exact p-value is 1, rounding can lift it above 1; SciPy then says so and gives the asymptotic 1.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        statistic, p_value = tuple(stats.ks_2samp(a.cpu().numpy(), b.cpu().numpy(), method=method))
    found, half = float(statistic), _bands(a, b, level=level)
    distance = Estimate(found, max(found - half, 0.0), min(found + half, 1.0), n=min(len(a), len(b)), level=level)
    return KsTest(found, float(p_value), distance)


def _bands(*samples: Tensor, level: float) -> float:
    """The bands of Dvoretzky, Kiefer and Wolfowitz around two distribution functions, each at half the error, added."""
    return sum(math.sqrt(math.log(4 / (1 - level)) / (2 * len(sample))) for sample in samples)


def _ranked(member: Tensor, outsider: Tensor, *, least: int = 1) -> Scores:
    groups = {"member": member, "outsider": outsider}
    return Scores.from_groups(**{name: _sample(name, group, least=least) for name, group in groups.items()})


def _sample(name: str, values: Tensor, *, least: int = 1) -> Float[Tensor, " n"]:
    return arguments.tensor(name, as_sample(values, name, least=least), "n")


def _corners(ranked: Scores) -> tuple[Float[Tensor, " corners"], Int[Tensor, " corners"], Int[Tensor, " corners"]]:
    """Every distinct score from the top, with the numbers of members and outsiders that reach it; first inf: nobody."""
    levels = torch.unique(torch.cat([ranked.member, ranked.outsider])).flip(0)
    thresholds = torch.cat([levels.new_full((1,), math.inf), levels])
    hits, alarms = (len(s) - torch.searchsorted(s, thresholds) for s in (ranked.member, ranked.outsider))
    return thresholds, hits, alarms
