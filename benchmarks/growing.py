"""How the cost of a method grows: seconds and memory at sizes on a geometric grid, and the power laws they follow.

Seconds are CPU seconds of this process on one thread, the least of several turns in each of several passes over the
sizes, so that a slow moment of the machine bends no curve. Memory is how far a call lifts the resident peak of the
process (`VmHWM` of Linux) above what it held before, its inputs included in the latter. An exponent is the least-
squares slope in the logarithms over the largest sizes of a curve.
"""

import ctypes
import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from leakage.claims.texts import seconds_text
from timing import provenance

NUMBER = 8  # bytes of a float64
FLOOR = 2**20  # bytes: a peak is counted in pages and up to a few hundred kB late
LEVEL = 0.95
LONGEST = 5.0  # seconds of one call, after which a curve ends
UNEXPLAINED = 0.15  # difference from the theory that needs a note
_FEWEST = 3  # sizes in a fit: two leave no residual
_LASTING = 0.02  # seconds of a turn, far above the clock's resolution
_LONG, _TURNS = 0.5, 5  # seconds of a call that is made once instead of in so many turns
_PASSES = 3  # over the sizes of a curve
_MATRIX, _COPIED = 1024, 2**24  # sides of the product and numbers of the copy that give the machine's peak

Prepared = tuple[Callable[[], object], float]
"""A call whose inputs are there, and how many units it makes; a fraction stands for a part of a whole."""


@dataclass(frozen=True)
class Law:
    """What theory says of a cost.

    Attributes:
        exponent: of the size.
        reason: for it, in a line.
        note: why the measured one is another, if it is by more than `UNEXPLAINED`.
    """

    exponent: float
    reason: str
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A method along an axis.

    Attributes:
        method: in words.
        prepare: makes the inputs of a size.
        sizes: increasing, on a geometric grid; the last `fitted` are those of the fit.
        time: of its seconds.
        memory: of its peak.
        fitted: the sizes at which the leading term dominates.
    """

    method: str
    prepare: Callable[[int], Prepared]
    sizes: tuple[int, ...]
    time: Law
    memory: Law
    fitted: int = 4


@dataclass(frozen=True)
class Work:
    """An amount by formula: operations or bytes of our method for one unit at a size."""

    formula: str
    at: Callable[[int], float]


@dataclass(frozen=True)
class Axis:
    """One algorithm of ours and the straightforward ones, along one size.

    Attributes:
        id: `<chapter>.<what>.<size>`.
        chapter: its name.
        what: is computed.
        along: the size, in words.
        unit: what the seconds are for.
        ours: our curve.
        theirs: the others.
        check: says how far the methods agree at a size, and raises `timing.Disagreement` if they do not.
        checked: that size.
        precision: `float64` or `float32`, of ours.
        flops: floating-point operations of ours.
        traffic: the least bytes that ours must read and write.
    """

    id: str
    chapter: str
    what: str
    along: str
    unit: str
    ours: Curve
    theirs: tuple[Curve, ...]
    check: Callable[[int], str]
    checked: int
    flops: Work
    traffic: Work
    precision: str = "float64"

    def small(self, sizes: int) -> "Axis":
        """The same at its smallest sizes."""
        ours, *theirs = (replace(curve, sizes=curve.sizes[:sizes]) for curve in (self.ours, *self.theirs))
        return replace(self, ours=ours, theirs=tuple(theirs))


class Fit(NamedTuple):
    """An exponent with its interval at `LEVEL`."""

    exponent: float
    low: float
    high: float


def fit(sizes: Sequence[float], values: Sequence[float]) -> Fit:
    """The exponent of the power law through positive values, with Student's interval for its residuals.

    Raises:
        ValueError: if there are fewer than three sizes, or something is not positive.
    """
    if len(sizes) < _FEWEST or min(*sizes, *values) <= 0:
        raise ValueError(f"`sizes` and `values` must be {_FEWEST} or more and positive, got {sizes} and {values}.")
    x, y = np.log(sizes), np.log(values)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = math.sqrt(float(np.square(y - slope * x).sum()) / (len(x) - 2) / float(x @ x))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(x) - 2)) * error
    return Fit(slope, slope - half, slope + half)


def seconds(work: Callable[[], object], first: float = math.inf) -> float:
    """CPU seconds of a call, the least of several turns; of a long one, `first` has been measured already."""
    if first == math.inf:
        first = _timed(work, 1)
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
    """By how many bytes a call lifts the resident memory of this process at most, and its CPU seconds.

    `None` where no system says.
    """
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


def machine() -> dict[str, float]:
    """What one thread reaches: floating-point operations a second in a product of matrices, bytes a second in a copy.

    A copy counts what it reads and what it writes.
    """
    reached = {}
    for precision in (torch.float64, torch.float32):
        matrix = torch.ones(_MATRIX, _MATRIX, dtype=precision)
        result = matrix @ matrix
        quickest = seconds(lambda a=matrix, out=result: torch.mm(a, a, out=out))
        reached[str(precision).removeprefix("torch.")] = 2 * _MATRIX**3 / quickest
    source = torch.ones(_COPIED, dtype=torch.float64)
    target = source.clone()
    reached["copy"] = 2 * source.nbytes / seconds(lambda: target.copy_(source))
    return {name: _digits(value) for name, value in reached.items()}


def lines(axes: Iterable[Axis], reached: Mapping[str, float], rows: list[dict[str, Any]]) -> Iterator[str]:
    """Measure every axis, append it to `rows`, and say so."""
    for axis in axes:
        yield f"\n{axis.id}: {axis.what}, in {axis.along}; {axis.check(axis.checked)}"
        curves = []
        for side, curve in (("ours", axis.ours), *(("theirs", curve) for curve in axis.theirs)):
            curves.append({"side": side, **_measured(curve)})
            yield _told(curves[-1])
        rows.append(_row(axis, curves, reached))
        yield f"    {rows[-1]['flops_share']:.2%} of the flop/s, {rows[-1]['traffic_share']:.2%} of the bytes/s"


def _measured(curve: Curve) -> dict[str, Any]:
    """A curve of the record, as far as it goes in `LONGEST`."""
    sizes, least, peaks = [], [], []
    for size in curve.sizes:
        work, units = curve.prepare(size)
        lifted, first = peak(work)
        sizes.append(size)
        peaks.append(lifted)
        least.append(seconds(work, first) / units)
        del work
        if least[-1] * units > LONGEST:
            break
    for _ in range(_PASSES - 1):
        for place, size in enumerate(sizes):
            work, units = curve.prepare(size)
            least[place] = min(least[place], seconds(work) / units)
            del work
    times = [_digits(value) for value in least]
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


def _told(curve: Mapping[str, Any]) -> str:
    times, peaks = curve["seconds"], [held for held in curve["bytes"] if held is not None]
    ends = f"{seconds_text(times[0])} to {seconds_text(times[-1])}, {max(peaks, default=0) / 2**20:,.0f} MB"
    costs = []
    for cost in ("time", "memory"):
        found = curve[cost]
        if found["exponent"] is not None:
            spread = f"[{found['low']:.2f}, {found['high']:.2f}]"
            costs.append(f"{cost} {found['exponent']:.2f} {spread} ({found['theory']:g})")
    return f"  {curve['side']:7}{curve['method']}: {curve['sizes'][0]} to {curve['sizes'][-1]}, {ends}; " + ", ".join(
        costs
    )


def _row(axis: Axis, curves: list[dict[str, Any]], reached: Mapping[str, float]) -> dict[str, Any]:
    """An axis of the record, with what share of the machine's peak ours reaches at its largest size."""
    size, spent = curves[0]["sizes"][-1], curves[0]["seconds"][-1]
    names = {"id": axis.id, "chapter": axis.chapter, "what": axis.what, "along": axis.along, "unit": axis.unit}
    return {
        **names,
        "precision": axis.precision,
        "flops": axis.flops.formula,
        "flops_share": _digits(axis.flops.at(size) / spent / reached[axis.precision]),
        "traffic": axis.traffic.formula,
        "traffic_share": _digits(axis.traffic.at(size) / spent / reached["copy"]),
        "curves": curves,
    }


def record(rows: Sequence[Mapping[str, Any]], reached: Mapping[str, float], *, root: Path) -> dict[str, Any]:
    """The content of `book/records/growth.json`: where it comes from, the machine's peak, and the axes."""
    clock = "CPU seconds per unit, the least of several turns in several passes over the sizes"
    memory = "resident peak of the process above what it held before the call"
    return {**provenance("Growth", clock, root=root), "memory": memory, "peak": dict(reached), "axes": list(rows)}


def _digits(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def doubling(first: int, count: int) -> tuple[int, ...]:
    """`first` and its doubles."""
    return tuple(first * 2**power for power in range(count))
