"""Losses in NumPy's files, as an audit takes them from the command line; never unpickled.

An `.npz` file, or a folder of `.npy` files, holds `losses` and `member`, and may hold `target`, `population`,
`correct`, `labels` and `groups`, which mean what they mean in `audit.of_losses`. The files of a folder are mapped and
stay where they are; what an `.npz` file holds is unpacked by blocks, beyond a GiB into a temporary file
(`blocks.room`). Nothing here attacks.
"""

import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leakage import blocks

NEEDED = ("losses", "member")
KNOWN = (*NEEDED, "target", "population", "correct", "labels", "groups")
_MOST_BYTES = 2**32  # of one compressed array, before anything is read
_CHUNK = 2**20  # bytes read at once
_BROKEN = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, MemoryError)


class Unusable(ValueError):
    """A file that cannot be audited; the message says why in one line."""


def read(path: Path) -> dict[str, Any]:
    """The arguments of `audit.of_losses` in a file or a folder.

    Raises:
        Unusable: if it is no `.npz` file and no folder, lacks a name, has one that is not known, or an array cannot be
            read.
    """
    try:
        if path.is_dir():
            return _arguments(path, {file.stem: file for file in sorted(path.glob("*.npy"))}, _mapped)
        if path.exists() and not path.is_file():
            raise Unusable(f"{path} must be a file or a folder, and is neither.")
        with path.open("rb") as content:
            if not zipfile.is_zipfile(content):
                raise Unusable(
                    f"{path} must be an .npz file with {' and '.join(NEEDED)}, saved with numpy.savez, or a folder of "
                    ".npy files of these names."
                )
            with zipfile.ZipFile(content) as kept:
                entries = {entry.filename.removesuffix(".npy"): entry for entry in kept.infolist()}
                if len(entries) < len(kept.infolist()):
                    raise Unusable(f"{path} must hold each name once.")
                return _arguments(path, entries, partial(_unpacked, path, kept))
    except OSError as error:
        raise Unusable(f"{path} cannot be read ({error.strerror or 'it is damaged'}).") from error
    except _BROKEN as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable(f"{path} must hold arrays of numbers and texts, without Python objects: {error}.") from error


def _arguments(path: Path, places: Mapping[str, Any], load: Callable[[Any], np.ndarray]) -> dict[str, Any]:
    if missing := [name for name in NEEDED if name not in places]:
        raise Unusable(f"{path} must hold {' and '.join(NEEDED)}, but lacks {' and '.join(missing)}.")
    if strange := [name for name in places if name not in KNOWN]:
        raise Unusable(f"{path} may hold {', '.join(KNOWN)}; got {', '.join(map(repr, strange))} besides.")
    found: dict[str, Any] = {name: load(place) for name, place in places.items()}
    if "target" in found:
        if found["target"].size != 1 or found["target"].dtype.kind not in "iu":
            raise Unusable(f"{path}: `target` must be one whole number, the place of a model.")
        found["target"] = int(found["target"].item())
    return found


def _mapped(file: Path) -> np.ndarray:
    """The array in a file, which is read as it is looked at."""
    with file.open("rb") as content:
        shape, _, dtype = _header(content)
        size = content.tell() + math.prod(shape) * dtype.itemsize
    if size != file.stat().st_size:
        raise Unusable(f"{file} must be {size:,} bytes long, as its header says, got {file.stat().st_size:,}.")
    return np.load(file, mmap_mode="r" if math.prod(shape) else None, allow_pickle=False)


def _unpacked(path: Path, kept: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """The array in an entry, whose checksum is compared."""
    if entry.compress_type != zipfile.ZIP_STORED and entry.file_size > _MOST_BYTES:
        raise Unusable(f"{path} must hold arrays of at most {_MOST_BYTES // 2**30} GiB, got more in {entry.filename}.")
    with kept.open(entry) as content:
        shape, fortran, dtype = _header(content)
        size = math.prod(shape) * dtype.itemsize
        if content.tell() + size != entry.file_size:
            raise Unusable(f"{path}: {entry.filename} must hold {size:,} bytes, as its header says; it is damaged.")
        found = blocks.room(size, dtype=torch.uint8).numpy()
        for first in range(0, size, _CHUNK):
            part = content.read(min(_CHUNK, size - first))
            found[first : first + len(part)] = np.frombuffer(part, dtype=np.uint8)
        if content.read(1):  # at the end the checksum is compared
            raise Unusable(f"{path}: {entry.filename} is damaged.")
    return found.view(dtype).reshape(shape, order="F" if fortran else "C")


def _header(content: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array in NumPy's format, the only one that a file of numbers and texts needs."""
    version = np.lib.format.read_magic(content)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if reader is None:
        raise ValueError(f"version {version} of NumPy's format")
    shape, fortran, dtype = reader(content)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return shape, fortran, dtype
