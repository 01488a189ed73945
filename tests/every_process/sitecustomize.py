"""Python reads this first in every process that a test starts: the library's annotations run there, too.

`tests/conftest.py` puts the folder on PYTHONPATH, by which it reaches kernels. Where beartype is not installed, as in
the environment of somebody who only uses the library, nothing is asked.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("beartype"):
    _name = "running_types"
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).parents[1] / f"{_name}.py")
    assert _spec
    assert _spec.loader
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_name])
    sys.modules[_name].install()
