"""Tables that need not fit into memory: gone through in blocks of columns, and made where there is room.

A table is a tensor (…, columns), in memory or mapped from a file by NumPy; its blocks are views. Whoever goes through
it holds a few numbers for each number of a block, 8 MiB in float64, and not of the table: a table that is small is one
block. Nothing here computes.
"""

import math
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

NUMBERS = 2**20
"""How many numbers a block has at most, unless one column has more."""
MEMORY = 2**30
"""Bytes of a table that is made in memory; a larger one is made in a temporary file."""


def of(shape: Sequence[int]) -> list[slice]:
    """The blocks of columns of a table of this shape, in order."""
    *leading, columns = shape
    step = max(1, NUMBERS // max(1, math.prod(leading)))
    return [slice(first, min(first + step, columns)) for first in range(0, columns, step)]


def of_rows(shape: Sequence[int]) -> list[slice]:
    """The blocks of whole rows of a table (rows, columns), one row at least in each."""
    rows, columns = shape
    step = max(1, NUMBERS // max(1, columns))
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


def room(*shape: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
    """A table to be filled in; beyond `MEMORY` bytes, on a CPU, in a temporary file that goes when the table does."""
    size = math.prod(shape) * dtype.itemsize
    if torch.device(device).type != "cpu" or size <= MEMORY:
        return torch.empty(shape, dtype=dtype, device=device)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile() as content:  # in the folder that TMPDIR names
        return torch.from_numpy(np.memmap(content, dtype=kind, mode="w+", shape=shape))


def made(
    shape: Sequence[int],
    parts: Sequence[slice],
    take: Callable[[slice], Tensor],
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """A table of which `take` gives the columns of each part; the parts are blocks of what it is made from."""
    found = room(*shape, dtype=dtype, device=device)
    for part in parts:
        found[..., part] = take(part)
    return found


def counted(table: Tensor) -> Tensor:
    """How many of each row of truth values are true."""
    total = torch.zeros(table.shape[:-1], dtype=torch.int64, device=table.device)
    for part in of(table.shape):
        total += table[..., part].sum(-1)
    return total


def chosen(table: Tensor, rows: Sequence[int]) -> Tensor:
    """These rows of a table (rows, columns): the table itself where they are all of its own, or else a copy."""
    if [*rows] == [*range(len(table))]:
        return table

    def take(part: slice) -> Tensor:
        return table[:, part][[*rows]]

    return made((len(rows), table.shape[1]), of(table.shape), take, dtype=table.dtype, device=table.device)
