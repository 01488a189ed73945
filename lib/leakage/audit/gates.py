"""Bars that an audit must not pass: whether they can fail on a sample, and whether they do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leakage import arguments
from leakage.membership.evaluation import canonical_metric, outsiders_needed

SLICE = "slice:"
"""Before a metric: that of the worst slice."""


class LowerEnd(NamedTuple):
    """The lower end of an attack's interval, on all rows or in a slice, corrected for the choice of the best.

    Attributes:
        attack, slice: whose it is; of all rows the slice is empty.
        attainable: the largest end that scores could have there: that of perfectly separated ones.
        outsiders: how many there are, over all targets.
        alone: the share of the members that are above every outsider; TPR at any rate is at least this.
        chance: the probability that so many are, where nothing leaks.
    """

    low: float
    estimate: float
    attack: str
    slice: str
    attainable: float
    outsiders: int
    alone: float = 0.0
    chance: float = 1.0


@dataclass(frozen=True)
class Gate:
    """Fails an audit if the lower bound of an attack exceeds the bar.

    Attributes:
        metric: as `Audit.at_least` takes it: `auc`, `advantage` or `tpr@F`, or one of them after `slice:`.
        bar: the largest value that passes, in [0, 1).
    """

    metric: str
    bar: float

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if not 0 <= self.bar < 1:
            raise ValueError(
                f"the bar of {self.metric} must be at least 0 and below 1, such as 0.05 for 5 %, got "
                f"{arguments.shown(self.bar)}."
            )


@dataclass(frozen=True)
class GateResult:
    """What an audit says of a gate.

    Attributes:
        at_least: what the strongest attack achieves at least; see `Audit.at_least`.
        attainable: the largest such number that any scores could give on this sample.
        attack, slice: where `at_least` is reached.
        too_small: slices in which not even a total leak would fail the bar, or too small to be looked at.
    """

    metric: str
    bar: float
    at_least: float
    attainable: float
    failed: bool
    attack: str
    slice: str
    too_small: tuple[str, ...]

    def __str__(self) -> str:
        where = f" in the slice {self.slice}" * bool(self.slice)
        verb = "exceeds" if self.failed else "does not exceed"
        small = f" Too small to fail this bar: {', '.join(self.too_small)}." * bool(self.too_small)
        return (
            f"{self.metric} is at least {self.at_least:.4g} by {self.attack}{where} after correction for the best of "
            f"several, which {verb} {self.bar:g}.{small}"
        )


def check_metric(metric: str) -> str:
    """`membership.evaluation.canonical_metric`, perhaps after `slice:`."""
    prefix = SLICE if isinstance(metric, str) and metric.startswith(SLICE) else ""
    return prefix + canonical_metric(metric.removeprefix(prefix) if prefix else metric)


def judge_gate(gate: Gate, ends: Sequence[LowerEnd], *, level: float, small_slices: Sequence[str]) -> GateResult:
    """The result of a gate, from the lower ends of every attack, in every slice if the gate is for the worst."""
    worst, sliced = max(ends), gate.metric.startswith(SLICE)
    most = max(end.attainable for end in ends)
    if most <= gate.bar:
        outsiders = max(end.outsiders for end in ends)
        needed = outsiders_needed(check_metric(gate.metric).removeprefix(SLICE), gate.bar, level=level)
        raise ValueError(
            f"no attack could exceed {gate.metric}={gate.bar:g} on this sample: with {outsiders:,} outsiders"
            f"{' in the largest slice' * sliced} even perfect scores show no more than {most:.3g}. It takes {needed} "
            "outsiders, and as many members; or lower the bar, or choose a larger false positive rate."
        )
    doubtful = [end for end in ends if end.attainable <= gate.bar < end.alone and end.chance <= 1 - level]
    if doubtful and worst.low <= gate.bar:
        end = min(doubtful, key=lambda end: end.chance)
        raise ValueError(
            f"in the slice {end.slice} {end.attack} ranks {100 * end.alone:.3g} % of the members above all outsiders, "
            f"which is no chance, but {end.outsiders:,} outsiders are too few to show that {gate.metric} exceeds "
            f"{gate.bar:g}: even perfect scores show no more than {end.attainable:.3g} there. Take more rows of it."
        )
    blind = [end.slice for end in ends if end.attainable <= gate.bar]
    return GateResult(
        *(gate.metric, gate.bar, worst.low, most, worst.low > gate.bar, worst.attack, worst.slice),
        too_small=tuple(dict.fromkeys([*small_slices, *blind])) if sliced else (),
    )
