"""What a panel's standing says in a table or a picture of the page: every rate with its interval."""

from collections.abc import Sequence

from leakage.metrics.intervals import Estimate
from leakage.panel import Row, Standing

HEADS = ("attack", "sees", "AUC", "advantage", "TPR at 1 %", "TPR at 0.1 %")
_RATES = ("auc", "advantage", "tpr_at_0.01", "tpr_at_0.001")
_SIGHTS = ("label", "margin", "posterior", "weights")


def rows(standing: Standing) -> list[tuple[str, ...]]:
    """A row for each attack: what it sees, and its rates with intervals over models and points; – for what is not seen.

    Those that see least come first, and the best of them before the others.
    """
    found = sorted(standing.rows.items(), key=lambda one: (_SIGHTS.index(one[1].entry.sees), -_area(one[1])))
    return [
        (
            name,
            row.entry.sees,
            *(f"{standing.interval(name, rate):.2f}" if rate in row.rates else "–" for rate in _RATES),
        )
        for name, row in found
    ]


def _area(row: Row) -> float:
    return float(row.rates["auc"].mean()) if row.rates else -1.0


def intervals(standing: Standing, names: Sequence[str], rate: str = "auc") -> dict[str, Estimate]:
    """A rate of those of the attacks that the panel shows enough for, the largest last."""
    found = {name: standing.interval(name, rate) for name in names if rate in standing.rows[name].rates}
    return dict(sorted(found.items(), key=lambda one: one[1].estimate))
