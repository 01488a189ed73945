"""Execute plans: each notebook in a process of its own, here or on a worker of dask.

A chapter's process may fail, hang or be killed without harm to the others. It ends with the process that started it,
however that ends, for its standard input ends then; its kernel notices within a second that its parent is gone.
"""

import io
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import nbformat

from leakage.arguments import one_line
from leakage.data import datasets
from reproduced import repository
from reproduced.run.book import Book, write_notebook, write_text
from reproduced.run.chapter_cache import EXECUTION_KEY, Plan, execution_metadata, execution_provenance
from reproduced.run.notebook_process import first_error

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# One thread to a chapter. Its batches are many small matrices: a second thread gains little on an idle machine and
# costs ten times the work on a busy one. And sums do not depend on how many cores there are.
THREADS = 1
_HOUR = 3600
CELL_SECONDS = {"smoke": _HOUR, "ci": 6 * _HOUR, "paper": 48 * _HOUR}
"""After how long a cell counts as hanging, by profile: far beyond the slowest machine with the most other work."""
_LOOK_SECONDS = 0.5  # between two looks at what has ended
_BEGUN = re.compile(r"^Executing Cell (\d+)-", re.MULTILINE)  # what papermill logs when a cell begins


@dataclass(frozen=True)
class Execution:
    """An executed notebook (as JSON) and how its execution ended.

    `cell` counts code cells from 1: the last that was begun. `error` is one line, "" if all went well. A plan that was
    not executed at all has an error and no notebook. `machine` is the provenance of an execution elsewhere.
    """

    error: str = ""
    notebook: str = ""
    seconds: float = 0.0
    cell: int = 0
    cells: int = 0
    log: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)

    def summary(self, name: str) -> str:
        """How the execution ended, in one line: for a failure the cell and the last line of the error."""
        if not self.error:
            return f"✓ {name}: {self.cells} cells in {self.seconds:.1f} s"
        where = f"failed in cell {self.cell} of {self.cells}" if self.cell else "failed before its first cell"
        return f"✗ {name}: {where} after {self.seconds:.1f} s: {self.error}"


class ChapterExecutor(NamedTuple):
    """What executes chapters: processes of this machine, or workers of a scheduler."""

    submit: Callable[[Plan, int], Future[Any]]  # starts a plan that may divide its grids among so many processes
    result: Callable[[Future[Any]], Execution] = Future.result  # of a plan that has ended
    check: Callable[[], None] = lambda: None  # called now and then; raises an error if nothing more will come
    jobs: int = 1  # chapters at a time
    cores: int = 1  # shared by the chapters that run at a time, for their grids; 1 on workers


def run_plans(
    plans: Mapping[str, Plan], *, executor: ChapterExecutor, progress: "Progress"
) -> Iterator[tuple[Plan, Execution]]:
    """Execute plans in their order and put each notebook in its place when it ends; a failure does not stop the others.

    All are of one book and one device. Their names are those under which people are told of them. A plan that could
    not be executed gets no notebook.
    """
    if not plans:
        return
    first = next(iter(plans.values()))
    origin = execution_provenance(first.book, first.parameters["device"])
    processes = max(1, executor.cores // min(executor.jobs, len(plans)))
    waiting, running = iter(plans.items()), dict[Future[Any], tuple[str, Plan]]()

    def begin(count: int) -> None:
        for name, plan in islice(waiting, count):
            progress.begin(name, plan.log)
            running[executor.submit(plan, processes)] = name, plan

    begin(executor.jobs)  # no more: dask would divide the others among its workers before it knows which is free first
    try:
        while running:
            for future in wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
                name, plan = running.pop(future)
                execution = executor.result(future)
                progress.end(name, execution)
                begin(1)
                _keep(plan, execution, origin)
                yield plan, execution
            executor.check()
    finally:
        for future in running:
            future.cancel()


def _keep(plan: Plan, execution: Execution, origin: Mapping[str, Any]) -> None:
    """Write what came of an execution: the notebook with how it ended and where it ran, and a log from elsewhere."""
    if execution.notebook:
        notebook = nbformat.reads(execution.notebook, as_version=4)
        error = {"cell": execution.cell, "cells": execution.cells, "error": execution.error}
        told = execution_metadata(plan, error if execution.error else None, execution.seconds)
        began = datetime.now(UTC) - timedelta(seconds=execution.seconds)
        here = {**origin, "date": began.isoformat(timespec="seconds"), **execution.machine}
        notebook.metadata[EXECUTION_KEY] = told | here
        write_notebook(plan.target, notebook)
    if execution.log:
        write_text(plan.log, execution.log)
    plan.working_notebook.unlink(missing_ok=True)


@contextmanager
def local_executor(jobs: int, *, cores: int = 1) -> Iterator[ChapterExecutor]:
    """Run `jobs` chapters at a time on this machine."""
    with ThreadPoolExecutor(jobs) as threads, ending_pipe() as pipe:
        yield ChapterExecutor(lambda *given: threads.submit(run_chapter, *given, pipe=pipe), jobs=jobs, cores=cores)


@contextmanager
def ending_pipe() -> Iterator[int]:
    """A standard input for programs started through `notebook_process`: they end when this block or process ends."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


def run_chapter(plan: Plan, processes: int = 1, *, pipe: int) -> Execution:
    """Execute one notebook in a process of its own; the `pipe` is its standard input, at whose end it ends."""
    began = time.monotonic()
    try:
        status = _run_process(plan, processes, pipe)
        log = plan.log.read_text("utf-8", "replace")
    except OSError as error:
        return Execution(one_line(f"not executed: {error.filename}: {error.strerror}"))
    return _execution(plan, status, log, time.monotonic() - began)


def _run_process(plan: Plan, processes: int, pipe: int) -> int:
    """Execute `plan.working_notebook`; the exit status, and on the last line of the log why it is not 0."""
    for folder in (plan.working_notebook.parent, plan.log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    plan.working_notebook.write_text(nbformat.writes(plan.notebook), "utf-8")
    variables = kernel_variables(plan.book) | {repository.PROCESSES_VARIABLE: str(processes)}
    seconds = CELL_SECONDS.get(plan.parameters.get("profile", ""), _HOUR)
    options = {"parameters": dict(plan.parameters), "variables": variables, "cell_seconds": seconds}
    with plan.log.open("w", encoding="utf-8") as log:
        return subprocess.run(
            [*SCRIPT, plan.working_notebook, json.dumps(options)],
            cwd=plan.book.root,
            stdin=pipe,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).returncode


SCRIPT = (sys.executable, "-P", "-m", "reproduced.run.notebook_process")
"""Executes the notebook that follows, or runs another Python program, until the standard input ends."""


def _execution(plan: Plan, status: int, log: str, seconds: float) -> Execution:
    """What came of a chapter's process: it may have been killed before it wrote its notebook."""
    error = ""
    try:
        notebook = nbformat.read(plan.working_notebook, as_version=4)
    except (OSError, ValueError):
        notebook = nbformat.reads(nbformat.writes(plan.notebook), as_version=4)
        error = "its executed notebook cannot be read"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    begun = max(map(int, _BEGUN.findall(log)), default=0)
    last = sum(cell.cell_type == "code" for cell in notebook.cells[:begun])
    if status:
        told = one_line(log.rstrip().rpartition("\n")[2]) if status > 0 else ""
        error = told or f"its process ended with exit code {status}, see logs/{plan.chapter}.log in the build folder"
    if error and code and not first_error(notebook):  # a kernel that died could not say anything
        name, _, text = error.partition(": ")
        output = nbformat.v4.new_output("error", ename=name, evalue=text, traceback=[error])
        code[max(last, 1) - 1].setdefault("outputs", []).append(output)
    for part in (notebook, *notebook.cells):  # paths and times of this machine
        for name in ("papermill", "jupytext", "execution"):
            part.metadata.pop(name, None)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "injected-parameters" in tags and "hide-input" not in tags:
            cell.metadata["tags"] = [*tags, "hide-input"]
    return Execution(error, nbformat.writes(notebook), round(seconds, 1), last, len(code))


def kernel_variables(book: Book) -> dict[str, str]:
    """Environment of the kernels: limited threads, this interpreter's kernel, the repository's packages, no bars.

    What a user has set up for their own sessions (start-up files, a way to draw) does not reach a kernel.
    """
    variables = {
        **{name: str(THREADS) for name in THREAD_VARIABLES},
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
        "IPYTHONDIR": str(book.build / "ipython"),
        "PYTHONSTARTUP": "",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join([str(book.library), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONHASHSEED": "0",
        repository.BUILD_VARIABLE: str(book.build),
        repository.QUIET_VARIABLE: "1",
    }
    # Kernels start in another folder.
    return variables | ({"LEAKAGE_DATA": str(datasets.data_folder())} if os.environ.get("LEAKAGE_DATA") else {})


# ── what is told meanwhile ──────────────────────────────────────────────────────────────────────────────────────────


class Progress:
    """Says on the standard output which chapters begin, where the log of each is written, and how each ends."""

    def __init__(self) -> None:
        self.expected = 0
        """If set, each end says how many of so many chapters have ended and how long the others will take."""
        self._stream: TextIO = sys.stdout
        self._ended, self._began = 0, time.monotonic()

    def say(self, line: str) -> None:
        """Write a line, unless the reader has gone: the work goes on without a witness."""
        try:
            print(line, file=self._stream, flush=True)
        except OSError:
            self._stream = io.StringIO()

    def begin(self, name: str, log: Path) -> None:
        """Say that an execution begins, which writes this log."""
        self.say(f"  {name}: running, see {log}")

    def end(self, name: str, execution: Execution) -> None:
        """Say how an execution ended."""
        self._ended += 1
        tally = ""
        if self.expected:
            minutes = (time.monotonic() - self._began) / self._ended * (self.expected - self._ended) / 60
            left = f", about {math.ceil(minutes)} min left" if self._ended < self.expected else ""
            tally = f" ({self._ended} of {self.expected} tasks{left})"
        self.say(execution.summary(name) + tally)
