"""Convert a user's arrays: lists, NumPy arrays and tensors become a matrix on the CPU, or a text for each row.

`TypeError` is raised for other things than numbers, `ValueError` for other shapes or values.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_MISSING = {"None", "nan", "NaT", "<NA>", ""}  # texts of missing names: rows without one are not one person
_DTYPES = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


def to_tensor(name: str, values: Any) -> Tensor:
    """Numbers or booleans as a tensor on the CPU; of an array, whole numbers become int64, float16 becomes float32."""
    if isinstance(values, Tensor):
        if values.is_complex():
            raise TypeError(f"`{name}` must hold real numbers, got {values.dtype}.")
        return values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"`{name}` must have rows of equal lengths: {error}.") from error
    if array.dtype.kind not in _DTYPES:
        raise TypeError(
            f"`{name}` must hold numbers, got {array.dtype}; convert numbers as text by `.astype(float)`, truth values "
            "by a comparison such as `== 'True'`, classes by `numpy.unique(classes, return_inverse=True)`."
        )
    short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    dtype = np.float32 if short else _DTYPES[array.dtype.kind]
    # PyTorch takes no other order of bytes, and warns of an array that must not be written to.
    return torch.from_numpy(np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"]))


def to_matrix(name: str, values: Any, *, truth: bool = False) -> Tensor:
    """A matrix (models, rows): float32 and shorter become float32, other numbers float64; with `truth`, booleans."""
    matrix = to_tensor(name, values)
    if matrix.ndim > 2 or 0 in matrix.shape:
        raise ValueError(f"`{name}` must be (models, rows), or (rows) of one model, got shape {tuple(matrix.shape)}.")
    matrix = matrix.reshape(-1, matrix.shape[-1] if matrix.ndim else 1)
    if not truth:
        short = matrix.is_floating_point() and matrix.itemsize <= 4
        return matrix.to(torch.float32 if short else torch.float64)
    if matrix.dtype != torch.bool and not bool(((matrix == 0) | (matrix == 1)).all()):
        raise ValueError(
            f"`{name}` must hold truth values, or 0 and 1, got others: a mask of all rows, not the numbers of some; "
            "or are arguments swapped?"
        )
    return matrix.bool()


def to_names(name: str, values: Any, rows: int) -> np.ndarray | None:
    """A text for each row; None for None."""
    if values is None:
        return None
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"`{name}` must be one for each of the {rows} rows: {error}.") from error
    if array.shape != (rows,):
        raise ValueError(f"`{name}` must be one for each of the {rows} rows, got shape {array.shape}.")
    return np.array([str(value) for value in array.tolist()])


def number_units(units: Any, rows: int) -> tuple[np.ndarray, Tensor]:
    """The names of units in the order in which they appear, and the number of each row's unit."""
    names = to_names("units", units, rows)
    assert names is not None
    if lacking := [row for row, name in enumerate(names.tolist()) if name in _MISSING]:
        raise ValueError(
            f"`units` must name the unit of every row, got none at row {lacking[0]}; leave such rows out, or give each "
            "a name of its own."
        )
    numbers: dict[str, int] = {}
    unit = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
    return np.array([*numbers]), torch.tensor(unit)


def to_features(values: Any, rows: int, labels: np.ndarray | None) -> Tensor | None:
    """Numbers for each row, (rows, d), NaN where one is missing, and the number of its label; None for None."""
    if values is None:
        return None
    table = to_tensor("features", values)
    if table.ndim == 0 or len(table) != rows:
        raise ValueError(f"`features` must have one row for each of the {rows} rows, got shape {tuple(table.shape)}.")
    table = table.double().reshape(rows, -1)
    if bool(table.isinf().any()):
        raise ValueError("`features` must be finite, or NaN where a number is missing, got infinity among them.")
    names = np.zeros(rows) if labels is None else np.unique(labels, return_inverse=True)[1]
    return torch.cat([table, torch.from_numpy(names)[:, None].double()], dim=1)


def numeric_features(X: Any) -> Any:
    """X if it is an array of numbers, or the columns of numbers of a data frame; else None."""
    if hasattr(X, "select_dtypes"):
        X = X.select_dtypes(["number", "bool"]).to_numpy(dtype=float, na_value=np.nan)
    return X if isinstance(X, np.ndarray) and X.dtype.kind in _DTYPES and X.ndim > 1 and X.shape[1] else None
