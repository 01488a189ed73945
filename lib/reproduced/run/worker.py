"""A chapter's process: papermill executes the notebook in it and tells the runner, over a pipe, how far it is.

This module is what such a process imports first, so it must stay free of heavy imports; papermill is loaded once the
runner is being watched. The process ends itself and its kernel when the runner is gone or says so. Run as a script, it
becomes the Python program named in its arguments, which ends with whoever holds the other end of its standard input.
"""

import gc
import multiprocessing as mp
import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from leakage import arguments

_HANG_SECONDS = 3600  # for a kernel that neither answers nor ends; the busiest machine answers sooner
_SAVE_SECONDS = 10  # between two writes of a notebook that grows: a write takes longer than most cells
_STARTS = 3  # of a kernel: its ports are chosen before it takes them, and on a busy machine another may be quicker
_LONGEST_MESSAGE = 800  # characters


@dataclass(frozen=True)
class Task:
    """A chapter to be executed: `notebook` (as JSON) with `parameters`, in a kernel that starts in `folder`.

    `key` is its content key, `name` what its progress is told by, if not by the chapter; `files` are those that it may
    read, by their names in `folder`, for a machine that has no such folder.
    """

    chapter: str
    notebook: str
    parameters: Mapping[str, Any]
    target: Path
    folder: Path
    log: Path
    cell_seconds: int
    variables: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    name: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def told_as(self) -> str:
        """What its progress is told by."""
        return self.name or self.chapter

    @property
    def partial(self) -> Path:
        """Where the notebook grows while it is executed."""
        return self.target.with_name(f"{self.chapter}.partial.ipynb")


@dataclass(frozen=True)
class Started:
    """A chapter has begun the `cell`-th of `cells` code cells."""

    chapter: str
    cell: int
    cells: int


def execute(task: Task, variables: Mapping[str, str], sending: Connection) -> None:
    """Execute the chapter and send events, and at last the error, "" if there is none."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the whole group; the runner decides
    signal.signal(signal.SIGTERM, lambda *_: _end())
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    os.environ.update(variables)
    try:
        with task.log.open("w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    except OSError as unwritable:
        error = one_line(f"{task.log}: {unwritable.strerror}")
    else:
        error = _papermill(task, sending)
    sending.send(error)
    sending.close()


def _end_with_the_runner() -> None:
    """A runner that was killed could not stop its chapters: they notice."""
    runner = mp.parent_process()
    assert runner is not None, "a chapter's process is started by the runner"
    wait([runner.sentinel])
    _end()


def _end() -> None:
    """End this process at once, with its kernel and whatever that has started: a kernel leads a group."""
    for kernel in psutil.Process().children():
        with suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)
    os._exit(1)


def _papermill(task: Task, sending: Connection, *, starts: int = _STARTS) -> str:
    """Run papermill; the error as one line, "" if there is none. A kernel that dies before a cell began is replaced."""
    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    begun = threading.Event()

    class Reporting(NBClientEngine):
        """The usual engine, which tells when a code cell begins and writes the notebook only now and then.

        By itself it writes all of it before and after every cell of text and of code.
        """

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, *args: Any, **kwargs: Any) -> Any:
            code = [index for index, cell in enumerate(nb_man.nb.cells) if cell.cell_type == "code"]
            complete, save = nb_man.cell_complete, nb_man.save

            def cell_start(cell: Any, cell_index: int, **rest: Any) -> None:
                begun.set()
                cell.metadata.papermill["start_time"] = nb_man.now().isoformat()
                if cell_index in code:
                    sending.send(Started(task.chapter, code.index(cell_index) + 1, len(code)))

            def cell_complete(cell: Any, cell_index: int, **rest: Any) -> None:
                if cell_index in code:
                    complete(cell, cell_index, **rest)

            def seldom(**rest: Any) -> None:
                if (nb_man.now() - nb_man.last_save_time).total_seconds() >= _SAVE_SECONDS:
                    save(**rest)

            nb_man.cell_start, nb_man.cell_complete, nb_man.save = cell_start, cell_complete, seldom
            try:
                return super().execute_managed_notebook(nb_man, kernel_name, *args, **kwargs)
            finally:
                nb_man.save = save  # papermill writes at the end, however it comes

    papermill_engines.register("reporting", Reporting)
    try:
        papermill.execute_notebook(
            nbformat.reads(task.notebook, as_version=4),
            re.sub("[{}]", r"\g<0>\g<0>", str(task.partial)),  # papermill fills in what stands in braces
            parameters=dict(task.parameters),
            engine_name="reporting",
            kernel_name="python3",
            progress_bar=False,
            cwd=task.folder,
            start_timeout=_HANG_SECONDS,
            execution_timeout=task.cell_seconds,
            iopub_timeout=_HANG_SECONDS,
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        )
    except PapermillExecutionError as error:
        return one_line(f"{error.ename}: {error.evalue}")
    except CellTimeoutError:
        return f"CellTimeoutError: the cell took longer than {task.cell_seconds} s"
    except DeadKernelError:
        return "DeadKernelError: the kernel was killed or crashed (is there enough memory?)"
    except Exception as error:  # whatever the tools raise is a failure of this chapter, reported with its name
        if isinstance(error, RuntimeError) and starts > 1 and not begun.is_set():
            return _papermill(task, sending, starts=starts - 1)
        return one_line(f"{type(error).__name__}: {error}")
    return ""


def one_line(text: object) -> str:
    """`text` as a terminal can show it: without colours and line breaks, of bounded length."""
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(text)).split()
    return arguments.shorten(
        "".join(letter if letter.isprintable() else "�" for letter in " ".join(words)), _LONGEST_MESSAGE
    )


def _become(command: list[str]) -> None:
    """Run a Python program in this process, until it ends or standard input does."""
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    gc.disable()  # of the time of rendering a quarter is a search for garbage, for 0.3 GB in the end
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _become(sys.argv[1:])
