"""Python reads this first in every process that a test starts: the library's annotations run there, too.

`tests/conftest.py` puts the folder on PYTHONPATH, by which it reaches kernels. Where beartype is not installed, as in
the environment of somebody who only uses the library, nothing is asked.
"""

import gc
import importlib.util

import held_imports

gc.set_threshold(10_000)  # most do little but import, and by default a quarter of that is a search for garbage

if importlib.util.find_spec("beartype"):
    # To load no more than papermill a chapter's process imports nothing else of the library.
    held_imports.install(but=("leakage.sources", "leakage.pipeline.worker"))
