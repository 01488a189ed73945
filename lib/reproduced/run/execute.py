"""Chapters are executed side by side, each in a process of its own, and their notebooks put in place.

`run` puts in place what a `Place` executes: `here`, or `cluster.Pool.place` on other machines. A process may die, hang
or be killed without harm to the others; what it had done, but for the last seconds, is kept and shown. The finished
notebook appears under its name in one step, so that a build which is killed resumes with the chapters that are missing.
"""

import multiprocessing as mp
import os
import queue
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from leakage import content_keys
from leakage.data import registry
from reproduced.run import executed
from reproduced.run.worker import Started, Task, execute, one_line

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# One thread to a chapter. Its batches are many small matrices: a second thread gains little on an idle machine and
# costs ten times the work on a busy one. And sums do not depend on how many cores there are.
THREADS = 1


@dataclass(frozen=True)
class Outcome:
    """How an execution ended; `cell` counts code cells from 1, and `error` is one line, "" if all went well.

    `durations` are the seconds that each code cell took, 0 where it was not run. `machine` is what `plan.machine` says
    where it ran, if that was elsewhere.
    """

    chapter: str
    seconds: float
    cell: int
    cells: int
    error: str = ""
    durations: tuple[float, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.error


Listener = Callable[[Started | Outcome], None]
Finish = Callable[[Task, NotebookNode, Outcome], None]
Executed = tuple[Task, NotebookNode | None, Outcome]
"""A task, its notebook as far as it was executed (`None`: not at all, which says nothing of it), and how it ended."""
Place = Callable[[Iterable[Task], Listener], Generator[Executed, None, None]]
"""Where tasks run: takes them one by one as there is room for them, and gives them back as they end."""


def run(tasks: Iterable[Task], *, place: Place, tell: Listener, finish: Finish) -> Iterator[tuple[Task, Outcome, bool]]:
    """Execute the tasks and put each notebook in its place; the task, how it ended, and whether it was executed.

    Args:
        tasks: the chapters; one that fails does not stop the others.
        place: where they run.
        tell: called with every event, under the name that the task is told by; from several threads.
        finish: adds to the executed notebook what it says of its execution, before it is written under its name.
    """
    with closing(place(tasks, tell)) as ended:
        for task, notebook, outcome in ended:
            if notebook is not None:
                finish(task, notebook, outcome)
                executed.write(task.target, notebook)
                task.partial.unlink(missing_ok=True)
            tell(replace(outcome, chapter=task.told_as))
            yield task, outcome, notebook is not None


def here(
    tasks: Iterable[Task], tell: Listener, *, jobs: int, gpus: Sequence[str] = (), processors: int = 1
) -> Generator[Executed, None, None]:
    """Execute tasks on this machine, `jobs` at a time, each in a process of its own.

    Args:
        tasks: the chapters.
        tell: called with the beginning of every cell.
        jobs: chapters at a time.
        gpus: ids to hand out through CUDA_VISIBLE_DEVICES, one to each running chapter while they last.
        processors: of this machine; where there are fewer chapters, each divides its grids among several.
    """
    left = iter(tasks)
    begun = list(islice(left, jobs))
    shared = {content_keys.PROCESSES_VARIABLE: str(max(1, processors // max(1, len(begun))))}
    free: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for number in range(jobs):
        free.put(shared | ({"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}))
    living: set[BaseProcess] = set()

    def supervise(task: Task) -> Executed:
        variables = free.get()
        began = time.monotonic()
        try:
            last, error = _watch(task, variables, living, lambda event: tell(replace(event, chapter=task.told_as)))
        finally:
            free.put(variables)
        return task, *_concluded(task, last, error, time.monotonic() - began)

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        running: set[Future[Executed]] = set()
        try:
            for task in chain(begun, left):
                running.add(pool.submit(supervise, task))
                while len(running) > jobs:  # one waits, so that no process has to
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in ended)
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        except BaseException:  # what is stopped is no failure of a chapter: nobody puts it in place
            pool.shutdown(wait=False, cancel_futures=True)
            for process in living.copy():
                process.terminate()
            raise


def _watch(task: Task, more: Mapping[str, str], living: set[BaseProcess], tell: Listener) -> tuple[Started, str]:
    """Run a task in its process, with more variables, and pass on its progress; the last cell begun, and the error."""
    for folder in (task.partial.parent, task.log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    task.partial.unlink(missing_ok=True)
    receiving, sending = mp.get_context("spawn").Pipe(duplex=False)
    process = mp.get_context("spawn").Process(
        target=execute, args=(task, {**task.variables, **more}, sending), daemon=True
    )
    process.start()
    living.add(process)
    sending.close()
    last, error = Started(task.chapter, 0, 0), None
    for message in _received(receiving):
        if isinstance(message, Started):
            last = message
            tell(last)
        else:
            error = message
    process.join()
    living.discard(process)
    return last, f"its process ended with exit code {process.exitcode}, see {task.log}" if error is None else error


def _received(receiving: Connection) -> Iterator[Started | str]:
    """What the other end sends, until it is closed or breaks off in the middle of a message."""
    while True:
        try:
            message = receiving.recv()
        except (EOFError, OSError):
            return
        yield message


def _concluded(task: Task, last: Started, error: str, seconds: float) -> tuple[NotebookNode, Outcome]:
    """The executed notebook, complete or not, with its error where it has one, and how it ended."""
    notebook, grown = _grown(task)
    error = error or _error_shown(notebook) or ("" if grown else "the executed notebook is not where it was written")
    outcome = Outcome(task.chapter, round(seconds, 1), last.cell, last.cells, error, _durations(notebook))
    _tidy(notebook)
    if not outcome.ok:
        _show_error(notebook, outcome)
    return notebook, outcome


def _grown(task: Task) -> tuple[NotebookNode, bool]:
    """The notebook as far as it was executed, and whether it was."""
    try:
        return nbformat.read(task.partial, as_version=4), True
    except (FileNotFoundError, ValueError):  # killed before, or while, it was written: no file, or not JSON
        return nbformat.reads(task.notebook, as_version=4), False


def _error_shown(notebook: NotebookNode) -> str:
    """The first error among the outputs: papermill lets `SystemExit` and cells that may raise pass, a page may not."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return one_line(f"{output.ename}: {output.evalue}")
    return ""


def _durations(notebook: NotebookNode) -> tuple[float, ...]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return tuple(round(cell.metadata.get("papermill", {}).get("duration") or 0.0, 3) for cell in cells)


def _tidy(notebook: NotebookNode) -> None:
    """Remove what the tools leave behind (paths and times of this machine), and fold the injected parameters."""
    notebook.cells = [c for c in notebook.cells if "papermill-error-cell-tag" not in c.metadata.get("tags", ())]
    for part in (notebook, *notebook.cells):
        for name in ("papermill", "jupytext", "execution"):
            part.metadata.pop(name, None)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "injected-parameters" in tags and "hide-input" not in tags:
            cell.metadata["tags"] = [*tags, "hide-input"]


def _show_error(notebook: NotebookNode, outcome: Outcome) -> None:
    """Make sure that the page shows the error, also if the kernel died before it could say anything."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = any(output.output_type == "error" for cell in code for output in cell.outputs)
    if code and not shown:
        name, _, text = outcome.error.partition(": ")
        output = nbformat.v4.new_output("error", ename=name, evalue=text, traceback=[outcome.error])
        code[max(0, min(outcome.cell, len(code)) - 1)].outputs.append(output)


def kernel_variables(*, package: Path, build: Path) -> dict[str, str]:
    """Environment of the kernels: limited threads, this interpreter's kernel, the repository's package, no bars.

    What a user has set up for their own sessions (start-up files, a way to draw) does not reach a kernel.
    """
    paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **{name: str(THREADS) for name in THREAD_VARIABLES},
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
        "IPYTHONDIR": str(build / "ipython"),
        "PYTHONSTARTUP": "",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        content_keys.BUILD_VARIABLE: str(build),
        content_keys.QUIET_VARIABLE: "1",
    }
    # Kernels start in another folder.
    return variables | ({"LEAKAGE_DATA": str(registry.folder())} if os.environ.get("LEAKAGE_DATA") else {})
