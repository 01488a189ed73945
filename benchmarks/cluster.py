"""Tasks per second through the pool of workers. `python benchmarks/cluster.py [TASKS]`, 10,000 by default.

Tasks that do nothing go to two processes of this machine and come back, each behind its checksum; 500 a second are
promised. The other side is dask's own map and gather. Client and scheduler share one process, which is what everything
waits for, so the rate that counts is that of its CPU seconds: the clock's, where a core is idle.
"""

import sys
import time
from typing import Any

from leakage import checked_files, content_keys
from leakage.pipeline import cluster
from leakage.pipeline.equipment import Needs

WORKERS, NEEDED = 2, 500
AHEAD = 250  # calls under way for each thread: a tiny one is done before the next is sent


def echo(number: int) -> bytes:
    """A task that does nothing."""
    return checked_files.pack(number)


def through_the_pool(pool: cluster.Pool, tasks: int) -> list[Any]:
    """Every number, believed, in the order in which they came."""
    calls = (cluster.Call(f"{number:016}", "echo", (number,)) for number in range(tasks))
    found = pool.results(echo, calls, lambda _, content: checked_files.unpack(content), ahead=AHEAD)
    return [number for _, number in found]


def plainly(client: Any, tasks: int) -> list[int]:
    """The same by dask alone, which tries nothing again that came back altered."""
    return [checked_files.unpack(content) for content in client.gather(client.map(echo, range(tasks), pure=False))]


def main(tasks: int = 10_000) -> int:
    """Time both sides; 1 if the promise is not kept."""
    needs, rates = Needs((), (), "cpu"), []
    with cluster.pool(needs, content_keys.PACKAGE, address=None, workers=WORKERS, say=print) as pool:
        for name, work in (
            ("pool", lambda: through_the_pool(pool, tasks)),
            ("dask alone", lambda: plainly(pool.client, tasks)),
        ):
            began = time.perf_counter(), time.process_time()
            if sorted(work()) != [*range(tasks)]:
                raise SystemExit(f"{name}: not every task came back once.")
            clock, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
            rates.append(tasks / cpu)
            print(f"{name}: {tasks / cpu:,.0f} tasks a CPU second, {tasks / clock:,.0f} by the clock", flush=True)
    print(f"at least {NEEDED} needed: {'✓' if rates[0] >= NEEDED else '✗'}")
    return 0 if rates[0] >= NEEDED else 1


if __name__ == "__main__":
    import cluster as this_script  # workers import the task by its module's name

    raise SystemExit(this_script.main(*map(int, sys.argv[1:])))
