"""Chapters run side by side, each with a GPU of its own; whoever watches may leave."""

import io
import threading

from reproduced.run import run_chapters
from reproduced.run.run_chapters import Execution, Progress, Task, local_executor


def a_task(folder, name: str) -> Task:
    places = {"folder": folder, "build": folder, "library": folder, "target": folder / f"{name}.ipynb"}
    return Task(name, name, "{}", {}, **places, cell_seconds=60)


def test_chapters_that_run_at_once_have_different_gpus(tmp_path, monkeypatch):
    both, found = threading.Barrier(2), []

    def run_chapter(task, variables, *, lifeline):
        both.wait()
        found.append(variables["CUDA_VISIBLE_DEVICES"])
        return Execution()

    monkeypatch.setattr(run_chapters, "run_chapter", run_chapter)
    progress = Progress(io.StringIO())
    with local_executor(2, progress, gpus=["0", "1"]) as executor:
        tasks = [a_task(tmp_path, name) for name in ("first", "second")]
        assert len([*run_chapters.run_chapters(tasks, executor, progress)]) == 2
    assert sorted(found) == ["0", "1"]


class Gone(io.TextIOBase):
    """The stream of a terminal that was closed."""

    def write(self, text):
        raise OSError("Input/output error")


def test_a_terminal_that_goes_away_is_no_failure_of_a_chapter(tmp_path):
    with Progress(Gone()) as progress:
        progress.begin(a_task(tmp_path, "sums"))
        progress.end(a_task(tmp_path, "sums"), Execution())


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_cells_of_running_chapters_are_counted(tmp_path, monkeypatch):
    progress, waits = Progress(terminal := Terminal()), iter([False, True])
    monkeypatch.setattr(progress._done, "wait", lambda seconds: next(waits))
    task = a_task(tmp_path, "sums")
    progress.begin(task)
    task.log.parent.mkdir()
    task.log.write_text("Executing Cell 1---\n3\nExecuting Cell 2---\n")
    progress._count_cells()
    assert "cells: sums 2" in terminal.getvalue()
    progress.end(task, Execution("ValueError: broken", cell=2, cells=6))
    assert "✗ sums: failed in cell 2 of 6 after 0.0 s: ValueError: broken\n" in terminal.getvalue()
