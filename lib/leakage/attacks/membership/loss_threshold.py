r"""Members lose less: membership by comparing a point's loss with a threshold learned on reference models.

The attacker sees the loss of each point, so it knows the true label, and has reference models of which it knows the
members. Scores (models, points) are larger for likelier members and positive where the attack says "member". Every
model is the target once, or `target` alone. Its references are all others but its partner, where models come in
complementary pairs (`data.membership_splits`): each point then has equally many reference losses as member and as
outsider. In independent subsets (`partner=None`) the shares are taken of what there is. Leading dimensions are
independent (epochs, say). Losses are gone through in blocks of points (`blocks`), so they may lie in a mapped file.
Nothing here trains or draws.
"""

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import blocks
from leakage.attacks.membership import references, threshold_search
from leakage.attacks.membership.threshold_search import Targets

_LEAST_LOSS = 1e-150  # nats, from which on a ratio of two losses is finite


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
    the next. Losses that agree to nine digits are included together; of several best thresholds the lowest is taken,
    and $-\infty$ if none gains anything.

    Source: Tan et al. (2023), eqs. (71) and (72), Purchase100; in our copy (72) divides both counts by $|S|$.
    """
    targets = _targets(member, partner, target)
    found = [threshold_search.of_all(each, member, targets) for each in losses.reshape(-1, *member.shape)]
    return torch.stack(found).reshape(*losses.shape[:-2], len(targets.models))


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
    """
    targets = _targets(member, partner, target)
    model = torch.arange(len(member), device=losses.device)
    shape = (*losses.shape[:-2], len(targets.models), losses.shape[-1])
    usual: list[Tensor] = []  # found once, if it is needed

    def own(part: slice) -> Tensor:
        kinds = member[:, part].mT
        each = losses[..., part].double().reshape(-1, *kinds.mT.shape).mT
        found = [threshold_search.of_each(rows, kinds, model.expand(kinds.shape), targets) for rows in each]
        best = torch.stack(found).reshape(*shape[:-1], len(kinds))
        inside = kinds.sum(-1) - kinds.mT[targets.models].long()
        lacking = (inside == 0) | (inside == len(member) - 1)
        if partner is not None or not bool(lacking.any()):
            return best
        if not usual:
            usual.append(global_thresholds(losses, member, target=target).unsqueeze(-1))
        return torch.where(lacking, usual[0], best)

    return blocks.made(shape, blocks.of(losses.shape), own, device=losses.device)


def global_scores(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \log(\tau / \ell)$ with one threshold for each target: `global_thresholds`.

    In logarithms, since a difference from τ would make all losses equal that are small beside it: those of the surest
    members. Losses below 1e-150 count as that. Where no threshold gains anything τ does so, too: nobody is accused.
    """
    thresholds = global_thresholds(losses, member, partner, target=target).unsqueeze(-1)
    own = losses[..., references.rows(len(member), target), :]
    return blocks.made(
        tuple(own.shape),
        blocks.of(losses.shape),
        lambda part: log_ratio(thresholds, own[..., part]),
        device=losses.device,
    )


def log_ratio(thresholds: Float[Tensor, "*#b"], losses: Float[Tensor, "*b"]) -> Float64[Tensor, "*b"]:
    r"""$\log(\tau / \ell)$ to the last digits, with the sign of $\tau - \ell$; both are 1e-150 at least."""
    threshold, loss = thresholds.double().clamp_min(_LEAST_LOSS), losses.double().clamp_min(_LEAST_LOSS)
    gap = threshold - loss
    return gap.sign() * (gap.abs() / torch.minimum(threshold, loss)).log1p()


def accused(
    scores: Float64[Tensor, "models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
) -> Bool[Tensor, "models points"]:
    """Whose score is above the threshold that `global_thresholds` finds on the negative scores of the references."""
    targets = _targets(member, partner, None)
    return -scores < threshold_search.of_all(-scores, member, targets).unsqueeze(-1)


def sample_scores(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""$s = \tau(x) - \ell$ with a threshold of its own for each point: `sample_thresholds`.

    Where no threshold gains anything τ(x) counts as 0, which no loss falls below.
    """
    thresholds = sample_thresholds(losses, member, partner, target=target)
    own = losses[..., references.rows(len(member), target), :]
    return blocks.made(
        thresholds.shape,
        blocks.of(losses.shape),
        lambda part: thresholds[..., part].clamp_min(0) - own[..., part].double(),
        device=losses.device,
    )


def _targets(member: Tensor, partner: Tensor | None, target: int | None) -> Targets:
    """The targets, and the other model that each leaves out."""
    models = torch.arange(len(member), device=member.device)
    asked = references.rows(len(member), target)
    return Targets(models[asked], (models if partner is None else partner)[asked])
