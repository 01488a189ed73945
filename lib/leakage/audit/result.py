"""The numbers of an audit: every attack, the rows most exposed, slices, and what gates say."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leakage import arguments
from leakage.audit.gates import SLICE, Gate, GateResult, LowerEnd, check_metric, judge_gate
from leakage.audit.notes import find_swapped_members
from leakage.membership.evaluation import (
    METRICS,
    Evaluation,
    attainable,
    fewest_outsiders,
    fpr_of,
    is_resolvable,
    outsiders_needed,
    pooled_estimate,
    tpr_name,
)
from leakage.metrics.estimates import Estimate
from leakage.metrics.scores import Scores, round_digits
from leakage.metrics.tables import NumberTable

_UNKNOWN = Estimate(0.0, 0.0, 1.0, n=0)  # a rate that the outsiders are too few to show
_LEAST_IN_SLICE = 10  # fewest members and fewest outsiders of a slice that is measured, means over targets
_HEADLINE_FPR = 0.01
_LINE = 116  # characters of the usual table


class AttackSummary(NamedTuple):
    """What one attack achieves.

    Attributes:
        sees: what the attacker is given of each row.
        advantage: TPR - FPR at the attack's own threshold.
        tpr: true positive rate by false positive rate; None where the outsiders are too few to show it.
    """

    attack: str
    sees: str
    auc: Estimate
    advantage: Estimate
    tpr: Mapping[float, Estimate | None]


@dataclass(frozen=True, eq=False)
class AuditResult:
    """How much models reveal about the rows they were trained on; `Audit` adds the forms in which it can be saved.

    Attributes:
        labels, groups: of the rows, or of the units.
        notes: what the design cannot show, and reservations.
        warnings: the notes that say why the answer is likely to be wrong.
        units: the names of the units, such as patients, over which rows are averaged; None where each row is one.
        baseline: how well features alone tell members from outsiders, without a model; None if it was not measured.
    """

    evaluation: Evaluation = field(repr=False)
    fprs: tuple[float, ...]
    level: float
    labels: np.ndarray | None
    groups: np.ndarray | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    units: np.ndarray | None = None
    baseline: AttackSummary | None = None

    @cached_property
    def results(self) -> tuple[AttackSummary, ...]:
        """What each attack achieves that the design allows."""
        summaries = []
        for name, result in self.evaluation.results.items():
            if result.scores is not None:
                auc, advantage = self.interval(name, "auc"), self.interval(name, "advantage")
                resolvable = {fpr: is_resolvable(fpr, self.outsiders) for fpr in self.fprs}
                tpr = {fpr: self.interval(name, tpr_name(fpr)) if able else None for fpr, able in resolvable.items()}
                summaries.append(AttackSummary(name, result.attack.sees, auc, advantage, tpr))
        return tuple(summaries)

    @cached_property
    def headline(self) -> str:
        """The metric by which attacks are compared: TPR at the rate of `fprs` nearest to 1 %.

        It is `auc` where at that rate not even perfect scores would show a TPR above that of guessing.
        """
        fpr = min(self.fprs, key=lambda rate: abs(rate - _HEADLINE_FPR), default=None)
        if fpr is None or not is_resolvable(fpr, self.outsiders):
            return "auc"
        metric = tpr_name(fpr)
        return metric if self.lower_end(metric).attainable > fpr else "auc"

    @cached_property
    def strongest(self) -> AttackSummary:
        """The attack with the largest corrected lower end of the `headline`; if equal, the largest estimate."""
        best = self.lower_end(self.headline).attack
        return next(row for row in self.results if row.attack == best)

    @property
    def targets(self) -> tuple[int, ...]:
        """The models that were attacked."""
        return self.evaluation.models.target_numbers

    @property
    def models(self) -> int:
        """How many models there are, shadow models included."""
        return len(self.evaluation.models.member)

    @property
    def member(self) -> np.ndarray:
        """Whether each target was trained on each row or unit, (targets, rows) or (targets, units)."""
        return self.evaluation.models.target_member.numpy()

    @property
    def scores(self) -> Mapping[str, np.ndarray]:
        """The scores of each attack, of the shape of `member`; larger for likelier members."""
        return {name: one.scores.numpy() for name, one in self.evaluation.results.items() if one.scores is not None}

    @property
    def outsiders(self) -> int:
        """The outsiders of the target that has fewest."""
        return fewest_outsiders(self.evaluation.models)

    def interval(self, attack: str, metric: str, *, level: float | None = None) -> Estimate:
        """A metric of an attack, `auc`, `advantage` or a resolvable `tpr@F`, for these rows: see `evaluation`."""
        return self.evaluation.interval(attack, metric, interval="rows", level=self.level if level is None else level)

    def table(self) -> NumberTable:
        """Every attack with its intervals, and the baseline; a dash where the outsiders are too few."""
        columns = ("attack", "sees", "AUC", "advantage", *(f"TPR at {100 * fpr:g} % FPR" for fpr in self.fprs))
        rows = (*self.results, *([self.baseline] if self.baseline else []))
        shown = ((row.attack, row.sees, row.auc, row.advantage, *row.tpr.values()) for row in rows)
        return NumberTable(columns, tuple(shown))

    def at_least(self, metric: str) -> float:
        """What the strongest attack achieves at least, at the level of this audit.

        It is the largest lower end among the attacks' intervals, each at the level 1 - (1 - level) / attacks: so the
        bound holds although the best of several attacks is taken (Bonferroni's correction). For `slice:METRIC` it is
        the largest among all attacks in all slices, each at the level 1 - (1 - level) / (attacks · slices).

        Args:
            metric: `auc`, `advantage` or `tpr@F`, with F in (0, 1); or one of them after `slice:`, within the worst
                slice: its members against its outsiders, as in `slices`.
        """
        return self.lower_end(metric).low

    def lower_end(self, metric: str) -> LowerEnd:
        """`at_least`, with the attack and the slice that reach it."""
        return max(self._lower_ends(metric))

    def judge(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        """Whether `at_least` exceeds the bar of each gate.

        It is an error if not even perfect scores could, or if the numbers cannot mean what they say: members have the
        larger losses, or a bar is on the advantage and no shadow models show at which threshold an attack flags.
        """
        models, loss = self.evaluation.models, self.interval("loss", "auc")
        if gates and (swapped := find_swapped_members(loss.low, loss.high, probabilities=models.probabilities)):
            raise ValueError(f"no bar is judged. {swapped[0]}")
        small = [f"{by} {name}" for by, name, inside in self._slices if self._is_small(inside)]
        levels = [self.corrected_level(gate.metric) for gate in gates]
        results = tuple(
            judge_gate(gate, self._lower_ends(gate.metric), level=level, small_slices=small)
            for gate, level in zip(gates, levels, strict=True)
        )
        passed = {one.metric.removeprefix(SLICE) for one in results if not one.failed}
        signed = all(one.attack.signed for one in self.evaluation.results.values() if one.scores is not None)
        if "advantage" in passed and not signed and not models.shadow_support.both:
            raise ValueError(
                "`advantage` depends on each attack's threshold, which is learnt on shadow models that were trained on "
                "a row and that were not; here are none, so bar auc or tpr@F."
            )
        return results

    def corrected_level(self, metric: str) -> float:
        """The level of each interval of a metric with which those of all attacks, in all slices, hold together."""
        return 1 - (1 - self.level) / (len(self.results) * len(self._parts(metric)))

    def _lower_ends(self, metric: str) -> list[LowerEnd]:
        """The lower end of every attack, on all rows or in every slice."""
        metric = check_metric(metric)
        level, name, ends = self.corrected_level(metric), metric.removeprefix(SLICE), []
        for part, inside in self._parts(metric):
            member = self._select_different_targets(self.evaluation.models.target_member)[:, inside]
            outsiders = int((~member).sum())
            perfect = attainable(name, members=int(member.sum()), outsiders=outsiders, level=level)
            for row in self.results:
                whole = None if part else self.interval(row.attack, name, level=level)
                found = whole or self._pool(row.attack, name, inside, level) or _UNKNOWN
                known = (found.low, found.estimate, row.attack, part, max(perfect, found.low), outsiders)
                ends.append(LowerEnd(*known, *(self._above_all(row.attack, inside) if part else ())))
        return ends

    def _parts(self, metric: str) -> list[tuple[str, Tensor]]:
        """The numbers of all rows, or of those of each slice that is large enough, with its name."""
        if not metric.startswith(SLICE):
            return [("", torch.arange(self.member.shape[1]))]
        parts = [(f"{by} {name}", inside) for by, name, inside in self._slices if not self._is_small(inside)]
        if not parts:
            raise ValueError(
                f"{metric} needs `labels` or `groups`, and {_LEAST_IN_SLICE} members and outsiders in one of them."
            )
        return parts

    def _select_different_targets(self, table: Tensor) -> Tensor:
        """The rows of a table for targets with different members."""
        return table[self.evaluation.different_targets]

    def _pool(self, attack: str, metric: str, inside: Tensor, level: float) -> Estimate | None:
        """A metric of an attack within a slice, over all targets; None where the outsiders cannot show it."""
        flagged = self.evaluation.results[attack].flagged
        assert flagged is not None  # an attack with scores has flags
        tables = (self.evaluation.scores(attack), flagged, self.evaluation.models.target_member)
        scores, flagged, member = (self._select_different_targets(table)[:, inside] for table in tables)
        if metric not in METRICS and not is_resolvable(fpr_of(metric), int((~member).sum())):
            return None
        return pooled_estimate(scores, flagged, member, metric, level=level)

    def _above_all(self, attack: str, inside: Tensor) -> tuple[float, float]:
        r"""The share k/m of the members above all o outsiders of a slice; its chance, $\binom mk / \binom{m+o}k$."""
        tables = (self.evaluation.scores(attack), self.evaluation.models.target_member)
        scores, member = (self._select_different_targets(table)[:, inside] for table in tables)
        (m, o), most = (int(kind.sum()) for kind in (member, ~member)), round_digits(scores[~member]).max()
        k = int((round_digits(scores[member]) > most).sum())
        return k / m, math.exp(_log_choose(m, k) - _log_choose(m + o, k))

    def explain_blind_rates(self) -> list[str]:
        """A note for each rate at which not even perfect scores would have a lower end above 0."""
        notes = []
        for metric in [tpr_name(fpr) for fpr in self.fprs if is_resolvable(fpr, self.outsiders)]:
            end, rate = self.lower_end(metric), f"{100 * fpr_of(metric):g} % FPR"
            if end.attainable <= 0:
                needed = outsiders_needed(metric, 0.0, level=self.corrected_level(metric))
                notes.append(
                    f"{end.outsiders:,} outsiders are too few to prove any TPR at {rate}: even perfect scores have the "
                    f"lower end 0. A bar on it cannot fail; it takes {needed} outsiders."
                )
        return notes

    def explain_small_slices(self) -> list[str]:
        """A note if most slices are too small to be measured, as those of numbers are."""
        small = sum(self._is_small(inside) for *_, inside in self._slices)
        if 2 * small <= len(self._slices):
            return []
        return [
            f"{small:,} of {len(self._slices):,} slices have fewer than {_LEAST_IN_SLICE} members or outsiders and are "
            "not measured: merge rare names, and cut numbers into bands."
        ]

    def exposed_rows(self, k: int = 20) -> NumberTable:
        """The k members most exposed to the strongest attack.

        `row`: its place, counted from 0, whatever the index of a data frame (`frame.iloc[row]`); `found`: of the
        targets trained on the row, the number for which the attack flags it at false positive rate `at FPR` (the
        smallest of `fprs` that the outsiders can show); `outranks`: the mean share of the outsiders whose score is
        lower. Rows are in order of found / (of models + 1), then of `outranks`.
        """
        k = arguments.check_count("k", k, least=1)
        scores, member, thresholds = self._strongest_scores()
        found, trained, outranks, score = (np.zeros(member.shape[1]) for _ in range(4))
        for own, members, threshold in zip(scores, member, thresholds, strict=True):
            outside = own[~members].sort().values
            found += ((own > threshold) & members).numpy()
            trained += members.numpy()
            outranks += (torch.searchsorted(outside, own).double() / len(outside) * members).numpy()
            score += (own * members).numpy()
        outranks, score = (total / trained.clip(1) for total in (outranks, score))
        share = found / (trained + 1)  # 9 of 10 is stronger evidence than 1 of 1
        rows = np.flatnonzero(trained)
        rows = rows[np.lexsort((rows, -score[rows], -outranks[rows], -share[rows]))][:k]
        rate = f"{100 * self.least_fpr:g} %"
        named = {"label": self.labels, "group": self.groups}
        named = {name: values for name, values in named.items() if values is not None}
        return NumberTable(
            ("row" if self.units is None else "unit", "found", "of models", "at FPR", "outranks", "score", *named),
            tuple(
                (
                    int(row) if self.units is None else str(self.units[row]),
                    *(int(found[row]), int(trained[row]), rate, float(outranks[row]), float(score[row])),
                    *(str(values[row]) for values in named.values()),
                )
                for row in rows
            ),
        )

    def slices(self) -> NumberTable:
        """AUC and TPR of the strongest attack within each label and group, over all targets.

        Members of the slice are compared with its own outsiders: in a slice that is easier than others, outsiders too
        look like members. TPR is at the rate of the `headline`, or else 1 %. All targets are one sample, which one
        threshold separates: see `membership.evaluation.pooled_estimate`. A slice that is too small has a dash
        and says so.
        """
        fpr = self.slice_fpr
        columns = ("by", "slice", "members", "outsiders", "AUC", f"TPR at {100 * fpr:g} % FPR", "note")
        rows = tuple((by, name, *self._measure_slice(inside, fpr)) for by, name, inside in self._slices)
        return NumberTable(columns, rows)

    @property
    def slice_fpr(self) -> float:
        """The rate at which `slices` gives TPR."""
        return _HEADLINE_FPR if self.headline == "auc" else fpr_of(self.headline)

    def _measure_slice(self, inside: Tensor, fpr: float) -> tuple[Any, ...]:
        """Members and outsiders, mean over targets, AUC, TPR and a note."""
        counts = [round(count) for count in self._mean_counts(inside)]
        if self._is_small(inside):
            return (*counts, None, None, f"too few: fewer than {_LEAST_IN_SLICE} members or outsiders")
        metrics = ("auc", tpr_name(fpr))
        auc, tpr = (self._pool(self.strongest.attack, metric, inside, self.level) for metric in metrics)
        return (*counts, auc, tpr, "" if tpr else f"too few outsiders for {100 * fpr:g} %")

    def _mean_counts(self, inside: Tensor) -> tuple[float, float]:
        """Members and outsiders of a slice, mean over targets."""
        members = float(self.evaluation.models.target_member[:, inside].sum(1).double().mean())
        return members, len(inside) - members

    def _is_small(self, inside: Tensor) -> bool:
        return min(self._mean_counts(inside)) < _LEAST_IN_SLICE

    @cached_property
    def _slices(self) -> list[tuple[str, str, Tensor]]:
        """Every label and group with the numbers of its rows."""
        found = []
        for by, values in (("label", self.labels), ("group", self.groups)):
            if values is not None:
                names, place = np.unique(values, return_inverse=True)
                rows = torch.from_numpy(place.ravel().argsort(kind="stable")).split(np.bincount(place.ravel()).tolist())
                found += [(by, str(name), own) for name, own in zip(names, rows, strict=True)]
        return found

    @property
    def least_fpr(self) -> float:
        """The smallest of `fprs` that the outsiders can show, or, if they can show none, the smallest rate they can."""
        outsiders = self.outsiders
        return min((fpr for fpr in self.fprs if is_resolvable(fpr, outsiders)), default=1 / outsiders)

    def _strongest_scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of the strongest attack, members, and each target's threshold at the least rate."""
        scores = self.evaluation.scores(self.strongest.attack)
        member, fpr = self.evaluation.models.target_member, self.least_fpr
        pairs = zip(scores, member, strict=True)
        cuts = torch.stack([Scores.from_mask(own, member=mask).threshold_at_fpr(fpr) for own, mask in pairs])
        return round_digits(scores), member, cuts

    def explain_worst_slice(self) -> list[str]:
        """The worst slice, by TPR if some slice can show it, else by AUC."""
        try:
            ends = {metric: self.lower_end(SLICE + metric) for metric in ("auc", self.headline)}
        except ValueError:  # there are no slices
            return []
        metric = self.headline if ends[self.headline].attainable > 0 else "auc"
        worst, every = ends[metric], self._lower_ends(SLICE + metric)
        if metric == "auc":
            found = f"reaches AUC {worst.estimate:.3f}, at least {worst.low:.3f}"
        else:
            rate, low = f"{100 * fpr_of(metric):g} % FPR", f"{100 * worst.low:.1f} %"
            found = f"finds {100 * worst.estimate:.1f} % of the members at {rate}, at least {low}"
        notes = [
            f"Worst slice: {worst.slice}, where {worst.attack} {found} after correction for all slices and attacks."
        ]
        small = [
            end for end in every if end.alone > worst.low and end.chance <= 1 - self.corrected_level(SLICE + metric)
        ]
        largest = max(small, key=lambda end: end.alone, default=worst)
        if largest.slice != worst.slice:
            notes.append(
                f"In the slice {largest.slice} {largest.attack} ranks {100 * largest.alone:.3g} % of the members above "
                f"all of the {largest.outsiders:,} outsiders, too few to prove more than {largest.low:.3f}."
            )
        return notes

    @cached_property
    def sentence(self) -> str:
        """What the strongest attack finds, and what the worst slice adds."""
        best, at_least = self.strongest, self.at_least(self.headline)
        models = f"{len(self.targets)} models" if len(self.targets) > 1 else "1 model"
        unit = "rows" if self.units is None else "units"
        start = f"On {models} of {self.member.shape[1]:,} {unit} the strongest attack, {best.attack},"
        correction = f"after correction for the best of {len(self.results)} attacks"
        if self.headline == "auc":
            found = f"reaches AUC {best.auc:.3f}, at least {at_least:.3f} {correction}."
        else:
            tpr = self.interval(best.attack, self.headline)
            found = (
                f"finds {100 * tpr.estimate:.1f} % [{100 * tpr.low:.1f}, {100 * tpr.high:.1f}] of the members at "
                f"{100 * fpr_of(self.headline):g} % FPR, at least {100 * at_least:.1f} % {correction}; its AUC is "
                f"{best.auc:.3f}."
            )
        return " ".join([start, found, *self.explain_worst_slice()])

    def __str__(self) -> str:
        """The result in a sentence, the table and the notes."""
        start = textwrap.fill(self.sentence, _LINE)
        return "\n".join([start, "", str(self.table()), "", *(f"* {note}" for note in self.notes)])

    __repr__ = __str__


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
