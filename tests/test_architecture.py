"""The library's imports go one way and its modules keep the house rules, read from their syntax trees."""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from leakage.pipeline.tree import imported

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lib" / "leakage"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    path
    for folder in ("lib", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if "egg-info" not in str(path)
)

GROUND = frozenset({"arguments", "blocks", "metrics", "runtime", "profiles"})
MIDDLE = GROUND | {"data", "models"}
UPPER = frozenset({"geometry", "theory", "trainers"})
# What each room of the library may import besides itself: the floors, from the ground up. Rooms of one floor
# may borrow from each other, as long as their modules import in no circle.
MAY_IMPORT = {
    "arguments": frozenset(),
    "blocks": frozenset(),
    "profiles": frozenset(),
    "runtime": frozenset({"arguments", "profiles"}),
    "sources": frozenset(),
    "fingerprints": frozenset(),
    "checked_files": frozenset(),
    "metrics": GROUND,
    "content_keys": GROUND | {"sources", "fingerprints"},
    "processes": GROUND | {"content_keys"},
    "sweeps": GROUND | {"checked_files", "content_keys", "fingerprints", "processes"},
    "claims": GROUND | {"content_keys", "data"},
    "palette": frozenset({"arguments"}),
    "plots": GROUND | {"palette"},
    "figures": GROUND | {"palette", "plots"},
    "data": GROUND | {"fingerprints"},
    "models": GROUND | {"data"},
    "trainers": MIDDLE | UPPER | {"content_keys"},
    "theory": MIDDLE | UPPER,
    "geometry": MIDDLE | UPPER,
    "attacks": MIDDLE | UPPER,
    "panel": MIDDLE | UPPER | {"attacks"},
    "auditing": MIDDLE | UPPER | {"attacks", "checked_files", "fingerprints", "palette"},
    "audit": frozenset({"auditing", "metrics"}),
    "studies": MIDDLE | UPPER | {"attacks", "panel"},
    "pipeline": MIDDLE
    | UPPER
    | {"sources", "checked_files", "content_keys", "fingerprints", "sweeps", "claims", "palette"}
    | {"figures", "attacks", "audit", "auditing"},
}
NOTEBOOK_TOOLS = frozenset({"papermill", "jupytext", "jupyter_book", "nbclient", "nbformat", "sphinx"})
# Whoever has no cluster needs none of its packages.
DASK, ITS_MODULE = frozenset({"dask", "distributed"}), "leakage.pipeline.cluster"
VAGUE_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "misc"})
MOST_LINES = {"lib": 300, "tests": 500, "benchmarks": 500}
MACHINE_PATH = re.compile(r"(?<![\w./~}])/(?:work|root|tmp|home|Users)(?:/|\b)")
TEXT_SUFFIXES = frozenset(
    {"", ".bib", ".cff", ".css", ".json", ".lock", ".md", ".py", ".svg", ".toml", ".yaml", ".yml"}
)


def module_name(path: Path, root: Path = PACKAGE.parent) -> str:
    """`leakage.data.mnist` for lib/leakage/data/mnist.py; a package is named by its folder."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(read(path))


def faults_of(paths: Iterable[Path], faults: Callable[[Path], object]) -> str:
    """A line for each file that has faults, with what they are."""
    return "\n".join(f"{path.relative_to(ROOT)}: {found}" for path in paths if (found := faults(path)))


def room(module: str) -> str | None:
    """The part of the library that `module` is in; None for the root package and for what is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "leakage" and len(parts) > 1 else None


def family(module: str) -> str:
    """The family of attacks that `module` belongs to, or the study where it is one: its package, or itself."""
    return ".".join(module.split(".")[:3])


def import_faults(module: str, source: str, known: frozenset[str]) -> list[str]:
    """Every import of `module` that the floors forbid."""
    here, faults = room(module), []
    for target in dict.fromkeys(imported(source, known)):
        there, top = room(target), target.split(".")[0]
        if target.startswith("."):
            faults.append(f"{module} imports {target}: write absolute imports, the content keys follow only those")
        elif top in {"book", "tests", "benchmarks"}:
            faults.append(f"{module} imports {target}: the library knows no chapter, test or benchmark")
        elif top in NOTEBOOK_TOOLS and here != "pipeline":
            faults.append(f"{module} imports {target}: only leakage.pipeline may")
        elif top in DASK and module != ITS_MODULE:
            faults.append(f"{module} imports {target}: only {ITS_MODULE} may")
        elif here == there and here in {"attacks", "studies"} and family(module) != family(target):
            faults.append(
                f"{module} imports {target}: an attack imports no other family of attacks, nor a study a study"
            )
        elif here and there and there != here and there not in MAY_IMPORT[here]:
            faults.append(
                f"{module} imports {target}: {here} may import {', '.join(sorted(MAY_IMPORT[here])) or 'none'}"
            )
    return faults


KNOWN = frozenset(module_name(path) for path in MODULES)


def test_every_room_of_the_library_has_a_floor():
    homeless = {room(name) for name in KNOWN} - {None, *MAY_IMPORT}
    assert not homeless, f"add to MAY_IMPORT, with what they may import: {sorted(map(str, homeless))}"


def test_imports_go_one_way():
    faults = faults_of(MODULES, lambda path: import_faults(module_name(path), read(path), KNOWN))
    assert not faults, faults


def test_modules_import_in_no_circle():
    graph = {module_name(path): set(imported(read(path), KNOWN)) & KNOWN for path in MODULES}
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys() - {name}}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert not graph, f"these import each other: {sorted(graph)}"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("leakage.attacks.membership.margin", "from leakage.attacks import boundary", "no other family"),
        ("leakage.attacks.membership.margin", "import leakage.attacks.boundary", "no other family"),
        ("leakage.attacks.gradients.span", "import leakage.attacks.boundary", "no other family"),
        ("leakage.attacks.gradients.span", "from leakage.attacks.updates import span", "no other family"),
        ("leakage.data.mnist", "def load():\n    from leakage.models import mlp", "data may import arguments"),
        ("leakage.claims.ledger", "import nbformat.v4", "only leakage.pipeline"),
        ("leakage.pipeline.build", "from distributed import Client", "only leakage.pipeline.cluster"),
        ("leakage.theory.ridge", "from . import gaussian", "absolute imports"),
        ("leakage.theory.ridge", "from book import min_norm", "knows no chapter"),
        ("leakage.runtime", "from leakage.metrics.roc import auc", "runtime may import arguments"),
    ],
)
def test_a_forbidden_import_is_found(module, source, complaint):
    known = KNOWN | {"leakage.attacks.boundary", "leakage.models.mlp"}
    assert any(complaint in fault for fault in import_faults(module, source, known))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "leakage.attacks.membership.margin",
            "import torch\nfrom leakage.theory import ridge\nfrom leakage import runtime",
        ),
        ("leakage.attacks.gradients.span", "from leakage.attacks.gradients.moments import second"),
    ],
)
def test_a_permitted_import_is_left_alone(module, source):
    assert import_faults(module, source, KNOWN) == []


def test_a_module_opens_with_a_docstring():
    silent = [module_name(path) for path in MODULES if not ast.get_docstring(tree(path))]
    assert not silent, f"say what is in them, and what they never do: {silent}"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=module_name)
def test_a_package_reexports_nothing(path):
    _, *rest = tree(path).body
    names = [ast.unparse(node).split(" =")[0] for node in rest]
    first = {PACKAGE: ["from leakage import sources as sources", "__version__"]}  # before any module is imported
    assert names in ([], first.get(path.parent)), f"content keys follow imports of modules; move {names} into one"


def test_a_module_is_a_noun_of_bounded_length():
    def too_long(path: Path) -> str:
        lines = len(read(path).splitlines())
        return f"{lines} lines: split it" * (lines > MOST_LINES[path.relative_to(ROOT).parts[0]])

    faults = faults_of(SOURCES, lambda path: "name it after what is in it" * (path.stem in VAGUE_NAMES))
    faults += faults_of(SOURCES, too_long)
    assert not faults, faults


def seeds(module: ast.Module) -> list[str]:
    """Every function with a parameter `seed`, and every class with such a field."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            named = node.args
            names = [argument.arg for argument in (*named.posonlyargs, *named.args, *named.kwonlyargs)]
        elif isinstance(node, ast.ClassDef):
            names = [ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)]
        else:
            continue
        found += [getattr(node, "name", "lambda")] * ("seed" in names)
    return found


SEEDED = frozenset({"studies", "runtime", "pipeline"})  # experiments, what makes generators of seeds, the command line


def test_only_a_study_takes_a_seed():
    algorithms = (path for path in MODULES if room(module_name(path)) not in SEEDED)
    faults = faults_of(algorithms, lambda path: seeds(tree(path)))
    assert not faults, f"an algorithm takes a `generator`; an experiment lives in leakage.studies:\n{faults}"


@pytest.mark.parametrize(
    "source", ["def draw(n, *, seed): ...", "class Run:\n    seed: int", "draw = lambda seed: seed"]
)
def test_a_seed_is_found(source):
    assert seeds(ast.parse(source))
    assert not seeds(ast.parse(source.replace("seed", "generator")))


def mixed_up(module: ast.Module) -> list[str]:
    """Every public function that takes members and outsiders by their places, where one passes for the other."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            placed = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args)}
            named = placed | {argument.arg for argument in node.args.kwonlyargs}
            pair = {name for name in named if name.startswith(("member", "outsider"))}
            if len({name[:6] for name in pair}) == 2 and pair & placed:
                found.append(node.name)
    return found


def test_members_and_outsiders_are_told_apart_by_name():
    faults = faults_of(MODULES, lambda path: mixed_up(tree(path)))
    assert not faults, f"make `member` and `outsider` keyword-only:\n{faults}"


@pytest.mark.parametrize(
    "source",
    ["def f(member, outsider): ...", "def f(member, *, outsider): ...", "def f(a, outsider_variance, members): ..."],
)
def test_a_pair_told_apart_by_place_is_found(source):
    assert mixed_up(ast.parse(source))
    by_name = source.replace("(", "(*, ").replace("*, *", "*").replace(", *, outsider", ", outsider")
    for harmless in (by_name, source.replace("outsider", "other")):
        assert not mixed_up(ast.parse(harmless))


def asks_for_a_gpu(module: ast.Module) -> list[str]:
    """Every question whether there is one, and every `.cuda()`."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in {"is_available", "device_count"}:
            found += [ast.unparse(node)] * (isinstance(node.value, ast.Attribute) and node.value.attr == "cuda")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            found.append(ast.unparse(node))
    return found


def test_only_runtime_asks_for_a_gpu():
    faults = faults_of((path for path in MODULES if path.name != "runtime.py"), lambda path: asks_for_a_gpu(tree(path)))
    assert not faults, f"take the device from the tensors, or from leakage.runtime:\n{faults}"
    assert asks_for_a_gpu(tree(PACKAGE / "runtime.py")), "they are found where they are"


def project_texts() -> Iterator[Path]:
    """Every text file of the project but the tests, which may make temporary folders."""
    loose = (path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES)
    yield from (path for path in loose if path.name != ".git")  # a file where git shares one repository among folders
    for folder in ("lib", "book", "benchmarks", ".github", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.is_file()
                and path.suffix in TEXT_SUFFIXES
                and not {"__pycache__", "leakage.egg-info"} & {*path.parts}
            ):
                yield path


def test_no_file_names_a_folder_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in project_texts()
        for number, line in enumerate(read(path).splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "machine"),
    [
        ("root = '/tmp/cache'", True),
        ("cd /root/project", True),
        ("see /home/alice", True),
        ("https://example.org/home/page", False),
        ("the ratio n/work", False),
        ("${HOME}/tmp/x", False),
        ("../shared/data", False),
    ],
)
def test_a_machine_path_is_told_from_an_address(line, machine):
    assert bool(MACHINE_PATH.search(line)) is machine
