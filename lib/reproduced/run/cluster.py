"""Workers of a scheduler of dask, on this machine or on others: the only module that imports it.

A run begins only if every worker has the code, the packages and the data that are here. Then chapters are calls like
any other: dask gives them to workers, and gives those of a lost worker to another. Results come back as bytes.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distributed import Client, get_worker

from leakage import store
from leakage.arguments import UserError, one_line
from reproduced import code_keys, runtime
from reproduced.run import chapter_cache
from reproduced.run.book import Book
from reproduced.run.chapter_cache import Plan
from reproduced.run.executor import ChapterExecutor, Execution, ending_pipe, run_chapter

_ANSWER_SECONDS = 30  # within which a scheduler answers, and has a worker
_SECONDS_WITHOUT_WORKERS = 60  # without any worker, after which none is taken to come back
_RETRIES = 2  # how often dask repeats a call that raised an error; a chapter that fails raises none
_LOG = 100_000  # characters of a chapter's log that come back
Inventory = Mapping[str, Mapping[str, Any]]


class ClusterLost(UserError):
    """Nothing more will come from the cluster."""

    status = 1


@contextmanager
def cluster_executor(address: str, book: Book, chapters: Sequence[str], device: str) -> Iterator[ChapterExecutor]:
    """The workers of the scheduler at `address` as what executes these chapters.

    Raises:
        UserError: if no scheduler answers, it has no workers, or one of them is not like this machine.
    """
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # what matters is said in lines of ours
        try:
            # Its annotations allow for coroutines, which only its asynchronous clients give.
            client: Any = stack.enter_context(Client(address, timeout=_ANSWER_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise UserError(f"{address} gives no workers: {one_line(error)}") from error
        _check_workers(client, book, chapters, device)
        workers: Mapping[str, int] = client.nthreads()
        executor = client.get_executor(pure=False, retries=_RETRIES, workers=[*workers])

        def submit(plan: Plan, processes: int) -> Future[bytes]:
            return executor.submit(_run_there, plan, {name: path.read_bytes() for name, path in plan.files.items()})

        yield ChapterExecutor(submit, _result, _Watch(client, workers).check, jobs=sum(workers.values()))


class _Watch:
    """Looks whether any of the workers is still there."""

    def __init__(self, client: Any, workers: Mapping[str, int]) -> None:
        self._client, self._workers, self._seen = client, workers.keys(), time.monotonic()

    def check(self) -> None:
        """A `ClusterLost` if the scheduler is gone, or all workers for so long that none is taken to come back."""
        try:
            there = self._client.nthreads().keys()
        except (OSError, TimeoutError, CancelledError) as error:
            raise _scheduler_lost() from error
        if there & self._workers:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _SECONDS_WITHOUT_WORKERS:
            raise ClusterLost("all workers are lost; what was finished is kept, and the next run goes on from there.")


def _scheduler_lost() -> ClusterLost:
    return ClusterLost("the scheduler is gone; what was finished is kept, and the next run goes on from there.")


# ── whether a worker is like this machine ───────────────────────────────────────────────────────────────────────────


def _check_workers(client: Any, book: Book, chapters: Sequence[str], device: str) -> None:
    """A `UserError` that names a worker and what is other there, if there is one."""
    data = sorted({name for chapter in chapters for name in book.declarations(chapter).data})
    here = take_inventory(data, device, book.library)
    for worker, there in client.run(take_inventory, data, device, on_error="return").items():
        if isinstance(there, Exception):
            why = f"cannot say what it has ({type(there).__name__}: {there})"
        elif differs := [*chapter_cache.differences(here, there)]:
            more = f" and {len(differs) - 3} more" * (len(differs) > 3)
            why = f"differs from this machine in {', '.join(differs[:3])}{more}"
        else:
            continue
        raise UserError(one_line(f"nothing was started, for worker {worker} {why}."))


def take_inventory(data: Sequence[str], device: str, library: Path = code_keys.LIB) -> Inventory:
    """What this machine has: code by its digest, versions, checksums of data, the kind of device.

    As in the key of a chapter, but that all code counts: the worker executes it.
    """
    code_keys.file_digest.cache_clear()  # a worker may be older than the files
    code = [path for name in store.PACKAGES for path in sorted((library / name).rglob("*"))]
    code = [path for path in code if path.is_file() and path.suffix != ".pyc"]
    return {
        "file": {path.relative_to(library).as_posix(): code_keys.file_digest(path) for path in code},
        "version of": code_keys.environment(None),
        "data": {name: chapter_cache.data_checksum(name) for name in data},
        "kind of": {"device": code_keys.device_kind(runtime.pick_device(device))},
    }


# ── what a worker does ──────────────────────────────────────────────────────────────────────────────────────────────


def _run_there(plan: Plan, files: Mapping[str, bytes]) -> bytes:
    """Execute a chapter on this worker, in a folder of its own that holds `files`, with its own packages."""
    # dask's workers give memory back to the system at once. A chapter that inherits this takes half as long again.
    os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
    with TemporaryDirectory(dir=get_worker().local_directory) as name:
        book = Book(Path(name, "book"), Path(name, "build"))
        for file, content in files.items():
            store.write(book.root / file, content)
        plan = replace(plan, book=book, target=book.build / plan.target.name)
        with ending_pipe() as pipe:
            execution = run_chapter(plan, pipe=pipe)
        log = plan.log.read_text("utf-8", "replace")[-_LOG:] if plan.log.is_file() else ""
        machine = chapter_cache.machine_provenance(plan.parameters["device"])
        return json.dumps(asdict(replace(execution, log=log, machine=machine))).encode()


def _result(future: Future[bytes]) -> Execution:
    try:
        return Execution(**json.loads(future.result()))
    except CancelledError as error:
        raise _scheduler_lost() from error
    except Exception as error:  # whatever a worker raises is a failure of this chapter, reported with its name
        return Execution(one_line(f"not executed: {type(error).__name__}: {error}"))
