"""Tasks through the pool of workers. `python benchmarks/cluster.py [TASKS] [--record]`, 10,000 by default.

Tasks that do nothing go to two processes of this machine and come back, each behind its checksum; 500 a second are
promised. The other side is dask's own map and gather. Client and scheduler share one process, which is what everything
waits for, so the rate that counts is that of its CPU seconds: the clock's, where a core is idle. Then tasks that do
something, on one, two and four workers. With `--record` what was found is kept for the page *Performance*, beside how
long the chapters of the last build took and what follows for more seeds on more workers.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from leakage import checked_files, content_keys
from leakage.pipeline import cluster
from leakage.pipeline.book import Book, read_json
from leakage.pipeline.equipment import Needs
from leakage.pipeline.plan import cores
from leakage.pipeline.storage import write_json
from timing import ROOT, one_thread, provenance

WORKERS, NEEDED = 2, 500
AHEAD = 250  # calls under way for each thread: a tiny one is done before the next is sent
PATH = "book/records/cluster.json"
TRIED, WORKING = (1, 2, 4), 60  # workers, and the tasks that they share
SEEDS, MACHINES = 1000, 100  # of the projection
_SIDE, _PRODUCTS = 400, 60  # of the matrices in a task that does something, and how often they are multiplied


def echo(number: int) -> bytes:
    """A task that does nothing."""
    return checked_files.pack(number)


def work(number: int) -> bytes:
    """A task of some tenths of a second."""
    matrix = torch.eye(_SIDE, dtype=torch.float64)
    for _ in range(_PRODUCTS):
        matrix = matrix @ matrix
    return checked_files.pack(number)


def through_the_pool(
    pool: cluster.Pool, tasks: int, task: Callable[[int], bytes] = echo, ahead: int = AHEAD
) -> list[Any]:
    """Every number, believed, in the order in which they came."""
    calls = (cluster.Call(f"{number:016}", task.__name__, (number,)) for number in range(tasks))
    found = pool.results(task, calls, lambda _, content: checked_files.unpack(content), ahead=ahead)
    return [number for _, number in found]


def plainly(client: Any, tasks: int) -> list[int]:
    """The same by dask alone, which tries nothing again that came back altered."""
    return [checked_files.unpack(content) for content in client.gather(client.map(echo, range(tasks), pure=False))]


def efficiency(alone: float, clock: float, workers: int) -> float:
    """How much of the workers' cores did what one process did in `alone` seconds."""
    return alone / (clock * min(workers, cores()))


def projected(chapters: Sequence[float], efficient: float) -> float:
    """Seconds for all chapters at `SEEDS` seeds on `MACHINES` workers, the longest chapter alone at the end."""
    return SEEDS * sum(chapters) / (MACHINES * efficient) + max(chapters)


def rates(tasks: int, needs: Needs) -> list[float]:
    """Empty tasks a CPU second: through the pool, and by dask alone."""
    found = []
    with cluster.pool(needs, content_keys.PACKAGE, address=None, workers=WORKERS, say=print) as pool:
        for name, every in (
            ("pool", lambda: through_the_pool(pool, tasks)),
            ("dask alone", lambda: plainly(pool.client, tasks)),
        ):
            began = time.perf_counter(), time.process_time()
            if sorted(every()) != [*range(tasks)]:
                raise SystemExit(f"{name}: not every task came back once.")
            clock, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
            found.append(tasks / cpu)
            print(f"{name}: {tasks / cpu:,.0f} tasks a CPU second, {tasks / clock:,.0f} by the clock", flush=True)
    return found


def runs(needs: Needs) -> tuple[float, list[dict[str, float]]]:
    """Seconds of the tasks that do something: here, and by the clock on each number of workers."""
    with one_thread():
        work(0)
        began = time.perf_counter()
        for number in range(WORKING):
            work(number)
        alone = time.perf_counter() - began
    found = []
    for workers in TRIED:
        with cluster.pool(needs, content_keys.PACKAGE, address=None, workers=workers, say=print) as pool:
            through_the_pool(pool, 2 * workers, work, ahead=2)  # they import what they need
            began = time.perf_counter()
            through_the_pool(pool, WORKING, work, ahead=2)
            clock = time.perf_counter() - began
        found.append({"workers": workers, "seconds": clock, "efficiency": efficiency(alone, clock, workers)})
        print(f"{workers} workers: {clock:.2f} s, {alone:.2f} s alone, efficiency {found[-1]['efficiency']:.0%}")
    return alone, found


def chapters(root: Path) -> dict[str, float]:
    """Seconds of each chapter in the last build, in the profile `ci`."""
    book = Book(root, root / "_build")
    found = {name: read_json(book.ledger(name)) for name in book.chapters if book.ledger(name).is_file()}
    lacking = [name for name in book.chapters if found.get(name, {}).get("profile") != "ci"]
    if lacking or not found:
        raise SystemExit(f"`make book` first: there is no finished run of {', '.join(lacking) or 'any chapter'}.")
    return {name: ledger["seconds"] for name, ledger in found.items()}


def record(rate: Sequence[float], alone: float, found: Sequence[Mapping[str, float]], root: Path) -> dict[str, Any]:
    """The content of `PATH`."""
    taken = chapters(root)
    full = next(run["efficiency"] for run in reversed(found) if run["workers"] <= cores())
    told = {"seeds": SEEDS, "workers": MACHINES, "seconds": projected([*taken.values()], full)}
    measured = {"tasks": WORKING, "seconds": alone, "cores": cores(), "runs": [*found], "rate": rate[0]}
    measured |= {"plain_rate": rate[1], "chapters": taken, "projected": told}
    return {**provenance("On several workers", "seconds by the clock", root=root), **measured}


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Time both sides and the workers; 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description="Time tasks through the pool of workers.")
    parser.add_argument("tasks", nargs="?", type=int, default=10_000)
    parser.add_argument("--record", action="store_true", help=f"write {PATH}, which the book shows")
    options = parser.parse_args(arguments)
    if options.record:
        chapters(root)
    needs = Needs((), (), "cpu")
    rate = rates(options.tasks, needs)
    print(f"at least {NEEDED} needed: {'✓' if rate[0] >= NEEDED else '✗'}")
    if options.record:
        write_json(root / PATH, record(rate, *runs(needs), root))
        print(f"Recorded in {PATH}.")
    return 0 if rate[0] >= NEEDED else 1


if __name__ == "__main__":
    import cluster as this_script  # workers import the task by its module's name

    raise SystemExit(this_script.main(sys.argv[1:]))
