"""Every interval of the library covers as often as it says: 95 % means .93 to .99, a conservative one .93 and more.

A row is a function, a case and the truth that its interval should hold. Rows that are not conservative are repeated
1200 times: the bounds are then three standard errors (.019) and more from .95. Conservative rows cover .96 and more,
where 400 repetitions have three standard errors of .029. The draws are fixed; the room is for other processors.
"""

import ast
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

import leakage
from leakage import audit
from leakage.metrics import epsilon_bounds, estimates, gaussian_mechanism, roc
from leakage.metrics.estimates import Estimate
from leakage.metrics.scores import Scores
from leakage.precision import DTYPE
from reproduced import statistics
from reproduced.papers.blessing import logistic_models, private_training
from reproduced.papers.blessing.logistic_models import PointOutputs, Points
from reproduced.papers.blessing.output_law import OutputLaw
from reproduced.papers.blessing.proximal_operator import prox
from reproduced.papers.gradient_inversion import games
from reproduced.papers.kkt_margin import network_intervals, theorem_bounds
from reproduced.papers.polytopes import clusters_2d, theorems
from reproduced.papers.polytopes.clusters_2d import Motion
from reproduced.runtime import stream

LIBRARY = Path(leakage.__file__).parent.parent  # with `reproduced` beside it
OTHERWISE = {  # a function with intervals that has no row: why
    "leakage.audit.result.AuditResult.strongest": "one of the attacks that were measured",
    **{
        f"reproduced.papers.side_by_side.{name}.compare_with_law": "passes on to metrics.roc.ks_test"
        for name in ("ridge_ladder", "logistic_ladder")
    },
    "reproduced.papers.kkt_margin.theorem_bounds.failures_of_assumption": "passes on to metrics.estimates",
    "reproduced.papers.min_norm.linear_regressions.compare_with_law": "passes on to metrics.roc and metrics.estimates",
    "reproduced.papers.polytopes.shadow_attacks.gain_beside_posteriors": "metrics.estimates.mean_interval, over splits",
    "leakage.audit.run.measure_baseline": "metrics.roc of scores in test_membership_row_features",
    "leakage.audit.epsilon.one_run": "passes on to metrics.epsilon_bounds",
    **{
        f"leakage.audit.result.AuditResult.{name}": "passes on to membership.evaluation.Evaluation.interval"
        for name in ("interval", "results")
    },
    "reproduced.papers.blessing.logistic_models.coefficient_distances": "metrics.estimates, jointly for two laws",
    "leakage.membership.evaluation.pooled_estimate": "passes on to metrics; where nothing leaks see test_audit_gates",
    "leakage.membership.evaluation.mean_estimate": "of one model passes on to metrics.roc; over models see test_audit",
    **{
        f"leakage.membership.evaluation.Evaluation.{name}": "over models and points see test_membership_evaluation, "
        "over models test_audit"
        for name in ("contrast", "interval")
    },
    **{
        f"reproduced.papers.side_by_side.{name}": "metrics.estimates.mean_interval, over ensembles"
        for name in ("ridge_ladder.average_areas", "ridge_ladder.measure_attacks", "logistic_ladder.measure_attacks")
    },
    **{
        f"reproduced.papers.side_by_side.comparisons.{name}": "passes on to membership.evaluation.Evaluation.interval"
        for name in ("gain_per_step", "rate_intervals")
    },
}


@dataclass(frozen=True)
class Row:
    """A case of a function.

    Attributes:
        of: the function.
        case: in words.
        measured: from the draws of a stream and a number of repetitions, what each repetition measured: an estimate,
            or several that must all hold their truths at once.
        truth: the number, or one for each estimate.
        conservative: whether the interval may cover more than 99 %, as the docstring then says.
    """

    of: Callable
    case: str
    measured: Callable[[torch.Generator, int], Iterator[Any]]
    truth: Any
    conservative: bool = False

    @property
    def name(self) -> str:
        return f"{self.of.__module__}.{self.of.__qualname__}"


def normal(generator, *shape, shift=0.0, spread=1.0, lattice=0.0):
    """Normal values, on a lattice of that step if one is given."""
    values = shift + spread * torch.randn(shape, generator=generator, dtype=DTYPE)
    return (values / lattice).round() * lattice if lattice else values


def binary(generator, *shape, chance):
    return (torch.rand(shape, generator=generator, dtype=DTYPE) < chance).to(DTYPE)


def exponential(generator, *shape):
    return -torch.log1p(-torch.rand(shape, generator=generator, dtype=DTYPE))


def each(function, *draws, **options):
    """`function` of one row of every draw."""

    def measured(generator, times):
        yield from map(functools.partial(function, **options), *(draw(generator, times) for draw in draws))

    return measured


def of_counts(function, *draws):
    """`function` of numbers of successes; equal ones are computed once."""
    known = functools.cache(function)

    def measured(generator, times):
        counts = [(draw(generator, times).sum(-1).int().tolist(), draw(generator, 1).shape[-1]) for draw in draws]
        for hits in zip(*(hit for hit, _ in counts), strict=True):
            yield known(*zip(hits, (trials for _, trials in counts), strict=True))

    return measured


def of_coins(function, member, outsider, **options):
    """`function` of scores that are 0 or 1."""

    def scores(hits, trials):
        return (torch.arange(trials) < hits).to(DTYPE)

    return of_counts(lambda m, o: function(member=scores(*m), outsider=scores(*o), **options), member, outsider)


def of_scores(function, member, outsider, **options):
    return each(lambda m, o: function(member=m, outsider=o, **options), member, outsider)


def gaussian(n, **options):
    return lambda generator, times: normal(generator, times, n, **options)


def coins(n, chance):
    return lambda generator, times: binary(generator, times, n, chance=chance)


def tail(threshold, *, shift=0.0, lattice=0.0):
    """The chance that a normal score, on a lattice if there is one, exceeds the threshold."""
    return float(stats.norm.sf(threshold + lattice / 2 - shift))


def quantile(fpr, *, lattice=0.0):
    """The least threshold that at most a share `fpr` of the outsiders exceeds."""
    if not lattice:
        return float(stats.norm.isf(fpr))
    return next(k * lattice for k in range(-100, 100) if tail(k * lattice, lattice=lattice) <= fpr)


def proportions():
    def one(pair):
        return estimates.clopper_pearson(*pair)

    for n, chance in ((5, 0.5), (30, 0.02), (300, 0.01), (400, 0.5)):
        found = of_counts(one, coins(n, chance))
        yield Row(estimates.clopper_pearson, f"{n} at {chance}", found, chance, conservative=True)
    for first, second in (
        ((40, 0.5), (30, 0.5)),
        ((10, 0.9), (10, 0.1)),
        ((5, 0.05), (50, 0.02)),
        ((200, 0.1), (90, 0.2)),
    ):
        found = of_counts(estimates.newcombe_interval, coins(*first), coins(*second))
        yield Row(estimates.newcombe_interval, f"{first} {second}", found, first[1] - second[1], conservative=True)


def means():
    for n, lattice in ((2, 0), (5, 0), (10, 1), (50, 1)):
        found = each(estimates.mean_interval, gaussian(n, lattice=lattice))
        yield Row(estimates.mean_interval, f"{n} normal, steps of {lattice}", found, 0)
    yield Row(estimates.mean_interval, "200 coins", each(estimates.mean_interval, coins(200, 0.3)), 0.3)
    found = each(estimates.mean_interval, lambda g, times: exponential(g, times, 200))
    yield Row(estimates.mean_interval, "200 exponential", found, 1)
    function = estimates.difference_of_means
    for m, n, spread, lattice in ((2, 2, 1, 0), (2, 30, 1, 0), (2, 10, 4, 0), (10, 10, 1, 1), (40, 40, 2, 0)):
        found = each(function, gaussian(m, spread=spread, lattice=lattice), gaussian(n, lattice=lattice))
        yield Row(function, f"{m} times {spread} and {n}, steps of {lattice}", found, 0, conservative=True)


def fixed_thresholds():
    for m, n, tpr, fpr in ((10, 10, 0.3, 0.3), (60, 100, 0.7, 0.3), (40, 300, 0.03, 0.01)):
        draws, case = (coins(m, tpr), coins(n, fpr)), f"{m} and {n} at {tpr} and {fpr}"
        found = of_coins(roc.membership_advantage, *draws, threshold=0.5)
        yield Row(roc.membership_advantage, case, found, tpr - fpr, conservative=True)


def curves():
    for m, n, shift in ((10, 10, 0.0), (60, 60, 0.7), (20, 200, 2.0)):
        found = of_scores(roc.best_advantage, gaussian(m, shift=shift), gaussian(n))
        truth = 2 * float(stats.norm.cdf(shift / 2)) - 1
        yield Row(roc.best_advantage, f"{m} and {n}, {shift} apart", found, truth, conservative=True)
    found = of_coins(roc.best_advantage, coins(30, 0.6), coins(30, 0.3))
    yield Row(roc.best_advantage, "coins", found, 0.3, conservative=True)
    for m, n, shift in ((30, 30, 0.0), (60, 200, 0.7)):
        found = each(lambda a, b: roc.ks_test(a, b).distance, gaussian(m, shift=shift), gaussian(n))
        truth = 2 * float(stats.norm.cdf(shift / 2)) - 1
        yield Row(roc.ks_test, f"{m} and {n}, {shift} apart", found, truth, conservative=True)
    for m, n, shift in ((200, 150, 0.3), (60, 60, 1)):
        truth = float(stats.norm.cdf(shift / math.sqrt(2)))
        yield Row(
            roc.auc, f"{m} and {n}, {shift} apart", of_scores(roc.auc, gaussian(m, shift=shift), gaussian(n)), truth
        )
    for m, n, shift in (
        (2, 2, 0),
        (3, 50, 1),
        (50, 5, 1),
        (10, 10, 2),
        (20, 400, 3),
        (10, 400, 2),
        (40, 40, 3),
        (30, 5, 4),
    ):
        truth = float(stats.norm.cdf(shift / math.sqrt(2)))
        found = of_scores(roc.auc, gaussian(m, shift=shift), gaussian(n))
        yield Row(roc.auc, f"{m} and {n}, {shift} apart", found, truth, conservative=True)
    for n, p, q in ((10, 0.5, 0.5), (10, 0.9, 0.1), (30, 0.02, 0.02), (100, 0.05, 0.02), (12, 0.95, 0.3)):
        found = of_coins(roc.auc, coins(n, p), coins(n, q))
        yield Row(roc.auc, f"{n} coins at {p} and {q}", found, (1 + p - q) / 2, conservative=True)
    for n, chance in ((10, 0.05), (30, 0.05), (30, 0.01)):
        found = of_coins(roc.auc, coins(40, 0), coins(n, chance))
        yield Row(roc.auc, f"{n} outsiders, {chance} above all members", found, (1 - chance) / 2, conservative=True)


def rates_at_few_alarms():
    cases = [(1000, 1000, 0.01, 0, 0), (200, 1000, 0.01, 1, 0), (50, 20, 0.1, 1, 0), (40, 1000, 0.001, 3, 0)]
    cases += [(300, 300, 0.01, 1, 0.5), (200, 200, 0.1, 0, 0.5), (60, 60, 0.3, 1, 2), (1000, 100, 0.05, 2, 0)]
    for m, n, fpr, shift, lattice in cases:
        member, outsider = gaussian(m, shift=shift, lattice=lattice), gaussian(n, lattice=lattice)
        truth = tail(quantile(fpr, lattice=lattice), shift=shift, lattice=lattice)
        case = f"{m} and {n} at {fpr}, {shift} apart, steps of {lattice}"
        found = of_scores(roc.tpr_at_fpr, member, outsider, fpr=fpr)
        yield Row(roc.tpr_at_fpr, case, found, truth, conservative=True)

    for step, truth in ((-1e-6, 0.0), (1e-6, 0.6)):  # the worst laws: six members in ten just miss q, or just pass it
        member = lambda g, times, step=step: binary(g, times, 200, chance=0.6) * (0.9 + step)  # noqa: E731
        found = of_scores(
            roc.tpr_at_fpr, member, lambda g, times: torch.rand(times, 100, generator=g).double(), fpr=0.1
        )
        yield Row(roc.tpr_at_fpr, f"members {step} beyond the threshold", found, truth, conservative=True)

    def bounds(m, o):
        low, high = roc.tpr_bounds(Scores.from_groups(member=m, outsider=o), fpr=0.01)
        return Estimate(low, low, high, n=len(m))

    for n in (1, 30):
        found = each(bounds, gaussian(40, shift=2), gaussian(n))
        yield Row(roc.tpr_bounds, f"{n} outsiders at 0.01", found, tail(quantile(0.01), shift=2), conservative=True)


def of_sequences(ranks):
    """The shares of networks, place by place, whose ranks are given sequence by sequence."""
    return list(torch.tensor(ranks, dtype=DTYPE).T)


def networks():
    for n, chance, points in ((2, 0.5, 20), (10, 0.98, 20), (10, 0.02, 100), (3, 0.9, 5)):

        def shares(generator, times, n=n, chance=chance, points=points):
            return binary(generator, times, n, points, chance=chance).mean(-1)

        found = each(network_intervals.share_interval, shares, points=points)
        yield Row(
            network_intervals.share_interval,
            f"{n} networks, {points} points at {chance}",
            found,
            chance,
            conservative=True,
        )
    found = each(
        network_intervals.share_interval, lambda g, times: torch.rand(times, 20, generator=g, dtype=DTYPE), points=1000
    )
    yield Row(network_intervals.share_interval, "networks that differ", found, 0.5)
    answers = lambda generator, times: normal(generator, times, 5, 20)  # noqa: E731
    truth = 2 * tail(1.0)
    yield Row(
        network_intervals.share_above_interval,
        "normal answers",
        each(network_intervals.share_above_interval, answers, level=1.0),
        truth,
        conservative=True,
    )
    for n, spread in ((2, 0.1), (8, 0.1), (10, 0.25), (10, 0.01)):
        found = each(network_intervals.variation_coefficient, gaussian(n, shift=1, spread=spread))
        yield Row(network_intervals.variation_coefficient, f"{n} values, {spread}", found, spread)
    for places, n, slope in ((2, 2, 1.0), (3, 3, 1.0), (2, 10, 0.3), (3, 5, 1.0)):
        known = functools.cache(
            lambda ranks: network_intervals.rank_correlation(range(len(ranks[0])), of_sequences(ranks))
        )

        def correlation(shares, known=known):
            return known(tuple(sorted(map(tuple, shares.argsort(0).argsort(0).T.tolist()))))

        def sequences(generator, times, places=places, n=n, slope=slope):
            return normal(generator, times, places, n) + slope * torch.arange(places).unsqueeze(-1)

        truth = _expected_rank_correlation(sequences(stream(1, "truth"), 20_000)[..., 0])
        case = f"{places} places, {n} networks, slope {slope}"
        yield Row(network_intervals.rank_correlation, case, each(correlation, sequences), truth, conservative=True)
    dimensions = [100, 1000, 10_000]
    for n, spread in ((2, 0.2), (5, 0.2), (10, 0.5), (50, 0.2)):

        def ratios(generator, times, n=n, spread=spread):
            scale = torch.tensor(dimensions, dtype=DTYPE).pow(-0.5).unsqueeze(-1)
            return scale * normal(generator, times, 3, n, spread=spread).exp()

        found = each(theorem_bounds.ratio_exponent, ratios, dimensions=dimensions)
        yield Row(theorem_bounds.ratio_exponent, f"{n} runs, {spread}", found, -0.5, conservative=True)
    asked = {"rows": 4, "dimension": 400}
    sample = theorem_bounds.stage_probability("gaussian", "den > 0", **asked, runs=20_000, generator=stream(1, "truth"))

    def stages(generator, times):
        for _ in range(times):
            yield theorem_bounds.stage_probability("gaussian", "den > 0", **asked, runs=25, generator=generator)

    yield Row(theorem_bounds.stage_probability, "25 runs", stages, sample.estimate, conservative=True)


def _expected_rank_correlation(values):
    ranks = values.argsort(-1).argsort(-1).to(DTYPE)
    places = torch.arange(values.shape[-1], dtype=DTYPE) - (values.shape[-1] - 1) / 2
    return float((ranks @ places).mean() / places.square().sum())


def rounds():
    for n in (2, 4):
        first, second = (lambda g, times, n=n, s=s: normal(g, times, n, spread=s).exp() for s in (1, 0.5))
        yield Row(games.geometric_mean_ratio, f"{n} rounds", each(games.geometric_mean_ratio, first, second), 1)
        x = (1.0, 3.0, 10.0)

        def powers(generator, times, n=n, x=x):
            return torch.tensor(x, dtype=DTYPE).pow(-0.5).unsqueeze(-1) * normal(generator, times, 3, n).exp()

        yield Row(games.fitted_exponent, f"{n} rounds", each(functools.partial(games.fitted_exponent, x), powers), -0.5)
    for n, lattice in ((3, 0), (12, 0), (25, 0), (12, 1)):
        found = each(estimates.median_interval, gaussian(n, lattice=lattice))
        yield Row(estimates.median_interval, f"{n} rounds, steps of {lattice}", found, 0, conservative=True)


def pools_and_models():
    found = each(estimates.mean_of_groups, lambda g, times: normal(g, times, 6, 1) + normal(g, times, 6, 4))
    yield Row(estimates.mean_of_groups, "six pools of four models", found, 0)

    def gain(shifts):
        error = torch.tensor([[0.3, 0.2]], dtype=DTYPE).mT.unsqueeze(-1).expand(2, len(shifts), 1)
        advantage = torch.tensor([[0.1, 0.3]], dtype=DTYPE).mT.unsqueeze(-1).expand(2, len(shifts), 1)
        moved = error - shifts.view(1, -1, 1)
        return private_training.error_gain_at_advantage((error, advantage), (moved, advantage), at_most=0.2)

    found = each(gain, gaussian(6, shift=0.05, spread=0.01))
    yield Row(private_training.error_gain_at_advantage, "six pools", found, 0.05)
    found = each(statistics.geometric_mean, gaussian(5))
    yield Row(statistics.geometric_mean, "five models", found, 1)

    def contrast(speeds):
        motion = Motion(*[speeds] * 5)
        return clusters_2d.last_to_first_ratios("speed", motions={"late": motion})["late"]

    found = each(contrast, lambda g, times: normal(g, times, 12, 3).exp())
    yield Row(clusters_2d.last_to_first_ratios, "twelve models", found, 1, conservative=True)

    def shares(cells):
        return theorems.CellCounts(cells.round().long(), 20).ratio

    found = each(shares, gaussian(10, shift=200, spread=30))
    yield Row(theorems.CellCounts.ratio.fget, "ten networks", found, 1)


def laws():
    points, trials, shift = 1, 12, 0.3
    one = torch.ones(points, dtype=DTYPE)
    law = OutputLaw(one, 2 * one, one, one)
    labels = torch.tensor([1.0], dtype=DTYPE)
    at = Points(torch.zeros(points, 1), torch.zeros(points, 1), one, 0.5 * one, labels)

    def distances(noise):
        without, member = 0.5 + 2 * noise
        refits = prox(member, law.gamma.unsqueeze(-1).expand_as(member), labels.unsqueeze(-1))
        found = logistic_models.law_distances(PointOutputs(without + 2 * shift, refits, refits, refits), at, law)
        return [*found.without, *found.refits]

    found = each(distances, lambda g, times: normal(g, times, 2, points, trials))
    truth = [2 * float(stats.norm.cdf(shift / 2)) - 1] * points + [0.0] * points
    yield Row(logistic_models.law_distances, "both laws at once", found, truth, conservative=True)


def privacy():
    """Answers that tell the truth with the chance that ε allows, and no more."""
    truth, chance = math.log(3), 0.75

    def ends(bound):
        return Estimate(bound.epsilon, bound.epsilon, math.inf, n=bound.guesses)

    found = of_counts(lambda *pairs: ends(audit.of_trials(*pairs, delta=0.0)), coins(60, 0.75), coins(80, 0.25))
    yield Row(audit.of_trials, "60 and 80 trainings", found, truth, conservative=True)

    def run(told, coin):
        member = coin == 1
        scores = torch.where(told == 1, member, ~member).to(DTYPE)
        order = torch.argsort(scores, descending=True)
        return ends(epsilon_bounds.one_run(scores[order], member[order], guesses=[(20, 20), (5, 5)], delta=0.0))

    yield Row(
        epsilon_bounds.one_run, "40 coins", each(run, coins(40, chance), coins(40, 0.5)), truth, conservative=True
    )

    def run_noisy(noise, coin):
        member = coin == 1
        return ends(epsilon_bounds.one_run(member + noise, member, guesses=[(15, 15)], delta=1e-3, gaussian=True))

    yield Row(
        epsilon_bounds.one_run,
        "60 coins with Gaussian noise",
        each(run_noisy, lambda generator, times: normal(generator, times, 60), coins(60, 0.5)),
        gaussian_mechanism.epsilon(1.0, 1e-3),
        conservative=True,
    )


TABLE = [
    *proportions(),
    *means(),
    *fixed_thresholds(),
    *curves(),
    *rates_at_few_alarms(),
    *networks(),
    *rounds(),
    *pools_and_models(),
    *laws(),
    *privacy(),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.of.__name__}: {row.case}")
def test_an_interval_covers_as_often_as_it_says(row):
    times = 400 if row.conservative else 1200
    truths = row.truth if isinstance(row.truth, list) else [row.truth]
    met = 0
    for found in row.measured(stream(0, f"{row.name}/{row.case}"), times):
        ends = found if isinstance(found, list) else [found]
        # Rounding, where a truth lies on an end.
        met += all(e.low - 1e-12 <= t <= e.high + 1e-12 for e, t in zip(ends, truths, strict=True))
    assert 0.93 <= met / times <= (1 if row.conservative else 0.99)


def test_an_interval_that_covers_more_says_so():
    silent = {row.name for row in TABLE if row.conservative and "conservative" not in (row.of.__doc__ or "")}
    assert not silent


def test_every_function_with_an_interval_is_in_the_table():
    assert _with_intervals() == {row.name for row in TABLE} - {"leakage.metrics.roc.tpr_bounds"} | OTHERWISE.keys()


def _with_intervals() -> set[str]:
    """The public functions, methods and properties whose annotation says that they return estimates."""
    trees = {path: ast.parse(path.read_text("utf-8")).body for path in LIBRARY.rglob("*.py")}
    holders = {"Estimate", "Bound"}
    for node in (node for tree in trees.values() for node in tree if isinstance(node, ast.ClassDef)):
        fields = [part.annotation for part in node.body if isinstance(part, ast.AnnAssign)]
        holders |= {node.name for field in fields if "Estimate" in _names(field)}
    found = set()
    for path, tree in trees.items():
        module = ".".join(path.relative_to(LIBRARY).with_suffix("").parts)
        owners = [("", tree), *((f"{node.name}.", node.body) for node in tree if isinstance(node, ast.ClassDef))]
        for prefix, body in owners:
            for node in body:
                public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
                if public and node.returns and _names(node.returns) & holders:
                    found.add(f"{module}.{prefix}{node.name}")
    return found


def _names(annotation: ast.expr) -> set[str]:
    nodes = list(ast.walk(annotation))
    return {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
