"""What a reader has as arrays: a text for each row, a matrix of numbers or truth values, by blocks where it is large.

Nothing here is random.
"""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakage import blocks


def names(name: str, values: Any, rows: int) -> np.ndarray | None:
    """A text for each row, or None.

    Raises:
        ValueError: if there is not one for each row.
    """
    if values is None:
        return None
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    try:
        found = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"`{name}` must be one for each of the {rows} rows: {error}.") from error
    if found.shape != (rows,):
        raise ValueError(f"`{name}` must be one for each of the {rows} rows, got shape {found.shape}.")
    which: Any = slice(None)
    if found.dtype.kind in "biuU":  # a text for each value, not for each of many rows
        found, which = np.unique(found, return_inverse=True)
    return np.array([str(value) for value in found.tolist()], dtype=str)[which]


def matrix(name: str, values: Any, *, truth: bool = False) -> Tensor:
    """A tensor (models, rows) of floats or, `truth`, of truth values.

    Raises:
        TypeError: if it does not hold real numbers.
        ValueError: if it is no matrix, or what are to be truth values are none.
    """
    if not isinstance(values, Tensor):
        try:
            values = np.atleast_1d(np.asarray(values))
        except ValueError as error:  # rows of different lengths
            raise ValueError(f"`{name}` must be a matrix (models, rows) of numbers: {error}.") from error
        if values.dtype.kind not in "bifu":
            raise TypeError(
                f"`{name}` must hold numbers, got {values.dtype}: numbers as text are converted by "
                "`.astype(float)`, and truth values by a comparison such as `== 'True'`."
            )
    elif values.is_complex():
        raise TypeError(f"`{name}` must hold real numbers, got {values.dtype}.")
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"`{name}` must be (models, rows), or (rows) of one model, got shape {tuple(values.shape)}.")
    values = values.reshape(-1, values.shape[-1])
    fraction = values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind == "f"
    short = fraction and values.dtype.itemsize <= torch.float32.itemsize
    dtype = torch.bool if truth else torch.float32 if short else torch.float64
    if (
        isinstance(values, np.ndarray)
        and values.dtype == _plain(values.dtype)
        and values.flags.c_contiguous
        and values.flags.aligned
    ):
        values = _shared(values)
    if isinstance(values, Tensor) and (values.dtype, values.device.type) == (dtype, "cpu"):
        return values.detach()

    def converted(part: slice) -> Tensor:
        found = values[:, part]
        if isinstance(found, np.ndarray):
            found = torch.from_numpy(np.ascontiguousarray(found, dtype=_plain(found.dtype)))
        if truth and not bool(((found == 0) | (found == 1)).all()):
            raise ValueError(
                f"`{name}` must hold truth values, or 0 and 1, got others: a mask of all rows, no places of "
                "some; or are arguments swapped?"
            )
        return found.detach().to("cpu", dtype)

    return blocks.made(tuple(values.shape), blocks.of(values.shape), converted, dtype=dtype)


def _shared(values: np.ndarray) -> Tensor:
    """The same numbers as a tensor, which nobody here writes to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return torch.from_numpy(values)


def _plain(dtype: np.dtype) -> np.dtype:
    """A type that PyTorch has too, in this machine's order of bytes."""
    return (
        dtype
        if dtype.kind == "b"
        else np.dtype({2: np.float32, 4: np.float32}.get(dtype.itemsize * (dtype.kind == "f"), np.float64))
    )
