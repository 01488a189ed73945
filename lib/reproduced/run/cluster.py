"""The workers of `dask.distributed`, processes of this machine or of others: the only module that imports it.

Each worker is asked what it has, and is given work only if that is what is here. Results come back as bytes, and who
asked judges whether they can be believed. Which worker does what, and does it again after another was lost, is dask's
affair: nothing here schedules.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import click
from dask import config
from distributed import Client, Future, LocalCluster, Worker, as_completed, get_worker

from leakage.checked_files import Damaged
from reproduced.run.book import Refusal
from reproduced.run.equipment import Equipment, Needs, equipment, unlike
from reproduced.run.worker import one_line

_ATTEMPTS = 3  # how often a call is made whose results cannot be believed
_RETRIES = 2  # how often dask makes a call again that raised an error
_ANSWER_SECONDS = 30  # within which a scheduler answers, and has a worker
_LONELY_SECONDS = 300  # without a worker that fits, after which none is taken to come
_LOOK_SECONDS = 1.0
_PAUSE = 0.05  # seconds between two looks at what has come
# A chapter takes minutes on a core that also bears this: dask looks around less often than where tasks take moments.
_OF_OURS = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
_Found = TypeVar("_Found")


class Lost(click.ClickException):
    """The cluster is gone."""

    exit_code = 1


class Misfit(Damaged):
    """What was sent by a worker that is not, or no more, what it must be; `differs` names what is other."""

    def __init__(self, worker: str, differs: Sequence[str]) -> None:
        more = f" and {len(differs) - 3} more" if len(differs) > 3 else ""
        super().__init__(f"other than here are {', '.join(differs[:3])}{more}")
        self.worker = worker


@dataclass(frozen=True)
class Call:
    """What a worker is asked to do: `key` says it all, `name` is for people."""

    key: str
    name: str
    arguments: tuple[Any, ...] = field(repr=False)


def this_worker() -> Worker:
    """The worker that makes this call."""
    return get_worker()


async def _equipment(needs: Needs) -> Equipment:
    return await asyncio.to_thread(equipment, needs)  # meanwhile the worker answers others


class Pool:
    """The workers of a cluster that have what is needed.

    Args:
        client: connected to it.
        needs: what they are asked for.
        package: which they must have.
        say: told of every worker that is refused and every result that is not believed.
    """

    def __init__(self, client: Client, needs: Needs, package: Path, *, say: Callable[[str], None]) -> None:
        self.client: Any = client  # dask's annotations allow for coroutines, which only its asynchronous clients give
        self._needs, self._say = needs, say
        self.wanted = equipment(needs, package)
        self._fit: dict[str, int] = {}
        self._refused: set[str] = set()
        self._looked = -math.inf

    def look(self) -> Mapping[str, int]:
        """The workers that are there and fit, with their threads; who has come since the last look is asked.

        Raises:
            Lost: if the scheduler is gone.
        """
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return self._fit
        try:
            there = self.client.nthreads()
            new = [worker for worker in there if worker not in self._fit and worker not in self._refused]
            answers = self.client.run(_equipment, self._needs, workers=new, on_error="return") if new else {}
        except (OSError, TimeoutError, CancelledError) as error:
            raise _lost() from error
        for worker, found in answers.items():
            if isinstance(found, Exception):
                self._refuse(worker, f"it cannot say what it has ({type(found).__name__}: {found})")
            elif differs := unlike(self.wanted, found):
                self._refuse(worker, str(Misfit(worker, differs)))
        self._fit = {worker: threads for worker, threads in there.items() if worker not in self._refused}
        self._looked = time.monotonic()
        return self._fit

    def _refuse(self, worker: str, why: str) -> None:
        self._fit.pop(worker, None)
        if worker not in self._refused:
            self._refused.add(worker)
            self._say(f"  worker {worker} is refused: {one_line(why)}")

    def results(
        self,
        function: Callable[..., bytes],
        calls: Iterable[Call],
        believe: Callable[[Call, bytes], _Found],
        *,
        ahead: int = 1,
    ) -> Generator[tuple[Call, _Found | Exception], None, None]:
        """What `believe` makes of the bytes that each call returns, or an error, as they come.

        Args:
            function: of a module that the workers have.
            calls: taken one by one, as there is room.
            believe: raises `Damaged` for bytes that cannot be believed; the call is then made again.
            ahead: calls under way for each thread; beyond one they are sent before there is a thread free for them, and
                may wait behind a long one.

        Raises:
            Lost: if the scheduler is gone, or no worker that fits has been there for five minutes.
        """
        waiting = as_completed(with_results=True, raise_errors=False, loop=self.client.loop)
        begun: dict[Future, tuple[Call, set[str]]] = {}
        turns, doubts = Counter[str](), Counter[str]()
        left, seen = iter(calls), time.monotonic()
        try:
            while True:
                fit = self.look()
                seen = time.monotonic() if fit else seen
                if time.monotonic() - seen > _LONELY_SECONDS:
                    raise Lost("no worker that fits is left; what was finished is kept.")
                # dask waits for the workers named; those that have come in their place have other addresses.
                stranded = [future for future, (_, workers) in begun.items() if fit and workers.isdisjoint(fit)]
                if stranded:  # to cancel nothing takes a message, too
                    left = chain([begun.pop(future)[0] for future in stranded], left)
                    self.client.cancel(stranded)
                batch = list(islice(left, max(0, ahead * sum(fit.values()) - len(begun))))
                if fit and not batch and not begun:
                    return
                if batch:
                    turns.update(call.key for call in batch)
                    keys = [f"{call.name}-{call.key[:16]}-{turns[call.key]}" for call in batch]
                    columns = zip(*(call.arguments for call in batch), strict=True)
                    where = {"workers": [*fit], "retries": _RETRIES, "pure": False}
                    futures = self.client.map(function, *columns, key=keys, **where)
                    begun |= {future: (call, {*fit}) for future, call in zip(futures, batch, strict=True)}
                    waiting.update(futures)
                if not waiting.has_ready():
                    time.sleep(_PAUSE)
                for future, result in waiting.next_batch(block=False):
                    if future not in begun:
                        continue  # stranded
                    (call, _), found = begun.pop(future), None
                    if future.status == "finished":
                        try:
                            found = believe(call, result)
                        except Damaged as error:
                            self._doubt(call, error)
                            doubts[call.key] += 1
                            found = error if doubts[call.key] == _ATTEMPTS else None
                            left = left if found else chain([call], left)
                    elif future.status == "error":
                        found = result[1]
                    else:
                        raise _lost()
                    if found is not None:
                        yield call, found
        finally:
            self.client.cancel([*begun])

    def _doubt(self, call: Call, error: Damaged) -> None:
        if isinstance(error, Misfit):
            self._refuse(error.worker, str(error))
        else:
            self._say(f"  {call.name}: its result is not believed, for {error}; it is done again")


def _lost() -> Lost:
    return Lost("the scheduler is gone; what was finished is kept, and the next run goes on from there.")


@contextmanager
def pool(
    needs: Needs, package: Path, *, address: str | None, workers: int | None, say: Callable[[str], None]
) -> Iterator[Pool]:
    """The workers of the scheduler at `address`, or as many processes of this machine, reached from it alone.

    Raises:
        Refusal: if no scheduler answers, or none of its workers fits.
    """
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # what matters is said in lines of ours
        try:
            stack.enter_context(config.set(_OF_OURS))
            local: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "silence_logs": logging.CRITICAL}
            local |= {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": None}
            scheduler = address or stack.enter_context(LocalCluster(**local))
            client = stack.enter_context(Client(scheduler, timeout=_ANSWER_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise Refusal(f"{address or 'this machine'} gives no workers: {one_line(str(error))}") from error
        found = Pool(client, needs, package, say=say)
        if not found.look():
            raise Refusal("none of the workers fits; what is other is said above.")
        yield found
