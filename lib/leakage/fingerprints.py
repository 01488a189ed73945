"""What a value is, in one line: the SHA-256 of its content, equal for equal values on every machine.

Large data need not be read for every key: a dataclass that takes its digest once, and keeps it as `content_key`, is
known by that. Nothing here touches a file, and NumPy and PyTorch are not imported for it.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def fingerprint(value: Any) -> str:
    """SHA-256 of a value made of numbers, text, containers, dataclasses, arrays and tensors; equal for equal values.

    Types count (`1`, `1.0` and `True` differ), the order of a dictionary does not. A dataclass that has a text
    `content_key` is known by that.

    Raises:
        TypeError: for a value whose content cannot be read off, such as a generator or an open file.
    """
    digest = hashlib.sha256()
    for piece in _pieces(value):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    """The content of `value` as byte strings, each introduced by the name of its type."""
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, range):
        yield from (kind.__name__.encode(), repr(value).encode())
    elif kind is bytes:
        yield from (b"bytes", value)
    elif kind in (list, tuple):
        yield f"{kind.__name__} {len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    elif kind in (set, frozenset):
        yield b"set"
        yield from _pieces(sorted(fingerprint(item) for item in value))
    elif isinstance(value, Mapping):
        yield b"mapping"
        yield from _pieces(sorted((fingerprint(key), fingerprint(item)) for key, item in value.items()))
    elif isinstance(value, Path):
        yield from (b"path", value.as_posix().encode())
    elif kind.__module__ == "__main__":
        raise TypeError(f"a {kind.__name__} is of a class written here, whose code no key holds; put it into a module.")
    elif isinstance(value, tuple) and hasattr(kind, "_fields"):  # a named tuple
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        yield from _pieces(dict(zip(kind._fields, value, strict=True)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        key = getattr(value, "content_key", None)
        yield from _pieces(key or {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    else:
        yield from _array_pieces(value)


def _array_pieces(value: Any) -> Iterator[bytes]:
    """The content of a NumPy or PyTorch value; neither library is imported for it."""
    kind, torch, numpy = type(value), sys.modules.get("torch"), sys.modules.get("numpy")
    if torch and isinstance(value, torch.Tensor) and value.layout == torch.strided:
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        yield from (b"tensor", str(value.dtype).encode(), repr(tuple(value.shape)).encode())
        yield flat.view(torch.uint8).numpy().tobytes()
    elif torch and isinstance(value, torch.device | torch.dtype):
        yield from (kind.__name__.encode(), str(value).encode())
    elif (
        numpy
        and isinstance(value, numpy.ndarray | numpy.generic)
        and not (value.dtype.hasobject or isinstance(value, numpy.ma.MaskedArray))
    ):
        yield from (b"array", value.dtype.str.encode(), repr(value.shape).encode(), value.tobytes())
    else:
        raise TypeError(f"a {kind.__name__} has no content key; use numbers, text, arrays, tensors or dataclasses.")
