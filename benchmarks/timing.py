"""Two ways to compute one thing, timed side by side: checked to agree, then run in turns on one thread.

Times are CPU seconds of this process: with one thread, the seconds of an idle machine. What else the machine does
hardly moves them, and as the rounds alternate between the two sides it moves both alike. Every number is a median.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypeVar

import numpy as np
import threadpoolctl
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakage.claims.texts import seconds_text
from leakage.metrics.roc import ks_test
from leakage.pipeline.book import Book
from leakage.pipeline.plan import execution_provenance
from leakage.pipeline.storage import write_json

P_VALUE = 1e-3  # all seeds are fixed: a right law fails once in a thousand choices of seed, and then always
ROOT = Path(__file__).parents[1]
ROUNDING = 1e-9  # relative; next to p = n the condition number of a Gram matrix is some 10⁶
_REPORTED = ("python", "torch", "numpy", "scipy")
_Sizes = TypeVar("_Sizes")


class Disagreement(Exception):
    """The two sides do not compute the same thing: their times mean nothing."""


@dataclass(frozen=True)
class Side:
    """One way to compute it. `work()` makes `units` results; a fraction stands for a part of a whole."""

    method: str
    work: Callable[[], object]
    units: float = 1.0


@dataclass(frozen=True)
class Needed:
    """What the project promises of a case: the least ratio, the most seconds of our side, or the most times theirs."""

    ratio: float = 0.0
    seconds: float = math.inf
    times: float = math.inf

    def met_by(self, row: "Row") -> bool:
        return row.ratio >= max(self.ratio, 1 / self.times) and row.ours_seconds <= self.seconds

    def __str__(self) -> str:
        if self.ratio:
            return f"≥ {self.ratio:,.0f}×"
        if self.times < math.inf:
            return f"≤ {self.times:g} × theirs"
        return f"≤ {seconds_text(self.seconds)}" if self.seconds < math.inf else ""


@dataclass(frozen=True)
class Case:
    """One comparison. `check` says in words how far the sides agree, and raises `Disagreement` if they do not.

    `needed` is filled in by a `Benchmark`.
    """

    id: str
    what: str
    unit: str
    ours: Side
    theirs: Side
    check: Callable[[], str]
    rounds: int
    needed: Needed = Needed()


@dataclass(frozen=True)
class Row:
    """One result, as the record has it: seconds of one `unit`, and the least and the most ratio of the rounds."""

    id: str
    what: str
    ours: str
    theirs: str
    ours_seconds: float
    theirs_seconds: float
    ratio: float
    least: float
    most: float
    rounds: int
    unit: str
    agreement: str


def same_law(trained: Tensor, sampled: Tensor) -> str:
    """Evidence that two samples follow one law."""
    p_value = ks_test(trained, sampled.flatten()).p_value
    return judged(p_value, f"{len(trained)} trained against {sampled.numel():,} sampled")


def judged(p_value: float, whose: str) -> str:
    """The p-value of a comparison of laws in words, if it is none too small."""
    if not p_value > P_VALUE:
        raise Disagreement(f"the laws differ: Kolmogorov–Smirnov p = {p_value:.2g}, {whose}.")
    return f"same law: p = {p_value:.2g}, {whose}"


def equal(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    """Evidence that two arrays hold the same values up to rounding."""
    difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if not difference < ROUNDING:
        raise Disagreement(f"the values differ by {difference:.2g} of the largest, more than {ROUNDING:g}.")
    return f"same values: up to {difference:.1g}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch, NumPy and SciPy use one thread each, then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


def measure(case: Case) -> Row:
    """Check that the sides agree, which also warms them up, then time them in turns."""
    agreement = case.check()
    turns = [(_seconds(case.ours), _seconds(case.theirs)) for _ in range(case.rounds)]
    ours, theirs = (median(side) for side in zip(*turns, strict=True))
    ratios = [slow / quick for quick, slow in turns]
    return Row(
        case.id,
        case.what,
        case.ours.method,
        case.theirs.method,
        ours_seconds=_digits(ours),
        theirs_seconds=_digits(theirs),
        ratio=_digits(theirs / ours),
        least=_digits(min(ratios)),
        most=_digits(max(ratios)),
        rounds=case.rounds,
        unit=case.unit,
        agreement=agreement,
    )


def _seconds(side: Side) -> float:
    """CPU seconds of one unit."""
    start = time.process_time()
    side.work()
    return (time.process_time() - start) / side.units


def _digits(value: float) -> float:
    """Three significant digits: more would be noise."""
    return float(f"{value:.3g}")


def lines(cases: Iterable[Case], rows: list[Row]) -> Iterator[str]:
    """Measure every case, append it to `rows`, and say so: a table that grows a line at a time."""
    yield f"{'':44}{'theirs':>10}{'ours':>10}{'ratio':>12}   needed"
    for case in cases:
        row = measure(case)
        rows.append(row)
        promise = f"   {case.needed} {'✓' if case.needed.met_by(row) else '✗'}" if str(case.needed) else ""
        ratio = f"{row.ratio:,.{0 if row.ratio >= 10 else 2}f}×"
        times = f"{seconds_text(row.theirs_seconds):>10}{seconds_text(row.ours_seconds):>10}{ratio:>12}"
        spread = f"{row.least:,.6g} to {row.most:,.6g} in {row.rounds} rounds"
        yield f"{row.what:44}{times}{promise}\n    {spread}; {row.agreement}"


@dataclass(frozen=True)
class Benchmark(Generic[_Sizes]):
    """The comparisons of a chapter, and what the project promises of them.

    Attributes:
        chapter: its name, which is also that of the record.
        title: the record's heading in the book.
        description: what is timed against what, for the command line.
        cases: makes the comparisons for given sizes, one at a time.
        paper: the sizes of the record; those of a test are small.
        needed: the promises by the id of the case, for the sizes `paper` alone.
    """

    chapter: str
    title: str
    description: str
    cases: Callable[[_Sizes], Iterable[Case]]
    paper: _Sizes
    needed: Mapping[str, Needed]

    @property
    def path(self) -> str:
        """The record's file, from the root of the repository."""
        return f"book/records/performance.{self.chapter}.json"

    def promised(self, sizes: _Sizes | None = None) -> Iterator[Case]:
        """The comparisons at the paper's sizes, each with what is promised of it, or at others, without."""
        needed = self.needed if sizes is None else {}
        for case in self.cases(self.paper if sizes is None else sizes):
            yield replace(case, needed=needed.get(case.id, Needed()))

    def run(self, arguments: Sequence[str] | None = None, *, sizes: _Sizes | None = None, root: Path = ROOT) -> int:
        """Run from the command line, print the table, and with `--record` write it to `path` under `root`.

        The exit status is 1 if a promise was not kept.
        """
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--record", action="store_true", help=f"write {self.path}, which the book shows")
        options = parser.parse_args(arguments)
        start, rows = time.monotonic(), []
        with one_thread():
            cases = list(self.promised(sizes))
            for line in lines(cases, rows):
                print(line, flush=True)
        print(f"\n{time.monotonic() - start:.0f} s on the clock. Times are CPU seconds of one thread, medians.")
        if options.record:
            write_json(root / self.path, record(self.title, rows, root=root))
            print(f"Recorded in {self.path}.")
        return 0 if all(case.needed.met_by(row) for case, row in zip(cases, rows, strict=True)) else 1


def record(title: str, rows: Sequence[Row], *, root: Path) -> Mapping[str, Any]:
    """The content of a file of `book/records/`, for the book's page on performance: rows, and where they come from."""
    clock = "CPU seconds per unit, medians of alternating rounds"
    return {**provenance(title, clock, root=root), "rows": [asdict(row) for row in rows]}


def provenance(title: str, clock: str, *, root: Path) -> dict[str, Any]:
    """Where the numbers of a record come from: date, commit, machine and versions, and what its seconds are."""
    origin = execution_provenance(Book(root, root / "_build"), "cpu")
    commit = f"{(origin['commit'] or 'unknown')[:10]}{' with local changes' if origin['dirty'] else ''}"
    return {
        "title": title,
        "date": origin["date"],
        "commit": commit,
        "cpu": processor(),
        "threads": 1,
        "clock": clock,
        "versions": ", ".join(f"{name} {origin['versions'][name]}" for name in _REPORTED),
    }


def processor(information: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system gives it."""
    if information.is_file():
        for line in information.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
