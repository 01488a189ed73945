r"""The thresholds on the losses of references that tell members best: one for each point, or one for all points.

Losses are gone through in blocks (`blocks`). Of each point the best threshold follows from its own losses. That of all
points needs them in order, and sorts few: the losses are counted between some of them first, and where no threshold
between two of these can be the best none is looked for. What is found is exact, whatever the blocks. Losses that agree
to nine digits count as equal, as scores do (`metrics.scores.round_ties`). Nothing here checks, trains or draws.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from leakage import blocks
from leakage.metrics.scores import ascending_order, round_ties

_SHORT = 92_681  # losses whose gains are below 2³¹
_MOST_COMPARED = 2**24  # losses of all targets compared at once: 128 MiB of counts
_MOST_SORTED = 2**21  # losses in one order: 16 MiB, and as much for their places, their models and their bins
_EDGES = 2**16  # losses between which all are counted, of one target; fewer of several, down to a 32nd


class Targets(NamedTuple):
    """The targets, and of each the other model that is no reference: itself once more, where it has no partner."""

    models: Int64[Tensor, " t"]
    partners: Int64[Tensor, " t"]

    def pairs(self) -> tuple[Int64[Tensor, "2 u"], Int64[Tensor, " t"]]:
        """The different pairs of models left out, and which of them is each target's: partners share one."""
        both = torch.stack([self.models, self.partners]).sort(0).values
        return both.unique(dim=1, return_inverse=True)


class _Gains(NamedTuple):
    """The best end of ascending losses for each pair left out: what it gains, and the loss that it includes last."""

    gain: Int[Tensor, "u ..."]
    included: Float64[Tensor, "u ..."]


def of_each(
    losses: Float64[Tensor, "points k"],
    member: Bool[Tensor, "points k"],
    model: Int[Tensor, "points k"],
    targets: Targets,
) -> Float64[Tensor, "t points"]:
    """For each target the best threshold on each point's own reference losses; several targets at once."""
    losses = round_ties(losses)
    order = ascending_order(losses)
    ordered, member, model = (each.gather(-1, order) for each in (losses, member, model))
    # Differences of shares as whole numbers: nothing is rounded, so ties are ties. None is larger than a quarter of k².
    whole = torch.int32 if ordered.shape[-1] <= _SHORT else torch.int64
    pairs, place = targets.pairs()
    found = []
    for left_out in pairs.split(_at_once(losses), dim=1):
        counted = _counted(model, left_out)
        inside, outside = ((counted & kind).sum(-1, keepdim=True, dtype=whole) for kind in (member, ~member))
        best = _best(ordered, member, counted, inside, outside)
        found.append(_middle(best, _following(ordered, counted, best.included)))
    return torch.cat(found)[place]


def of_all(
    losses: Float[Tensor, "models points"], member: Bool[Tensor, "models points"], targets: Targets
) -> Float64[Tensor, " t"]:
    """For each target the best threshold on the losses of its references at all points."""
    pairs, place = targets.pairs()
    counts = _Counts(losses, member, pairs)
    best = counts.at_atoms()
    for bins in counts.worth_sorting():
        values, kinds, model, where = (torch.cat(part) for part in zip(*counts.gathered(bins), strict=True))
        order = ascending_order(values)
        values, kinds, model, where = (part[order] for part in (values, kinds, model, where))
        before = counts.before(bins)
        for some in torch.arange(pairs.shape[1], device=values.device).split(_at_once(values)):
            inside, outside = (share[some] for share in (counts.inside, counts.outside))
            found = _best(values, kinds, _counted(model, pairs[:, some]), inside, outside, before[some][:, where])
            kept = _Gains(*(part[some] for part in best))
            better = (found.gain > kept.gain) | (found.gain == kept.gain) & (found.included < kept.included)
            for old, new in zip(best, found, strict=True):
                old[some] = torch.where(better, new, old[some])
    following = torch.full_like(best.included, math.inf)
    for values, _, model, _ in counts.gathered(counts.near(best.included)):
        for some in torch.arange(pairs.shape[1], device=values.device).split(_at_once(values)):
            least = _following(values, _counted(model, pairs[:, some]), best.included[some])
            following[some] = torch.minimum(following[some], least)
    return _middle(best, following)[place]


class _Counts:
    """How many losses of each kind lie between some of them, the edges, for each pair of models left out.

    A bin reaches from above one edge to the next, which it includes; an *atom* holds a single number.
    """

    def __init__(
        self, losses: Float[Tensor, "models points"], member: Bool[Tensor, "models points"], pairs: Int[Tensor, "2 u"]
    ) -> None:
        self._losses, self._member, models = losses, member, len(losses)
        self._edges = _edges(losses, max(_EDGES // pairs.shape[1], _EDGES // 32, 1))
        bins = len(self._edges)
        self._atom = torch.zeros(bins, dtype=torch.bool, device=losses.device)
        self._atom[1:] = self._edges[:-1] == _below(self._edges[1:])
        # The models that nobody leaves out are counted together, as the last one.
        left_out, places = pairs.unique(return_inverse=True)
        group = torch.full((models,), len(left_out), device=losses.device)
        group[left_out] = torch.arange(len(left_out), device=losses.device)
        counts = torch.zeros((len(left_out) + 1) * 2 * bins, dtype=torch.int64, device=losses.device)
        for _, kinds, model, where in self.gathered(torch.ones_like(self._atom)):
            counts += torch.bincount((group[model] * 2 + kinds) * bins + where, minlength=len(counts))
        counts = counts.view(-1, 2, bins)
        self._all = counts.sum((0, 1))
        kept = _counted(torch.arange(len(counts), device=losses.device), places).double()
        out, within = (torch.mm(kept, each.double()).long() for each in counts.unbind(1))
        self._within, self._any = within, out + within > 0
        self.inside, self.outside = within.sum(-1, keepdim=True), out.sum(-1, keepdim=True)
        self._steps = self.outside * within - self.inside * out
        self._ends = self._steps.cumsum(-1)

    def at_atoms(self) -> _Gains:
        """The first best end that is an atom; gains nothing where there is none."""
        gain, first = self._ends.masked_fill(~(self._atom & self._any), 0).max(-1)
        return _Gains(gain.clamp_min(0), self._edges[first])

    def worth_sorting(self) -> list[Bool[Tensor, " bins"]]:
        """The bins, few at a time, within which a best threshold may lie."""
        most = self._ends - self._steps + self.outside * self._within  # all members first
        wanted = (most >= self._ends.amax(-1, keepdim=True).clamp_min(1)) & self._any & ~self._atom
        found, size = [], 0
        for place in wanted.any(0).nonzero().flatten().tolist():
            if not found or size + int(self._all[place]) > _MOST_SORTED:
                found.append(torch.zeros_like(self._atom))
                size = 0
            found[-1][place] = True
            size += int(self._all[place])
        return found

    def before(self, bins: Bool[Tensor, " bins"]) -> Int64[Tensor, "u bins"]:
        """What is gained before each of these bins and is not by the losses of these bins."""
        steps = self._steps * bins
        return (self._ends - self._steps) - (steps.cumsum(-1) - steps)

    def near(self, values: Float64[Tensor, " u"]) -> Bool[Tensor, " bins"]:
        """The bins of these values and the next ones that are not empty."""
        own = torch.searchsorted(self._edges, values)
        wanted = torch.zeros_like(self._atom)
        later = self._any & (torch.arange(len(wanted), device=own.device) > own.unsqueeze(-1))
        wanted[own] = True
        wanted[later.long().argmax(-1)] = True
        return wanted

    def gathered(self, bins: Bool[Tensor, " bins"]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The losses in these bins block by block: values, membership, model and bin."""
        asked = bins.nonzero().flatten()
        low = self._edges[asked[0] - 1] if int(asked[0]) else -math.inf
        high = self._edges[asked[-1]]
        for part in blocks.of(self._losses.shape):
            values = round_ties(self._losses[:, part].double())
            model, point = ((values > low) & (values <= high)).nonzero().unbind(-1)
            values = values[model, point]
            where = torch.searchsorted(self._edges, values)
            inside = bins[where]
            if bool(inside.any()):
                kinds = self._member[:, part][model, point]
                yield values[inside], kinds[inside], model[inside], where[inside]


def _edges(losses: Float[Tensor, "models points"], count: int) -> Float64[Tensor, " bins"]:
    """Ascending numbers that losses are counted between; the last is infinite, the only one where losses are few.

    They are losses, spread evenly, and the numbers just below: so what many losses share is an atom, never sorted.
    """
    models, points = losses.shape
    end = torch.full((1,), math.inf, dtype=torch.float64, device=losses.device)
    if losses.numel() <= _MOST_SORTED:
        return end
    # Multiples of the golden ratio follow no period of the points.
    asked = (torch.arange(4 * count // models + 1, dtype=torch.float64) * ((5**0.5 - 1) / 2) % 1 * points).long()
    sample = round_ties(losses[:, asked.to(losses.device)].double()).flatten().sort().values
    some = sample[:: max(1, len(sample) // count)]
    return torch.cat([some, _below(some), end]).unique()


def _below(values: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    return torch.nextafter(values, values.new_tensor(-math.inf))


# ── the steps of both ───────────────────────────────────────────────────────────────────────────────────────────────


def _at_once(losses: Tensor) -> int:
    """For how many targets losses are compared at once."""
    return max(1, _MOST_COMPARED // max(1, losses.numel()))


def _counted(model: Int[Tensor, "*b k"], pairs: Int[Tensor, "2 u"]) -> Bool[Tensor, "u *b k"]:
    """Whether a loss is that of a reference, for each pair of models left out."""
    first, second = (some.view(-1, *[1] * model.ndim) for some in pairs)
    return (model != first) & (model != second)


def _best(
    ordered: Float64[Tensor, "*b k"],
    member: Bool[Tensor, "*b k"],
    counted: Bool[Tensor, "u *b k"],
    inside: Int[Tensor, "u *b 1"],
    outside: Int[Tensor, "u *b 1"],
    before: Int64[Tensor, "u k"] | None = None,
) -> _Gains:
    """The first best end of ascending losses, of `inside` members and `outside` outsiders in all."""
    gain = torch.where(member, outside, -inside).mul_(counted).cumsum(-1, dtype=inside.dtype)
    if before is not None:
        gain += before
    ties = torch.zeros_like(member)
    ties[..., :-1] = ordered[..., 1:] == ordered[..., :-1]
    best, last = gain.masked_fill_(ties, 0).max(-1)  # the first of equal ones
    last = torch.where(best > 0, last, 0).unsqueeze(-1)
    return _Gains(best, ordered.expand(counted.shape).gather(-1, last).squeeze(-1))


def _following(
    values: Float64[Tensor, "*b k"], counted: Bool[Tensor, "u *b k"], included: Float64[Tensor, "u ..."]
) -> Float64[Tensor, "u ..."]:
    """The least loss counted that is larger, infinite where there is none."""
    return values.where(counted & (values > included.unsqueeze(-1)), math.inf).amin(-1)


def _middle(best: _Gains, following: Float64[Tensor, "u ..."]) -> Float64[Tensor, "u ..."]:
    """Midway between what is included and what follows, or -∞ where nothing is gained."""
    middle = (best.included + following) / 2
    return middle.where(best.gain > 0, -math.inf)
