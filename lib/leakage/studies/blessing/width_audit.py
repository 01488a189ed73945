"""Every attack on every model at every recorded epoch: the privacy side of a training run.

`width_audit` is the experiment of Tan et al. (2023), Figures 3 to 6, 8 to 11 and 13, for one width; `audit` attacks any
losses, from whatever models they come.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership import loss_threshold, shadow_models
from leakage.metrics.scores import FPRS, rates
from leakage.runtime import stream
from leakage.studies.blessing import halves, trajectories
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import Perceptrons

ATTACKS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "global": loss_threshold.global_scores,
    "sample": loss_threshold.sample_scores,
    "lira": shadow_models.lira,
    "lira-own": partial(shadow_models.lira, variance="own"),
    "rmia": shadow_models.rmia,
}
"""`global` and `sample` are the paper's loss thresholds; the likelihood ratios are later, stronger attacks."""


class Rates(NamedTuple):
    """What one attack achieves against each model; see `metrics.scores.rates`.

    Attributes:
        advantage: of accusing positive scores.
        auc: area under the ROC curve.
        tpr: true positive rate by false positive rate.
    """

    advantage: Float64[Tensor, "*e models"]
    auc: Float64[Tensor, "*e models"]
    tpr: dict[float, Float64[Tensor, "*e models"]]


class Kept(NamedTuple):
    """What single epochs leave behind.

    Attributes:
        losses: of all models on the pool.
        thresholds: of the global attack.
        member: who is one.
    """

    losses: Float64[Tensor, "*s kept models pool"]
    thresholds: Float64[Tensor, "*s kept models"]
    member: Bool[Tensor, "*s models pool"]


class WidthAudit(NamedTuple):
    """The networks of one (width, split), or of several splits (`together`), at every recorded epoch.

    Attributes:
        epochs: when they were attacked.
        error: share of the validation points misclassified.
        validation_loss: mean loss on these.
        train_loss: mean loss on a model's members.
        attacks: what each attack achieves, by name.
        kept: of the epochs asked for.
    """

    epochs: Int[Tensor, "*s e"]
    error: Float64[Tensor, "*s e models"]
    validation_loss: Float64[Tensor, "*s e models"]
    train_loss: Float64[Tensor, "*s e models"]
    attacks: dict[str, Rates]
    kept: Kept | None


def audit(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    attacks: Sequence[str] = tuple(ATTACKS),
    fprs: Sequence[float] = FPRS,
) -> dict[str, Rates]:
    """What every attack achieves against every model.

    Raises:
        ValueError: if an attack is unknown, or as the attacks and `rates` do.
    """
    for name in attacks:
        arguments.choice("attacks", name, ATTACKS)
    audited = {}
    for name in attacks:
        found = rates(ATTACKS[name](losses, member, partner), member=member, fprs=fprs)
        tpr = {fpr: found[f"tpr_at_{fpr}"] for fpr in fprs}
        audited[name] = Rates(found["advantage"], found["auc"], tpr)
    return audited


def width_audit(
    point: tuple[int, int],
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    recipe: Recipe,
    epochs: Sequence[int],
    seed: int,
    attacks: Sequence[str] = tuple(ATTACKS),
    fprs: Sequence[float] = FPRS,
    kept: Sequence[int] = (),
) -> WidthAudit:
    """Train the networks of one (width, split) and attack them at every recorded epoch.

    Args:
        point: the width, and the number of the repetition.
        features: see `halves.drawn`, as for the next three.
        labels: classes.
        pool: points that may be members.
        models: networks.
        recipe: of the training.
        epochs: when to attack.
        seed: of all randomness.
        attacks: names in `ATTACKS`.
        fprs: rates of false alarms.
        kept: epochs (out of `epochs`) whose losses the result holds.

    Raises:
        ValueError: as `halves.drawn`, `trajectories.watch` and `audit`, or if an epoch to keep is not attacked.
    """
    if not set(kept) <= set(epochs):
        raise ValueError(f"`kept` must be among `epochs`, got {sorted(set(kept) - set(epochs))} besides.")
    width, split = point
    own = halves.drawn(features, labels, pool=pool, models=models, split=split, seed=seed)
    draws = stream(seed, f"networks/{split}/{width}", features.device)
    networks = Perceptrons.of(own.initial(width, generator=draws))
    (losses, error, validation_loss), member, partner, when = trajectories.watch(
        networks,
        own.pool,
        own.validation,
        recipe,
        pairs=own.pairs,
        epochs=epochs,
        generator=draws,
    )
    places = [when.tolist().index(epoch) for epoch in kept]
    return WidthAudit(
        when,
        error,
        validation_loss,
        (losses * member).sum(-1) / member.sum(-1),
        audit(losses, member, partner, attacks=attacks, fprs=fprs),
        Kept(losses[places], loss_threshold.global_thresholds(losses[places], member, partner), member)
        if places
        else None,
    )


def together(several: Sequence[WidthAudit]) -> WidthAudit:
    """Audits of one form, one a split, with the splits as a new first dimension of everything."""
    return _each(lambda *parts: torch.stack(parts), *several)


def stopped(found: WidthAudit, places: Sequence[int]) -> WidthAudit:
    """Audits `together`, each split at the epoch in its place: the dimension of epochs is gone."""
    index = torch.arange(len(places)), torch.tensor(places)
    return _each(lambda part: part[index], found._replace(kept=None))


def _each(function: Callable[..., Tensor], *records: Any) -> Any:
    """The record of what the function makes of the tensors that stand at one place of the records given."""
    first = records[0]
    if isinstance(first, Tensor):
        return function(*records)
    if isinstance(first, dict):
        return {name: _each(function, *(record[name] for record in records)) for name in first}
    return None if first is None else type(first)(*(_each(function, *parts) for parts in zip(*records, strict=True)))
