"""The library's imports go one way, and its modules keep rules that no linter knows: read from their syntax trees."""

import ast
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANGS

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib"
MODULES = {
    ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((LIBRARY / "leakage").rglob("*.py"))
}
# The parts of the library, from the ground up: a part imports those below it and those of its own line.
FLOORS = (
    ("arguments", "blocks", "checked_files", "fingerprints", "metrics", "palette", "profiles", "runtime", "sources"),
    ("content_keys", "data", "models", "plots"),
    ("figures", "geometry", "processes", "theory", "trainers"),
    ("attacks", "claims", "sweeps"),
    ("auditing", "panel"),
    ("audit", "studies"),
    ("pipeline",),
)
FLOOR = {part: number for number, parts in enumerate(FLOORS) for part in parts}
# What one part of the library alone may import.
ONLY_IN = dict.fromkeys(("papermill", "jupytext", "jupyter_book", "nbclient", "nbformat", "sphinx"), "pipeline")
ONLY_IN |= dict.fromkeys(("dask", "distributed"), "pipeline.cluster")
# Experiments, the module that makes generators of seeds, and the command line.
SEEDED = ("studies", "runtime", "pipeline")
ASKS_FOR_A_GPU = ("torch.cuda.is_available", "torch.cuda.device_count")
MACHINE_PATH = re.compile(r"(?<![\w./~}])/(?:work|root|tmp|home|Users)(?:/|\b)")
TEXTS = {"", ".bib", ".cff", ".css", ".json", ".md", ".py", ".svg", ".toml", ".yaml", ".yml"}


@functools.cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def part(module):
    """The part of the library that a module is in: `data` for `leakage.data.mnist`."""
    return module.split(".")[1] if module.startswith("leakage.") else ""


def imported(source):
    """Every module that a syntax tree imports; `from a import b` is `a.b` where that is a module of the library."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (full if (full := f"{origin}.{name.name}") in MODULES else origin for name in node.names)


def import_faults(module, source):
    """The imports of a module that the rules forbid."""
    family = module.split(".")[:3]
    for target in imported(source):
        here, there, top = part(module), part(target), target.split(".")[0]
        if (
            target.startswith(".")  # the content keys follow absolute imports only
            or top in ("book", "tests", "benchmarks")
            or (top in ONLY_IN and not f"{module}.".startswith(f"leakage.{ONLY_IN[top]}."))
            or (here and there and FLOOR[there] > FLOOR[here])
            or (here == there and here in ("attacks", "studies") and target.split(".")[:3] != family)
        ):
            yield f"{module} imports {target}"


def test_imports_go_one_way():
    assert [fault for name, path in MODULES.items() for fault in import_faults(name, tree(path))] == []


def test_modules_import_in_no_circle():
    graph = {name: {*imported(tree(path))} & MODULES.keys() - {name} for name, path in MODULES.items()}
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert not graph, f"these import each other: {sorted(graph)}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("leakage.attacks.membership.margin", "from leakage.attacks import line_reconstruction"),
        ("leakage.data.mnist", "def load():\n    from leakage.trainers import svm"),
        ("reproduced.claims.ledger", "import nbformat.v4"),
        ("reproduced.run.build", "from distributed import Client"),
        ("leakage.theory.ridge", "from . import hermite"),
        ("leakage.theory.ridge", "from book import min_norm"),
    ],
)
def test_a_forbidden_import_is_found(module, source):
    assert [*import_faults(module, ast.parse(source))]
    assert not [*import_faults(module, ast.parse("import torch\nfrom leakage import arguments"))]


def test_packages_reexport_nothing():
    """Content keys follow imports of modules: a name that a package hands on would hide the module that it is from."""
    packages = [path for path in MODULES.values() if path.name == "__init__.py" and path.parent.name != "leakage"]
    assert [path.parent.name for path in packages if len(tree(path).body) > 1] == []


def arguments_of(node):
    """A function's arguments, first those that may be given by their places; a class's fields."""
    if isinstance(node, ast.ClassDef):
        return [], [ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)]
    placed, named = (*node.args.posonlyargs, *node.args.args), node.args.kwonlyargs
    return [argument.arg for argument in placed], [argument.arg for argument in named]


def rule_faults(module, source):
    """An algorithm takes a `generator`, and members and outsiders by name; only `runtime` asks for a GPU."""
    for node in ast.walk(source):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            placed, named = arguments_of(node)
            if "seed" in placed + named and part(module) not in SEEDED:
                yield f"{module}.{node.name} takes a seed, not a generator"
            kinds = {name[:6] for name in placed + named if name.startswith(("member", "outsider"))}
            if len(kinds) == 2 and not node.name.startswith("_") and kinds & {name[:6] for name in placed}:
                yield f"{module}.{node.name}: make `member` and `outsider` keyword-only"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ASKS_FOR_A_GPU and part(module) != "runtime":
            yield f"{module} asks for a GPU: take the device from the tensors, or from leakage.runtime"


def test_seeds_pairs_and_devices_are_where_they_belong():
    assert [fault for name, path in MODULES.items() for fault in rule_faults(name, tree(path))] == []


@pytest.mark.parametrize(
    "source",
    [
        "def draw(n, *, seed): ...",
        "class Run:\n    seed: int",
        "def f(member, *, outsider): ...",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    ],
)
def test_a_breach_is_found(source):
    assert [*rule_faults("leakage.theory.ridge", ast.parse(source))]


def test_no_file_names_a_folder_of_one_machine():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=HANGS).stdout
    paths = [ROOT / name for name in tracked.splitlines() if not name.startswith("tests/")]
    found = [
        f"{path}: {line}"
        for path in paths
        if path.suffix in TEXTS and path.is_file()
        for line in path.read_text("utf-8").splitlines()
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source", ["torch.equal(x, y)", "numpy.array_equal(x, y)", "numpy.testing.assert_array_equal(x, y)", "x == 0.3"]
)
def test_floats_are_not_compared_to_the_bit(source):
    """The linter finds a comparison that another processor's rounding would break, in the library and in tests."""
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    command = [ruff, "check", "--config", ROOT / "pyproject.toml", "--output-format=concise", "-"]
    given = f"import numpy\nimport torch\n\nx, y = torch.ones(3), numpy.ones(3)\nassert {source}\n"
    found = subprocess.run(command, input=given, capture_output=True, text=True, timeout=HANGS)
    assert re.findall(r":5:.*(TID251|RUF069|banned-api|float-equality)", found.stdout), found.stdout
