"""What an attack achieves, with intervals: over the rows of one target, or over several targets.

Of one target the intervals are those of `metrics.roc`: other rows would have given other numbers. Of several targets
the number is the mean over the models and the interval Student's t over them: other trainings on this pool would have
given other numbers. Where all models have the same number, which says nothing about others, the interval is that of one
of them. A rate that the outsiders cannot show is None, never an error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool, Float64
from torch import Tensor

from leakage.metrics import roc
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.metrics.scores import Scores, marked

_ACCUSED = math.ulp(0.0)  # whoever reaches the least positive score has a positive one
METRICS = ("auc", "advantage")
"""The names of what is measured, beside `tpr@F`."""


def visible(outsiders: int, fpr: float) -> bool:
    """Whether a false positive rate can be seen on so many outsiders, as `metrics.roc` counts."""
    return int(outsiders * fpr * (1 + 1e-12)) >= 1


def visible_fpr(fprs: Sequence[float], outsiders: int) -> float:
    """The least of the rates that so many outsiders can show, or else the least that they can show at all."""
    return min((fpr for fpr in fprs if visible(outsiders, fpr)), default=1 / outsiders)


@dataclass(frozen=True, eq=False)
class Measured:
    """One attack on all targets.

    Attributes:
        scores: larger for likelier members, and positive where one is accused.
        member: who is one.
    """

    scores: Float64[Tensor, "targets points"]
    member: Bool[Tensor, "targets points"]

    @cached_property
    def ranked(self) -> Scores:
        """The scores in order."""
        return marked(self.scores, member=self.member)

    @property
    def outsiders(self) -> int:
        """Of the target that has fewest."""
        return int(self.ranked.outsiders.min())

    def auc(self, *, level: float) -> Estimate:
        """The area under the ROC curve."""
        return self._over(self.ranked.auc, lambda **kinds: roc.auc(**kinds, level=level), level)

    def advantage(self, *, level: float) -> Estimate:
        """TPR - FPR of accusing whoever has a positive score: the attack's own threshold."""

        def one(**kinds: Tensor) -> Estimate:
            return roc.membership_advantage(**kinds, threshold=_ACCUSED, level=level)

        return self._over(lambda: self.ranked.advantage(0.0, beyond=True), one, level, least=-1.0)

    def tpr(self, fpr: float, *, level: float) -> Estimate | None:
        """The true positive rate at a false positive rate, or None where that is not visible."""
        if not visible(self.outsiders, fpr):
            return None
        one = roc.tpr_at_fpr
        return self._over(
            lambda: self.ranked.tpr_at_fpr(fpr), lambda **kinds: one(**kinds, fpr=fpr, level=level), level
        )

    def named(self, metric: str, *, level: float) -> Estimate | None:
        """`auc`, `advantage` or `tpr@F` by its name."""
        if metric.startswith("tpr@"):
            return self.tpr(float(metric[4:]), level=level)
        return {"auc": self.auc, "advantage": self.advantage}[metric](level=level)

    def _over(
        self, each: Callable[[], Tensor], one: Callable[..., Estimate], level: float, *, least: float = 0.0
    ) -> Estimate:
        """The estimate of one target, or the mean of several."""
        values = each()
        if bool((values == values[0]).all()):
            row, kind = self.scores[0], self.member[0]
            return one(member=row[kind], outsider=row[~kind])
        return mean_within(values, level=level, least=least)


def mean_within(values: Float64[Tensor, " targets"], *, level: float, least: float = 0.0) -> Estimate:
    """The mean over targets of what is between `least` and 1, as is the interval."""
    found = mean_interval(values, level=level)
    return Estimate(found.estimate, max(found.low, least), min(found.high, 1.0), n=found.n, level=level)
