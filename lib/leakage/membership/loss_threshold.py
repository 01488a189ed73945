r"""Loss thresholds: a point is called a member if its loss is below a threshold learned on reference models.

The attacker sees the loss of each point and has reference models whose members it knows (`references`). Scores are
positive where the attack says "member". Losses that agree to nine digits are equal (`metrics.scores.round_digits`).
"""

import math
from functools import partial

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.membership.references import map_columns, reference_matrix, target_rows
from leakage.metrics.scores import argsort_rows, round_digits

_Losses = Float[Tensor, "*e models points"]
_Members = Bool[Tensor, "models points"]  # whether each model was trained on each point
_Partners = Int[Tensor, " models"] | None  # each model's partner in complementary pairs; None for independent subsets
_LEAST_LOSS = 1e-150  # nats, from which on a ratio of two losses is finite
_GROUP = 256  # consecutive losses that are counted together before some are looked at one by one


def global_thresholds(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets"]:
    r"""One threshold τ for each target, the best on all losses of its references.

    $$ \tau = \arg\max_\tau \; \frac{|\{s \in S : s < \tau\}|}{|S|}
       - \frac{|\{s \in \bar S : s < \tau\}|}{|\bar S|}, $$

    with S the reference losses of members and $\bar S$ those of outsiders, midway between the last loss included and
    the next. Of several best thresholds the lowest is taken, and $-\infty$ if none gains anything.

    Source: Tan et al. (2023), eqs. (71) and (72), Purchase100; in our copy (72) divides both counts by $|S|$.

    Leading dimensions of `losses`, such as epochs, are independent.
    """
    matrix, row = _distinct_references(member, partner, target)
    found = [_best_of_all(table, member, matrix) for table in losses.reshape(-1, *member.shape)]
    return torch.stack(found)[:, row].reshape(*losses.shape[:-2], len(row))


def sample_thresholds(
    losses: _Losses, member: _Members, partner: _Partners = None, *, target: int | None = None
) -> Float64[Tensor, "*e targets points"]:
    r"""A threshold τ(x) for each target and point, the best on the point's own losses; see `global_thresholds`.

    A point whose references are all members or all outsiders has the global threshold.

    Source: Tan et al. (2023), eq. (71): "attack R" of Ye et al. (2022), for CIFAR10 and Multi30k.
    """
    matrix, row = _distinct_references(member, partner, target)
    best = partial(_best_of_each, reference=matrix.bool())
    (found,) = map_columns(best, losses, member, copies=len(matrix))
    thresholds = found[..., row, :]
    lacking = torch.minimum(*(matrix @ kind.double() for kind in (member, ~member)))[row] == 0
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


def _distinct_references(
    member: Tensor, partner: Tensor | None, target: int | None
) -> tuple[Float64[Tensor, "sets models"], Int[Tensor, " targets"]]:
    """Each set of references once (partners share one), and which of them is each target's."""
    matrix = reference_matrix(len(member), partner, target=target, device=member.device)
    return matrix.unique(dim=0, return_inverse=True)


def _best_of_each(losses: Tensor, member: Tensor, *, reference: Tensor) -> tuple[Float64[Tensor, "*e sets points"]]:
    """The best threshold of each point on its own losses, for each set of references."""
    losses = round_digits(losses.double()).mT.contiguous()
    order = argsort_rows(losses)  # (..., points, models)
    values, kind = losses.gather(-1, order), member.mT.expand(order.shape).gather(-1, order)
    counted = reference[:, order]  # (sets, ..., points, models), as all that follows
    inside, outside = ((counted & some).sum(-1, keepdim=True, dtype=torch.int32) for some in (kind, ~kind))
    gains = torch.where(kind, outside, -inside).mul_(counted).cumsum(-1, dtype=torch.int32)
    gains[..., :-1].masked_fill_(values[..., 1:] == values[..., :-1], 0)  # equal losses are included together
    best, last = gains.max(-1, keepdim=True)  # the first of equal ones
    included = values.expand(gains.shape).gather(-1, last)
    following = values.where(counted & (values > included), math.inf).amin(-1)
    thresholds = ((included.squeeze(-1) + following) / 2).where(best.squeeze(-1) > 0, -math.inf)
    return (thresholds.movedim(0, -2),)


def _best_of_all(losses: Tensor, member: Tensor, matrix: Tensor) -> Float64[Tensor, " sets"]:
    r"""The best threshold on the losses of all points, for each set of references.

    In whole numbers a threshold above i members and o outsiders gains $|\bar S| i - |S| o$. The ascending losses are
    first counted in groups. Within a group the gain is at most that before it and that of its members; only the
    groups where this reaches the best gain at the end of a group are looked at loss by loss.
    """
    points = member.shape[1]
    fine = losses.dtype == torch.float64  # float32 has fewer digits than `round_digits` keeps, and half the memory
    values = (round_digits(losses) if fine else losses.float()).flatten()
    place = argsort_rows(values)
    values, kind, model = values[place], member.flatten()[place], place.div_(points, rounding_mode="floor").int()
    del place  # hundreds of megabytes for millions of points
    may_end = torch.ones_like(kind)  # whether a threshold may lie above a loss: equal losses are included together
    torch.ne(values[1:], values[:-1], out=may_end[:-1])

    inside, outside = _count_in_groups(kind, model, matrix)
    members, outsiders = (count.sum(-1, keepdim=True) for count in (inside, outside))
    after = (outsiders * inside - members * outside).cumsum(-1)
    before = torch.nn.functional.pad(after[:, :-1], (1, 0))
    most = before + outsiders * inside
    padding = inside.shape[-1] * _GROUP - len(values)
    ends = torch.nn.functional.pad(may_end, (0, padding)).view(-1, _GROUP)
    best = torch.where(ends[:, -1], after, 0).amax(-1, keepdim=True)
    wanted = (most > 0) & (most >= best) & ends.any(-1)

    thresholds = matrix.new_full((len(matrix),), -math.inf)
    for row in wanted.any(-1).nonzero().flatten().tolist():
        group, reference = wanted[row].nonzero(), matrix[row] > 0
        place = group * _GROUP + torch.arange(_GROUP, device=group.device)
        exists, place = place < len(values), place.clamp_max(len(values) - 1)
        steps = torch.where(kind[place], outsiders[row], -members[row]) * (reference[model[place]] & exists)
        gains = before[row, group] + steps.cumsum(-1)
        gain, first = gains.where(may_end[place], 0).flatten().max(0)
        if float(gain) > 0:
            last = int(place.flatten()[first])
            # The target and its partner have two losses per point, so the next loss of a reference is among these.
            tail = slice(last + 1, last + 2 * points + 2)
            following = values[tail][reference[model[tail]]].double()
            thresholds[row] = (values[last].double() + (following[0] if len(following) else math.inf)) / 2
    return thresholds


def _count_in_groups(
    kind: Bool[Tensor, " losses"], model: Int[Tensor, " losses"], matrix: Float64[Tensor, "sets models"]
) -> tuple[Float64[Tensor, "sets groups"], ...]:
    """How many losses of members and of outsiders the references have in each group of `_GROUP` consecutive ones."""
    models, groups = matrix.shape[1], -(-len(model) // _GROUP)
    group = torch.arange(len(model), dtype=model.dtype, device=model.device).div_(_GROUP, rounding_mode="floor")
    bins = group.mul_(models).add_(model)
    counts = (torch.bincount(bins[some], minlength=groups * models).view(groups, models) for some in (kind, ~kind))
    return tuple(matrix @ count.mT.double() for count in counts)
