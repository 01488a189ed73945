"""Run chapters: papermill executes each notebook in a process of its own, here or on a worker of dask.

A chapter's process may fail, hang or be killed without harm to the others. It ends with the process that started it,
however that ends, for its standard input ends then; its kernel notices within a second that its parent is gone.

Run as a script, this executes a notebook in place (`NOTEBOOK.ipynb OPTIONS`), or runs another Python program
(`PROGRAM ARGUMENTS`) and ends it when its standard input closes, which is used for jupyter-book. The script needs
little but papermill, so heavy modules of ours are not imported here.
"""

import functools
import io
import json
import logging
import math
import os
import queue
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from leakage import arguments
from reproduced import repository

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# One thread to a chapter. Its batches are many small matrices: a second thread gains little on an idle machine and
# costs ten times the work on a busy one. And sums do not depend on how many cores there are.
THREADS = 1
_HANG_SECONDS = 3600  # for a kernel that neither answers nor ends; the busiest machine answers sooner
_LONGEST_MESSAGE = 800  # characters
_LOOK_SECONDS = 0.5  # between two looks at what has ended
_BEGUN = re.compile(r"^Executing Cell (\d+)-", re.MULTILINE)  # what papermill logs when a cell begins


@dataclass(frozen=True)
class Task:
    """A chapter to execute: `notebook` (as JSON) with `parameters`, in a kernel that starts in `folder`.

    Attributes:
        build: the build folder that the kernel is told.
        library: the folder of the packages that the chapter imports.
        target: where the executed notebook will lie.
        processes: among how many the points of its grids are divided.
        name: by which people are told of it.
        files: those that it may read, by their names in `folder`, for a machine that has no such folder.
    """

    chapter: str
    name: str
    notebook: str
    parameters: Mapping[str, Any]
    folder: Path
    build: Path
    library: Path
    target: Path
    cell_seconds: int
    processes: int = 1
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def working_notebook(self) -> Path:
        """The notebook that the chapter's process executes in place."""
        return self.target.with_name(f"{self.chapter}.partial.ipynb")

    @property
    def log(self) -> Path:
        """What papermill, the kernel and the cells print."""
        return self.build / "logs" / f"{self.chapter}.log"


@dataclass(frozen=True)
class Execution:
    """An executed notebook (as JSON) and how its execution ended.

    `cell` counts code cells from 1: the last that was begun. `error` is one line, "" if all went well. A task that was
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
        """How the task ended, in one line: for a failure the cell and the last line of the error."""
        if not self.error:
            return f"✓ {name}: {self.cells} cells in {self.seconds:.1f} s"
        where = f"failed in cell {self.cell} of {self.cells}" if self.cell else "failed before its first cell"
        return f"✗ {name}: {where} after {self.seconds:.1f} s: {self.error}"


class ChapterExecutor(NamedTuple):
    """What executes chapters: processes of this machine, or workers of a scheduler."""

    submit: Callable[[Task], Future[Any]]  # starts a task
    result: Callable[[Future[Any]], Execution] = Future.result  # the execution of a task that has ended
    check: Callable[[], None] = lambda: None  # called now and then; raises an error if nothing more will come
    jobs: int = 1  # chapters at a time
    cores: int = 1  # shared by the chapters that run at a time, for their grids; 1 on workers


def run_chapters(
    tasks: Iterable[Task], executor: ChapterExecutor, progress: "Progress"
) -> Iterator[tuple[Task, Execution]]:
    """Execute the tasks in their order, and give each back when it has ended; a failure does not stop the others."""
    queue, running = iter(tasks), dict[Future[Any], Task]()

    def begin(count: int) -> None:
        for task in islice(queue, count):
            progress.begin(task)
            running[executor.submit(task)] = task

    begin(executor.jobs)  # no more: dask would divide the others among its workers before it knows which is free first
    try:
        while running:
            ended = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED).done
            for future in [one for one in running if one in ended]:
                task = running.pop(future)
                execution = executor.result(future)
                progress.end(task, execution)
                begin(1)
                yield task, execution
            executor.check()
    finally:
        for future in running:
            future.cancel()


@contextmanager
def local_executor(jobs: int, *, cores: int = 1, gpus: Sequence[str] = ()) -> Iterator[ChapterExecutor]:
    """Run `jobs` chapters at a time on this machine; each uses one of the GPUs, named as in CUDA_VISIBLE_DEVICES."""
    numbers, thread = queue.SimpleQueue[int](), threading.local()
    for number in range(jobs):
        numbers.put(number)

    def begin() -> None:
        gpu = gpus[numbers.get() % len(gpus)] if gpus else None
        thread.variables = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}

    with ThreadPoolExecutor(jobs, initializer=begin) as threads, ending_pipe() as pipe:

        def run(task: Task) -> Execution:
            return run_chapter(task, thread.variables, pipe=pipe)

        yield ChapterExecutor(lambda task: threads.submit(run, task), jobs=jobs, cores=cores)


@contextmanager
def ending_pipe() -> Iterator[int]:
    """A standard input for programs that this module runs as a script: they end when this block ends."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


def run_chapter(task: Task, variables: Mapping[str, str] | None = None, *, pipe: int | None = None) -> Execution:
    """Execute one chapter in a process of its own, with `variables` of its environment besides `kernel_variables`.

    The `pipe` is its standard input, at whose end it ends; by default that of `lifeline`.
    """
    began = time.monotonic()
    variables = kernel_variables(library=task.library, build=task.build) | dict(variables or {})
    try:
        status = _run_process(task, variables, lifeline() if pipe is None else pipe)
        log = task.log.read_text("utf-8", "replace")
    except OSError as error:
        return Execution(one_line(f"not executed: {error.filename}: {error.strerror}"))
    return _execution(task, status, log, time.monotonic() - began)


def _run_process(task: Task, variables: Mapping[str, str], pipe: int) -> int:
    """Execute `task.working_notebook`; the exit status, and on the last line of the log why it is not 0."""
    for folder in (task.working_notebook.parent, task.log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    task.working_notebook.write_text(task.notebook, "utf-8")
    variables = {**variables, repository.PROCESSES_VARIABLE: str(task.processes)}
    options = {"parameters": dict(task.parameters), "variables": variables, "cell_seconds": task.cell_seconds}
    command = [sys.executable, "-P", "-m", "reproduced.run.run_chapters", task.working_notebook, json.dumps(options)]
    with task.log.open("w", encoding="utf-8") as log:
        return subprocess.run(
            command, cwd=task.folder, stdin=pipe, stdout=log, stderr=log, start_new_session=True
        ).returncode


@functools.cache
def lifeline() -> int:
    """The standard input of a program that this module runs as a script: it ends when this process ends."""
    reading, _ = os.pipe()  # nobody writes into it; the other end stays open as long as this process lives
    return reading


def _execution(task: Task, status: int, log: str, seconds: float) -> Execution:
    """What came of a chapter's process: it may have been killed before it wrote its notebook."""
    import nbformat

    error = ""
    try:
        notebook = nbformat.read(task.working_notebook, as_version=4)
    except (OSError, ValueError):
        notebook = nbformat.reads(task.notebook, as_version=4)
        error = "its executed notebook cannot be read"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    begun = max(map(int, _BEGUN.findall(log)), default=0)
    last = sum(cell.cell_type == "code" for cell in notebook.cells[:begun])
    if status:
        told = one_line(log.rstrip().rpartition("\n")[2]) if status > 0 else ""
        error = told or f"its process ended with exit code {status}, see logs/{task.chapter}.log in the build folder"
    if error and code and not _first_error(notebook):  # a kernel that died could not say anything
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


def _first_error(notebook: Any) -> str:
    """The first error among the outputs, in one line; "" if there is none."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return next((one_line(f"{o.ename}: {o.evalue}") for o in outputs if o.output_type == "error"), "")


def kernel_variables(*, library: Path, build: Path) -> dict[str, str]:
    """Environment of the kernels: limited threads, this interpreter's kernel, the repository's packages, no bars.

    What a user has set up for their own sessions (start-up files, a way to draw) does not reach a kernel.
    """
    from leakage.data import datasets

    variables = {
        **{name: str(THREADS) for name in THREAD_VARIABLES},
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
        "IPYTHONDIR": str(build / "ipython"),
        "PYTHONSTARTUP": "",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join([str(library), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONHASHSEED": "0",
        repository.BUILD_VARIABLE: str(build),
        repository.QUIET_VARIABLE: "1",
    }
    # Kernels start in another folder.
    return variables | ({"LEAKAGE_DATA": str(datasets.data_folder())} if os.environ.get("LEAKAGE_DATA") else {})


def one_line(text: object) -> str:
    """`text` as a terminal can show it: without colours and line breaks, of bounded length."""
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(text)).split()
    return arguments.shorten(
        "".join(letter if letter.isprintable() else "�" for letter in " ".join(words)), _LONGEST_MESSAGE
    )


# ── what is told meanwhile ──────────────────────────────────────────────────────────────────────────────────────────


class Progress:
    """Says on `stream` which chapters begin and how each ends; on a terminal also the cells of those that run."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.expected = 0
        """If set, each end says how many of so many tasks have ended and how long the others will take."""
        self._stream = stream or sys.stdout
        self._running: dict[str, Path] = {}
        self._ended, self._began = 0, time.monotonic()
        self._lock, self._done = threading.Lock(), threading.Event()

    def __enter__(self) -> "Progress":
        if self._stream.isatty():
            threading.Thread(target=self._count_cells, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._write("")

    def say(self, line: str) -> None:
        """Write a line, unless the reader has gone: the work goes on without a witness."""
        self._write(f"{line}\n")

    def begin(self, task: Task) -> None:
        """Say that a task begins."""
        self._running[task.name] = task.log
        self.say(f"  {task.name}: running")

    def end(self, task: Task, execution: Execution) -> None:
        """Say how a task ended."""
        self._running.pop(task.name, None)
        self._ended += 1
        tally = ""
        if self.expected:
            minutes = (time.monotonic() - self._began) / self._ended * (self.expected - self._ended) / 60
            left = f", about {math.ceil(minutes)} min left" if self._ended < self.expected else ""
            tally = f" ({self._ended} of {self.expected} tasks{left})"
        self.say(execution.summary(task.name) + tally)

    def _count_cells(self) -> None:
        """Every second, write on the last line which cell each running chapter has begun."""
        while not self._done.wait(1):
            begun = [f"{name} {_last_cell(log)}" for name, log in self._running.copy().items()]
            self._write(f"  cells: {', '.join(begun)}"[: shutil.get_terminal_size().columns - 1] * bool(begun))

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                print(end="\r\x1b[K" + text if self._stream.isatty() else text, file=self._stream, flush=True)
            except OSError:
                self._stream = io.StringIO()


def _last_cell(log: Path) -> str:
    begun = _BEGUN.findall(log.read_text("utf-8", "replace")) if log.is_file() else []
    return begun[-1] if begun else "0"


# ── the script ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _execute_notebook(path: Path, *, parameters: dict[str, Any], variables: dict[str, str], cell_seconds: int) -> str:
    """Execute a notebook in place; the error as one line, "" if there is none."""
    os.environ.update(variables)
    import nbformat
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.engines import papermill_engines
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook
    from traitlets.config import Config

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    notebook = load_notebook_node(str(path))
    if parameters:
        notebook = parameterize_notebook(notebook, parameters, kernel_name="python3", language="python")
    nbformat.write(notebook, path)  # with the cell of the parameters, to be shown if this process is killed
    try:
        # Without an output path, for papermill would write the notebook before and after every cell.
        papermill_engines.execute_notebook_with_engine(
            None,
            notebook,
            kernel_name="python3",
            progress_bar=False,
            log_output=True,
            start_timeout=_HANG_SECONDS,
            execution_timeout=cell_seconds,
            iopub_timeout=_HANG_SECONDS,
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        )
    except CellTimeoutError:
        return f"CellTimeoutError: the cell took longer than {cell_seconds} s"
    except DeadKernelError:
        return "DeadKernelError: the kernel was killed or crashed (is there enough memory?)"
    except Exception as error:  # whatever the tools raise is a failure of this chapter, reported with its name
        return one_line(f"{type(error).__name__}: {error}")
    finally:
        nbformat.write(notebook, path)
    return _first_error(notebook)


def _end_with_standard_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    _, program, *rest = sys.argv
    if program.endswith(".ipynb"):
        sys.exit(_execute_notebook(Path(program), **json.loads(rest[0])) or 0)
    sys.argv = [program, *rest]
    runpy.run_path(program, run_name="__main__")
