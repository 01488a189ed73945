r"""Members lose less: membership by comparing a point's loss with a threshold learned on reference models.

The attacker sees the loss of each point, so it knows the true label, and has reference models of which it knows the
members. Scores (models, points) are larger for likelier members and positive where the attack says "member". Every
model is the target once, or `target` alone. Its references are all others but its partner, where models come in
complementary pairs (`data.membership_splits`): each point then has equally many reference losses as member and as
outsider. In independent subsets (`partner=None`) the shares are taken of what there is. Leading dimensions are
independent (epochs, say). Nothing here trains or draws.
"""

import math

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import references
from leakage.data.membership_splits import check_design
from leakage.metrics.scores import ascending_order

_LARGEST_LOSS = 1e150  # nats: the square of a larger one is infinite
_SHORT = 92_681  # losses whose gains are below 2³¹
_MOST_COMPARED = 2**24  # losses of all targets compared at once: 128 MiB of counts


def global_thresholds(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets"]:
    r"""One threshold τ for each target, the best on all losses of its references.

    $$ \tau = \arg\max_\tau \; \frac{|\{s \in S : s < \tau\}|}{|S|}
       - \frac{|\{s \in \bar S : s < \tau\}|}{|\bar S|}, $$

    with S the reference losses of members and $\bar S$ those of outsiders, midway between the last loss included and
    the next. Equal losses are included together; of several best thresholds the lowest is taken, and $-\infty$ if
    none gains anything.

    Source: Tan et al. (2023), eqs. (71) and (72), Purchase100; in our copy (72) divides both counts by $|S|$.

    Raises:
        ValueError: if losses are negative, not finite or beyond 1e150, shapes do not fit, the design tells (see
            `check_design`), or the references of a target have no members or no outsiders.
    """
    check_losses(losses, member, partner, target=target)
    targets, partners = _left_out(member, partner, target)
    _check_kinds(member, targets)
    model = torch.arange(len(member), device=losses.device)[:, None].expand(member.shape).flatten()
    each = losses.double().reshape(-1, member.numel())
    found = [_best_thresholds(row, member.flatten(), model, targets, partners) for row in each]
    return torch.stack(found).reshape(*losses.shape[:-2], len(targets))


def sample_thresholds(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""A threshold τ(x) for each target and point, the best on the point's own losses; see `global_thresholds`.

    A point whose references are all members or all outsiders has the global threshold.

    Source: Tan et al. (2023), eq. (71): "attack R" of Ye et al. (2022), for CIFAR10 and Multi30k.

    Raises:
        ValueError: as `global_thresholds`.
    """
    check_losses(losses, member, partner, target=target)
    targets, partners = _left_out(member, partner, target)
    model = torch.arange(len(member), device=losses.device).expand(member.mT.shape)
    each = losses.double().reshape(-1, *member.shape).mT
    found = [_best_thresholds(rows, member.mT, model, targets, partners) for rows in each]
    own = torch.stack(found).reshape(*losses.shape[:-2], len(targets), losses.shape[-1])
    if partner is not None:
        return own
    inside = member.sum(0) - member[targets].long()
    lacking = (inside == 0) | (inside == len(member) - 1)
    if not bool(lacking.any()):
        return own
    return torch.where(lacking, global_thresholds(losses, member, target=target).unsqueeze(-1), own)


def global_scores(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \tau - \ell$ with one threshold for each target: `global_thresholds`.

    Where no threshold gains anything τ counts as 0, which no loss falls below: nobody is accused.

    Raises:
        ValueError: as `global_thresholds`.
    """
    thresholds = global_thresholds(losses, member, partner, target=target)
    return thresholds.clamp_min(0).unsqueeze(-1) - losses.double()[..., references.rows(len(member), target), :]


def sample_scores(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \tau(x) - \ell$ with a threshold of its own for each point: `sample_thresholds`; as `global_scores`.

    Raises:
        ValueError: as `global_thresholds`.
    """
    thresholds = sample_thresholds(losses, member, partner, target=target)
    return thresholds.clamp_min(0) - losses.double()[..., references.rows(len(member), target), :]


def check_losses(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None,
    *,
    least: int = 1,
    target: int | None = None,
) -> None:
    """Raise the errors of every attack on losses; pairs must leave `least` references of either kind."""
    check_design(member, partner, least=least, target=target)
    models, points = member.shape
    arguments.tensor("losses", losses, "*e models points", models=models, points=points)
    if bool(losses.isnan().any()):
        raise ValueError("`losses` must be finite, got NaN among them; a network that diverged must not be attacked.")
    if bool((losses == math.inf).any()):
        raise ValueError(
            "`losses` must be finite, got inf among them: the loss of a probability of 0, as a forest gives them; clip "
            "the probabilities first, to 1e-12 say."
        )
    arguments.real("losses", losses, least=0, most=_LARGEST_LOSS)


def _left_out(member: Tensor, partner: Tensor | None, target: int | None) -> tuple[Tensor, Tensor]:
    """The targets, and of each the other model that is no reference: itself once more, where it has no partner."""
    models = torch.arange(len(member), device=member.device)
    asked = references.rows(len(member), target)
    return models[asked], (models if partner is None else partner)[asked]


def _check_kinds(member: Bool[Tensor, "models points"], targets: Int[Tensor, " t"]) -> None:
    inside = member.sum(-1)
    left = inside.sum() - inside[targets]
    if bool(((left == 0) | (left == (len(member) - 1) * member.shape[-1])).any()):
        raise ValueError(
            "`member` must give the references of each target members and outsiders, from which a threshold is "
            "learned; without, judge the negative loss itself."
        )


def _best_thresholds(
    losses: Float64[Tensor, "*b k"],
    member: Bool[Tensor, "*b k"],
    model: Int[Tensor, "*b k"],
    targets: Int[Tensor, " t"],
    partners: Int[Tensor, " t"],
) -> Float64[Tensor, " t *b"]:
    """For each target the best thresholds on its references' losses; several targets at once."""
    order = ascending_order(losses)
    ordered, member, model = (each.gather(-1, order) for each in (losses, member, model))
    size = max(1, _MOST_COMPARED // losses.numel())
    # Partners leave out the same two models, so one of them is asked for both.
    pairs, place = torch.stack([targets, partners]).sort(0).values.unique(dim=1, return_inverse=True)
    found = [_best_ordered(ordered, member, model, *part) for part in pairs.split(size, dim=1)]
    return torch.cat(found)[place]


def _best_ordered(
    ordered: Float64[Tensor, "*b k"],
    member: Bool[Tensor, "*b k"],
    model: Int[Tensor, "*b k"],
    target: Int[Tensor, " t"],
    partner: Int[Tensor, " t"],
) -> Float64[Tensor, " t *b"]:
    """`_best_thresholds` of ascending losses."""
    target, partner = (some.view(-1, *[1] * model.ndim) for some in (target, partner))
    counted = (model != target) & (model != partner)
    # Differences of shares as whole numbers: nothing is rounded, so ties are ties. None is larger than a quarter of k².
    whole = torch.int32 if ordered.shape[-1] <= _SHORT else torch.int64
    inside, outside = ((counted & kind).sum(-1, keepdim=True, dtype=whole) for kind in (member, ~member))
    gain = torch.where(member, outside, -inside).mul_(counted).cumsum(-1, dtype=whole)
    ties = torch.zeros_like(member)
    ties[..., :-1] = ordered[..., 1:] == ordered[..., :-1]
    best, last = gain.masked_fill_(ties, 0).max(-1)  # the first of equal ones
    last = torch.where(best > 0, last, 0).unsqueeze(-1)
    places = torch.arange(ordered.shape[-1], device=ordered.device)
    included = ordered.expand(counted.shape).gather(-1, last).squeeze(-1)
    following = ordered.where(counted & (places > last), math.inf).amin(-1)
    middle = included / 2 + following / 2
    # Between neighbouring numbers there is no middle; the attack accuses strictly below, so the next one will do.
    middle = torch.where(middle > included, middle, following)
    return middle.where(best > 0, -math.inf)
