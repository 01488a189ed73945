"""What a chapter measures and a rule looks at: estimates with intervals, exact values with error bounds, counts.

Each has a lower and an upper end, between which the truth lies as far as the measurement tells. Several measurements of
one kind, in a sequence, are a measurement whose ends are arrays. A bare number is none.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from leakage import arguments
from leakage.metrics.intervals import Estimate, clopper_pearson


@dataclass(frozen=True)
class Exact:
    """A number that is computed without sampling, and a bound on the error of the computation.

    Args:
        value: the number; may be infinite.
        error: how far the true value may be off by rounding, truncation or a solver's tolerance; 0 for what is exact
            by its nature, such as the largest of numbers that are themselves what is measured.

    Raises:
        ValueError: if `value` is NaN, or `error` is negative or not finite.
    """

    value: float
    error: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", arguments.number("value", self.value, finite=False))
        object.__setattr__(self, "error", arguments.number("error", self.error, least=0))


@dataclass(frozen=True)
class Count:
    """How many of all the things looked at are so.

    Its ends are those of the exact interval (Clopper and Pearson, 95 %) of the *share*, for things drawn at random.

    Args:
        count: those that are so.
        of: all that were looked at, at least one.

    Raises:
        ValueError: unless 0 <= `count` <= `of`.
    """

    count: int
    of: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", arguments.count("of", self.of, least=1))
        object.__setattr__(self, "count", arguments.count("count", self.count, most=self.of))


Single: TypeAlias = Estimate | Exact | Count
Measured: TypeAlias = Single | Sequence[Single]
_KINDS = {kind.__name__.lower(): kind for kind in (Estimate, Exact, Count)}


def checked(name: str, measured: Any) -> Measured:
    """`measured`, once it is known to be a measurement.

    Raises:
        ValueError: if it is a bare number, or a sequence that is empty or of several kinds.
    """
    members = measured if isinstance(measured, list | tuple) else [measured]
    if len({type(member) for member in members}) != 1 or not isinstance(members[0], Single):
        raise ValueError(
            f"`{name}` must be an Estimate, an Exact(value, error), a Count(count, of) or several of one kind; "
            f"got {arguments.shown(measured)}."
        )
    return measured


def ends(measured: Measured) -> dict[str, Any]:
    """The numbers that a rule can look at, by the suffix of the name: `.low`, `.high`, and of a count `` and `.of`."""
    match measured:
        case Estimate():
            return {".low": measured.low, ".high": measured.high}
        case Exact():
            return {".low": measured.value - measured.error, ".high": measured.value + measured.error}
        case Count():
            return {"": measured.count, ".of": measured.of} | ends(clopper_pearson(measured.count, measured.of))
    each = [ends(member) for member in measured]
    return {suffix: np.array([one[suffix] for one in each]) for suffix in each[0]}


def shown(measured: Measured) -> str:
    """The measurement in words: `0.84 [0.80, 0.88]`, `3.5e-17`, `27 of 32`, `0.1 to 0.7 (9 values)`."""
    match measured:
        case Estimate():
            return with_interval(measured.estimate, measured.low, measured.high)
        case Exact():
            return f"{measured.value:.4g}"
        case Count():
            return f"{measured.count} of {measured.of}"
    middles = [_middle(member) for member in measured]
    least, most = (shown(measured[pick(range(len(middles)), key=middles.__getitem__)]) for pick in (min, max))
    return f"{least} to {most} ({len(middles)} values)" if len(middles) > 1 else least


def brief(measured: Measured) -> str:
    """The measurement in few words: of several only the least and the greatest, without their intervals."""
    if isinstance(measured, Single):
        return shown(measured)
    middles = [_middle(member) for member in measured]
    least, most = (re.sub(r" \[.*", "", brief(measured[middles.index(pick(middles))])) for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def to_json(measured: Measured) -> Any:
    """The measurement as JSON can hold it; an infinite number is the text "inf" or "-inf"."""
    if not isinstance(measured, Single):
        return [to_json(member) for member in measured]
    numbers = {name: value if math.isfinite(value) else f"{value}" for name, value in asdict(measured).items()}
    return {"kind": type(measured).__name__.lower(), **numbers}


def to_columns(measured: Measured) -> dict[str, Any]:
    """As `to_json`, but several measurements of one kind are one object with a list for each of their numbers."""
    rows = to_json(measured)
    if isinstance(rows, dict):
        return rows
    return {"kind": rows[0]["kind"]} | {name: [row[name] for row in rows] for name in rows[0] if name != "kind"}


def from_json(stored: Any) -> Measured:
    """The measurement that `to_json` or `to_columns` has written.

    Raises:
        ValueError: if it has not.
    """
    if isinstance(stored, list):
        return checked("stored", [from_json(member) for member in stored])
    try:
        columns = {name: numbers for name, numbers in stored.items() if isinstance(numbers, list)}
        if columns:
            rows = zip(*columns.values(), strict=True)
            return from_json([{"kind": stored["kind"]} | dict(zip(columns, row, strict=True)) for row in rows])
        numbers: dict[str, Any] = {
            name: float(value) if isinstance(value, str) else value for name, value in stored.items() if name != "kind"
        }
        return _KINDS[stored["kind"]](**numbers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no measurement: {arguments.shown(stored)}.") from error


def _middle(measured: Single) -> float:
    match measured:
        case Estimate():
            return measured.estimate
        case Exact():
            return measured.value
        case Count():
            return measured.count / measured.of


def with_interval(value: float, low: float, high: float) -> str:
    """A value with its interval, to the digits that the interval supports."""
    width = high - low
    if not (0 < width < math.inf and 1e-5 < max(abs(low), abs(high)) < 1e7):
        return f"{value:.4g} [{low:.4g}, {high:.4g}]"
    digits = max(0, 1 - math.floor(math.log10(width)))
    return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"  # no sign before a zero


def named(values: Mapping[str, Measured]) -> dict[str, Any]:
    """All numbers that a rule can look at: `ridge.low`, `ridge.high`, `wrong`, `wrong.of`, …"""
    return {f"{name}{suffix}": number for name, measured in values.items() for suffix, number in ends(measured).items()}
