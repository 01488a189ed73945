r"""How well scores tell members from outsiders, for many models at once: advantage, AUC and TPR at low FPR.

Scores are larger for likelier members. They are compared after rounding to nine digits (`round_digits`), so that
scores that are equal in exact arithmetic tie on every processor. `roc` adds intervals over the points of one model.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Real
from torch import Tensor

from leakage.metrics.estimates import as_sample

FPRS = (0.01, 0.001)
"""The false positive rates at which true positive rates are given."""
_BITS = 30
"""Significant bits of rounded scores, about nine decimal digits; of the 53, rounding errors spoil 13 at the worst."""
_ROUNDING_MARGIN = 1 + 1e-12  # 0.29 * 100 is 28.999999999999996 in floating point and must count as 29


def round_digits(values: Float64[Tensor, "*b"]) -> Float64[Tensor, "*b"]:
    """Each number rounded to `_BITS` significant bits: numbers that are equal but for rounding errors become equal.

    The precision is relative, so the unit does not matter; order and signs are kept. Two numbers on either side of a
    rounding boundary stay different: with boundaries 1e-9 apart and usual errors of 1e-15, one pair in a million.

    Rounding is relative, so it does not turn a tiny difference into 0: near 0 such a difference is evidence. So attacks
    that take differences round the terms first (`calibration`), or round the logarithm of a ratio to nine decimals
    (`lira`, `rmia`).
    """
    # The bits of a float64 are its sign, exponent and significand, so a carry of the significand raises the exponent.
    unit = 1 << (53 - _BITS)
    return ((values.detach().view(torch.int64) + unit // 2) & -unit).view(torch.float64)


def reaches(
    scores: Float64[Tensor, "*b points"],
    thresholds: Float64[Tensor, "*b"],
    *,
    size: Float64[Tensor, "*b"] | None = None,
) -> Bool[Tensor, "*b points"]:
    """Whether each score reaches the threshold of its row, to nine digits of it, or of the `size` of a mean's terms.

    Scores are rounded, and the threshold is lowered by what rounding may have moved both: so a score that equals it in
    exact arithmetic reaches it, and equal scores are on one side.
    """
    slack = (thresholds.abs() if size is None else size) * 2.0 ** (1 - _BITS)
    lowered = torch.where(thresholds.isfinite(), thresholds - slack, thresholds)
    return round_digits(scores) >= lowered.unsqueeze(-1)


def reaches_mean(scores: Float64[Tensor, "*b points"], member: Bool[Tensor, "*b points"]) -> Bool[Tensor, "*b points"]:
    """Whether each score reaches the mean of those of the members of its row; see `reaches`."""
    kept, count = round_digits(scores) * member, member.sum(-1)
    return reaches(scores, kept.sum(-1) / count, size=kept.abs().sum(-1) / count)


def sort_rows(values: Float64[Tensor, "*b n"]) -> Float64[Tensor, "*b n"]:
    """Each row in ascending order. On a CPU by NumPy, which takes half of PyTorch's time, or less."""
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort(-1).values


def argsort_rows(values: Float[Tensor, "*b n"]) -> Int64[Tensor, "*b n"]:
    """The indices that sort each row in ascending order; see `sort_rows`."""
    return torch.from_numpy(np.argsort(values.numpy())) if values.device.type == "cpu" else values.argsort(-1)


class Scores(NamedTuple):
    """The scores of members and of outsiders, ascending, and how many there are of each in every model.

    Rows are filled up with +∞. Made by `from_groups` or `from_mask`.
    """

    member: Float64[Tensor, "*b m"]
    outsider: Float64[Tensor, "*b n"]
    member_count: Int64[Tensor, "*b"]
    outsider_count: Int64[Tensor, "*b"]

    @classmethod
    def from_groups(cls, *, member: Real[Tensor, "*b m"], outsider: Real[Tensor, "*b n"]) -> "Scores":
        """From separate tables, with equally many members and equally many outsiders in every model."""
        groups = [round_digits(as_sample(part, name)) for name, part in (("member", member), ("outsider", outsider))]
        counts = (torch.full(part.shape[:-1], part.shape[-1], device=part.device) for part in groups)
        return cls(*map(sort_rows, groups), *counts)

    @classmethod
    def from_mask(cls, scores: Real[Tensor, "*b points"], *, member: Bool[Tensor, "*m points"]) -> "Scores":
        """From one table and a mask of its members, which may have only the last axes of the table."""
        values = round_digits(as_sample(scores, "scores"))
        if bool((member.all(-1) | ~member.any(-1)).any()):
            raise ValueError("`member` must have members and outsiders in every model.")
        groups, counts = [], []
        for kind in (member, ~member):
            count = kind.sum(-1)
            ordered = sort_rows(torch.where(kind, values, math.inf))
            groups.append(ordered[..., : int(count.max())].contiguous())
            counts.append(count.expand(values.shape[:-1]))
        return cls(*groups, *counts)

    def count_flagged(
        self, threshold: float, *, strict: bool = False
    ) -> tuple[Int64[Tensor, "*b"], Int64[Tensor, "*b"]]:
        """How many members and how many outsiders reach the threshold or, if `strict`, exceed it."""
        thresholds = round_digits(self.member.new_full((*self.member_count.shape, 1), threshold))
        hits, alarms = self._count_both(thresholds, strict=strict)
        return hits.squeeze(-1), alarms.squeeze(-1)

    def advantage(self, threshold: float, *, strict: bool = False) -> Float64[Tensor, "*b"]:
        r"""$\mathrm{TPR} - \mathrm{FPR}$ of a threshold; see `count_flagged`."""
        hits, alarms = self.count_flagged(threshold, strict=strict)
        return hits / self.member_count.double() - alarms / self.outsider_count.double()

    def best_advantage(self) -> Float64[Tensor, "*b"]:
        """The largest advantage of any threshold *on these very scores*, in [0, 1]."""
        # A threshold between two members' scores flags more outsiders than the upper one, and no more members.
        hits, alarms = self._count_both(self.member)
        gaps = hits * self.outsider_count.unsqueeze(-1) - alarms * self.member_count.unsqueeze(-1)
        return gaps.amax(-1).clamp_min(0) / (self.member_count * self.outsider_count).double()

    def auc(self) -> Float64[Tensor, "*b"]:
        r"""The area under the ROC curve, $\Pr(s_m > s_o) + \tfrac12 \Pr(s_m = s_o)$."""
        ranks = torch.arange(self.member.shape[-1], device=self.member.device)
        wins = (self._twice_below() * (ranks < self.member_count.unsqueeze(-1))).sum(-1)
        return wins / (2 * self.member_count * self.outsider_count).double()

    def placement_values(self) -> tuple[Float64[Tensor, "*b m"], Float64[Tensor, "*b n"]]:
        """For each member the share of outsiders below, for each outsider that of members above; ties count half."""
        swapped = Scores(self.outsider, self.member, self.outsider_count, self.member_count)
        below = self._twice_below() / (2 * self.outsider_count.unsqueeze(-1)).double()
        return below, 1 - swapped._twice_below() / (2 * self.member_count.unsqueeze(-1)).double()

    def threshold_at_fpr(self, fpr: float) -> Float64[Tensor, "*b"]:
        """The rounded score that members must exceed: the highest one of an outsider not to be flagged at `fpr`."""
        return self._thresholds([fpr]).squeeze(-1)

    def tpr_at_fprs(self, fprs: Sequence[float]) -> Float64[Tensor, "*b rates"]:
        """The share of members that exceed `threshold_at_fpr`, at several rates by one search; ties do not count."""
        hits = _count_above(self.member, self.member_count, self._thresholds(fprs), strict=True)
        return hits / self.member_count.double().unsqueeze(-1)

    def _count_both(self, thresholds: Float64[Tensor, "*b k"], *, strict: bool = False) -> tuple[Tensor, Tensor]:
        hits = _count_above(self.member, self.member_count, thresholds, strict=strict)
        return hits, _count_above(self.outsider, self.outsider_count, thresholds, strict=strict)

    def _thresholds(self, fprs: Sequence[float]) -> Float64[Tensor, "*b rates"]:
        rates = self.outsider.new_tensor([fpr * _ROUNDING_MARGIN for fpr in fprs])
        allowed = (self.outsider_count.double().unsqueeze(-1) * rates).long()
        if bool((allowed < 1).any()):
            fpr = min(fprs)
            raise ValueError(
                f"`fpr` = {fpr!r} cannot be measured with {int(self.outsider_count.min())} outsiders (n·fpr < 1); "
                f"give at least {math.ceil(1 / fpr)} outsiders or a larger `fpr`."
            )
        return self.outsider.gather(-1, (self.outsider_count.unsqueeze(-1) - 1 - allowed).clamp_min(0))

    def _twice_below(self) -> Int64[Tensor, "*b m"]:
        """For each member twice the number of outsiders below it, plus the number of those equal to it."""
        below = torch.searchsorted(self.outsider, self.member)
        next_one = self.outsider.gather(-1, below.clamp_max(self.outsider.shape[-1] - 1))
        if not bool(((next_one == self.member) & self.member.isfinite()).any()):  # most scores differ
            return 2 * below
        return below + torch.searchsorted(self.outsider, self.member, right=True)


def rates(
    scores: Real[Tensor, "*b points"], *, member: Bool[Tensor, "*m points"], fprs: Sequence[float] = FPRS
) -> dict[str, Float64[Tensor, "*b"]]:
    r"""Advantage, AUC and TPR against each model of an attack that calls points with positive scores members.

    `advantage`: $\mathrm{TPR} - \mathrm{FPR}$ of positive scores; `auc`: ties count half; and for each of `fprs`
    `tpr_at_<fpr>`: see `Scores.tpr_at_fprs`.
    """
    ranked = Scores.from_mask(scores, member=member)
    found = {"advantage": ranked.advantage(0.0, strict=True), "auc": ranked.auc()}
    tpr = ranked.tpr_at_fprs(fprs).unbind(-1)
    return found | {f"tpr_at_{fpr}": one for fpr, one in zip(fprs, tpr, strict=True)}


def _count_above(
    ordered: Float64[Tensor, "*b n"], count: Int64[Tensor, "*b"], thresholds: Float64[Tensor, "*b k"], *, strict: bool
) -> Int64[Tensor, "*b k"]:
    """How many of the first `count` numbers of each ascending row reach each threshold or, if `strict`, exceed it."""
    return count.unsqueeze(-1) - torch.searchsorted(ordered, thresholds.contiguous(), right=strict)
