"""A chapter as an errand: what is sent to a worker for it, what the worker does, and what of its answer is believed.

A task carries its notebook, its parameters and the files of the book that it may read; code, packages and data must be
on the worker, which says what it has before and after. The chapter is executed as `execute.here` does it, and comes
back as bytes behind a checksum. Nothing is put in place here.
"""

import multiprocessing as mp
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode

from leakage import checked_files
from leakage.checked_files import Damaged
from leakage.content_keys import PACKAGE
from reproduced.run import execute
from reproduced.run.cluster import Call, Misfit, Pool, this_worker
from reproduced.run.equipment import Equipment, Needs, equipment, unlike
from reproduced.run.execute import Executed, Listener, Outcome
from reproduced.run.plan import machine
from reproduced.run.worker import Task, one_line

_LOG = 100_000  # characters of a chapter's log that come back


def place(
    tasks: Iterable[Task], tell: Listener, *, pool: Pool, needs: Needs, shared: bool
) -> Generator[Executed, None, None]:
    """An `execute.Place`: the workers of a pool.

    Args:
        tasks: the chapters.
        tell: not called; the beginnings of cells are not sent.
        pool: of workers that have what is needed.
        needs: of these chapters.
        shared: whether the workers see the folders of this process.
    """

    def calls() -> Iterator[Call]:
        for task in tasks:
            files = None if shared else {name: path.read_bytes() for name, path in task.files.items()}
            yield Call(task.key, task.told_as, (task, files, needs, pool.wanted))

    for call, found in pool.results(perform, calls(), believed):
        task: Task = call.arguments[0]
        if isinstance(found, Exception):
            error = one_line(f"not executed: {type(found).__name__}: {found}")
            yield task, None, Outcome(task.chapter, 0, 0, 0, error)
            continue
        notebook, outcome, log = found
        if not shared:
            checked_files.write(task.log, log.encode())
        yield task, notebook, outcome


def perform(task: Task, files: Mapping[str, bytes] | None, needs: Needs, wanted: Equipment) -> bytes:
    """Execute a chapter on this worker; what came of it, packed. Without `files`, its folders are those of the task."""
    said = {"key": task.key, "worker": this_worker().address}
    if differs := unlike(wanted, equipment(needs)):
        return checked_files.pack(said | {"unlike": differs})
    mp.current_process().daemon = False  # else it might start no process; those it starts end with it
    with nullcontext(task) if files is None else _desk(task, files) as there:
        ((_, notebook, outcome),) = execute.here([there], lambda event: None, jobs=1)
        assert notebook is not None, "what is executed here has one"
        log = there.log.read_text("utf-8", "replace")[-_LOG:] if there.log.is_file() else ""
    told = asdict(replace(outcome, machine=machine(needs.device)))
    said |= {"notebook": nbformat.writes(notebook), "outcome": told, "log": log}
    return checked_files.pack(said | {"unlike": unlike(wanted, equipment(needs))})


@contextmanager
def _desk(task: Task, files: Mapping[str, bytes]) -> Iterator[Task]:
    """The task in folders of this machine, which go once it was executed.

    A worker that is killed leaves them: finished points of the chapter's grids are not computed again if it comes back
    to this machine.
    """
    desk = Path(this_worker().local_directory).parent / "leakage" / task.key
    (desk / "tasks").mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=desk / "tasks") as name:
        root = Path(name, "book")
        for file, content in files.items():
            checked_files.write(root / file, content)
        variables = execute.kernel_variables(package=PACKAGE, build=desk)
        yield replace(
            task, folder=root, target=Path(name, task.target.name), log=Path(name, "log"), variables=variables
        )
    shutil.rmtree(desk, ignore_errors=True)


def believed(call: Call, content: bytes) -> tuple[NotebookNode, Outcome, str]:
    """The notebook, how it ended and its log, of what a worker has sent for a task."""
    found = checked_files.unpack(content)
    try:
        if found["unlike"]:
            raise Misfit(found["worker"], found["unlike"])
        if found["key"] != call.key:
            raise Damaged("it is another task's")
        notebook = nbformat.reads(found["notebook"], as_version=4)
        nbformat.validate(notebook)
        outcome = Outcome(**found["outcome"])
        return notebook, replace(outcome, durations=tuple(outcome.durations)), str(found["log"])
    except (KeyError, TypeError, AttributeError, ValueError, nbformat.ValidationError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"it is no executed notebook ({type(error).__name__})") from error
