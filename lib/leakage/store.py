"""Keep results on disk: `digest` names a file by the content of values, and a checksum finds a damaged file.

A file holds a SHA-256 and then what `torch.save` writes. It is read with `weights_only`, so that no file can run code.
The checksum finds damage, not forgery: anyone who can write into the folder can write a good file.
"""

import dataclasses
import functools
import hashlib
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("leakage", "reproduced")  # whose dataclasses and named tuples a file may hold
_DIGEST_BYTES = 32
_RECORD = "leakage record"  # the key of a record's type among its fields in a file


def digest(value: Any, *, describe_function: Callable[[Any], Any] | None = None) -> str:
    """SHA-256 of a value, equal for equal values: numbers, text, containers, dataclasses, arrays, tensors.

    Types count (`1`, `1.0` and `True` differ), the order of a dictionary does not. A dataclass may have a text
    `content_key`, which then stands for its content: large data are read once and not for every digest. A value whose
    content cannot be read, such as a generator, is a `TypeError`; so is a function, unless `describe_function` gives
    what stands for its code.
    """
    return hashlib.sha256(repr(_describe(value, describe_function)).encode()).hexdigest()


def _describe(value: Any, describe_function: Callable[[Any], Any] | None) -> tuple[str, Any]:
    """The type of a value and its content, in tuples, lists and texts."""

    def describe(part: Any) -> tuple[str, Any]:
        return _describe(part, describe_function)

    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if value is None or kind in (bool, int, float, complex, str, bytes, range):
        return name, repr(value)
    if kind in (list, tuple):
        return name, [describe(item) for item in value]
    if kind in (set, frozenset):
        return "set", sorted(map(describe, value), key=repr)
    if isinstance(value, Mapping):
        return "mapping", sorted(((describe(key), describe(item)) for key, item in value.items()), key=repr)
    if isinstance(value, Path):
        return "path", value.as_posix()
    if kind is functools.partial:
        return name, describe((value.func, value.args, value.keywords))
    if inspect.isfunction(value) and describe_function:
        return value.__module__, (value.__qualname__, describe_function(value))
    if kind.__module__ == "__main__":
        raise TypeError(f"the class {kind.__name__} is in `__main__`, whose code no digest covers; put it in a module.")
    if names := _field_names(kind):
        return name, describe(getattr(value, "content_key", None) or {name: getattr(value, name) for name in names})
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


class DamagedFile(ValueError):
    """The content of a file is not what `pack` made."""


def checksum(path: Path) -> str:
    """The SHA-256 of a file; for a folder, that of the output of `sha256sum *.npy` in it, so that names count."""
    if path.is_dir():
        lines = [f"{checksum(file)}  {file.name}\n" for file in sorted(path.glob("*.npy"))]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, content: bytes) -> None:
    """Write a file completely, or leave it as it was. Devices and pipes are written to directly."""
    if path.absolute().parts[1:2] in (("dev",), ("proc",)) or (path.exists() and not path.is_file()):
        with path.open("ab") as stream:
            stream.write(content)
        return
    path = path.resolve()  # a symbolic link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def pack(value: Any) -> bytes:
    """The content of a file that holds `value`.

    A value is a number, text, bytes, a tensor, a record (a dataclass or named tuple of `leakage` or `reproduced`), or
    a list, tuple or dictionary of these. A NumPy scalar comes back as a Python number.
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

    expected, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != expected:
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
    record = getattr(sys.modules[module], kind)  # already imported, with the function whose result this is
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
