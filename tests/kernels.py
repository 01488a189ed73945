"""Chapters without a kernel: their cells are not executed, only the claim records in them are shown."""

import re
from collections.abc import Callable
from pathlib import Path

import nbformat

from reproduced.run import run_chapters

Meanwhile = Callable[[Path], None]
# Read without `ast`: chapters run in threads, of which two may not parse at once before Python 3.11.8 (gh-106905).
SHOWN = re.compile(r"metadata=(\{.*\})\)$", re.MULTILINE)


def without_kernels(monkeypatch, meanwhile: Meanwhile = lambda root: None, fails: str = "") -> None:
    """Let chapters end at once, with the records of their claims; `meanwhile` happens while they run, one may fail."""

    def run_process(task, variables, lifeline):
        meanwhile(task.folder)
        with (task.folder / "executions.txt").open("a") as file:
            print(task.chapter, file=file)
        notebook = nbformat.reads(task.notebook, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.metadata["papermill"] = {"duration": 0.5}
                for shown in SHOWN.findall(cell.source):
                    metadata = eval(shown, {})
                    cell.outputs = [nbformat.v4.new_output("display_data", {"text/plain": ""}, metadata=metadata)]
        for path in (task.working_notebook, task.log):
            path.parent.mkdir(parents=True, exist_ok=True)
        task.working_notebook.write_text(nbformat.writes(notebook), "utf-8")
        task.log.write_text(f"Executing Cell {len(notebook.cells)}---\nValueError: broken\n", "utf-8")
        return int(task.chapter == fails)

    monkeypatch.setattr(run_chapters, "_run_process", run_process)
