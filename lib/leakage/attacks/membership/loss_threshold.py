r"""Members lose less: membership by comparing a point's loss with a threshold learned on reference models.

The attacker sees the loss of each point, so it knows the true label, and has reference models of which it knows the
members. Scores (models, points) are larger for likelier members and positive where the attack says "member". Every
model is the target once; its references are all others but its partner (`data.membership_splits`), so each point has
equally many reference losses as member and as outsider. Leading dimensions are independent (epochs, say). Nothing here
trains or draws.
"""

import math

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import arguments
from leakage.data.membership_splits import check_pairs

_LARGEST_LOSS = 1e150  # nats: the square of a larger one is infinite


def global_thresholds(
    losses: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]
) -> Float64[Tensor, "*e models"]:
    r"""One threshold τ for each target, the best on all losses of its references.

    $$ \tau = \arg\max_\tau \; \frac{|\{s \in S : s < \tau\}|}{|S|}
       - \frac{|\{s \in \bar S : s < \tau\}|}{|\bar S|}, $$

    with S the reference losses of members and $\bar S$ those of outsiders, midway between the last loss included and
    the next. Equal losses are included together; of several best thresholds the lowest is taken, and $-\infty$ if
    none gains anything.

    Source: Tan et al. (2023), eqs. (71) and (72), Purchase100; in our copy (72) divides both counts by $|S|$.

    Raises:
        ValueError: if losses are negative, not finite or beyond 1e150, shapes do not fit, or the design tells (see
            `check_pairs`).
    """
    check_losses(losses, member, partner)
    model = torch.arange(len(partner), device=losses.device)[:, None].expand(member.shape).flatten()
    each = losses.double().reshape(-1, member.numel())
    found = [_best_thresholds(row, member.flatten(), model, partner) for row in each]
    return torch.stack(found).reshape(losses.shape[:-1])


def sample_thresholds(
    losses: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]
) -> Float64[Tensor, "*e models points"]:
    r"""A threshold τ(x) for each target and point, the best on the point's own losses; see `global_thresholds`.

    Source: Tan et al. (2023), eq. (71): "attack R" of Ye et al. (2022), for CIFAR10 and Multi30k.

    Raises:
        ValueError: as `global_thresholds`.
    """
    check_losses(losses, member, partner)
    model = torch.arange(len(partner), device=losses.device).expand(member.mT.shape)
    each = losses.double().reshape(-1, *member.shape).mT
    found = [_best_thresholds(rows, member.mT, model, partner) for rows in each]
    return torch.stack(found).reshape(losses.shape)


def global_scores(
    losses: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]
) -> Float64[Tensor, "*e models points"]:
    r"""$s = \tau - \ell$ with one threshold for each target: `global_thresholds`.

    Where no threshold gains anything τ counts as 0, which no loss falls below: nobody is accused.

    Raises:
        ValueError: as `global_thresholds`.
    """
    return global_thresholds(losses, member, partner).clamp_min(0).unsqueeze(-1) - losses.double()


def sample_scores(
    losses: Float[Tensor, "*e models points"], member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"]
) -> Float64[Tensor, "*e models points"]:
    r"""$s = \tau(x) - \ell$ with a threshold of its own for each point: `sample_thresholds`; as `global_scores`.

    Raises:
        ValueError: as `global_thresholds`.
    """
    return sample_thresholds(losses, member, partner).clamp_min(0) - losses.double()


def check_losses(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    least: int = 1,
) -> None:
    """Raise the errors of every attack on losses; `least` references of either kind are needed."""
    check_pairs(member, partner, least=least)
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


def _best_thresholds(
    losses: Float64[Tensor, "*b k"],
    member: Bool[Tensor, "*b k"],
    model: Int[Tensor, "*b k"],
    partner: Int[Tensor, " t"],
) -> Float64[Tensor, " t *b"]:
    """For each target the best thresholds on its references' losses, half of which are members'."""
    ordered, order = losses.sort(-1)
    member, model = member.gather(-1, order), model.gather(-1, order)
    partner = partner.view(-1, *[1] * model.ndim)
    target = torch.arange(len(partner), device=losses.device).view_as(partner)
    counted = (model != target) & (model != partner)
    sign = member.to(torch.int32) * 2 - 1
    gain = (counted * sign).cumsum(-1, dtype=torch.int32)
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
