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
from torch.nn.functional import pad

from leakage.metrics.estimates import as_sample

FPRS = (0.01, 0.001)
"""The false positive rates at which true positive rates are given."""
_BITS = 30
"""Significant bits of rounded scores, about nine decimal digits; of the 53, rounding errors spoil 13 at the worst."""
_MOST = (2 - 2.0 ** (1 - _BITS)) * 2.0**1023  # the largest of so many bits; more would round to infinity
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
    kept, count = round_digits(scores) * member, member.sum(-1, dtype=torch.int32)
    return reaches(scores, kept.sum(-1) / count, size=kept.abs().sum(-1) / count)


def sort_rows(values: Float64[Tensor, "*b n"]) -> Float64[Tensor, "*b n"]:
    """Each row in ascending order. On a CPU by NumPy, which takes half of PyTorch's time, or less."""
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort(-1).values


def argsort_rows(values: Float[Tensor, "*b n"]) -> Int64[Tensor, "*b n"]:
    """The indices that sort each row in ascending order; see `sort_rows`."""
    return torch.from_numpy(np.argsort(values.numpy())) if values.device.type == "cpu" else values.argsort(-1)


class Scores(NamedTuple):
    """Scores in ascending order, and how many of the first 0, 1, …, n of them are members' and outsiders'.

    Within a tie both numbers are those before it: so they are the corners of a ROC curve, some of them repeated. Made
    by `from_groups` or `from_mask`.
    """

    ordered: Float64[Tensor, "*b n"]
    inside: Int64[Tensor, "*b n+1"]
    outside: Int64[Tensor, "*b n+1"]

    @classmethod
    def from_groups(cls, *, member: Real[Tensor, "*b m"], outsider: Real[Tensor, "*b n"]) -> "Scores":
        """From separate tables, with equally many members and equally many outsiders in every model."""
        groups = [as_sample(part, name) for name, part in (("member", member), ("outsider", outsider))]
        both = torch.cat(groups, -1)
        place = torch.arange(both.shape[-1], device=both.device)
        return cls.from_mask(both, member=place < groups[0].shape[-1])

    @classmethod
    def from_mask(cls, scores: Real[Tensor, "*b points"], *, member: Bool[Tensor, "*m points"]) -> "Scores":
        """From one table and a mask of its members, which may have only the last axes of the table."""
        values = round_digits(as_sample(scores, "scores")).clamp_(-_MOST, _MOST)
        # The last bit of these numbers is free: it says who is a member, and is sorted with them.
        bits = values.view(torch.int64).bitwise_or_(member.expand_as(values))
        bits = sort_rows(bits.view(torch.float64)).view(torch.int64)
        inside = pad((bits & 1).cumsum(-1), (1, 0))
        counts = inside, torch.arange(inside.shape[-1], device=bits.device) - inside
        if not all(bool(count[..., -1].all()) for count in counts):
            raise ValueError("`member` must have members and outsiders in every model.")
        ordered = (bits & -2).view(torch.float64)
        untied = pad(ordered[..., 1:] != ordered[..., :-1], (1, 1), value=True)
        return cls(ordered, *((count * untied).cummax(-1).values for count in counts))

    def count_flagged(
        self, threshold: float, *, strict: bool = False
    ) -> tuple[Int64[Tensor, "*b"], Int64[Tensor, "*b"]]:
        """How many members and how many outsiders reach the threshold or, if `strict`, exceed it."""
        thresholds = round_digits(self.ordered.new_full((*self.ordered.shape[:-1], 1), threshold))
        hits, alarms = self.count_from(torch.searchsorted(self.ordered, thresholds, right=strict))
        return hits.squeeze(-1), alarms.squeeze(-1)

    def count_from(self, place: Int64[Tensor, "*b k"]) -> tuple[Int64[Tensor, "*b k"], Int64[Tensor, "*b k"]]:
        """How many members and how many outsiders have a score at this place of the order, or at a later one."""
        hits, alarms = (count[..., -1:] - count.gather(-1, place) for count in (self.inside, self.outside))
        return hits, alarms

    def advantage(self, threshold: float, *, strict: bool = False) -> Float64[Tensor, "*b"]:
        r"""$\mathrm{TPR} - \mathrm{FPR}$ of a threshold; see `count_flagged`."""
        hits, alarms = self.count_flagged(threshold, strict=strict)
        return hits / self.inside[..., -1].double() - alarms / self.outside[..., -1].double()

    def best_advantage(self) -> Float64[Tensor, "*b"]:
        """The largest advantage of any threshold *on these very scores*, in [0, 1]."""
        members, outsiders = self.inside[..., -1:], self.outside[..., -1:]
        gaps = self.outside * members - self.inside * outsiders  # of the scores above, times both numbers
        return gaps.amax(-1) / (members * outsiders).double().squeeze(-1)

    def auc(self) -> Float64[Tensor, "*b"]:
        r"""The area under the ROC curve, $\Pr(s_m > s_o) + \tfrac12 \Pr(s_m = s_o)$."""
        wins = (self.inside.diff() * (self.outside[..., 1:] + self.outside[..., :-1])).sum(-1)
        return wins / (2 * self.inside[..., -1] * self.outside[..., -1]).double()

    def threshold_at_fpr(self, fpr: float) -> Float64[Tensor, "*b"]:
        """The rounded score that members must exceed: the highest one of an outsider not to be flagged at `fpr`."""
        return self.ordered.gather(-1, self._places([fpr]) - 1).squeeze(-1)

    def tpr_at_fprs(self, fprs: Sequence[float]) -> Float64[Tensor, "*b rates"]:
        """The share of members that exceed `threshold_at_fpr`, at several rates by one search; ties do not count."""
        return self.count_from(self._places(fprs))[0] / self.inside[..., -1:].double()

    def _places(self, fprs: Sequence[float]) -> Int64[Tensor, "*b rates"]:
        """Where the scores begin that exceed `threshold_at_fpr`."""
        rates, outsiders = self.ordered.new_tensor([fpr * _ROUNDING_MARGIN for fpr in fprs]), self.outside[..., -1:]
        allowed = (outsiders.double() * rates).long()
        if bool((allowed < 1).any()):
            fpr = min(fprs)
            raise ValueError(
                f"`fpr` = {fpr!r} cannot be measured with {int(outsiders.min())} outsiders (n·fpr < 1); "
                f"give at least {math.ceil(1 / fpr)} outsiders or a larger `fpr`."
            )
        return torch.searchsorted(self.outside, (outsiders - 1 - allowed).clamp_min(0), right=True)


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
