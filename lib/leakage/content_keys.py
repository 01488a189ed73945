"""Content keys: a stored result is reused only while everything it depends on is unchanged.

A key is the SHA-256 of the contents of files, values (`fingerprints`) and names, never of a time stamp, so it survives
a checkout and a copy to another machine. Imports are followed by reading source text (`ast`): nothing here imports what
it follows, runs a chapter or writes a file.
"""

import ast
import dis
import functools
import hashlib
import inspect
import os
import platform
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from leakage import sources
from leakage.fingerprints import fingerprint

PACKAGE = Path(__file__).parent
BUILD_VARIABLE = "LEAKAGE_BUILD"  # the build folder, where it is not `_build` of the repository
PROCESSES_VARIABLE = "LEAKAGE_PROCESSES"  # among how many the points of a grid are divided
QUIET_VARIABLE = "LEAKAGE_QUIET"  # set while a page is made, where a progress bar would end up in the text
_RUNNER = "pipeline"  # the subpackage that runs chapters; no result depends on it
_IMPORTERS = {"import_module", "__import__"}
_VERSIONED = ("torch", "numpy", "scipy", "scikit-learn")


def find_root(start: Path | str | None = None) -> Path:
    """The nearest folder at or above `start` (default: the current one) that holds `_toc.yml` and `book/`.

    Raises:
        FileNotFoundError: if there is none.
    """
    first = Path(start or Path.cwd()).resolve()
    for folder in (first, *first.parents):
        if (folder / "_toc.yml").is_file() and (folder / "book").is_dir():
            return folder
    raise FileNotFoundError(f"no folder at or above {first} holds _toc.yml and book/: run inside the repository.")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


class Watch:
    """Digests of files that were imported, and which of these files have changed since this process began.

    Code that runs is of the file as it was when it was imported, so a digest taken now is that of the running code only
    while `changed` is empty: ask after taking the digests, and again before keeping what was computed.
    """

    def __init__(self) -> None:
        self._files: set[Path] = set()

    def digest(self, path: Path) -> str:
        """`file_digest`, and remember the file."""
        self._files.add(Path(os.path.realpath(path)))
        return file_digest(path)

    def changed(self) -> list[str]:
        """Names of the files that may not be what was imported."""
        return sorted(path.name for path in self._files if sources.changed(path))


def environment(root: Path | None, *, imported: bool = False) -> dict[str, str | None]:
    """What every result depends on: Python, the numerical packages and the lock file (`None` where there is none).

    Args:
        root: the folder of the lock file.
        imported: the packages as this process first found them, which is what it computes with, whatever is installed
            meanwhile; by default as they are now, which is what the next process will have.
    """
    ask = _found_version if imported else metadata.version
    versions: dict[str, str | None] = {name: ask(name) for name in _VERSIONED}
    lock = root / "requirements.txt" if root else None
    versions["lock"] = file_digest(lock) if lock and lock.is_file() else None
    return {"python": platform.python_version()} | versions


_found_version = functools.cache(metadata.version)


def device_kind(device: Any) -> str:
    """`cpu`, or `cuda` and the name of the GPU: results may differ in the last digits between kinds."""
    import torch

    chosen = torch.device(device)
    return f"cuda {torch.cuda.get_device_name(chosen)}" if chosen.type == "cuda" else chosen.type


@functools.cache
def processor() -> str:
    """What the last digits depend on besides the device: architecture, instruction set, kind of linear algebra."""
    import numpy  # noqa: F401  (it loads the linear algebra that is asked for here)
    import threadpoolctl
    import torch

    blas = (found for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas")
    kinds = sorted({" ".join(filter(None, (one["internal_api"], one.get("architecture")))) for one in blas})
    return ", ".join((f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}", *kinds))


# ── modules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def module_files(source: str, *, package: Path = PACKAGE) -> set[Path]:
    """Every file of `package` that running `source` may read: the modules it imports, theirs, and the data beside them.

    Where reading cannot tell (`import leakage`, a star or relative import, `import_module`, text that is not Python),
    the whole package is meant, except the runner.
    """
    modules = _modules(package)
    known = frozenset(modules)
    pending, found = set(_imported(source, known)), set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending |= _imported(modules[name].read_bytes(), known) - found
    files = {modules[name] for name in found}
    beside = {path for folder in {file.parent for file in files} for path in folder.iterdir() if path.is_file()}
    return files | {p for p in beside if p.suffix not in (".py", ".pyc") and not p.name.startswith(".")}


def _modules(package: Path) -> dict[str, Path]:
    """Dotted name → file, for all modules of the package but the runner's."""
    table = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[1] != _RUNNER:
            table[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return table


@functools.lru_cache(maxsize=512)  # a chapter asks for the same sources again and again
def _imported(source: str | bytes, modules: frozenset[str]) -> frozenset[str]:
    """Names of the modules that `source` imports anywhere in it, with the packages they are in."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, in whichever way
        return modules
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = named.union(*(_below(alias.name, modules) for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            star = any(alias.name == "*" for alias in node.names)
            named |= _below(node.module or "", modules) if star else {f"{node.module}.{a.name}" for a in node.names}
            named.add(node.module or "")
        elif isinstance(node, ast.ImportFrom) or {getattr(node, "id", ""), getattr(node, "attr", "")} & _IMPORTERS:
            return modules
    parents = {".".join(name.split(".")[:depth]) for name in named for depth in range(1, name.count(".") + 1)}
    return modules & (named | parents)


def _below(name: str, modules: frozenset[str]) -> set[str]:
    """The module and, where it is a package, everything in it: its attributes may be any of them."""
    return {other for other in modules if other == name or other.startswith(f"{name}.")}


# ── functions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def function_parts(
    function: Callable[..., Any], *, package: Path = PACKAGE, digest: Callable[[Path], str] = file_digest
) -> dict[str, Any]:
    """What a function's results depend on besides its argument: its module with all it imports, or its own text.

    A function of an importable module brings the contents of that module's file and of the package modules it imports.
    A function written in a notebook or a script brings its text, its compiled code (a script may be edited while it
    runs) and the content of each variable it uses. Defaults, captured variables and the arguments of a
    `functools.partial` count as well.

    Args:
        function: a Python function, or a partial of one.
        package: whose imports are followed.
        digest: of a file; a `Watch` knows afterwards which files were asked for.

    Raises:
        TypeError: if something it uses has a content that cannot be read off, such as a generator or a model.
    """
    return _Reader(package, digest).function(function)


class _Reader:
    """Reads off what one function depends on, with all that this uses; `seen` ends recursion."""

    def __init__(self, package: Path, digest: Callable[[Path], str]) -> None:
        self.package, self.digest, self.seen = package, digest, set[int]()

    def function(self, function: Any) -> dict[str, Any]:
        self.seen.add(id(function))
        if isinstance(function, functools.partial):
            given = {f"argument {n}": value for n, value in enumerate(function.args)} | function.keywords
            bound = {name: self.used("the partial", name, value) for name, value in sorted(given.items())}
            return {"bound": bound, "of": self.function(function.func)}
        wrappers, function = self.wrappers(function), inspect.unwrap(function)
        if not inspect.isfunction(function):
            raise TypeError(f"`function` must be a Python function or a functools.partial of one; got {function!r}.")
        name = f"{function.__module__}.{function.__qualname__}"
        self.seen.add(id(function))
        cells = (cell.cell_contents for cell in function.__closure__ or ())
        variables = dict(zip(function.__code__.co_freevars, cells, strict=True))
        parts: dict[str, Any] = {"name": name, "wrappers": wrappers}
        if function.__module__ == "__main__":
            parts |= {"text": inspect.getsource(function), "code": _code_parts(function.__code__)}
            read = _globals_read(function.__code__) & set(function.__globals__)
            variables |= {variable: function.__globals__[variable] for variable in read}
        else:
            path = Path(inspect.getfile(function)).resolve()
            parts["files"] = self.files({path} | module_files(path.read_text("utf-8"), package=self.package))
        variables |= {"its defaults": (function.__defaults__, function.__kwdefaults__)}
        parts["uses"] = {n: self.used(name, n, value) for n, value in sorted(variables.items())}
        return parts

    def wrappers(self, function: Any) -> list[Any]:
        """What was wrapped around a function in a notebook; `functools.wraps` gives it the name of what is inside."""
        found = []
        while hasattr(function, "__wrapped__"):
            inside, self.seen = function.__wrapped__, self.seen | {id(function)}
            if inspect.isfunction(function) and function.__globals__.get("__name__") == "__main__":
                cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
                kept = {n: c.cell_contents for n, c in cells if c.cell_contents is not inside}
                uses = {n: self.used("the wrapper", n, value) for n, value in sorted(kept.items())}
                found.append([_code_parts(function.__code__), uses])
            function = inside
        return found

    def used(self, function: str, variable: str, value: Any) -> Any:
        """The content of a variable that `function` reads: code by its name and files or text, data by fingerprint."""
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None) or ""
        if id(value) in self.seen:
            return getattr(value, "__qualname__", "itself")
        if isinstance(value, functools.partial):
            return self.function(value)
        if inspect.isfunction(value) and (module == "__main__" or _own_file(module)):
            return self.function(value)
        owner = getattr(value, "__self__", None) if inspect.isroutine(value) else None
        if owner is not None and not inspect.ismodule(owner) and not inspect.isclass(owner):  # a method of an object
            of = self.used(function, variable, owner)
            return {"method": value.__name__, "of": of, "class": self.used(function, variable, type(owner))}
        is_code = inspect.ismodule(value) or inspect.isroutine(value) or inspect.isclass(value)
        if (is_code or type(value).__name__ == "ufunc") and module != "__main__":
            file = _own_file(module)
            name = "" if inspect.ismodule(value) else getattr(value, "__qualname__", None) or value.__name__
            files = {file, *module_files(f"import {module}", package=self.package)} if file else ()
            return {f"{module}:{name}": self.files(files)}
        try:
            return fingerprint(value)
        except TypeError as error:
            if isinstance(value, dict | list | tuple):  # of functions, say
                self.seen.add(id(value))
                items = list(value.items() if isinstance(value, dict) else enumerate(value))
                content = [[fingerprint(at), self.used(function, f"{variable}[{at!r}]", item)] for at, item in items]
                return [type(value).__name__, content]
            raise TypeError(f"`{function}` uses `{variable}`, whose content cannot be read: {error}") from error

    def files(self, paths: Iterable[Path]) -> dict[str, str]:
        return {os.path.relpath(path, self.package.parent): self.digest(path) for path in sorted(paths)}


def _code_parts(code: types.CodeType) -> list[Any]:
    """Compiled code as plain values, without the places that differ from run to run: file and line."""
    constants = [
        _code_parts(c) if isinstance(c, types.CodeType) else "..." if c is ... else fingerprint(c)
        for c in code.co_consts
    ]
    counts = (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return [code.co_code, code.co_exceptiontable, counts, names, constants]


def _own_file(module: str) -> Path | None:
    """File of a loaded module that may change without the environment: one that is not installed with Python."""
    file = getattr(sys.modules.get(module), "__file__", None)
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return Path(file).resolve() if file and not any(Path(file).is_relative_to(folder) for folder in folders) else None


def _globals_read(code: types.CodeType) -> set[str]:
    """Global names that the code, or a function, lambda or comprehension inside it, reads."""
    named = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return named.union(*(_globals_read(c) for c in code.co_consts if isinstance(c, types.CodeType)))
