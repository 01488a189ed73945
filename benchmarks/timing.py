"""Two ways to compute one thing, timed side by side: checked to agree, then run in turns on one thread.

Equal numbers are asked for where the data are given, equal laws (Kolmogorov–Smirnov) where they are drawn.
Times are CPU seconds of this process: with one thread, the seconds of an idle machine. What else the machine does
hardly moves them, and as the rounds alternate between the two sides it moves both alike. Every number is a median.
"""

import argparse
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypeVar

import numpy as np
import threadpoolctl
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakage.metrics.roc import ks_test
from reproduced.claims.texts import seconds_text
from reproduced.run.book import Book, write_json
from reproduced.run.chapter_cache import execution_provenance

P_VALUE = 1e-3  # all seeds are fixed: a right law fails once in a thousand choices of seed, and then always
ROOT = Path(__file__).parents[1]
ROUNDING = 1e-9  # relative; next to p = n the condition number of a Gram matrix is some 10⁶
_Sizes = TypeVar("_Sizes")


class Disagreement(Exception):
    """The two sides do not compute the same thing: their times mean nothing."""


@dataclass(frozen=True)
class Side:
    """One way to compute it. `work()` makes `units` results; a fraction stands for a part of a whole.

    A quick side is called `calls` times in one turn, so that it, too, works from a warm cache.
    """

    method: str
    work: Callable[[], object]
    units: float = 1.0
    calls: int = 1


@dataclass(frozen=True)
class Case:
    """One comparison. `check` says in words how far the sides agree, and raises `Disagreement` if they do not."""

    id: str
    what: str
    unit: str
    ours: Side
    theirs: Side
    check: Callable[[], str]
    rounds: int


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


def measure(case: Case) -> dict[str, Any]:
    """Check that the sides agree, which also warms them up, then time them in turns; a row of the record.

    It has the seconds of one `unit`, and the least and the most ratio of the rounds.
    """
    agreement = case.check()
    turns = [(cpu_seconds(case.ours), cpu_seconds(case.theirs)) for _ in range(case.rounds)]
    ours, theirs = (median(side) for side in zip(*turns, strict=True))
    ratios = [slow / quick for quick, slow in turns]
    names = {"id": case.id, "what": case.what, "ours": case.ours.method, "theirs": case.theirs.method}
    seconds = {"ours_seconds": ours, "theirs_seconds": theirs}
    seconds |= {"ratio": theirs / ours, "least": min(ratios), "most": max(ratios)}
    evidence = {"rounds": case.rounds, "unit": case.unit, "agreement": agreement}
    return names | {name: round_digits(value) for name, value in seconds.items()} | evidence


def cpu_seconds(side: Side) -> float:
    """CPU seconds of one unit of a side."""
    start = time.process_time()
    for _ in range(side.calls):
        side.work()
    return (time.process_time() - start) / (side.calls * side.units)


def round_digits(value: float) -> float:
    """Three significant digits: more would be noise."""
    return float(f"{value:.3g}")


def told(row: Mapping[str, Any], least: float) -> str:
    """A comparison in two lines, with the promise and whether it was kept."""
    times = f"{seconds_text(row['theirs_seconds']):>10}{seconds_text(row['ours_seconds']):>10}{row['ratio']:>12,.6g}×"
    promise = f"   ≥ {least:,.6g}× {'✓' if row['ratio'] >= least else '✗'}" if least else ""
    spread = f"{row['least']:,.6g} to {row['most']:,.6g} in {row['rounds']} rounds"
    return f"{row['what']:44}{times}{promise}\n    {spread}; {row['agreement']}"


@dataclass(frozen=True)
class Benchmark(Generic[_Sizes]):
    """The comparisons of a chapter, and what the project promises of them."""

    chapter: str
    title: str  # of the chapter
    cases: Callable[[_Sizes], Iterable[Case]]  # makes the comparisons for given sizes, one at a time
    sizes: _Sizes  # of the record
    promised: Mapping[str, float]  # the least ratio by the id of the case, at these sizes

    @property
    def path(self) -> str:
        """The record's file, from the root of the repository."""
        return f"book/records/performance.{self.chapter}.json"

    def run(self, arguments: Sequence[str] | None = None, *, sizes: _Sizes | None = None, root: Path = ROOT) -> int:
        """Run from the command line, print the table, and with `--record` write it to `path` under `root`.

        The exit status is 1 if a promise was not kept; other sizes than those of the record promise nothing.
        """
        recorded = wants_record(arguments, f"Time the algorithms of {self.title!r}.", self.path)
        rows = []
        promised = self.promised if sizes is None else {}
        print(f"{'':44}{'theirs':>10}{'ours':>10}{'ratio':>13}   promised")
        with one_thread():
            for case in self.cases(self.sizes if sizes is None else sizes):
                rows.append(measure(case))
                print(told(rows[-1], promised.get(case.id, 0.0)), flush=True)
        if recorded:
            clock = "CPU seconds per unit, medians of alternating rounds"
            write_record(self.path, self.title, clock, {"rows": rows}, root=root)
        return 0 if all(row["ratio"] >= promised.get(row["id"], 0.0) for row in rows) else 1


def wants_record(arguments: Sequence[str] | None, description: str, path: str) -> bool:
    """Read the command line of a benchmark, whose one option is `--record`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--record", action="store_true", help=f"write {path}, which the book shows")
    return parser.parse_args(arguments).record


def write_record(path: str, title: str, clock: str, content: dict[str, Any], *, root: Path) -> None:
    """Write what was measured, after where it comes from, to `path` under `root`."""
    write_json(root / path, provenance(title, clock, root=root) | content)
    print(f"Recorded in {path}.")


def provenance(title: str, clock: str, *, root: Path) -> dict[str, Any]:
    """Where the numbers of a record come from: date, commit, machine and versions, and what its seconds are."""
    origin = execution_provenance(Book(root, root / "_build"), "cpu")
    commit = f"{(origin['commit'] or 'unknown')[:10]}{' with local changes' if origin['dirty'] else ''}"
    versions = ", ".join(f"{name} {origin['versions'][name]}" for name in ("python", "torch", "numpy", "scipy"))
    machine = {"cpu": processor_name(), "threads": 1, "clock": clock, "versions": versions}
    return {"title": title, "date": origin["date"], "commit": commit, **machine}


def processor_name() -> str:
    """The processor's name, as the system gives it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text("utf-8").splitlines() if information.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
