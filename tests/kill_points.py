"""A build that is killed at a chosen point: the real runner, grids and files, with chapters that need no kernel.

Run as a script it forks one runner after another from a process that has everything imported, so that a kill costs a
fraction of a second. Each event of a process (a cell begins, a point is computed, a file is half written, about to be
renamed, renamed) is counted, and the process strikes at the one it is told to: no clock decides where. Processes hold
the end of a pipe, so that the script knows when the last of them is gone.
"""

import contextlib
import functools
import io
import json
import multiprocessing as mp
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from patience import HANGS

POINTS = 4
CHAPTERS = ("first", "second")
# Which process strikes, at which event, how often that must have come by, and whom it kills.
IN_GRIDS = [
    ("worker", event, number, victim)
    for event in ("compute", "half", "renaming", "renamed")
    for number, victim in ((1, "itself"), (2, "runner"), (3, "group"), (POINTS, "kernel"))
]
IN_CELLS = [("worker", "cell", n, victim) for n in (1, 3) for victim in ("itself", "runner", "group", "kernel")]
IN_RUNNER = [
    ("runner", event, number, victim)
    for event in ("half", "renaming", "renamed")
    for number, victim in ((1, "itself"), (2, "group"), (3, "itself"), (5, "itself"))
]
KILLS = IN_GRIDS + IN_CELLS + IN_RUNNER

# What this process is, when it strikes, and what it has counted.
state = types.SimpleNamespace(role="", kill=None, counts={}, kernel=0, notes=Path())


def reached(event: str) -> None:
    """Count an event of this process, and strike if it is the one."""
    state.counts[event] = state.counts.get(event, 0) + 1
    if state.kill is None or state.kill[:3] != (state.role, event, state.counts[event]):
        return
    victim = state.kill[3]
    if victim == "kernel":
        os.kill(state.kernel, signal.SIGKILL)
        raise DeadKernel
    if victim == "group":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getppid() if victim == "runner" else os.getpid(), signal.SIGKILL)
    threading.Event().wait(HANGS)  # until this process notices that the runner is gone


class DeadKernel(Exception):
    """The stand-in of a kernel is gone."""


def halting(rename):
    """The functions that write and rename a file, with their events."""

    def write_bytes(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            reached("half")
            file.write(content[len(content) // 2 :])
        return len(content)

    def replace(source, target):
        reached("renaming")
        rename(source, target)
        reached("renamed")

    return write_bytes, lambda path, text, encoding=None: write_bytes(path, text.encode(encoding or "utf-8")), replace


def square(x: int) -> float:
    """A point of the chapters' grids, which notes that it was computed."""
    reached("compute")
    with state.notes.open("a") as file:
        print(x, file=file)
    return float(x * x)


def grid(chapter: str) -> float:
    """The grid of a chapter: the sum of its values."""
    from leakage import runtime, sweeps

    return sum(sweeps.sweep(square, range(POINTS), name=chapter, run=runtime.begin("ci", 0, "cpu")))


def run_cells(task, variables, sending) -> None:
    """In place of papermill: the cells run in the chapter's own process, beside a child in the kernel's place."""
    from leakage.pipeline import worker

    signal.signal(signal.SIGTERM, lambda *_: worker._end())
    threading.Thread(target=worker._end_with_the_runner, daemon=True).start()
    os.environ.update(variables)
    os.environ.pop("LEAKAGE_PROCESSES", None)  # points are computed, and counted, in this process
    state.role, state.counts, state.kernel = "worker", {}, kernel_beside()
    try:
        error = _cells(task, sending)
    except DeadKernel:
        error = "DeadKernelError: the kernel was killed or crashed"
    sending.send(error)
    sending.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.kernel, signal.SIGKILL)
    os._exit(0)


def _cells(task, sending) -> str:
    import nbformat

    from leakage.pipeline.worker import Started

    notebook = nbformat.reads(task.notebook, as_version=4)
    code, shown = [cell for cell in notebook.cells if cell.cell_type == "code"], []
    names = {"show": lambda record: shown.append(nbformat.v4.new_output("display_data", metadata={"claim": record}))}
    for number, cell in enumerate(code, start=1):
        sending.send(Started(task.chapter, number, len(code)))
        reached("cell")
        exec(cell.source, names)
        cell.outputs, shown[:] = [*shown], []
        task.partial.write_text(nbformat.writes(notebook), "utf-8")
    return ""


def kernel_beside() -> int:
    """A process of its own group that ends when this one does."""
    reading, _held = os.pipe()
    kernel = os.fork()
    if kernel == 0:
        os.setpgrp()
        os.close(_held)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    return kernel


def runner(root: Path, kill) -> int:
    """Build the book in a process group of its own; its exit status, -1 if it was killed, once nobody is left."""
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(alive)
        try:
            os._exit(_build(root, kill))
        except BaseException:
            os._exit(99)
    os.close(held)
    os.read(alive, 1)  # the other end is closed when the last process that could hold it has ended
    os.close(alive)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _build(root: Path, kill) -> int:
    from leakage.pipeline import cli

    os.setpgrp()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    state.role, state.kill, state.counts, state.notes = "runner", kill, {}, root / "computed.txt"
    Path.write_bytes, Path.write_text, os.replace = halting(os.replace)
    return cli.main(["build", "--root", str(root), "--jobs", "1", "--no-render"])


def trials(folder: Path) -> Iterator[dict]:
    """Each kill on a copy of the book, and then the build run again, compared with a build that nothing disturbed."""
    import shutil

    from miniature import snapshot

    expected = None
    for number, kill in enumerate([None, *KILLS]):
        root = folder / str(number)
        shutil.copytree(folder / "book", root)
        killed = runner(root, kill)
        before, kept = _points(root), sorted((root / "_build/grids").glob("*/*.pt"))
        resumed = runner(root, None)
        after = _points(root)
        found = {name: json.loads(text)["claims"] for name, text in snapshot(root / "_build/claims").items()}
        expected = expected or found
        yield {
            "kill": kill,
            "statuses": [killed, resumed],
            "computed": len(after),
            "computed twice": len(after) - len(before) - (len(CHAPTERS) * POINTS - len(kept)),
            "as expected": found == expected and len(found) == len(CHAPTERS),
            "half notebooks": len([*(root / "_build/executed").rglob("*.partial*")]),
        }
        shutil.rmtree(root)


def _points(root: Path) -> list[str]:
    notes = root / "computed.txt"
    return notes.read_text().split() if notes.is_file() else []


def main(folder: Path) -> None:
    import multiprocessing.synchronize  # noqa: F401

    import torch

    from leakage import content_keys, sweeps  # noqa: F401
    from leakage.pipeline import build, cli, execute  # noqa: F401
    from leakage.pipeline.book import open_book

    forking = mp.get_context("fork")
    import nbformat  # after the pipeline, which spares it a second

    execute.mp = types.SimpleNamespace(get_context=lambda _: forking)
    execute.execute = run_cells
    os.environ.pop("LEAKAGE_BUILD", None)
    # What is slow the first time is done before the first fork.
    metadata.version = functools.cache(metadata.version)
    content_keys.processor()
    content_keys.function_parts(square)
    torch.save(None, io.BytesIO())
    nbformat.validate(open_book(folder / "book").notebook(CHAPTERS[0]))
    _warm_up(folder)
    print(json.dumps([*trials(folder)]))


def _warm_up(folder: Path) -> None:
    """Build once in this process: what is made when it is first called, every runner then has from its fork."""
    import shutil

    from leakage.pipeline import cli

    root = Path(shutil.copytree(folder / "book", folder / "warm"))
    state.notes = root / "computed.txt"
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        cli.main(["build", "--root", str(root), "--jobs", "1", "--no-render"])
    shutil.rmtree(root)


if __name__ == "__main__":
    import kill_points  # functions of a script would be read off one by one, and this is about those of a module

    kill_points.main(Path(sys.argv[1]))
