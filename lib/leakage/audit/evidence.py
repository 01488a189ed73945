"""What an audit has measured: scores, intervals and reservations, as plain arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leakage.metrics.intervals import Estimate


class Found(NamedTuple):
    """What one attack achieves.

    Attributes:
        attack: its name.
        sees: what the attacker is given of each row.
        auc: area under the ROC curve.
        advantage: TPR - FPR at the attack's own threshold.
        tpr: true positive rate by false positive rate; None where the outsiders are too few to show it.
    """

    attack: str
    sees: str
    auc: Estimate
    advantage: Estimate
    tpr: Mapping[float, Estimate | None]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an audit has measured.

    Attributes:
        found: what each attack achieves.
        notes: what the design cannot show, and reservations.
        scores: of each attack, (targets, rows); larger for likelier members.
        member: who was trained on what, (targets, rows).
        targets: the models attacked.
        models: how many there are, references included.
        labels: of the rows.
        groups: of the rows.
        fprs: false positive rates asked for.
        level: of the intervals.
        errors: standard errors of means over several targets, by attack and metric.
        parts: how many groups of models these come from.
    """

    found: tuple[Found, ...]
    notes: tuple[str, ...]
    scores: Mapping[str, np.ndarray]
    member: np.ndarray
    targets: tuple[int, ...]
    models: int
    labels: np.ndarray | None
    groups: np.ndarray | None
    fprs: tuple[float, ...]
    level: float
    errors: Mapping[str, Mapping[str, float]]
    parts: int

    @property
    def strongest(self) -> Found:
        """The attack with the largest AUC."""
        return max(self.found, key=lambda row: row.auc.estimate)

    @property
    def outsiders(self) -> int:
        """Of the target that has fewest."""
        return self.member.shape[1] - max(int(np.count_nonzero(row)) for row in self.member)
