"""A value is kept and read only while the code that runs is the code on disk, whatever is edited meanwhile."""

import functools
import importlib
import os
import sys
import types

import pytest

from leakage import runtime, sources, sweeps

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
from pathlib import Path

SCALE = 1

def measure(x, edit=None):
    if x == edit:
        Path(__file__).write_text(Path(__file__).read_text().replace("SCALE = 1", "SCALE = 100"))
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


def test_a_module_that_is_edited_and_put_back_counts_as_changed(tmp_path, library, monkeypatch, capsys):
    work = library / "work.py"
    before, text = work.stat(), work.read_text()
    measure = imported_anew(library, monkeypatch)
    work.write_text("")
    work.write_text(text)
    os.utime(work, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sweep(measure, [1], tmp_path) == [1]
    assert not (tmp_path / "grids").exists()
    assert "not kept" in capsys.readouterr().out


def test_points_after_an_edit_in_the_middle_of_a_grid_are_not_kept(tmp_path, library, monkeypatch):
    measure = imported_anew(library, monkeypatch)
    assert sweep(functools.partial(measure, edit=3), [1, 2, 3, 4], tmp_path) == [1, 2, 3, 4]
    assert len(list((tmp_path / "grids" / "toy").iterdir())) == 2


def test_a_module_of_ones_own_written_after_the_process_began_is_not_trusted(tmp_path, monkeypatch):
    (tmp_path / "just_written.py").write_text("def measure(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sweep(importlib.import_module("just_written").measure, [1], tmp_path) == [1]
    assert not (tmp_path / "grids").exists()
    del sys.modules["just_written"]


def test_a_script_that_is_edited_while_it_runs_has_another_key_than_the_new_one(tmp_path, monkeypatch):
    script = tmp_path / "script.py"

    def begun(text: str) -> types.ModuleType:
        script.write_text(text)
        module = types.ModuleType("__main__")
        module.__file__ = str(script)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, script, "exec"), vars(module))
        return module

    running = begun("measure = lambda x: x + 1\n")
    script.write_text("measure = lambda x: x + 9\n")
    assert sweep(running.measure, [1], tmp_path) == [2]
    assert sweep(begun("measure = lambda x: x + 9\n").measure, [1], tmp_path) == [10]


def test_every_file_of_the_package_was_noted():
    assert set(sources.PACKAGE.rglob("*.py")) <= sources._FOUND.keys()
    assert not sources.changed(sources.PACKAGE / "sources.py")
    assert sources.changed(sources.PACKAGE / "absent.py")
