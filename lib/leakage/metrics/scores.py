r"""What scores achieve against each model of a batch: area under the curve, advantage, hits at few false alarms.

Scores are larger for likelier members, and a threshold calls a member whatever *reaches* it. Scores and thresholds are
compared to nine digits (`round_ties`), so that scores that are equal in exact arithmetic tie on every processor. Every
model is measured at once, by whole counts; `roc` puts intervals over the points of one model.
Nothing here tunes: what is best on the scores it is measured on says so.
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
BITS = 30
"""Significant bits to which scores are compared, about nine decimal digits. Rounding errors spare 40 of the 53."""
_MEANT = 1 + 1e-12  # 0.29 * 100 is 28.999999999999996: what was meant as a whole number stays whole


def round_ties(values: Float64[Tensor, "*b"]) -> Float64[Tensor, "*b"]:
    """Each number rounded to `BITS` significant bits: numbers that are equal but for rounding errors become equal.

    The precision is relative, so the unit of the numbers does not matter, order is kept, and a number that is not 0
    keeps its sign. Two numbers on either side of a rounding boundary stay apart. Boundaries lie 1e-9 apart, relatively,
    and rounding errors are some 1e-15: of a million such pairs about one is missed.

    A difference that should be 0 is not joined with 0: only the attack knows how large its terms were, and for losses
    near 0 a tiny difference is evidence. So attacks that take differences round the terms first (`calibration`), or
    round the logarithm of a ratio to nine decimals, which is the ratio to nine digits (`lira`).
    """
    # A float64 holds its sign, its exponent and then 52 bits of its significand, so a carry out of these is right, too.
    unit = 1 << (53 - BITS)
    return ((values.detach().view(torch.int64) + unit // 2) & -unit).view(torch.float64)


class Scores(NamedTuple):
    """The scores of members and of outsiders, each ascending; +∞ fills up the models that have fewer of a kind.

    Made by `apart` or `marked`, not by hand.
    """

    member: Float64[Tensor, "*b m"]
    outsider: Float64[Tensor, "*b n"]
    members: Int64[Tensor, "*b"]
    outsiders: Int64[Tensor, "*b"]

    def accused(self, threshold: float, *, beyond: bool = False) -> tuple[Int64[Tensor, "*b"], Int64[Tensor, "*b"]]:
        """How many members and how many outsiders reach the threshold or, `beyond`, exceed it."""
        cut = round_ties(self.member.new_full((*self.members.shape, 1), threshold))
        hits, alarms = (_reaching(*kind, cut, beyond=beyond).squeeze(-1) for kind in self._kinds())
        return hits, alarms

    def advantage(self, threshold: float, *, beyond: bool = False) -> Float64[Tensor, "*b"]:
        r"""$\mathrm{TPR} - \mathrm{FPR}$ of calling members whoever reaches the threshold or, `beyond`, exceeds it."""
        hits, alarms = self.accused(threshold, beyond=beyond)
        return hits / self.members.double() - alarms / self.outsiders.double()

    def best_advantage(self) -> Float64[Tensor, "*b"]:
        """The largest advantage any one threshold has *on these very scores*, in [0, 1]."""
        cuts = torch.cat([self.member, self.outsider], dim=-1)
        hits, alarms = (_reaching(*kind, cuts) for kind in self._kinds())
        gaps = hits * self.outsiders.unsqueeze(-1) - alarms * self.members.unsqueeze(-1)
        return gaps.amax(-1).clamp_min(0) / (self.members * self.outsiders).double()

    def auc(self) -> Float64[Tensor, "*b"]:
        r"""The area under the ROC curve, $\Pr(s_m > s_o) + \tfrac12 \Pr(s_m = s_o)$."""
        ranks = torch.arange(self.member.shape[-1], device=self.member.device)
        wins = (self._wins() * (ranks < self.members.unsqueeze(-1))).sum(-1)
        return wins / (2 * self.members * self.outsiders).double()

    def placements(self) -> tuple[Float64[Tensor, "*b m"], Float64[Tensor, "*b n"]]:
        """For each member the share of outsiders below it, for each outsider that of members above it; ties half."""
        below = self._wins() / (2 * self.outsiders.unsqueeze(-1)).double()
        turned = Scores(self.outsider, self.member, self.outsiders, self.members)
        return below, 1 - turned._wins() / (2 * self.members.unsqueeze(-1)).double()

    def first_spared(self, fpr: float) -> Float64[Tensor, "*b"]:
        """The score of the highest-ranking outsider that a rate of `fpr` does not allow to accuse.

        Raises:
            ValueError: if some model has fewer than 1 / `fpr` outsiders.
        """
        return self._spared([fpr]).squeeze(-1)

    def found_at_fpr(self, fpr: float) -> Int64[Tensor, "*b"]:
        """How many members score above all outsiders but a share `fpr`; ties help nobody. Errors: `first_spared`."""
        return _reaching(self.member, self.members, self.first_spared(fpr).unsqueeze(-1), beyond=True).squeeze(-1)

    def tpr_at_fpr(self, fpr: float) -> Float64[Tensor, "*b"]:
        """`found_at_fpr` as a share of the members."""
        return self.found_at_fpr(fpr) / self.members.double()

    def tpr_at_fprs(self, fprs: Sequence[float]) -> Float64[Tensor, "*b rates"]:
        """`tpr_at_fpr` at several rates, one at least, by one search."""
        hits = _reaching(self.member, self.members, self._spared(fprs), beyond=True)
        return hits / self.members.double().unsqueeze(-1)

    def _spared(self, fprs: Sequence[float]) -> Float64[Tensor, "*b rates"]:
        asked = self.outsider.new_tensor([fpr * _MEANT for fpr in fprs])
        allowed = (self.outsiders.double().unsqueeze(-1) * asked).long()
        if bool((allowed < 1).any()):
            fpr = min(fprs)
            raise ValueError(
                f"`fpr` = {fpr!r} cannot be seen on {int(self.outsiders.min())} outsiders (n·fpr < 1); "
                f"give at least {math.ceil(1 / fpr)} outsiders or a larger `fpr`."
            )
        return self.outsider.gather(-1, (self.outsiders.unsqueeze(-1) - 1 - allowed).clamp_min(0))

    def _kinds(self) -> tuple[tuple[Tensor, Tensor], ...]:
        return (self.member, self.members), (self.outsider, self.outsiders)

    def _wins(self) -> Int64[Tensor, "*b m"]:
        """For each member twice the number of outsiders below it, and once that of its equals."""
        below = most = _at_most(self.outsider, self.member)
        tied = self.outsider.gather(-1, (most - 1).clamp_min(0)) == self.member
        if bool(tied.any()):
            below = torch.searchsorted(self.outsider, self.member)
        return most + below


def apart(*, member: Real[Tensor, "*b m"], outsider: Real[Tensor, "*b n"]) -> Scores:
    """Scores that are given apart: as many members, and as many outsiders, in every model.

    Raises:
        ValueError: if a sample is empty or not finite.
    """
    kinds = [round_ties(as_sample(part, name)) for name, part in (("member", member), ("outsider", outsider))]
    counts = (torch.full(part.shape[:-1], part.shape[-1], device=part.device) for part in kinds)
    return Scores(*map(ascending, kinds), *counts)


def marked(scores: Real[Tensor, "*b points"], *, member: Bool[Tensor, "*m points"]) -> Scores:
    """Scores of points of which `member` says, for each model, who is a member.

    Args:
        scores: one row a model; further leading axes (epochs, say) share the marks.
        member: of the shape of `scores`, or of its last axes.

    Raises:
        ValueError: if scores are not finite, or a model has no member or no outsider.
    """
    values = round_ties(as_sample(scores, "scores"))
    if bool((member.all(-1) | ~member.any(-1)).any()):
        raise ValueError("`member` must have members and outsiders in every model.")
    kinds, counts = [], []
    for kind in (member, ~member):
        count = kind.sum(-1)
        kinds.append(ascending(torch.where(kind, values, math.inf))[..., : int(count.max())].contiguous())
        counts.append(count.expand(values.shape[:-1]))
    return Scores(*kinds, *counts)


def ascending(values: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    """Each row in rising order, detached. On a CPU by NumPy, whose sort takes a tenth of the time of PyTorch's."""
    values = values.detach()
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort(-1).values


def ascending_order(values: Float[Tensor, "*b n"]) -> Int64[Tensor, "*b n"]:
    """The places that bring each row into rising order, those of equal numbers in any; see `ascending`."""
    values = values.detach()
    return torch.from_numpy(np.argsort(values.numpy())) if values.device.type == "cpu" else values.argsort(-1)


def rates(
    scores: Real[Tensor, "*b points"], *, member: Bool[Tensor, "*m points"], fprs: Sequence[float] = FPRS
) -> dict[str, Float64[Tensor, "*b"]]:
    r"""What an attack whose positive scores accuse achieves against each model.

    Returns:
        `advantage`: $\mathrm{TPR} - \mathrm{FPR}$ of accusing positive scores; `auc`: ties count half; and for each of
        `fprs` `tpr_at_<fpr>`: see `Scores.tpr_at_fpr`.

    Raises:
        ValueError: as `marked`, or if a rate in `fprs` cannot be seen on the outsiders.
    """
    ranked = marked(scores, member=member)
    found = {"advantage": ranked.advantage(0.0, beyond=True), "auc": ranked.auc()}
    return found | {f"tpr_at_{fpr}": ranked.tpr_at_fpr(fpr) for fpr in fprs}


def _reaching(
    ordered: Float64[Tensor, "*b n"], count: Int64[Tensor, "*b"], cuts: Float64[Tensor, "*b k"], *, beyond: bool = False
) -> Int64[Tensor, "*b k"]:
    """How many of the `count` numbers at the head of each ascending row reach each cut or, `beyond`, exceed it."""
    return count.unsqueeze(-1) - torch.searchsorted(ordered, cuts.contiguous(), right=beyond)


def _at_most(ordered: Float64[Tensor, "*b n"], cuts: Float64[Tensor, "*b k"]) -> Int64[Tensor, "*b k"]:
    """How many numbers of each ascending row are at most each of the cuts, which ascend too."""
    if cuts.device.type != "cpu":
        return torch.searchsorted(ordered, cuts, right=True)
    # Two ascending runs are merged in linear time, stably: what equals a cut comes before it.
    order = np.argsort(torch.cat([ordered, cuts], dim=-1).numpy(), axis=-1, kind="stable")
    places = np.flatnonzero(order >= ordered.shape[-1]) % order.shape[-1]
    return torch.from_numpy(places).view(cuts.shape) - torch.arange(cuts.shape[-1])
