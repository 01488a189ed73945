r"""Loss thresholds: a point is called a member if its loss is below a threshold learned on shadow models.

The attacker sees the loss of each point and has shadow models whose members it knows. Scores are
positive where the attack says "member". Losses that agree to nine digits are equal (`metrics.scores.round_digits`).
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad

from leakage.membership.shadow_models import map_columns, shadow_matrix, target_rows
from leakage.metrics.scores import argsort_rows, round_digits, sort_rows
from leakage.threads import map_threads

_Losses = Float[Tensor, "*e models points"]
_Members = Bool[Tensor, "models points"]  # whether each model was trained on each point
_Partners = Int[Tensor, " models"] | None  # each model's partner in complementary pairs; None for independent subsets
_LEAST_LOSS = 1e-150  # nats, from which on a ratio of two losses is finite
_MOST_IN_32_BITS = 2048  # models n whose keys, at most n³/4, are below 2³¹
_GROUPS = 8  # of losses that are counted together before some are looked at one by one; times √(all losses)


def global_thresholds(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets"]:
    r"""One threshold τ for each target, the best on all losses of its shadow models.

    $$ \tau = \arg\max_\tau \; \frac{|\{s \in S : s < \tau\}|}{|S|}
       - \frac{|\{s \in \bar S : s < \tau\}|}{|\bar S|}, $$

    with S the shadow models' losses of members and $\bar S$ those of outsiders, midway between the last loss included
    and the next. Of several best thresholds the lowest is taken, and $-\infty$ if none gains anything.

    Source: Tan et al. (2023), eqs. (71) and (72), Purchase100; in our copy (72) divides both counts by $|S|$.

    Leading dimensions of `losses`, such as epochs, are independent.
    """
    matrix, row = _distinct_shadows(member, partner, target)
    found = [_best_of_all(table, member, matrix) for table in losses.reshape(-1, *member.shape)]
    return torch.stack(found)[:, row].reshape(*losses.shape[:-2], len(row))


def sample_thresholds(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets points"]:
    r"""A threshold τ(x) for each target and point, the best on the point's own losses; see `global_thresholds`.

    A point that all shadow models were trained on, or none, has the global threshold.

    Source: Tan et al. (2023), eq. (71): "attack R" of Ye et al. (2022), for CIFAR10 and Multi30k.
    """
    matrix, row = _distinct_shadows(member, partner, target)
    left_out = (matrix == 0).nonzero()[:, 1].view(len(matrix), -1)
    found = map_columns(partial(_best_of_each, left_out=left_out), losses, member)
    thresholds, lacking = (table[..., row, :] for table in found)
    if bool(lacking.any()):
        usual = global_thresholds(losses, member, partner, target=target)
        thresholds = torch.where(lacking, usual.unsqueeze(-1), thresholds)
    return thresholds


def global_scores(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \log(\tau / \ell)$ with one threshold for each target (`global_thresholds`).

    In logarithms, since a difference from τ would make all losses equal that are small beside it: those of the surest
    members. Losses below 1e-150 count as that, and so does τ where no threshold gains anything.
    """
    thresholds = global_thresholds(losses, member, partner, target=target)
    return log_ratio(thresholds.unsqueeze(-1), losses[..., target_rows(target), :])


def sample_scores(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \tau(x) - \ell$ with a threshold for each point (`sample_thresholds`).

    Where no threshold gains anything τ(x) counts as 0: no loss is below it.
    """
    thresholds = sample_thresholds(losses, member, partner, target=target)
    return thresholds.clamp_min(0) - losses[..., target_rows(target), :].double()


def log_ratio(thresholds: Float[Tensor, "*#b"], losses: Float[Tensor, "*b"]) -> Float64[Tensor, "*b"]:
    r"""$\log(\tau / \ell)$ to the last digits, with the sign of $\tau - \ell$; both are 1e-150 at least."""
    threshold, loss = thresholds.double().clamp_min(_LEAST_LOSS), losses.double().clamp_min(_LEAST_LOSS)
    gap = threshold - loss
    return gap.sign() * (gap.abs() / torch.minimum(threshold, loss)).log1p()


def _distinct_shadows(
    member: Tensor, partner: Tensor | None, target: int | None
) -> tuple[Float64[Tensor, "sets models"], Int[Tensor, " targets"]]:
    """Each set of shadow models once (partners share one), and which of them is each target's."""
    matrix = shadow_matrix(len(member), partner, target=target, device=member.device)
    return matrix.unique(dim=0, return_inverse=True)


def _best_of_each(
    losses: Tensor, member: Tensor, *, left_out: Int[Tensor, "sets some"]
) -> tuple[Float64[Tensor, "*e sets points"], Bool[Tensor, "*e sets points"]]:
    r"""The best threshold of each point on its own losses, without each set of models, and whether a kind lacks then.

    The losses of all models are sorted once. Above i members and o outsiders a threshold gains
    $G_k = |\bar S| i_k - |S| o_k$, with $S$ and $\bar S$ without the models left out; beyond the place of one of
    these, a constant less or more. So the best gain is the largest of `_range_max` over the places between them.
    """
    models, several = len(member), left_out.shape[1]
    values = round_digits(losses.double())
    order = argsort_rows(values.mT.contiguous()).mT.contiguous()
    values, kind = values.gather(-2, order), member.expand_as(order).gather(-2, order)
    place = torch.arange(models, device=losses.device).unsqueeze(-1)
    cuts = torch.empty_like(order).scatter_(-2, order, place.expand_as(order))[..., left_out.mT, :].unbind(-3)
    if several == 2:  # the places of the models left out, ascending; each is (..., sets, points)
        cuts = torch.minimum(*cuts), torch.maximum(*cuts)
    steps = [kind.gather(-2, cut) for cut in cuts]
    may_end = torch.ones_like(kind)  # equal losses are included together
    torch.ne(values[..., 1:, :], values[..., :-1, :], out=may_end[..., :-1, :])
    whole = torch.int32 if models < _MOST_IN_32_BITS else torch.int64
    inside = kind.cumsum(-2, dtype=whole)
    outside = place.to(whole) + 1 - inside
    least = torch.iinfo(whole).min // 2
    best = lacking = None
    members_left_out = torch.stack(steps).sum(0)
    for count in range(several + 1):
        chosen = members_left_out == count
        if not bool(chosen.any()):  # within pairs one is a member
            continue
        members, outsiders = inside[..., -1:, :] - count, outside[..., -1:, :] - (several - count)
        # Of equal gains the first is the best: so a key is a gain, then minus the place.
        keys = (outsiders * inside - members * outside) * models + (models - 1 - place.to(whole))
        largest = _range_max(keys.where(may_end, least))
        edges = [torch.zeros_like(cuts[0]), *cuts, torch.full_like(cuts[0], models)]
        found, shift = largest(edges[0], edges[1]), 0
        for step, first, end in zip(steps, edges[1:], edges[2:], strict=False):
            shift = shift + torch.where(step, -outsiders, members) * models
            found = torch.maximum(found, largest(first, end) + shift)
        poor = (members <= 0) | (outsiders <= 0)
        best = found if best is None else found.where(chosen, best)
        lacking = poor.expand_as(chosen) if lacking is None else poor.where(chosen, lacking)
    assert best is not None
    assert lacking is not None
    gains = best >= models
    last = torch.where(gains, models - 1 - best % models, 0).long()
    following = last + 1
    for cut in cuts:
        following += following == cut
    after = values.gather(-2, following.clamp_max(models - 1)).where(following < models, math.inf)
    return ((values.gather(-2, last) + after) / 2).where(gains, -math.inf), lacking


def _range_max(table: Int[Tensor, "*e models points"]) -> Callable[[Tensor, Tensor], Tensor]:
    """A function that gives the largest numbers of each column from a row to before another, by a sparse table.

    Its level l has the largest of $2^l$ rows from each on. Two of its numbers cover any range. Of no rows it gives the
    least number.
    """
    models, levels, width = table.shape[-2], [table], 1
    while 2 * width <= models:
        wider = levels[-1].clone()
        torch.maximum(levels[-1][..., width:, :], wider[..., :-width, :], out=wider[..., :-width, :])
        levels.append(wider)
        width *= 2
    every = torch.cat(levels, -2)
    level = torch.tensor([max(n.bit_length() - 1, 0) for n in range(models + 1)], device=table.device)
    least = torch.iinfo(table.dtype).min // 2

    def largest(first: Tensor, end: Tensor) -> Tensor:
        own = level[end - first]
        start = own * models
        one = every.gather(-2, (start + first).clamp_max(len(levels) * models - 1))
        other = every.gather(-2, (start + end - (1 << own)).clamp_min(0))
        return torch.maximum(one, other).where(end > first, least)

    return largest


def _best_of_all(losses: Tensor, member: Tensor, matrix: Tensor) -> Float64[Tensor, " sets"]:
    r"""The best threshold on the losses of all points, for each set of shadow models.

    In whole numbers a threshold above i members and o outsiders gains $|\bar S| i - |S| o$. It is first computed at
    some losses, the edges of groups. Within a group the gain is at most that before it and that of its members; only
    the groups where this reaches the best gain at an edge are looked at loss by loss.
    """
    fine = losses.dtype == torch.float64  # float32 has fewer digits than `round_digits` keeps
    bits = (round_digits(losses) if fine else losses.double()).view(torch.int64)
    # The last bit of these numbers is free: it says who is a member, and is sorted with them.
    bits = torch.cat(map_threads(sort_rows, (bits & -2 | member).view(torch.float64).split(1))).view(torch.int64)
    values, kind = (bits & -2).view(torch.float64), (bits & 1).bool()
    groups = _GROUPS * math.isqrt(values.numel())
    sample = values[:, :: max(1, values.numel() // (16 * groups))].flatten().sort().values
    edges = torch.cat([sample[:: -(-len(sample) // groups)], values[:, -1:].amax(0)]).unique()
    until = torch.searchsorted(values, edges.expand(len(values), -1).contiguous(), right=True)
    inside = pad(kind.cumsum(-1, dtype=torch.int32), (1, 0)).gather(-1, until).double()
    inside, outside = matrix @ inside, matrix @ (until - inside)  # (sets, groups), up to each edge
    members, outsiders = inside[:, -1:], outside[:, -1:]
    after = outsiders * inside - members * outside
    before = pad(after[:, :-1], (1, 0))
    most = before + outsiders * inside.diff(prepend=inside.new_zeros(len(inside), 1))
    wanted = (most > 0) & (most >= after.amax(-1, keepdim=True))

    looked_at = wanted.any(0).nonzero().flatten()
    changes = torch.zeros(values.shape[0], values.shape[1] + 1, dtype=torch.int8, device=values.device)
    changes.scatter_add_(-1, pad(until, (1, 0))[:, looked_at], changes.new_ones(len(values), len(looked_at)))
    changes.scatter_add_(-1, until[:, looked_at], changes.new_full((len(values), len(looked_at)), -1))
    model, place = (changes[:, :-1].cumsum(-1, dtype=torch.int8) > 0).nonzero(as_tuple=True)
    near, kind = values[model, place], kind[model, place]
    order = argsort_rows(near)
    near, kind, model = near[order], kind[order], model[order]
    group = torch.searchsorted(looked_at, torch.searchsorted(edges, near))
    first = torch.searchsorted(group, torch.arange(len(looked_at), device=group.device))
    may_end = torch.ones_like(kind)  # whether a threshold may lie above a loss: equal losses are included together
    torch.ne(near[1:], near[:-1], out=may_end[:-1])
    included = matrix.new_full((len(matrix),), math.inf)
    for row in wanted.any(-1).nonzero().flatten().tolist():
        steps = torch.where(kind, outsiders[row], -members[row]) * matrix[row, model]
        gains = pad(steps.cumsum(-1), (1, 0))
        gains = gains[1:] + (before[row, looked_at] - gains[first])[group]
        gain, last = gains.where(may_end, 0).max(0)
        included[row] = near[last].where(gain > 0, math.inf)

    above = torch.searchsorted(values, included.expand(len(values), -1).contiguous(), right=True)
    following = pad(values, (0, 1), value=math.inf).gather(-1, above).mT.where(matrix > 0, math.inf).amin(-1)
    return ((included + following) / 2).where(included < math.inf, -math.inf)
