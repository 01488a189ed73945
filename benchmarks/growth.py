"""How time and memory grow, ours beside the straightforward ways. `python benchmarks/growth.py [--record]`.

`growth_axes` says what is measured, `growing` how. `--only` takes a few axes, to try them; such a run is not recorded.
The exit status is 1 if an exponent differs from its theory and no note says why.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import growth_axes
from growing import Axis, lines, machine, record, unexplained
from leakage.pipeline.storage import write_json
from timing import ROOT, one_thread

PATH = "book/records/growth.json"


def run(
    arguments: Sequence[str] | None = None,
    *,
    axes: Callable[[], Iterable[Axis]] = growth_axes.axes,
    root: Path = ROOT,
) -> int:
    """Run from the command line, print every curve, and with `--record` write them to `PATH` under `root`."""
    parser = argparse.ArgumentParser(description="Measure how the book's algorithms grow with their sizes.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--record", action="store_true", help=f"write {PATH}, which the book shows")
    choice.add_argument("--only", default="", help="axes whose id has this in it")
    options = parser.parse_args(arguments)
    start, rows = time.process_time(), []
    with one_thread():
        reached = machine()
        print(", ".join(f"{name} {value / 1e9:.3g} G/s" for name, value in reached.items()))
        for line in lines((axis for axis in axes() if options.only in axis.id), reached, rows):
            print(line, flush=True)
    print(f"\n{time.process_time() - start:.0f} CPU seconds of one thread.")
    if options.record:
        write_json(root / PATH, record(rows, reached, root=root))
        print(f"Recorded in {PATH}.")
    left = list(unexplained(rows))
    print("".join(f"Unexplained: {one}\n" for one in left), end="")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(run())
