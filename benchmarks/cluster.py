"""Tasks per second through the pool of workers. `python benchmarks/cluster.py`.

Ten thousand tasks that do nothing go to two processes of this machine and come back, each behind its checksum; 500 a
second are promised. The other side is dask's own map and gather. The clock is the wall's, since several processes share
the work; chapters take seconds to minutes, so this only says that no book waits for its messenger.
"""

import time

from distributed import Client

from leakage import checked_files, content_keys
from leakage.pipeline import cluster
from leakage.pipeline.equipment import Needs

TASKS, WORKERS, NEEDED = 10_000, 2, 500
AHEAD = 250  # calls under way for each thread: a tiny one is done before the next is sent


def echo(number: int) -> bytes:
    """A task that does nothing."""
    return checked_files.pack(number)


def through_the_pool(pool: cluster.Pool) -> list[int]:
    """Every number, believed, in the order in which they came."""
    calls = (cluster.Call(f"{number:016}", "echo", (number,)) for number in range(TASKS))
    return [
        found for _, found in pool.results(echo, calls, lambda _, content: checked_files.unpack(content), ahead=AHEAD)
    ]


def plainly(client: Client) -> list[int]:
    """The same by dask alone, which believes what comes."""
    return [checked_files.unpack(content) for content in client.gather(client.map(echo, range(TASKS), pure=False))]


def main() -> int:
    """Time both sides once, after a first task of each; 1 if the promise is not kept."""
    needs = Needs((), (), "cpu")
    with cluster.pool(needs, content_keys.PACKAGE, address=None, workers=WORKERS, say=print) as pool:
        rates = []
        for name, work in (("pool", lambda: through_the_pool(pool)), ("dask alone", lambda: plainly(pool.client))):
            began = time.perf_counter()
            found = work()
            rates.append(TASKS / (time.perf_counter() - began))
            if sorted(found) != [*range(TASKS)]:
                raise SystemExit(f"{name}: not every task came back once.")
            print(f"{name}: {rates[-1]:,.0f} tasks a second", flush=True)
    print(f"at least {NEEDED} needed: {'✓' if rates[0] >= NEEDED else '✗'}")
    return 0 if rates[0] >= NEEDED else 1


if __name__ == "__main__":
    import cluster as this_script  # workers import the task by its module's name

    raise SystemExit(this_script.main())
