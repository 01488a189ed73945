"""A small table that prints as text, shows itself in a notebook, and can be read cell by cell.

Cells are numbers, texts, intervals or None, which is shown as a dash. Texts are escaped. Nothing here computes.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows under names; `rows` holds the values themselves.

    Attributes:
        columns: their names.
        rows: one value for each column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return dict(zip(self.columns, self.rows[place], strict=True))

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(cell))}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float) or hasattr(cell, "low"):
        return format(cell, ".3f")
    return str(cell)
