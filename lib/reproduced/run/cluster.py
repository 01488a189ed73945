"""Workers of dask, processes of this machine or of others: the only module that imports it.

A run begins only if every worker has the code, the packages and the data that are here. Then chapters are calls like
any other: dask gives them to workers, and gives those of a lost worker to another. Results come back as bytes.
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dask import config
from distributed import Client, LocalCluster, get_worker
from packaging.requirements import Requirement

from leakage import store
from reproduced import code_keys, runtime
from reproduced.repository import UserError
from reproduced.run import chapter_cache
from reproduced.run.book import Book
from reproduced.run.run_chapters import ChapterExecutor, Execution, Task, ending_pipe, one_line, run_chapter

_ANSWER_SECONDS = 30  # within which a scheduler answers, and has a worker
_SECONDS_WITHOUT_WORKERS = 60  # without any worker, after which none is taken to come back
_RETRIES = 2  # how often dask repeats a call that raised an error; a chapter that fails raises none
_LOG = 100_000  # characters of a chapter's log that come back
_VERSIONS = "version of"
# What dask measures of itself many times a second takes a twentieth of two cores from the chapters.
_DASK_OPTIONS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
Inventory = Mapping[str, Mapping[str, Any]]


class ClusterLost(UserError):
    """Nothing more will come from the cluster."""

    status = 1


@dataclass(frozen=True)
class Needs:
    """What results depend on besides the code: packages, data sets, and the device that a parameter means."""

    packages: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    device: str = "cpu"


def chapter_needs(book: Book, chapters: Iterable[str], device: str) -> Needs:
    """The packages of the book's lock, and all data that the chapters declare."""
    lock = book.root / "requirements.txt"
    pins = lock.read_text("utf-8").splitlines() if lock.is_file() else []
    packages = (Requirement(line).name for line in pins if line.strip() and not line.startswith("#"))
    data = {name for chapter in chapters for name in book.declarations(chapter).data}
    return Needs(tuple(packages), tuple(sorted(data)), device=device)


def take_inventory(needs: Needs, library: Path = code_keys.LIB) -> Inventory:
    """What this machine has: code by its digests, versions, checksums of data, the kind of device.

    All code counts, even that in no cache key: the worker executes it.
    """
    code_keys.file_digest.cache_clear()  # a worker may be older than the files
    code = [path for name in store.PACKAGES for path in sorted((library / name).rglob("*"))]
    code = [path for path in code if path.is_file() and path.suffix != ".pyc"]
    files = {path.relative_to(library).as_posix(): path for path in code}
    versions = code_keys.environment(None) | {
        name: found for name in needs.packages if (found := _installed_version(name))
    }
    return {
        "file": {name: code_keys.file_digest(path) for name, path in files.items()},
        _VERSIONS: versions,
        "data": {name: chapter_cache.data_checksum(name) for name in needs.data},
        "kind of": {"device": code_keys.device_kind(runtime.pick_device(needs.device))},
    }


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_differences(here: Inventory, there: Inventory) -> list[str]:
    """Names of what differs; a package that only one of them has is no difference, for a chapter fails without it."""
    both = here[_VERSIONS].keys() & there[_VERSIONS].keys()
    one, other = ({**side, _VERSIONS: {n: side[_VERSIONS][n] for n in both}} for side in (here, there))
    return [*chapter_cache.differences(one, other)]


class Cluster:
    """The workers of a scheduler and what they can be asked to do, once `check_workers` has compared them with here."""

    def __init__(self, client: Client, *, is_local: bool, pipe: int | None = None) -> None:
        self._client: Any = client  # dask's annotations allow for coroutines, which only its asynchronous clients give
        self._is_local, self._pipe = is_local, pipe
        threads: Mapping[str, int] = self._client.nthreads()
        self._workers, self._threads = {*threads}, sum(threads.values())
        self._seen = time.monotonic()

    def check_workers(self, needs: Needs, library: Path = code_keys.LIB) -> None:
        """A `UserError` that names a worker and what is other there, if there is one."""
        here = take_inventory(needs, library)
        for worker, there in self._client.run(take_inventory, needs, on_error="return").items():
            if isinstance(there, Exception):
                why = f"cannot say what it has ({type(there).__name__}: {there})"
            elif differs := find_differences(here, there):
                more = f" and {len(differs) - 3} more" * (len(differs) > 3)
                why = f"differs from this machine in {', '.join(differs[:3])}{more}"
            else:
                continue
            raise UserError(one_line(f"nothing was started, for worker {worker} {why}."))

    def chapter_executor(self) -> ChapterExecutor:
        """The workers as what executes chapters."""
        # Processes of this machine are started anew where one was lost, and then have another address.
        options = {} if self._is_local else {"workers": [*self._workers]}
        executor = self._client.get_executor(pure=False, retries=_RETRIES, **options)

        def submit(task: Task) -> Future[bytes]:
            files = None if self._is_local else {name: path.read_bytes() for name, path in task.files.items()}
            return executor.submit(_run_there, task, files, self._pipe)

        return ChapterExecutor(submit, _result, self._check, jobs=self._threads)

    def _check(self) -> None:
        try:
            there = set(self._client.nthreads())
        except (OSError, TimeoutError, CancelledError) as error:
            raise _scheduler_lost() from error
        if there and (self._is_local or there & self._workers):
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _SECONDS_WITHOUT_WORKERS:
            raise ClusterLost("all workers are lost; what was finished is kept, and the next run goes on from there.")


@contextmanager
def connect(*, address: str | None, workers: int | None, as_threads: bool = False) -> Iterator[Cluster]:
    """The workers of the scheduler at `address`, or so many processes of this machine, reached from it alone.

    With `as_threads` they are threads of this process: enough for chapters, each of which has a process of its own.

    Raises:
        UserError: if no scheduler answers, or it has no workers.
    """
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # what matters is said in lines of ours
        try:
            local: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": None}
            local |= {"worker_dashboard_address": None, "silence_logs": logging.CRITICAL}
            if as_threads:
                local |= {"n_workers": 1, "threads_per_worker": workers, "processes": False, "protocol": "tcp"}
            else:
                local |= {"n_workers": workers, "threads_per_worker": 1}
            stack.enter_context(config.set(_DASK_OPTIONS))
            scheduler = address or stack.enter_context(LocalCluster(**local))
            client = stack.enter_context(Client(scheduler, timeout=_ANSWER_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise UserError(f"{address or 'this machine'} gives no workers: {one_line(error)}") from error
        # On leaving, chapters in threads of this process end first, or else dask would wait for them.
        pipe = stack.enter_context(ending_pipe()) if as_threads and address is None else None
        yield Cluster(client, is_local=address is None, pipe=pipe)


def _run_there(task: Task, files: Mapping[str, bytes] | None, pipe: int | None) -> bytes:
    """Execute a chapter on this worker; without `files`, its folders are those of the task, and its `pipe` is here.

    With `files` the worker is another machine: it writes them into a folder of its own, and imports its own packages.
    """
    # dask's workers give memory back to the system at once. A chapter that inherits this takes half as long again.
    os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
    if files is None:
        return _packed(run_chapter(task, pipe=pipe))
    with TemporaryDirectory(dir=get_worker().local_directory) as name:
        folder = Path(name)
        for file, content in files.items():
            store.write(folder / "book" / file, content)
        target = folder / task.target.name
        task = replace(task, folder=folder / "book", build=folder / "build", library=code_keys.LIB, target=target)
        execution = run_chapter(task)
        log = task.log.read_text("utf-8", "replace")[-_LOG:] if task.log.is_file() else ""
        return _packed(replace(execution, log=log, machine=chapter_cache.machine_provenance(task.parameters["device"])))


def _packed(execution: Execution) -> bytes:
    return json.dumps(asdict(execution)).encode()


def _result(future: Future[bytes]) -> Execution:
    try:
        return Execution(**json.loads(future.result()))
    except CancelledError as error:
        raise _scheduler_lost() from error
    except Exception as error:  # whatever a worker raises is a failure of this chapter, reported with its name
        return Execution(one_line(f"not executed: {type(error).__name__}: {error}"))


def _scheduler_lost() -> ClusterLost:
    return ClusterLost("the scheduler is gone; what was finished is kept, and the next run goes on from there.")
