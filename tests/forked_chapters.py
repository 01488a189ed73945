"""`leakage` with chapters that run in forks of one process, which has imported what they import: for the smoke run.

In place of papermill and a kernel IPython runs the cells in the chapter's own process, and figures have few pixels. All
else is real: the command line, the plan, the processes, and how notebooks are written and collected. Run as a script it
takes the arguments of `leakage`. Kernels are started by the tests of the pipeline and by `make book`.
"""

import ast
import gc
import multiprocessing as mp
import os
import sys
import threading
import types
from pathlib import Path

BOOK = Path(__file__).parents[1] / "book"


def run_cells(task, variables, sending) -> None:
    """In place of `worker.execute`."""
    import nbformat

    from leakage.pipeline import worker

    threading.Thread(target=worker._end_with_the_runner, daemon=True).start()
    os.environ.update(variables)
    os.chdir(task.folder)
    with task.log.open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    notebook = nbformat.reads(task.notebook, as_version=4)
    try:
        sending.send(_cells(task, notebook, sending))
    except Exception as error:
        sending.send(worker.one_line(f"{type(error).__name__}: {error}"))
    nbformat.write(notebook, task.partial)
    sending.close()
    sys.stdout.flush()
    os._exit(0)  # nothing of the process that was forked is to be cleared away


def _cells(task, notebook, sending) -> str:
    """Run the cells and note what they show; the error, "" if there is none."""
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    from leakage.pipeline.worker import Started, one_line

    place = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())) + 1
    given = "\n".join(f"{name} = {value!r}" for name, value in task.parameters.items())
    notebook.cells.insert(place, nbformat.v4.new_code_cell(given, metadata={"tags": ["injected-parameters"]}))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    for number, cell in enumerate(code, start=1):
        sending.send(Started(task.chapter, number, len(code)))
        with capture_output() as shown:
            result = shell.run_cell(cell.source, store_history=True)
        cell.execution_count = number
        cell.outputs = [
            nbformat.v4.new_output("display_data", data=output.data, metadata=output.metadata or {})
            for output in shown.outputs
        ]
        if shown.stdout:
            cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=shown.stdout))
        if error := result.error_before_exec or result.error_in_exec:
            return one_line(f"{type(error).__name__}: {error}")
    return ""


def imports_of_chapters() -> None:
    """Import what chapters import at the top of a cell, and what optimisers and figures import when they begin."""
    import scipy.stats  # noqa: F401
    import seaborn  # noqa: F401
    import torch._dynamo  # noqa: F401

    from leakage.pipeline.book import open_book

    book = open_book(BOOK.parent)
    for chapter in book.chapters:
        for cell in book.notebook(chapter).cells:
            if cell.cell_type == "code":
                tree = ast.parse(cell.source)
                tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
                exec(compile(tree, chapter, "exec"), {})


def draw_coarsely() -> None:
    """Draw every part of a figure, but on few pixels and where it stands: the layout takes as long as all the rest."""
    from leakage import figures

    png = figures.png

    def coarse(picture, **options) -> bytes:
        picture.set_layout_engine("none")
        return png(picture, **options)

    figures.png, figures.CSS_DPI = coarse, 24


def main(arguments: list[str]) -> int:
    from leakage.pipeline import cli, execute

    os.environ["MPLBACKEND"] = "agg"  # figures choose their canvas themselves
    imports_of_chapters()
    draw_coarsely()
    forking = mp.get_context("fork")
    execute.mp = types.SimpleNamespace(get_context=lambda _: forking)
    execute.execute = run_cells
    gc.disable()  # chapters are short, and what they leave goes with their process
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
