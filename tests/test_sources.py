"""A value is kept and read only while the code that runs is the code on disk, whatever is edited meanwhile."""

import importlib
import sys

import pytest

from leakage import runtime, sources
from reproduced import sweeps

RUN = runtime.begin("ci", 0, "cpu")


def sweep(function, points, folder):
    return sweeps.sweep(function, points, name="toy", run=RUN, folder=folder / "grids")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A package whose modules count as those of the library, as it was when this process began."""
    folder = tmp_path / "toy_library"
    folder.mkdir()
    for name, text in {"__init__": "", "rates": "RATE = 1\n", "work": WORK}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sources, "PACKAGE", folder.resolve())
    monkeypatch.setattr(sources, "_FOUND", sources._signatures(folder.resolve()))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_library"]:
        del sys.modules[name]


WORK = """
SCALE = 1

def measure(x):
    return SCALE * x
"""


def imported_anew(library, monkeypatch):
    """The function as a process has it that begins now."""
    monkeypatch.setattr(sources, "_FOUND", sources._signatures(library.resolve()))
    sys.modules.pop("toy_library.work", None)
    return importlib.import_module("toy_library.work").measure


def test_a_value_of_old_code_is_neither_kept_nor_read_for_new_code(tmp_path, library, monkeypatch, capsys):
    measure, work = imported_anew(library, monkeypatch), library / "work.py"
    old, new = work.read_text(), work.read_text().replace("SCALE = 1", "SCALE = 100")
    work.write_text(new)
    assert sweep(measure, [1, 2], tmp_path) == [1, 2]
    assert "grid toy: not kept, for this has changed since it was imported: work.py" in capsys.readouterr().out
    assert not (tmp_path / "grids").exists()
    assert sweep(imported_anew(library, monkeypatch), [1, 2], tmp_path) == [100, 200]
    work.write_text(old)  # what runs is now the new code, and what lies on disk the old
    assert sweep(sys.modules["toy_library.work"].measure, [1, 2], tmp_path) == [100, 200]
    assert sweep(imported_anew(library, monkeypatch), [1, 2], tmp_path) == [1, 2]
