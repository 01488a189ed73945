"""How the cost of a method grows: seconds and memory at sizes on a geometric grid, and the power laws they follow.

Seconds are CPU seconds of this process on one thread, the least of several turns in each of several passes over the
sizes, so that a slow moment of the machine bends no curve. Memory is how far a call lifts the resident peak of the
process (`VmHWM` of Linux) above what it held before, inputs included. An exponent is the least-squares slope in the
logarithms over the largest sizes of a curve.
"""

import ctypes
import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

FLOOR = 2**20  # bytes: a peak is counted in pages and up to a few hundred kB late
LEVEL = 0.95
LONGEST = 5.0  # seconds of one call, after which a curve ends
UNEXPLAINED = 0.15  # difference from the theory that needs a note
_FEWEST = 3  # sizes in a fit: two leave no residual
_LASTING = 0.02  # seconds of a turn, far above the clock's resolution
_LONG, _TURNS = 0.5, 5  # seconds of a call that is made once instead of in so many turns
_PASSES = 3  # over the sizes of a curve

Prepared = tuple[Callable[[], object], float]
"""A call whose inputs are there, and how many units it makes; a fraction stands for a part of a whole."""


class Law(NamedTuple):
    """The exponent that theory gives a cost, the reason, and why the measured one differs, if it does much."""

    exponent: float
    reason: str
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A method along an axis."""

    method: str  # in words
    prepare: Callable[[int], Prepared]  # makes the inputs of a size
    sizes: tuple[int, ...]  # increasing, on a geometric grid
    time: Law  # of its seconds
    memory: Law  # of its peak
    fitted: int = 4  # the largest sizes, at which the leading term dominates


@dataclass(frozen=True)
class Axis:
    """One algorithm of ours and the straightforward ones, along one size."""

    id: str  # <chapter>.<what>.<size>
    what: str  # is computed
    along: str  # the size, in words
    unit: str  # what the seconds are for
    ours: Curve
    theirs: tuple[Curve, ...]
    check: Callable[[int], str]  # says how far the methods agree at a size; raises `timing.Disagreement`
    checked: int  # that size


class Fit(NamedTuple):
    """An exponent with its interval at `LEVEL`."""

    exponent: float
    low: float
    high: float


def fit(sizes: Sequence[float], values: Sequence[float]) -> Fit:
    """The exponent of the power law through three or more positive values, with Student's interval of its residuals."""
    x, y = np.log(sizes), np.log(values)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = math.sqrt(float(np.square(y - slope * x).sum()) / (len(x) - 2) / float(x @ x))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(x) - 2)) * error
    return Fit(slope, slope - half, slope + half)


def seconds(work: Callable[[], object], first: float | None = None) -> float:
    """CPU seconds of a call, the least of several turns; of a long one, `first` has been measured already."""
    first = _timed(work, 1) if first is None else first
    if first > _LONG:
        return first
    calls = math.ceil(_LASTING / max(first, 1e-6))
    return min(first, *(_timed(work, calls) for _ in range(_TURNS)))


def _timed(work: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def peak(work: Callable[[], object]) -> tuple[int | None, float]:
    """By how many bytes a call lifts the resident memory at most (`None` but on Linux), and its CPU time."""
    if not sys.platform.startswith("linux"):
        return None, _timed(work, 1)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # or else memory that was freed, and kept, would be used again unseen
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak is what is resident now
    before = _resident("VmRSS")
    spent = _timed(work, 1)
    return max(0, _resident("VmHWM") - before), spent


def _resident(field: str) -> int:
    """A field of the process's status, in bytes."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def measured(axis: Axis) -> dict[str, Any]:
    """An axis of the record, ours first."""
    sides = [("ours", axis.ours), *(("theirs", curve) for curve in axis.theirs)]
    names = {"id": axis.id, "chapter": axis.id.partition(".")[0], "what": axis.what, "along": axis.along}
    return {**names, "unit": axis.unit, "curves": [{"side": side, **_measured(curve)} for side, curve in sides]}


def _measured(curve: Curve) -> dict[str, Any]:
    """A curve of the record, as far as it goes in `LONGEST`."""
    sizes, least, peaks = [], [], []
    for size in curve.sizes:
        work, units = curve.prepare(size)
        lifted, first = peak(work)
        sizes.append(size)
        peaks.append(lifted)
        least.append(seconds(work, first) / units)
        if least[-1] * units > LONGEST:
            break
    for _ in range(_PASSES - 1):
        for place, size in enumerate(sizes):
            work, units = curve.prepare(size)
            least[place] = min(least[place], seconds(work) / units)
    times = [float(f"{value:.4g}") for value in least]  # more digits would be noise
    held = [(size, held) for size, held in zip(sizes, peaks, strict=True) if held is not None and held > FLOOR]
    return {
        "method": curve.method,
        "sizes": sizes,
        "seconds": times,
        "bytes": peaks,
        "time": _fitted(curve.time, list(zip(sizes, times, strict=True))[-curve.fitted :]),
        "memory": _fitted(curve.memory, held[-curve.fitted :]),
    }


def _fitted(law: Law, points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """The exponent that was found, `None` of fewer than three points, beside that of the theory."""
    found = fit(*zip(*points, strict=True)) if len(points) >= _FEWEST else None
    numbers = {name: None if found is None else round(getattr(found, name), 3) for name in Fit._fields}
    return {**numbers, "fitted": len(points), "theory": law.exponent, "reason": law.reason, "note": law.note}


def unexplained(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The exponents that differ from the theory by more than `UNEXPLAINED`, and no note says why."""
    for row in rows:
        for curve in row["curves"]:
            for cost in ("time", "memory"):
                found = curve[cost]
                far = found["exponent"] is not None and abs(found["exponent"] - found["theory"]) > UNEXPLAINED
                if far and not found["note"]:
                    yield f"{row['id']}, {curve['method']}: {cost} {found['exponent']:.2f}, not {found['theory']:g}"
