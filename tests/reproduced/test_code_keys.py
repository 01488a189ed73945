"""A key changes with everything a result depends on, and with nothing else."""

import functools
import hashlib
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from checking import HANGS
from leakage import store
from leakage.metrics import roc
from reproduced import code_keys, runtime


@dataclass(frozen=True)
class Sizes:
    n: int
    widths: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Others:
    n: int
    widths: tuple[int, ...] = (1, 2)


def scaled(x, *, by=2):
    return by * x


VALUES = [
    None, False, 0, 0.0, -0.0, 1, 1.0, True, "1", b"1", math.inf, 1j, (), [], {}, set(), (1, 2), [1, 2],
    ((1,), 2), (1, (2,)), {"a": 1}, {"b": 1}, {1, 2}, range(3), Path("a"), "a", Sizes(1), Sizes(2), Others(1),
    ["ab", "c"], ["a", "bc"],
    np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4), np.float32(1), np.float64(1),
    torch.arange(3), torch.arange(3.0), torch.zeros(2, 0), torch.zeros(0, 2), torch.tensor(1.0, dtype=torch.bfloat16),
    torch.tensor(1.0), torch.device("cpu"), torch.float32, torch.float64,
    roc.auc, scaled, [scaled], functools.partial(scaled, by=2), functools.partial(scaled, by=3),
    functools.partial(scaled, 1), functools.partial(roc.auc, scaled), {"f": functools.partial(scaled, by=2)},
]  # fmt: skip


def test_different_values_have_different_keys():
    assert len({code_keys.digest(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {1, 2, 3}),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
        (torch.ones(2, requires_grad=True), torch.ones(2)),
        (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (Sizes(3), Sizes(n=3, widths=(1, 2))),
        (runtime.begin("ci", 1, "cpu"), runtime.begin("ci", 1, "cpu")),
        (runtime.settings("ci", smoke={"n": 1}, ci={"n": 2}, paper={"n": 3}),) * 2,
        ([functools.partial(scaled, by=2)], [functools.partial(scaled, by=2)]),
    ],
)
def test_equal_values_have_equal_keys(one, other):
    assert code_keys.digest(one) == code_keys.digest(other)


UNREADABLE = [object(), torch.Generator(), len, iter([]), [print], np.array([object()]), torch.nn.Linear(1, 1)]
UNREADABLE += [lambda x: x, functools.partial(functools.wraps(scaled)(lambda x: x))]


@pytest.mark.parametrize("value", [*UNREADABLE, functools.partial(scaled, by=torch.Generator())])
def test_a_value_whose_content_cannot_be_read_is_refused(value):
    with pytest.raises(TypeError, match=r"has no content key|is no function of a module"):
        code_keys.digest(value)


MODULES = {
    "leakage.__init__": "__all__ = []",
    "leakage.ground": "",
    "leakage.floor": "import leakage.ground as g",
    "leakage.room.__init__": "",
    "leakage.room.chair": "from leakage import floor",
    "leakage.lift": "import importlib\ndef up(): importlib.import_module('leakage.ground')",
    "reproduced.__init__": "",
    "reproduced.study": "def measure(x):\n    from leakage.room.chair import seat",
    "reproduced.run.__init__": "",
    "reproduced.command_line": "",
}


@pytest.fixture
def lib(tmp_path):
    """A small `leakage` and `reproduced`, with the real `leakage.store` and `code_keys`."""
    for name, text in MODULES.items():
        path = tmp_path / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "leakage" / "room" / "colours.csv").write_text("red")
    shutil.copy(store.__file__, tmp_path / "leakage")
    shutil.copy(code_keys.__file__, tmp_path / "reproduced")
    return tmp_path


FLOOR = {"leakage/__init__.py", "leakage/floor.py", "leakage/ground.py"}
ROOM = FLOOR | {f"leakage/room/{name}" for name in ("__init__.py", "chair.py", "colours.csv")}
BOOK = {"reproduced/__init__.py", "reproduced/code_keys.py", "reproduced/study.py"}
ALL = ROOM | BOOK | {"leakage/lift.py", "leakage/store.py"}


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("import math\nimport leakages.ground\nfrom leak import ground", set()),
        ("from leakage import __version__", {"leakage/__init__.py"}),
        ("if 1:\n    def f():\n        import leakage.floor as f", FLOOR),
        ("from leakage.room.chair import seat", ROOM),
        ("from reproduced import study", ROOM | {"reproduced/__init__.py", "reproduced/study.py"}),
        ("import leakage", ALL),
        ("from leakage import lira", ALL),
        ("from leakage.room import *", ALL),
        ("from . import ground", ALL),
        ("from leakage import lift", ALL),
        ("%magic", ALL),
        ("import reproduced.command_line", {"reproduced/__init__.py"}),
    ],
)
def test_imports_are_followed_and_both_packages_are_meant_where_reading_cannot_tell(lib, source, files):
    assert {path.relative_to(lib).as_posix() for path in code_keys.imported_files(source, lib=lib)} == files


def function_key(lib: Path) -> str:
    code = "from reproduced import code_keys; from reproduced.study import measure; print(code_keys.digest(measure))"
    command = [sys.executable, "-B", "-c", code]
    return subprocess.check_output(command, env=os.environ | {"PYTHONPATH": str(lib)}, text=True, timeout=HANGS)


def test_the_key_of_a_function_counts_the_files_it_may_read_and_no_others(lib):
    known = function_key(lib)
    for other in ("leakage/lift.py", "reproduced/run/__init__.py", "reproduced/new.py"):
        (lib / other).write_text("changed = 1")
        assert function_key(lib) == known, other
    for read in ("leakage/ground.py", "leakage/room/colours.csv", "reproduced/study.py"):
        (lib / read).write_text((lib / read).read_text() + "\n#")
        known, before = function_key(lib), known
        assert known != before, read


def test_versions_and_the_lock_count(tmp_path, monkeypatch):
    before = code_keys.environment(tmp_path)
    # Without the build: PyPI's wheel for Linux calls itself 2.13.0 in its metadata and 2.13.0+cu130 when imported.
    assert str(before["torch"]).partition("+")[0] == torch.__version__.partition("+")[0]
    (tmp_path / "requirements.txt").write_text("torch==1")
    locked = code_keys.environment(tmp_path)
    monkeypatch.setattr(code_keys.metadata, "version", lambda name: "of tomorrow")
    assert (before["lock"], locked["lock"]) == (None, hashlib.sha256(b"torch==1").hexdigest())
    assert code_keys.environment(tmp_path) != locked


def test_a_processor_is_a_kind_of_device():
    assert code_keys.device_kind("cpu") == code_keys.device_kind(torch.device("cpu")) == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_named_by_its_model():
    assert code_keys.device_kind("cuda") == f"cuda {torch.cuda.get_device_name()}"
