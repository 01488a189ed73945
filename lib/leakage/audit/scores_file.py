"""Read the losses of an audit from a file of the user: NumPy's own formats, never unpickled."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

NEEDED = ("losses", "member")
KNOWN = (
    *(*NEEDED, "members", "outsiders", "target", "population", "correct", "labels", "groups", "units"),
    *("features", "probabilities"),
)
_SINGLE = {"target": ("iu", "whole number, the place of a model"), "probabilities": ("b", "truth value")}
_MOST_BYTES = 2**32  # of one array: a small damaged or hostile archive may promise any size


def read_scores(path: Path) -> dict[str, Any]:
    """The arguments of `audit.of_losses` in an `.npz` file or a folder of `.npy` files, which are mapped."""
    try:
        if path.is_dir():  # mapped copy-on-write: read where they are used, and never written to
            arrays = {file.stem: np.lib.format.open_memmap(file, mode="c") for file in sorted(path.glob("*.npy"))}
        elif path.is_file():
            arrays = _read_archive(path)
        else:
            raise ValueError("it is no file and no folder")
    except Exception as error:  # damaged bytes make `zipfile` and NumPy raise almost anything
        raise ValueError(
            f"{path} must be an .npz file, or a folder of .npy files, of numbers and texts without Python objects: "
            f"{error}."
        ) from error
    one_model = "members" in arrays or "outsiders" in arrays
    if not one_model and (missing := [name for name in NEEDED if name not in arrays]):
        raise ValueError(f"{path} must hold {' and '.join(NEEDED)}, but lacks {' and '.join(missing)}.")
    if unknown := [name for name in arrays if name not in KNOWN]:
        raise ValueError(f"{path} may hold {', '.join(KNOWN)}; got {', '.join(map(repr, unknown))} besides.")
    for name, (kinds, what) in _SINGLE.items():
        if name in arrays:
            if arrays[name].size != 1 or arrays[name].dtype.kind not in kinds:
                raise ValueError(f"{path}: `{name}` must be one {what}.")
            arrays[name] = arrays[name].item()
    return arrays


def _read_archive(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        for entry in entries:
            if entry.file_size > _MOST_BYTES:
                raise ValueError(f"{entry.filename} holds more than {_MOST_BYTES // 2**30} GiB; give a folder")
        return {
            entry.filename.removesuffix(".npy"): np.lib.format.read_array(archive.open(entry), allow_pickle=False)
            for entry in entries
        }
