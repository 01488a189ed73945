r"""Results by name: a table has one row of measures for each name.

A row is a named tuple of tensors, and so is a table's column block: `table["DeepFool"].auc` and `table.columns.auc[3]`
are the same numbers if `DeepFool` is the fourth name. `Standing` is the row of a membership score.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from leakage.metrics.scores import marked

Row = TypeVar("Row", bound=tuple[Tensor, ...])


@dataclass(frozen=True, eq=False)
class Table(Generic[Row]):
    """A row of measures for each name.

    Attributes:
        names: of the rows.
        columns: the measures, each with the names along its first axis.
    """

    names: tuple[str, ...]
    columns: Row

    def __getitem__(self, name: str) -> Row:
        """The row of this name."""
        place = self.names.index(name)
        return _like(self.columns, (column[place] for column in self.columns))

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every name with its row, in order."""
        return ((name, self[name]) for name in self.names)


def table(rows: Mapping[str, Row]) -> Table[Row]:
    """The table of these rows, in their order."""
    return Table(tuple(rows), _stacked([*rows.values()], 0))


def over_splits(tables: Sequence[Table[Row]]) -> Table[Row]:
    """One table of several with the same names, with the splits along a new axis behind the names."""
    return Table(tables[0].names, _stacked([one.columns for one in tables], 1))


def _stacked(rows: Sequence[Row], axis: int) -> Row:
    return _like(rows[0], (torch.stack(parts, axis) for parts in zip(*rows, strict=True)))


def _like(row: Row, values: Any) -> Row:
    return type(row)(*values)


class Standing(NamedTuple):
    """What a membership score achieves against targets.

    Attributes:
        accuracy: on as many members as outsiders.
        auc: area under the curve.
        tpr: true positive rate at each of the false positive rates that were asked for.
    """

    accuracy: Float[Tensor, "*b"]
    auc: Float[Tensor, "*b"]
    tpr: Float[Tensor, "*b rates"]


def standing(
    scores: Real[Tensor, "*b n"],
    *,
    member: Bool[Tensor, "*b n"],
    rates: Sequence[float] = (),
    threshold: float | None = None,
) -> Standing:
    """The standing of scores; without a threshold the accuracy is that of the best one on these very scores."""
    ranked = marked(scores, member=member)
    advantage = ranked.best_advantage() if threshold is None else ranked.advantage(threshold)
    tpr = [ranked.tpr_at_fpr(rate) for rate in rates]
    auc = ranked.auc()
    return Standing((1 + advantage) / 2, auc, torch.stack(tpr, -1) if tpr else auc.new_zeros((*auc.shape, 0)))
