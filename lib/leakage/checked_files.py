"""Files of tensors and plain values behind a checksum: there completely or not at all, and never believed if altered.

A file is the SHA-256 of what follows, then what `torch.save` writes. It is read with `weights_only`, so that no file
can run code. The checksum finds damage, not forgery: who can write the folder can write a good file into it.
"""

import hashlib
import io
import os
import re
import threading
from pathlib import Path
from typing import Any

import psutil

_DIGEST_BYTES = 32
_PARTIAL = re.compile(r"\.([0-9]+)-[0-9]+\.partial")  # the end of the name of a file that process … is writing


class Damaged(ValueError):
    """A file whose content is not what was written, or is nothing that is written here."""


def pack(value: Any) -> bytes:
    """The content of a file that holds `value`: numbers, text and tensors in lists, tuples and dictionaries."""
    import torch  # not for those who only write

    buffer = io.BytesIO()
    torch.save(value, buffer)
    payload = buffer.getvalue()
    return hashlib.sha256(payload).digest() + payload


def unpack(content: bytes) -> Any:
    """The value that was packed, with its tensors on the CPU.

    Raises:
        Damaged: if the checksum is another, or the content was not made by `pack`.
    """
    import torch

    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise Damaged("its checksum is another")
    try:
        return torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except Exception as error:  # bytes that were never packed make torch raise almost anything
        raise Damaged(f"it holds no tensors or plain values ({type(error).__name__})") from error


def write(path: Path, content: bytes) -> None:
    """Write a file in one step: it is there completely, or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def hand_out(path: Path, content: bytes) -> None:
    """Write where somebody says: as `write`, but through links, and into a terminal, a pipe or a device."""
    if (path.exists() and not path.is_file()) or path.absolute().parts[1:2] in (("dev",), ("proc",)):
        with path.open("ab") as stream:
            stream.write(content)
    else:
        write(path.resolve(), content)


def sweep_up(folder: Path) -> None:
    """Delete what killed processes have half written below `folder`; files of a process that lives stay."""
    for path in folder.rglob("*.partial"):
        writer = _PARTIAL.search(path.name)
        if writer and not psutil.pid_exists(int(writer[1])):
            path.unlink(missing_ok=True)


def read(path: Path) -> Any:
    """The value in a file.

    Raises:
        Damaged: see `unpack`.
        FileNotFoundError: if there is none.
    """
    return unpack(path.read_bytes())
