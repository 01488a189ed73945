"""What a chapter measures and a rule looks at: estimates with intervals, exact values with error bounds, counts.

Each has a lower and an upper end, between which the truth lies as far as the measurement tells. Several measurements of
one kind, in a sequence, are a measurement whose ends are arrays. A bare number is none.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from leakage import arguments
from leakage.metrics.estimates import Estimate, clopper_pearson


@dataclass(frozen=True)
class Exact:
    """A number that is computed without sampling, and a bound on the error of the computation.

    Args:
        value: the number; may be infinite, but not NaN.
        error: how far the true value may be off by rounding, truncation or a solver's tolerance; 0 for what is exact
            by its nature, such as the largest of numbers that are themselves what is measured.
    """

    value: float
    error: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", arguments.check_number("value", self.value, finite=False))
        object.__setattr__(self, "error", arguments.check_number("error", self.error, least=0))


@dataclass(frozen=True)
class Count:
    """How many of all the things looked at are so; its ends are those of the share's 95 % Clopper–Pearson interval."""

    count: int
    of: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", arguments.check_count("of", self.of, least=1))
        object.__setattr__(self, "count", arguments.check_count("count", self.count, most=self.of))


Single: TypeAlias = Estimate | Exact | Count
Measurement: TypeAlias = Single | Sequence[Single]
ROUNDING = 1e-9  # relative: numbers that differ by less are those of the same draws; absolute: its square
_KINDS = {kind.__name__.lower(): kind for kind in (Estimate, Exact, Count)}


def check(name: str, measured: Any) -> Measurement:
    """`measured`; a `ValueError` if it is a bare number, or a sequence that is empty or of several kinds."""
    members = measured if isinstance(measured, list | tuple) else [measured]
    if len({type(member) for member in members}) != 1 or not isinstance(members[0], Single):
        raise ValueError(
            f"`{name}` must be an Estimate, an Exact(value, error), a Count(count, of) or several of one kind; "
            f"got {arguments.shown(measured)}."
        )
    return measured


def ends(measured: Measurement) -> dict[str, Any]:
    """The numbers that a rule can look at, by suffix: `.low` and `.high`; a count also has its bare name and `.of`."""
    match measured:
        case Estimate():
            return {".low": measured.low, ".high": measured.high}
        case Exact():
            return {".low": measured.value - measured.error, ".high": measured.value + measured.error}
        case Count():
            return {"": measured.count, ".of": measured.of} | ends(clopper_pearson(measured.count, measured.of))
    each = [ends(member) for member in measured]
    return {suffix: np.array([one[suffix] for one in each]) for suffix in each[0]}


def are_equal(one: Measurement, other: Measurement) -> bool:
    """Whether two measurements have the same ends, to rounding."""
    ours, theirs = ends(one), ends(other)
    same_kind = ours.keys() == theirs.keys() and all(np.shape(ours[end]) == np.shape(theirs[end]) for end in ours)
    return same_kind and all(np.allclose(ours[end], theirs[end], ROUNDING, ROUNDING**2) for end in ours)


def describe(measured: Measurement) -> str:
    """The measurement in words: `0.84 [0.80, 0.88]`, `3.5e-17`, `27 of 32`, `0.1 to 0.7 (9 values)`.

    Several that read the same are one, `0.1 (each of 9 values)`.
    """
    match measured:
        case Estimate():
            return _with_interval(measured.estimate, measured.low, measured.high)
        case Exact():
            return f"{measured.value:.4g}"
        case Count():
            return f"{measured.count} of {measured.of}"
    least, most = (describe(pick(measured, key=_middle)) for pick in (min, max))
    if least == most:
        return f"{least} (each of {len(measured)} values)" if len(measured) > 1 else least
    return f"{least} to {most} ({len(measured)} values)"


def describe_briefly(measured: Measurement) -> str:
    """The measurement in few words: of several only the least and the greatest, without their intervals."""
    if isinstance(measured, Single):
        return describe(measured)
    least, most = (re.sub(r" \[.*", "", describe(pick(measured, key=_middle))) for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def to_json(measured: Measurement) -> Any:
    """The measurement as JSON can hold it; an infinite number is the text "inf" or "-inf"."""
    if not isinstance(measured, Single):
        return [to_json(member) for member in measured]
    numbers = {name: value if math.isfinite(value) else f"{value}" for name, value in asdict(measured).items()}
    return {"kind": type(measured).__name__.lower(), **numbers}


def from_json(stored: Any) -> Measurement:
    """The measurement that `to_json` has written; a `ValueError` if it has not."""
    if isinstance(stored, list):
        return check("stored", [from_json(member) for member in stored])
    try:
        numbers: dict[str, Any] = {
            name: float(n) if isinstance(n, str) else n for name, n in stored.items() if name != "kind"
        }
        return _KINDS[stored["kind"]](**numbers)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"no measurement: {arguments.shown(stored)}.") from error


def _middle(measured: Single) -> float:
    match measured:
        case Estimate():
            return measured.estimate
        case Exact():
            return measured.value
        case Count():
            return measured.count / measured.of


def _with_interval(value: float, low: float, high: float) -> str:
    """A value with its interval, to the digits that the interval supports."""
    width = high - low
    if not (0 < width < math.inf and 1e-5 < max(abs(low), abs(high)) < 1e7):
        return f"{value:.4g} [{low:.4g}, {high:.4g}]"
    digits = max(0, 1 - math.floor(math.log10(width)))
    return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"  # no sign before a zero
