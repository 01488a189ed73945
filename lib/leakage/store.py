"""Keep results on disk: a key holds everything that a result depends on, and a checksum finds a damaged file.

A key is the SHA-256 (`digest`) of the code (`imported_files`; a function counts with the file of its module and all
that this imports), the arguments, the checksums of data and the versions (`environment`). Times do not count, so a key
survives a checkout and a copy to another machine.

A file holds a SHA-256 and then what `torch.save` writes. It is read with `weights_only`, so that no file can run code.
The checksum finds damage, not forgery: anyone who can write into the folder can write a good file.
"""

import ast
import dataclasses
import functools
import hashlib
import inspect
import io
import operator
import os
import platform
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from leakage import __all__ as _OFFERED

LIB = Path(__file__).resolve().parents[1]
PACKAGES = ("leakage", "reproduced")
# No result depends on the modules that build the book.
_BUILDERS = tuple(f"reproduced.{name}." for name in ("run", "pages", "build", "replicate", "command_line"))
_IMPORTERS = {"import_module", "__import__"}
_VERSIONED = ("torch", "numpy", "scipy", "scikit-learn")
_DIGEST_BYTES = 32
_RECORD = "leakage record"  # the key of a record's type among its fields in a file


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def digest(value: Any) -> str:
    """SHA-256 of a value, equal for equal values: numbers, text, containers, dataclasses, arrays, tensors, functions.

    Types count (`1`, `1.0` and `True` differ), the order of a dictionary does not. A dataclass may have a text
    `content_key`, which then stands for its content: large data are read once and not for every key. A function must
    belong to a module, or be a `functools.partial` of such a function; its name counts, and the files that its module
    imports.

    Raises:
        TypeError: for a value whose content cannot be read, such as a generator or a function written in a notebook.
    """
    return hashlib.sha256(repr(_describe(value)).encode()).hexdigest()


def _describe(value: Any) -> tuple[str, Any]:
    """The type of a value and its content, in tuples, lists and texts."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if value is None or kind in (bool, int, float, complex, str, bytes, range):
        return name, repr(value)
    if kind in (list, tuple):
        return name, [_describe(item) for item in value]
    if kind in (set, frozenset):
        return "set", sorted(map(_describe, value), key=repr)
    if isinstance(value, Mapping):
        return "mapping", sorted(((_describe(key), _describe(item)) for key, item in value.items()), key=repr)
    if isinstance(value, Path):
        return "path", value.as_posix()
    if kind is functools.partial:
        return name, _describe((value.func, value.args, value.keywords))
    if inspect.isfunction(value):
        return value.__module__, (value.__qualname__, _code_digests(value))
    if kind.__module__ == "__main__":
        raise TypeError(f"the class {kind.__name__} is in no module, so no key holds its code; put it into one.")
    if names := _field_names(kind):
        return name, _describe(getattr(value, "content_key", None) or {name: getattr(value, name) for name in names})
    return "array", _describe_array(value)


def _describe_array(value: Any) -> tuple[str, ...]:
    import numpy
    import torch  # late, since few commands need it

    if isinstance(value, torch.device | torch.dtype):
        return (str(value),)
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, numpy.ndarray | numpy.generic) and not value.dtype.hasobject:
        content = value.tobytes()
    else:
        kind = type(value).__name__
        raise TypeError(f"a {kind} has no content key; use numbers, text, arrays, tensors or dataclasses.")
    return repr(value.dtype), repr(tuple(value.shape)), hashlib.sha256(content).hexdigest()


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass or a named tuple; none of any other type."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


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
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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


# ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def imported_files(source: str, *, lib: Path = LIB) -> set[Path]:
    """Every file of `leakage` and `reproduced` that running `source` may read.

    These are the modules that it imports, what they import, the packages they are in, and the data files beside them.
    Imports are read from the text; nothing is run. Where the text does not tell (`import leakage`, a name that
    `leakage` itself offers, a star or relative import, `import_module`, text that is not Python) all files count. The
    modules that build the book (`_BUILDERS`) never count: no result depends on them.
    """
    modules = _modules(lib)
    offered = {f"leakage.{name}" for name in _OFFERED}
    found: set[str] = set()
    pending: list[str | bytes] = [source]
    while pending:
        names = _imports(pending.pop())
        if names is None or names & offered - modules.keys():
            names = modules.keys()
        new = (modules.keys() & names) - found
        found |= new
        pending += [modules[name].read_bytes() for name in new - {"leakage"}]  # which imports on demand only
    files = {modules[name] for name in found}
    beside = {path for folder in {file.parent for file in files} for path in folder.iterdir() if path.is_file()}
    return files | {path for path in beside if path.suffix not in (".py", ".pyc") and not path.name.startswith(".")}


def _modules(lib: Path) -> dict[str, Path]:
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
            unknown = {getattr(node, "id", ""), getattr(node, "attr", "")} & _IMPORTERS
        if unknown:
            return None
        names |= imported
    return frozenset(".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2))


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DamagedFile(ValueError):
    """The content of a file is not what `pack` made."""


def checksum(path: Path) -> str:
    """The SHA-256 of a file; of a folder that of what `sha256sum *.npy` prints in it, so that names count."""
    if path.is_dir():
        lines = [f"{checksum(file)}  {file.name}\n" for file in sorted(path.glob("*.npy"))]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, content: bytes) -> None:
    """Write a file in one step: it is there completely, or as it was before. Devices and pipes get the content too."""
    if path.absolute().parts[1:2] in (("dev",), ("proc",)) or (path.exists() and not path.is_file()):
        with path.open("ab") as stream:
            stream.write(content)
        return
    path = path.resolve()  # a link stays
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def pack(value: Any) -> bytes:
    """The content of a file that holds `value`.

    A value is a number, text, bytes, a tensor, a record (a dataclass or named tuple of `leakage` or `reproduced`), or
    a list, tuple or dictionary of these. A NumPy scalar comes back as a Python number.

    Raises:
        TypeError: for any other value.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(_to_plain(value), buffer)
    payload = buffer.getvalue()
    return hashlib.sha256(payload).digest() + payload


def unpack(content: bytes) -> Any:
    """The value that was packed, with its tensors on the CPU.

    Raises:
        DamagedFile: if the checksum does not match, or `pack` did not make the content.
    """
    import torch

    checksum, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != checksum:
        raise DamagedFile("its checksum does not match")
    try:
        return _from_plain(torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu"))
    except Exception as error:  # bytes that were never packed make torch raise almost anything
        raise DamagedFile(f"its content was not made by `pack` ({type(error).__name__})") from error


def _to_plain(value: Any) -> Any:
    """The value in containers, numbers, texts and CPU tensors; a record becomes a dictionary with the record's type."""
    import numpy
    import torch

    if isinstance(value, numpy.generic):
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if names := _record_fields(kind):
        fields = {name: _to_plain(getattr(value, name)) for name in names}
        return {_RECORD: f"{kind.__module__}:{kind.__qualname__}"} | fields
    if kind in (list, tuple):
        return kind(_to_plain(item) for item in value)
    if kind is dict and all(type(key) in (str, int, float) and key != _RECORD for key in value):
        return {key: _to_plain(item) for key, item in value.items()}
    raise TypeError(f"a {kind.__name__} cannot be kept in a file; use numbers, text, tensors or records.")


def _from_plain(value: Any) -> Any:
    """The value from which `_to_plain` made this."""
    if isinstance(value, list | tuple):
        return type(value)(_from_plain(item) for item in value)
    if not isinstance(value, dict):
        return value
    fields = {key: _from_plain(item) for key, item in value.items() if key != _RECORD}
    if _RECORD not in value:
        return fields
    module, _, kind = value[_RECORD].partition(":")
    record = getattr(sys.modules[module], kind)  # imported with the function whose result this is
    if not fields or _record_fields(record) != tuple(fields):
        raise TypeError(f"{value[_RECORD]!r} is no record with the fields {', '.join(fields)}.")
    return record(**fields)


def _record_fields(kind: type) -> tuple[str, ...]:
    """The fields of a type of record: a dataclass or named tuple of `leakage` or `reproduced`."""
    return _field_names(kind) if kind.__module__.partition(".")[0] in PACKAGES else ()


def save(path: Path, value: Any) -> None:
    """Keep a value in a file; see `pack`."""
    write(path, pack(value))


def load(path: Path) -> Any:
    """The value in a file.

    Raises:
        DamagedFile: see `unpack`.
        FileNotFoundError: if there is none.
    """
    return unpack(path.read_bytes())
