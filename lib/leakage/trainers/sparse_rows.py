"""Rows that are zero in most columns, multiplied with tables without their zeros.

What a product takes then grows with the numbers there are and not with the columns. Results are those of plain products
up to rounding. Nothing here trains.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

_MOST = 1 / 6  # share of numbers that are not zero up to which the plain product takes longer


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix by its rows.

    Attributes:
        columns: of the numbers that are not zero, row after row.
        values: these numbers; `None` where all are 1.
        starts: where each row begins in both, and the end of the last.
        width: how many columns the matrix has.
    """

    columns: Int[Tensor, " entries"]
    values: Float[Tensor, " entries"] | None
    starts: Int[Tensor, " rows_and_one"]
    width: int

    @classmethod
    def of(cls, matrix: Tensor) -> "SparseRows | None":
        """The matrix, or `None` where a plain product is as fast: elsewhere than on a CPU in float32, and if full."""
        if matrix.ndim != 2 or matrix.device.type != "cpu" or matrix.dtype != torch.float32 or not matrix.numel():
            return None
        lengths = (matrix != 0).sum(1)
        if float(lengths.sum()) > _MOST * matrix.numel():
            return None
        rows, columns = matrix.nonzero(as_tuple=True)
        values = matrix[rows, columns]
        return cls(columns, None if bool((values == 1).all()) else values, _starts(lengths), matrix.shape[1])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def times(self, table: Float[Tensor, "columns k"]) -> Float[Tensor, "rows k"]:
        """The matrix times a table of rows for its columns, which are copied unless they lie in one piece."""
        rows = table.contiguous()
        return embedding_bag(
            self.columns, rows, self.starts, mode="sum", per_sample_weights=self.values, include_last_offset=True
        )

    def between(self, first: int, last: int) -> "SparseRows":
        """The rows from `first` on and before `last`."""
        starts = self.starts[first : last + 1]
        inside = slice(int(starts[0]), int(starts[-1]))
        values = None if self.values is None else self.values[inside]
        return SparseRows(self.columns[inside], values, starts - starts[0], self.width)

    def blocks(self, rows: Int[Tensor, "blocks b"]) -> "SparseRows":
        """A matrix with these rows along its diagonal: those of each block have columns of their own."""
        count, lengths = rows.numel(), self.starts.diff()[rows.flatten()]
        starts, own = _starts(lengths), torch.arange(count).repeat_interleave(lengths)
        place = torch.arange(int(starts[-1])) + (self.starts[rows.flatten()] - starts[:-1])[own]
        shift = self.width * (torch.arange(count) // rows.shape[1])
        values = None if self.values is None else self.values[place]
        return SparseRows(self.columns[place] + shift[own], values, starts, self.width * len(rows))

    @property
    def transposed(self) -> "SparseRows":
        """The matrix turned over, within each row in the order of the rows before."""
        small = np.uint16 if self.width <= np.iinfo(np.uint16).max else np.int64  # which NumPy sorts by their digits
        order = torch.from_numpy(np.argsort(self.columns.numpy().astype(small), kind="stable"))
        rows = torch.arange(len(self)).repeat_interleave(self.starts.diff())
        values = None if self.values is None else self.values[order]
        return SparseRows(rows[order], values, _starts(self.columns.bincount(minlength=self.width)), len(self))


def _starts(lengths: Int[Tensor, " rows"]) -> Int[Tensor, " rows_and_one"]:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
