"""A table of numbers with their intervals, for a terminal, a notebook and a page."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leakage.metrics.estimates import Estimate


@dataclass(frozen=True)
class NumberTable:
    """A table that prints as text and shows itself in a notebook; a row is a dictionary by column.

    A cell is a number, a text, an interval, or None, which is shown as a dash.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(zip(self.columns, self.rows[index], strict=True))

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(map(_format_cell, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = ("".join(f"<td>{html.escape(_format_cell(cell))}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_cell(cell: Any) -> str:
    if cell is None:
        return "–"
    return format(cell, ".3f") if isinstance(cell, float | Estimate) else str(cell)
