r"""Run membership attacks against trained models, and judge them all alike: rates, and intervals of two kinds.

`evaluate(models)` runs the attacks of `membership.table.ATTACKS`, or yours, against every target. What the
models do not offer to an attack (weights of a forest, enough shadow models) is named in `missing` and raises no error.

What is measured of each target are `METRICS`, and `tpr@F`, the true positive rate at a false positive rate F. Means
over targets have intervals of one of two kinds:

`interval="rows"`: for *these rows*. Other models trained on other parts of the same rows would give other means.
    With a single target, the interval is over its rows (`metrics.roc`). The targets are not independent, since each is
    a shadow model of the others: the plain error of a mean is up to $\sqrt 2$ too small where nothing leaks. So with
    $\hat\theta_{(k)}$ measured again without the k-th of g groups of models, neither as targets nor as shadow models,

    $$ \widehat{\text{se}}^2 = \frac{g - 1}{g} \sum_{k=1}^{g} \big(\hat\theta_{(k)} - \bar\theta\big)^2 $$

    or the plain error where that is larger, with Student's t (the jackknife; it is conservative: B. Efron, C. Stein,
    1981, Annals of Statistics 9). Where there are too few models to leave any out, or all have the same number, the
    lower end is that of all targets as one sample (`pooled_estimate`), and the upper end the mean of the single
    targets' upper ends, which is wider. Where all were trained on the same points, both ends are means of the single
    targets' ends, for other points: leaving out models would not show how much it matters which points are members.
    An audit of somebody's rows uses this kind.

`interval="population"`: for *rows such as these*. Other models on other rows of the same law would give other means.

    $$ \bar c \pm t_\nu \sqrt{V_1 + V_2}, \qquad \nu = (V_1 + V_2)^2 / (V_1^2/\nu_1 + V_2^2/\nu_2), $$

    where $V_1$ is the variance of the mean over models, or over complementary pairs, the two of which count as one, and
    $V_2$ that over points, by leaving out one of 20 groups after the other. Variation shared by models and points is
    counted twice, so the interval is conservative. Where neither varies, both ends are means of the single targets'
    ends. A comparison of attacks uses this kind.

Check (32 models, 60 rows, 120 repetitions): the `rows` interval of the AUC, 0.05 wide, covered new trainings always and
new rows in 85 %; the `population` interval, 0.07 wide, covered new rows in 96 %.

Where points belong to units (`TrainedModels.units`), such as the visits of a patient, each attack scores points, and
the mean score of a unit's points is what is measured: members, outsiders, rates and intervals are of units.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from scipy import special
from torch import Tensor
from tqdm import tqdm

from leakage import arguments
from leakage.membership import loss_threshold
from leakage.membership.table import ATTACKS, Attack, own_attack
from leakage.membership.trained_models import NotAvailable, TrainedModels
from leakage.metrics import roc
from leakage.metrics.estimates import Estimate, newcombe_interval, smallest_count
from leakage.metrics.scores import FPRS, Scores, reaches, reaches_mean
from leakage.threads import map_threads

METRICS = ("auc", "advantage")
"""What is measured of each target, beside `tpr@F`."""
Means = Mapping[str, Float64[Tensor, " metrics"]]
"""For each attack, the metrics averaged over targets; empty if no target is left."""
_GROUPS_OF_POINTS = 20
_MOST_GROUPS, _LEAST_GROUPS = 10, 3  # of models
_CURVE_POINTS = 24  # rates of a curve
_LAST_RATE = 0.98  # of these: at 1 nothing is measured
_NUMBERS_RANKED_AT_ONCE = 2**18  # scores that are ranked at once: memory for many rows, speed for few
_MOST_OF_A_KIND = 2**20  # members, or outsiders: with more, perfect scores show no less than 0.99999
_MEAN_ROUNDING = 1e-12  # a smaller error of a mean of rates is that of floating-point sums
_PROGRESS = {"disable": None, "delay": 2, "leave": False}  # a bar on a terminal, where it takes seconds


def tpr_name(fpr: float) -> str:
    """The name of the true positive rate at a false positive rate."""
    return f"tpr@{float(fpr)!r}"


def canonical_metric(metric: str) -> str:
    """A metric in one way of writing it: one of `METRICS`, or `tpr@F` with F in (0, 1)."""
    if metric in METRICS:
        return metric
    rate = re.fullmatch(r"tpr@([0-9]*\.?[0-9]+(?:e-?[0-9]{1,3})?)", metric) if isinstance(metric, str) else None
    if not rate or not 0 < float(rate[1]) < 1:
        raise ValueError(
            f"`metric` must be one of {', '.join(METRICS)} or tpr@F with F in (0, 1), such as tpr@0.01; "
            f"got {arguments.shown(metric)}."
        )
    return tpr_name(float(rate[1]))


def is_resolvable(fpr: float, outsiders: int) -> bool:
    """Whether `fpr` allows at least one false alarm among so many outsiders."""
    return int(outsiders * fpr * (1 + 1e-12)) >= 1


def curve_fprs(outsiders: int) -> list[float]:
    """The rates at which a ROC curve is drawn, from the least that so many outsiders can show."""
    return np.geomspace(1 / outsiders, max(_LAST_RATE, 1 / outsiders), _CURVE_POINTS).tolist()


def fewest_outsiders(models: TrainedModels) -> int:
    """The outsiders of the target that has fewest."""
    return int((~models.target_member).sum(1, dtype=torch.int32).min())


class AttackResult(NamedTuple):
    """What one attack achieves against each target.

    Attributes:
        scores: larger for likelier members; None where the models do not offer what the attack needs.
        flagged: points whose score is above 0, for signed scores; else reaches the best threshold on the shadow models;
            without these, or where the attack scores targets only, the mean score of the target's members, which an
            attacker does not know.
        rates: by metric, one number a target.
        missing: what the models or the sample do not offer, in words.
    """

    attack: Attack
    scores: Float64[Tensor, "targets points"] | None
    flagged: Bool[Tensor, "targets points"] | None
    rates: Mapping[str, Float64[Tensor, " targets"]]
    missing: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every attack on the same models, so that differences are paired."""

    models: TrainedModels
    results: Mapping[str, AttackResult]
    generator: torch.Generator
    _errors: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # of the jackknife, by metric
    _left_out: dict[str, dict[str, Tensor] | None] = field(default_factory=dict, repr=False)  # rates, by attack

    def interval(
        self,
        name: str,
        metric: str = "auc",
        *,
        over: str | None = None,
        interval: Literal["rows", "population"] = "population",
        level: float = 0.95,
    ) -> Estimate:
        """A metric of one attack, mean over targets, or how much larger it is than that of another attack (`over`).

        See the top of this module for the two kinds of interval; differences have the kind `population` only.
        """
        metric = canonical_metric(metric)
        if arguments.check_choice("interval", interval, ("rows", "population")) == "rows":
            if over is not None:
                raise ValueError("a difference of attacks (`over`) has an interval for `population` only.")
            return self._rows_interval(name, metric, arguments.check_number("level", level, above=0, below=1))
        return self.contrast({name: 1.0} if over is None else {name: 1.0, over: -1.0}, metric, level=level)

    def contrast(self, weights: Mapping[str, float], metric: str = "auc", *, level: float = 0.95) -> Estimate:
        r"""A weighted sum of a metric of several attacks, $\bar c = \sum_a w_a \bar r_a$; a `population` interval."""
        arguments.check_number("level", level, above=0, below=1)
        metric = canonical_metric(metric)
        values = _weighted_sum(weights, {name: self._rate(name, metric) for name in weights})
        partner = self.models.partner
        if partner is not None and self.models.targets is None:  # partners count as one
            first = partner > torch.arange(len(partner), device=partner.device)
            values = (values + values[partner])[first] / 2
        least, most = (-math.inf, math.inf) if len(weights) > 1 else (-1.0 if metric == "advantage" else 0.0, 1.0)
        each = {name: self._without_points(name, metric) for name in weights}
        without_points = {name: rates for name, rates in each.items() if rates is not None}
        known = len(without_points) == len(weights)
        group_means = _weighted_sum(weights, without_points).mean(-1) if known else values
        if len(values) < 2:  # how much models vary is unknown
            return Estimate(float(values.mean()), least, most, n=len(values), level=level)
        variances = float(values.var() / len(values)), float(group_means.var(correction=0) * (len(group_means) - 1))
        total, middle = sum(variances), float(values.mean())
        if known and math.sqrt(total) < _MEAN_ROUNDING and len(weights) == 1:
            return self._mean_of_targets(next(iter(weights)), metric, level)
        nu = total**2 / max(variances[0] ** 2 / (len(values) - 1) + variances[1] ** 2 / (len(group_means) - 1), 1e-300)
        half = float(special.stdtrit(nu, (1 + level) / 2)) * math.sqrt(total) if total > 0 else 0.0
        half = half if known else math.inf
        return Estimate(middle, max(middle - half, least), min(middle + half, most), n=len(values), level=level)

    def __str__(self) -> str:
        """A table: a line for each attack."""
        lines = []
        for name, result in self.results.items():
            found = "  ".join(f"{metric} {self.interval(name, metric)}" for metric in result.rates)
            lines.append(f"{name:<26}{result.attack.sees:<11}{'  '.join(filter(None, [found, result.missing]))}")
        return "\n".join(lines)

    @cached_property
    def different_targets(self) -> list[int]:
        """One target for each distinct training set."""
        return sorted(np.unique(self.models.target_member.cpu().numpy(), axis=0, return_index=True)[1].tolist())

    def standard_errors(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Jackknife errors of the means over targets, by attack and metric; empty where they cannot be had."""
        unmeasured = [metric for metric in metrics if metric not in self._errors]
        if unmeasured:
            errors = self._jackknife(unmeasured)
            self._errors.update({metric: {name: own[metric] for name, own in errors.items()} for metric in unmeasured})
        names = self._errors[metrics[0]] if metrics else ()
        return {name: {metric: self._errors[metric][name] for metric in metrics} for name in names}

    def _jackknife(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        groups = model_groups(self.models)
        if len(self.models.target_numbers) < 2 or len(groups) < _LEAST_GROUPS:
            return {}
        attacks = {name: result.attack for name, result in self.results.items() if result.scores is not None}
        parts = (measure_without(self.models, group, attacks, metrics, self.generator) for group in groups)
        each = list(tqdm(parts, "Intervals", len(groups), unit="group", **_PROGRESS))
        if not all(each):
            return {}
        errors = {}
        for name in attacks:
            if all(name in means for means in each):  # an attack may need all models
                spread = (torch.stack([means[name] for means in each]).var(0, correction=0) * (len(groups) - 1)).sqrt()
                errors[name] = dict(zip(metrics, spread.tolist(), strict=True))
        return errors

    def _rows_interval(self, name: str, metric: str, level: float) -> Estimate:
        targets = range(len(self.models.target_numbers))
        values = self._rate(name, metric)
        if len(targets) == 1:
            return self._pool(name, metric, [0], level)
        known = self.standard_errors([metric]).get(name)
        error = max(float(values.std()) / math.sqrt(len(targets)), known[metric] if known else 0.0)
        if len(self.different_targets) == 1:
            return self._mean_of_targets(name, metric, level)
        if known is None or error < _MEAN_ROUNDING:
            single = self._mean_of_targets(name, metric, level)
            low = self._pool(name, metric, self.different_targets, level).low
            return replace(single, low=min(low, single.estimate))
        groups, mean = len(model_groups(self.models)), float(values.mean())
        half = error * float(special.stdtrit(groups - 1, (1 + level) / 2))
        least = -1.0 if metric == "advantage" else 0.0
        return Estimate(mean, max(mean - half, least), min(mean + half, 1.0), n=groups, level=level)

    def _mean_of_targets(self, name: str, metric: str, level: float) -> Estimate:
        """The means of the single targets' numbers and ends."""
        targets = range(len(self.models.target_numbers))
        return mean_estimate([self._pool(name, metric, [target], level) for target in targets], level=level)

    def _pool(self, name: str, metric: str, targets: Sequence[int], level: float) -> Estimate:
        scores, flagged = self.scores(name), self.results[name].flagged
        assert flagged is not None  # an attack with scores has flags
        member = self.models.target_member[targets]
        return pooled_estimate(scores[targets], flagged[targets], member, metric, level=level)

    def scores(self, name: str) -> Float64[Tensor, "targets points"]:
        """The scores of an attack that was run, and whose needs the models meet."""
        scores = self.results[arguments.check_choice("name", name, self.results)].scores
        if scores is None:
            raise ValueError(f"`{name}` has no scores: it {self.results[name].missing}.")
        return scores

    def _rate(self, name: str, metric: str) -> Float64[Tensor, " targets"]:
        """A rate of each target; one at another false positive rate is measured now."""
        scores, result = self.scores(name), self.results[name]
        if metric not in result.rates and metric.startswith("tpr@"):
            fpr, outsiders = fpr_of(metric), fewest_outsiders(self.models)
            if not is_resolvable(fpr, outsiders):
                needed = math.ceil(1 / fpr - 1e-9)
                raise ValueError(f"{metric} needs {needed:,} or more outsiders; there are {outsiders:,}.")
            return measure(scores, result.flagged, self.models.target_member, [metric])[metric]
        return result.rates[arguments.check_choice("metric", metric, result.rates)]

    def _without_points(self, name: str, metric: str) -> Float64[Tensor, "groups targets"] | None:
        """The rates with a group of points left out; None where too few would be left."""
        if name not in self._left_out:
            self._left_out[name] = self._measure_without_points(name, [*self.results[name].rates])
        rates = self._left_out[name]
        if rates is not None and metric not in rates:
            rates |= self._measure_without_points(name, [metric]) or {}
        return None if rates is None else rates[metric]

    def _measure_without_points(
        self, name: str, metrics: Sequence[str]
    ) -> dict[str, Float64[Tensor, "groups targets"]] | None:
        scores, flagged, member = self.scores(name), self.results[name].flagged, self.models.target_member
        assert flagged is not None  # an attack with scores has flags
        points = torch.arange(member.shape[1], device=member.device)
        groups = min(_GROUPS_OF_POINTS, len(points) // 2)
        fewest = min(int(member.sum(1).min()), int((~member).sum(1).min()))
        if groups < 2 or fewest <= -(-len(points) // groups):
            return None
        kept = [points[points % groups != group] for group in range(groups)]
        each = [measure(scores[:, own], flagged[:, own], member[:, own], metrics) for own in kept]
        return {metric: torch.stack([rates[metric] for rates in each]) for metric in metrics}


def evaluate(
    models: TrainedModels,
    attacks: Sequence[str] | Mapping[str, Attack | Callable[[TrainedModels], Tensor]] = tuple(ATTACKS),
    *,
    fprs: Sequence[float] = FPRS,
    generator: torch.Generator | None = None,
) -> Evaluation:
    """Run attacks against every target and judge them alike.

    Args:
        models: models, points and who was trained on what.
        attacks: names in `ATTACKS`; or attacks of your own by name, each an `Attack` or a function of the models, or
            of models and generator; in one line: `evaluate(models, {"mine": lambda models: -models.losses})`.
        fprs: false positive rates at which true positive rates are measured, where the outsiders can show them.
        generator: of the attacks that draw; by default one of the CPU with seed 0.
    """
    if not isinstance(attacks, Mapping):
        attacks = {arguments.check_choice("attacks", name, ATTACKS): ATTACKS[name] for name in attacks}
    generator = generator or torch.Generator().manual_seed(0)
    own = {name: own_attack(name, one) for name, one in attacks.items()}
    each = tqdm(own.items(), "Attacks", unit="attack", **_PROGRESS)
    results = {name: _run(models, name, attack, fprs, generator) for name, attack in each}
    return Evaluation(models, results, generator)


def _run(
    models: TrainedModels, name: str, attack: Attack, fprs: Sequence[float], generator: torch.Generator
) -> AttackResult:
    try:
        scores, flagged = scores_and_flags(models, name, attack, generator)
    except NotAvailable as reason:
        return AttackResult(attack, None, None, {}, str(reason))
    member = models.target_member
    outsiders = fewest_outsiders(models)
    shown = [fpr for fpr in fprs if is_resolvable(fpr, outsiders)]
    rates = measure(scores, flagged, member, [*METRICS, *map(tpr_name, shown)])
    not_shown = [f"TPR at {fpr:g} needs ≥ {math.ceil(1 / fpr - 1e-9):,} outsiders" for fpr in fprs if fpr not in shown]
    return AttackResult(attack, scores, flagged, rates, "; ".join(not_shown))


def scores_and_flags(
    models: TrainedModels, name: str, attack: Attack, generator: torch.Generator
) -> tuple[Float64[Tensor, "targets points"], Bool[Tensor, "targets points"]]:
    """The scores of an attack for every target and unit, and whom it calls a member."""
    targets, (count, points) = len(models.target_numbers), models.member.shape
    found = attack.score(models, generator)
    of_every_model = isinstance(found, Tensor) and found.shape == (count, points)
    scores = models.select_targets(found) if of_every_model else found
    arguments.check_real(f"scores of {name}", scores, "targets points", targets=targets, points=points)
    scores = models.average_units(scores.double())
    if attack.signed:
        return scores, scores > 0
    if of_every_model and models.shadow_support.both:
        return scores, reaches(scores, -_shadow_thresholds(models, -models.average_units(found)))
    return scores, reaches_mean(scores, models.target_member)


def _shadow_thresholds(models: TrainedModels, losses: Float[Tensor, "models points"]) -> Float64[Tensor, " targets"]:
    """The thresholds that are best on each target's shadow models."""
    find = loss_threshold.global_thresholds
    if models.targets is None:
        return find(losses, models.unit_member, models.partner)
    return torch.cat([find(losses, models.unit_member, models.partner, target=target) for target in models.targets])


def measure(
    scores: Float64[Tensor, "targets points"],
    flagged: Bool[Tensor, "targets points"] | None,
    member: Bool[Tensor, "targets points"],
    metrics: Sequence[str],
) -> dict[str, Float64[Tensor, " targets"]]:
    """The metrics of each target."""
    rows = max(1, _NUMBERS_RANKED_AT_ONCE // scores.shape[1])
    # After points are left out, one false alarm is always allowed.
    fewest = int((~member).sum(1, dtype=torch.int32).min())
    fprs = {metric: max(fpr_of(metric), 1 / fewest) for metric in metrics if metric not in METRICS}

    def rank(part: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        ranked = Scores.from_mask(part[0], member=part[1])
        found = {"auc": ranked.auc()} if "auc" in metrics else {}
        if fprs:
            found |= dict(zip(fprs, ranked.tpr_at_fprs([*fprs.values()]).unbind(-1), strict=True))
        return found

    parts = map_threads(rank, zip(scores.split(rows), member.split(rows), strict=True))
    rates = {metric: torch.cat([part[metric] for part in parts]) for metric in parts[0]}
    if "advantage" in metrics and flagged is not None:
        count = partial(torch.sum, dim=1, dtype=torch.int32)  # sums of truth values to int64 take ten times as long
        hits, alarms = (count(flagged & kind) / count(kind).double() for kind in (member, ~member))
        rates["advantage"] = hits - alarms
    return {metric: rates[metric] for metric in metrics}


def fpr_of(metric: str) -> float:
    """The false positive rate F of `tpr@F`."""
    return float(metric.removeprefix("tpr@"))


def pooled_estimate(
    scores: Float64[Tensor, "targets points"],
    flagged: Bool[Tensor, "targets points"],
    member: Bool[Tensor, "targets points"],
    metric: str,
    *,
    level: float,
) -> Estimate:
    """A metric of all targets pooled into one sample with one threshold.

    Where nothing leaks, the interval holds: given the points and their scores, each target drew its members anew, so
    that a point of two targets counts as two. So targets must differ in their members (`different_targets`). Of models
    in complementary pairs it is wider than it needs to be. It ignores the variation between trainings.
    """
    kinds = {"member": scores[member], "outsider": scores[~member]}
    if metric == "auc":
        return roc.auc(**kinds, level=level)
    if metric == "advantage":
        counts = [(int(flagged[kind].sum()), int(kind.sum())) for kind in (member, ~member)]
        return newcombe_interval(*counts, level=level)
    return roc.tpr_at_fpr(**kinds, fpr=fpr_of(metric), level=level)


def attainable(metric: str, *, members: int, outsiders: int, level: float) -> float:
    """The lower end of the interval of perfectly separated scores; 0 where the outsiders cannot show the rate."""
    if metric not in METRICS and not is_resolvable(fpr_of(metric), outsiders):
        return 0.0
    counts = (min(members, _MOST_OF_A_KIND), min(outsiders, _MOST_OF_A_KIND))
    member = torch.arange(sum(counts)).unsqueeze(0) < counts[0]
    return pooled_estimate(member.double(), member, member, metric, level=level).low


def outsiders_needed(metric: str, bar: float, *, level: float) -> str:
    """With how many outsiders, and as many members, perfectly separated scores exceed the bar; in words."""

    def suffices(count: int) -> bool:
        return attainable(metric, members=count, outsiders=count, level=level) > bar

    needed = smallest_count(suffices, most=_MOST_OF_A_KIND)
    return f"{needed:,}" if needed else f"more than {_MOST_OF_A_KIND:,}"


def model_groups(models: TrainedModels) -> list[list[int]]:
    """The models in ten groups at most, partners together, for the jackknife."""
    if models.partner is None:
        units = [[model] for model in range(len(models.member))]
    else:
        units = [[model, other] for model, other in enumerate(models.partner.tolist()) if model < other]
    count = min(len(units), _MOST_GROUPS)
    return [[model for unit in units[first::count] for model in unit] for first in range(count)]


def measure_without(
    models: TrainedModels,
    group: Sequence[int],
    attacks: Mapping[str, Attack],
    metrics: Sequence[str],
    generator: torch.Generator | None = None,
) -> Means:
    """The means over the targets that are left without a group of models; of the attacks that these still allow."""
    rest, means = models.leave_out(group), {}
    for name, attack in attacks.items() if rest.target_numbers else ():
        try:
            scores, flagged = scores_and_flags(rest, name, attack, generator or torch.Generator().manual_seed(0))
        except NotAvailable:
            continue
        rates = measure(scores, flagged, rest.target_member, metrics)
        means[name] = torch.stack([rates[metric].mean() for metric in metrics])
    return means


def mean_estimate(estimates: Sequence[Estimate], *, level: float) -> Estimate:
    """The means of estimates and of their ends."""
    middle, low, high = (
        math.fsum(getattr(one, name) for one in estimates) / len(estimates) for name in ("estimate", "low", "high")
    )
    return Estimate(middle, low, high, n=len(estimates), level=level)


def _weighted_sum(weights: Mapping[str, float], rates: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([weight * rates[name] for name, weight in weights.items()]).sum(0)
