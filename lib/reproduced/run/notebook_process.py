"""The program of a chapter's process: papermill executes a notebook in place.

`python -m reproduced.run.notebook_process NOTEBOOK.ipynb OPTIONS` does so; with `PROGRAM ARGUMENTS` it runs another
Python program, jupyter-book. Either ends when its standard input does, so with the process that started it. A build
starts many of these, so heavy modules are not imported here.
"""

import json
import logging
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

from leakage.arguments import one_line

_HANG_SECONDS = 3600  # for a kernel that neither answers nor ends; the busiest machine answers sooner


def first_error(notebook: Any) -> str:
    """The first error among the outputs of a notebook, in one line; "" if there is none."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return next((one_line(f"{o.ename}: {o.evalue}") for o in outputs if o.output_type == "error"), "")


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
    return first_error(notebook)


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
