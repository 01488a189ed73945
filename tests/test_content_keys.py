"""A content key changes with everything a result depends on, and with nothing else."""

import functools
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from leakage import content_keys, fingerprints, runtime


@pytest.fixture
def package(tmp_path):
    """A package `toy` whose modules import each other in every way that is followed."""
    texts = {
        "__init__": "",
        "ground": "",
        "floor": "import toy.ground",
        "room.__init__": "",
        "room.chair": "from toy import floor",
        "room.table": "def lay():\n    from toy.room.chair import seat",
        "cellar": "from toy.room import *",
        "lift": "import importlib\nimportlib.import_module('toy.' + 'ground')",
        "stairs": "from . import ground",
        "pipeline.__init__": "",
        "pipeline.cli": "",
    }
    for name, text in texts.items():
        path = tmp_path / "toy" / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "toy" / "room" / "colours.csv").write_text("red")
    return tmp_path / "toy"


def followed(source: str, package: Path) -> set[str]:
    return {path.relative_to(package).as_posix() for path in content_keys.module_files(source, package=package)}


ALL = {"__init__.py", "ground.py", "floor.py", "cellar.py", "lift.py", "stairs.py"} | {
    f"room/{name}" for name in ("__init__.py", "chair.py", "table.py", "colours.csv")
}
ROOM = {"__init__.py", "floor.py", "ground.py", "room/__init__.py", "room/chair.py", "room/colours.csv"}


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("import math", set()),
        ("from toy import ground", {"__init__.py", "ground.py"}),
        ("import toy.floor as f", {"__init__.py", "floor.py", "ground.py"}),
        ("from toy.room.chair import seat", ROOM),
        ("from toy.room import table", ROOM | {"room/table.py"}),
        ("from toy import __version__", {"__init__.py"}),
        ("import toy.room", ROOM | {"room/table.py"}),
        ("from toy import cellar", ROOM | {"room/table.py", "cellar.py"}),
        ("if 1:\n    def f():\n        import toy.ground", {"__init__.py", "ground.py"}),
        ("import toy", ALL),
        ("from toy import *", ALL),
        ("from toy import lift", ALL),
        ("from toy import stairs", ALL),
        ("%magic", ALL),
    ],
)
def test_imports_are_followed_and_the_whole_package_is_meant_where_reading_cannot_tell(package, source, files):
    assert followed(source, package) == files


def test_a_name_that_only_begins_like_the_package_is_not_it(package):
    assert followed("import toyland.ground\nfrom toys import ground", package) == set()


def test_a_package_that_is_replaced_is_another_one_for_the_next_process_only(monkeypatch):
    before = content_keys.environment(None, imported=True)
    assert before == content_keys.environment(None)
    monkeypatch.setattr(content_keys.metadata, "version", lambda name: "of tomorrow")
    assert content_keys.environment(None)["torch"] == "of tomorrow"
    assert content_keys.environment(None, imported=True) == before


def test_the_runner_is_no_dependency_of_a_chapter():
    files = content_keys.module_files("import leakage")
    assert {"runtime.py", "content_keys.py"} <= {path.name for path in files}
    assert not any("pipeline" in path.parts for path in files)


def test_the_root_is_found_from_below_and_its_absence_is_told(tmp_path):
    below = tmp_path / "a" / "book" / "claims"
    below.mkdir(parents=True)
    (tmp_path / "a" / "_toc.yml").touch()
    assert content_keys.find_root(below) == (tmp_path / "a").resolve()
    with pytest.raises(FileNotFoundError, match=r"holds _toc\.yml and book/"):
        content_keys.find_root(tmp_path)


def test_the_environment_counts_the_lock(tmp_path):
    assert content_keys.environment(tmp_path)["lock"] is None
    (tmp_path / "requirements.txt").write_text("torch==1")
    assert content_keys.environment(tmp_path)["lock"] == content_keys.file_digest(tmp_path / "requirements.txt")
    # Without the build: PyPI's wheel for Linux calls itself 2.13.0 in its metadata and 2.13.0+cu130 when imported.
    assert content_keys.environment(None)["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


def test_a_processor_is_a_kind_of_device():
    assert content_keys.device_kind("cpu") == content_keys.device_kind(torch.device("cpu")) == "cpu"


@pytest.mark.gpu
def test_a_gpu_is_named_by_its_model():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert content_keys.device_kind("cuda") == f"cuda {torch.cuda.get_device_name()}"


# ── functions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def key(function) -> str:
    return fingerprints.fingerprint(content_keys.function_parts(function))


def scaled(x, *, by=2):
    return by * x


def factory(by):
    return lambda x: by * x


def test_a_function_of_a_module_depends_on_its_file_and_on_what_that_imports():
    from leakage.metrics import roc

    assert {"leakage/metrics/roc.py", "leakage/metrics/estimates.py"} <= set(
        content_keys.function_parts(roc.auc)["files"]
    )
    assert any(name.endswith("test_content_keys.py") for name in content_keys.function_parts(scaled)["files"])


def test_the_arguments_of_a_partial_and_captured_values_count():
    assert key(functools.partial(scaled, by=2)) != key(functools.partial(scaled, by=3))
    assert key(functools.partial(scaled, 1)) != key(functools.partial(scaled, by=1))
    assert key(functools.partial(scaled, by=factory(2))) != key(functools.partial(scaled, by=factory(3)))
    assert key(factory(2)) != key(factory(3))
    assert key(factory(2)) == key(factory(2))


@pytest.mark.parametrize("packed", [lambda f: {"f": f, 1: "text"}, lambda f: [1, f], lambda f: ({"deep": [f]},)])
def test_functions_in_containers_count_as_those_given_alone(packed):
    one, same, other = (key(functools.partial(applied, packed(scaled_by(by)))) for by in (2, 2, 3))
    assert one == same != other


def test_a_container_that_holds_itself_and_what_cannot_be_read_are_refused_or_end():
    ring: list[object] = [scaled]
    ring.append(ring)
    assert key(functools.partial(applied, ring))
    with pytest.raises(TypeError, match=r"`argument 0\['f'\]`, whose content cannot be read: a Generator"):
        key(functools.partial(applied, {"f": torch.Generator()}))


NOTEBOOK = """
import math
import numpy
from leakage.metrics import roc
from leakage.metrics.roc import auc
threshold = 1
def inner(x): return x + threshold
def measure(x): return [inner(y) for y in (x, math.pi, roc, auc, numpy.exp)]
def recursive(x): return recursive(x - 1) if x else measure(x)
def untold(x): return stream
def missing(x): return nowhere
"""


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """Functions as a notebook has them: of a module `__main__` whose text is known."""

    def run(text: str = NOTEBOOK, **variables) -> types.ModuleType:
        module = types.ModuleType("__main__")
        module.__file__ = str(tmp_path / f"cell{len(list(tmp_path.iterdir()))}.py")
        Path(module.__file__).write_text(text)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        vars(module).update(variables)
        return module

    return run


def test_a_notebook_function_depends_on_its_text_and_on_the_variables_it_uses(notebook):
    first = key(notebook().measure)
    assert key(notebook().measure) == first
    assert key(notebook(threshold=2).measure) != first
    assert key(notebook(NOTEBOOK.replace("x + threshold", "x - threshold")).measure) != first
    assert key(notebook(unused=3).measure) == first


def test_a_notebook_function_depends_on_the_library_modules_it_uses(notebook):
    uses = content_keys.function_parts(notebook().measure)["uses"]
    assert {"leakage/metrics/roc.py", "leakage/metrics/estimates.py"} <= set(uses["roc"]["leakage.metrics.roc:"])
    assert "leakage/metrics/estimates.py" in uses["auc"]["files"]
    assert uses["math"] == {"math:": {}}


def test_a_recursive_notebook_function_has_a_key(notebook):
    assert key(notebook().recursive) == key(notebook().recursive)


def test_a_variable_without_readable_content_is_named(notebook):
    with pytest.raises(TypeError, match=r"`__main__.untold` uses `stream`, whose content cannot be read: a Generator"):
        key(notebook(stream=torch.Generator()).untold)


def test_a_model_is_not_mistaken_for_code(notebook):
    with pytest.raises(TypeError, match="uses `stream`"):
        key(notebook(stream=torch.nn.Linear(1, 1)).untold)


@pytest.mark.parametrize("function", [len, "name", Path])
def test_what_is_no_python_function_is_refused(function):
    with pytest.raises(TypeError, match="must be a Python function"):
        content_keys.function_parts(function)


def applied(function, x):
    return float(function(torch.tensor(x)))


def scaled_by(factor):
    return lambda x: factor * x


def calls():
    """Calls that differ, in pairs: the same module, name or type, and another function or object."""
    halves = [functools.partial(scaled_by(2)), functools.partial(scaled_by(3))]
    yield from ((torch.relu, torch.tanh), (math.sin, math.cos), (np.sin, np.cos), (torch.nn.ReLU, torch.nn.Tanh))
    yield from ((scaled_by(2), scaled_by(3)), tuple(halves), (torch.ones(1).add, torch.zeros(1).add))
    yield from ((runtime.begin("ci", 0, "cpu").stream, runtime.begin("ci", 7, "cpu").stream),)


@pytest.mark.parametrize(("one", "other"), list(calls()))
def test_another_function_or_object_as_argument_has_another_key(one, other):
    parts = [fingerprints.fingerprint(content_keys.function_parts(functools.partial(applied, f))) for f in (one, other)]
    assert parts[0] != parts[1]
    both = [
        fingerprints.fingerprint(content_keys.function_parts(functools.partial(applied, one, f))) for f in (one, other)
    ]
    assert both[0] != both[1]
