"""What the keys of stored results are made of: code, versions of packages, kind of machine.

The key of a grid's point (`grids.run_grid`) is made of the function with the code that it imports, the point, the
run, versions, device and processor; that of a chapter (`run.chapter_cache.make_plan`) of its files, the code that it
imports, data, parameters, versions and device. Times do not count, so a key survives a checkout and a copy.
"""

import ast
import functools
import inspect
import operator
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from leakage import __all__ as _PUBLIC_NAMES
from leakage import store
from leakage.store import PACKAGES

LIB = Path(__file__).resolve().parents[1]
# Modules whose change makes no result stale: they execute chapters and make pages.
_BUILDERS = (
    "leakage.command_line.",
    *(f"reproduced.{name}." for name in ("run", "pages", "build", "replicate", "command_line")),
)
_IMPORT_FUNCTIONS = {"import_module", "__import__"}
_VERSIONED = ("torch", "numpy", "scipy", "scikit-learn")


def digest(value: Any) -> str:
    """`leakage.store.digest` of a value that may hold functions of modules, or `functools.partial`s of such functions.

    Of a function its name counts, the file of its module and all that this imports.
    """
    return store.digest(value, describe_function=_code_digests)


def _code_digests(function: Any) -> list[tuple[str, str]]:
    """Names and digests of the files that a function of a module depends on."""
    name, module = function.__qualname__, sys.modules.get(function.__module__)
    try:
        known = function.__module__ != "__main__" and operator.attrgetter(name)(module) is function
    except AttributeError:
        known = False
    if module is None or not known:
        raise TypeError(f"`{name}` is no function of a module: a key needs the file of its code.")
    return _module_digests(inspect.getfile(module))


@functools.cache
def _module_digests(file: str) -> list[tuple[str, str]]:
    path = Path(file).resolve()
    files = {path} | imported_files(path.read_text("utf-8"))
    return sorted((one.name, file_digest(one)) for one in files)


@functools.cache
def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, taken once in a process."""
    return store.checksum(path)


def digest_library() -> None:
    """Take the digest of every file of both packages, so that keys hold the code as it is now."""
    for package in PACKAGES:
        for path in (LIB / package).rglob("*.py"):
            file_digest(path)


def environment(root: Path | None) -> dict[str, str | None]:
    """Versions on which every result depends: Python, the numerical packages, and the lock file in `root` if any."""
    lock = root / "requirements.txt" if root else None
    versions = {name: metadata.version(name) for name in _VERSIONED}
    locked = file_digest(lock) if lock and lock.is_file() else None
    return {"python": platform.python_version(), **versions, "lock": locked}


def device_kind(device: Any) -> str:
    """`cpu`, or `cuda` and the name of the GPU: results may differ in the last digits between kinds."""
    import torch

    chosen = torch.device(device)
    return f"cuda {torch.cuda.get_device_name(chosen)}" if chosen.type == "cuda" else chosen.type


@functools.cache
def processor() -> str:
    """What the last digits of results depend on besides the device: architecture, instruction set, linear algebra."""
    import numpy  # noqa: F401  (it loads the linear algebra)
    import threadpoolctl
    import torch

    blas = (found for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas")
    kinds = sorted({" ".join(filter(None, (one["internal_api"], one.get("architecture")))) for one in blas})
    return ", ".join((f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}", *kinds))


def imported_files(source: str, *, lib: Path = LIB) -> set[Path]:
    """Every file of `leakage` and `reproduced` that running `source` may read.

    These are the modules that it imports, what they import, the packages they are in, and the data files beside them.
    Imports are read from the text; nothing is run. Where the text does not tell (`import leakage`, a name that
    `leakage` itself offers, a star or relative import, `import_module`, text that is not Python) all files count. The
    modules that build the book (`_BUILDERS`) never count: no result depends on them.
    """
    modules = find_modules(lib)
    offered = {f"leakage.{name}" for name in _PUBLIC_NAMES}
    found: set[str] = set()
    pending: list[str | bytes] = [source]
    while pending:
        names = _imports(pending.pop())
        if names is None or names & (offered - modules.keys()):
            names = modules.keys()
        new = (modules.keys() & names) - found
        found |= new
        # `leakage/__init__.py` imports on demand, so what it names is no dependency.
        pending += [modules[name].read_bytes() for name in new - {"leakage"}]
    files = {modules[name] for name in found}
    beside = {path for folder in {file.parent for file in files} for path in folder.iterdir() if path.is_file()}
    return files | {path for path in beside if path.suffix not in (".py", ".pyc") and not path.name.startswith(".")}


def find_modules(lib: Path) -> dict[str, Path]:
    """Dotted name → file of all modules on which results may depend."""
    paths = (path for package in PACKAGES for path in (lib / package).rglob("*.py"))
    named = {".".join(path.relative_to(lib).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: path for name, path in named.items() if not f"{name}.".startswith(_BUILDERS)}


@functools.lru_cache(maxsize=1024)  # the chapters share most modules
def _imports(source: str | bytes) -> frozenset[str] | None:
    """Names that `source` imports anywhere, with the packages they are in; None where the text does not tell."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported = {alias.name for alias in node.names}
            unknown = imported & set(PACKAGES)
        elif isinstance(node, ast.ImportFrom):
            imported = {f"{node.module}.{alias.name}" for alias in node.names}
            unknown = node.level or any(alias.name == "*" for alias in node.names)
        else:
            imported = set()
            unknown = {getattr(node, "id", ""), getattr(node, "attr", "")} & _IMPORT_FUNCTIONS
        if unknown:
            return None
        names |= imported
    return frozenset(".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2))
