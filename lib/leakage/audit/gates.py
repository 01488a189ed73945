"""Bars that an audit must not pass: whether they can fail on a sample, whether they do, and a report of it as JUnit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree

import torch

from leakage import arguments
from leakage.evaluation import METRICS, fpr_of, is_resolvable, pooled_estimate, tpr_name

SLICE = "slice:"
"""Before a metric: that of the worst slice."""
_MOST_ROWS = 2**20  # members, or outsiders: with more, perfect scores show no less than 0.99999


class LowerEnd(NamedTuple):
    """The lower end of an attack's interval, on all rows or in a slice, corrected for the choice of the best.

    Attributes:
        low: the end.
        estimate: what was measured.
        attack: the attack.
        slice: the slice, such as `label 1`; empty for all rows.
        attainable: the largest end that scores could have there: that of perfectly separated ones.
        outsiders: how many there are, over all targets.
    """

    low: float
    estimate: float
    attack: str
    slice: str
    attainable: float
    outsiders: int


@dataclass(frozen=True)
class Gate:
    """A bar that fails an audit where an attack surely exceeds it.

    Attributes:
        metric: as `Audit.at_least` takes it: `auc`, `advantage` or `tpr@F`, or one of them after `slice:`.
        bar: the largest value that passes, in [0, 1).

    Raises:
        ValueError: if the metric is unknown, or nothing could exceed the bar.
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
        metric: of the gate.
        bar: of the gate.
        at_least: what the strongest attack achieves at least; see `Audit.at_least`.
        attainable: the largest such number that any scores could give on this sample.
        failed: whether `at_least` exceeds the bar.
        attack: the attack that reaches `at_least`.
        slice: the slice in which it does.
        too_small: slices in which not even a total leak would fail the bar.
    """

    metric: str
    bar: float
    at_least: float
    attainable: float
    failed: bool
    attack: str
    slice: str
    too_small: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`failed` or `passed`."""
        return "failed" if self.failed else "passed"

    def __str__(self) -> str:
        where = f" in the slice {self.slice}" * bool(self.slice)
        verb = "exceeds" if self.failed else "does not exceed"
        small = f" Too small to fail this bar: {', '.join(self.too_small)}." * bool(self.too_small)
        return (
            f"{self.metric} is at least {self.at_least:.4g} by {self.attack}{where} after correction for the best of "
            f"several, which {verb} {self.bar:g}.{small}"
        )


def check_metric(metric: str) -> str:
    """The metric, in one way of writing: one of `METRICS` or `tpr@F` with F in (0, 1), perhaps after `slice:`.

    Raises:
        ValueError: if it is none.
    """
    name = metric.removeprefix(SLICE) if isinstance(metric, str) else ""
    if name in METRICS:
        return metric
    rate = re.fullmatch(r"tpr@([0-9]*\.?[0-9]+(?:e-?[0-9]{1,3})?)", name)
    if not rate or not 0 < float(rate[1]) < 1:
        raise ValueError(
            f"`metric` must be one of {', '.join(METRICS)} or tpr@F with F in (0, 1), such as tpr@0.01, or one of "
            f"them after {SLICE} for the worst slice; got {arguments.shown(metric)}."
        )
    return metric.replace(name, tpr_name(float(rate[1])))


def judge_gate(gate: Gate, ends: Sequence[LowerEnd], *, level: float, small_slices: Sequence[str]) -> GateResult:
    """The result of a gate, from the lower ends of every attack, in every slice if the gate is for the worst.

    Raises:
        ValueError: if no scores could fail it on this sample.
    """
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
    blind = [end.slice for end in ends if end.attainable <= gate.bar]
    return GateResult(
        *(gate.metric, gate.bar, worst.low, most, worst.low > gate.bar, worst.attack, worst.slice),
        too_small=tuple(dict.fromkeys([*small_slices, *blind])) if sliced else (),
    )


def attainable(metric: str, *, members: int, outsiders: int, level: float) -> float:
    """The lower end of the interval of perfectly separated scores; 0 where the outsiders cannot show the rate."""
    if metric not in METRICS and not is_resolvable(fpr_of(metric), outsiders):
        return 0.0
    counts = (min(members, _MOST_ROWS), min(outsiders, _MOST_ROWS))
    member = torch.arange(sum(counts)).unsqueeze(0) < counts[0]
    return pooled_estimate(member.double(), member, member, metric, level=level).low


def outsiders_needed(metric: str, bar: float, *, level: float) -> str:
    """With how many outsiders, and as many members, perfectly separated scores exceed the bar; in words."""

    def suffices(count: int) -> bool:
        return attainable(metric, members=count, outsiders=count, level=level) > bar

    most = 2
    while not suffices(most):
        if most >= _MOST_ROWS:
            return f"more than {most:,}"
        most *= 2
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if suffices(middle) else (middle, most)
    return f"{most:,}"


def to_junit(results: Sequence[GateResult], *, name: str) -> bytes:
    """The gates as JUnit XML: a test case for each, with the bound as its message."""
    counts = {"tests": len(results), "failures": sum(one.failed for one in results), "errors": 0}
    suite = ElementTree.Element("testsuite", {"name": _printable(name), **{key: f"{n}" for key, n in counts.items()}})
    for one in results:
        case = {"classname": "leakage.audit", "name": f"{one.metric} <= {one.bar:g}"}
        found = ElementTree.SubElement(suite, "testcase", case)
        if one.failed:
            ElementTree.SubElement(found, "failure", {"message": _printable(str(one))})
        else:
            ElementTree.SubElement(found, "system-out").text = _printable(str(one))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """The text without characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
