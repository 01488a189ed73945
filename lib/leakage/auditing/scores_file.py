"""Losses in NumPy's `.npz` files, as an audit takes them from the command line; never unpickled.

A file holds `losses` and `member`, and may hold `target`, `population`, `correct`, `labels` and `groups`, which mean
what they mean in `audit.of_losses`. Nothing here attacks.
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

NEEDED = ("losses", "member")
KNOWN = (*NEEDED, "target", "population", "correct", "labels", "groups")
_MOST_BYTES = 2**32  # of one array, before anything is read
_BROKEN = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, MemoryError)


class Unusable(ValueError):
    """A file that cannot be audited; the message says why in one line."""


def read(path: Path) -> dict[str, Any]:
    """The arguments of `audit.of_losses` in a file.

    Raises:
        Unusable: if it is no `.npz` file, lacks a name, has one that is not known, or an array cannot be read.
    """
    try:
        with path.open("rb") as content:
            if not zipfile.is_zipfile(content):
                raise Unusable(f"{path} must be an .npz file with {' and '.join(NEEDED)}; save it with numpy.savez.")
            content.seek(0)
            with np.load(content, allow_pickle=False) as kept:
                return _arrays(path, kept)
    except OSError as error:
        raise Unusable(f"{path} cannot be read ({error.strerror or 'it is damaged'}).") from error
    except _BROKEN as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable(f"{path} must be an .npz file of numbers and texts, without Python objects: {error}.") from error


def _arrays(path: Path, kept: Any) -> dict[str, Any]:
    if missing := [name for name in NEEDED if name not in kept.files]:
        raise Unusable(f"{path} must hold {' and '.join(NEEDED)}, but lacks {' and '.join(missing)}.")
    if strange := [name for name in kept.files if name not in KNOWN]:
        raise Unusable(f"{path} may hold {', '.join(KNOWN)}; got {', '.join(map(repr, strange))} besides.")
    if large := [entry.filename for entry in kept.zip.infolist() if entry.file_size > _MOST_BYTES]:
        raise Unusable(f"{path} must hold arrays of at most {_MOST_BYTES // 2**30} GiB, got more in {large[0]}.")
    found: dict[str, Any] = {name: kept[name] for name in kept.files}
    if "target" in found:
        if found["target"].size != 1 or found["target"].dtype.kind not in "iu":
            raise Unusable(f"{path}: `target` must be one whole number, the place of a model.")
        found["target"] = int(found["target"].item())
    return found
