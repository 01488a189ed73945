"""Rules of the code that no linter knows, read from syntax trees. Who may import whom is in pyproject.toml."""

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
    for path in sorted(LIBRARY.rglob("*.py"))
}
# The book's machinery, studies included, and the module that makes generators of seeds.
SEEDED = "reproduced"
ASKS_FOR_A_GPU = ("torch.cuda.is_available", "torch.cuda.device_count")
MACHINE_PATH = re.compile(r"(?<![\w./~}])/(?:work|root|tmp|home|Users)(?:/|\b)")
TEXTS = {"", ".bib", ".cff", ".css", ".json", ".md", ".py", ".svg", ".toml", ".yaml", ".yml"}


@functools.cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


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
            if "seed" in placed + named and not module.startswith(SEEDED):
                yield f"{module}.{node.name} takes a seed, not a generator"
            kinds = {name[:6] for name in placed + named if name.startswith(("member", "outsider"))}
            if "members" in named:  # then `member` is a mask
                placed = [name for name in placed if name != "member"]
            if len(kinds) == 2 and not node.name.startswith("_") and kinds & {name[:6] for name in placed}:
                yield f"{module}.{node.name}: make `member` and `outsider` keyword-only"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ASKS_FOR_A_GPU and module != "reproduced.runtime":
            yield f"{module} asks for a GPU: take the device from the tensors, or from reproduced.runtime"


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
