"""Every attack on every model at every recorded epoch: the privacy side of a training run.

`width_audit` is the experiment of Tan et al. (2023), Figures 3 to 6, 8 to 11 and 13, for one width; `audit` attacks any
losses, from whatever models they come. Both give tensors by name, so that `sweeps.sweep` can keep them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.attacks.membership import loss_threshold, shadow_models
from leakage.metrics.scores import FPRS, rates
from leakage.studies.blessing.early_stopping import trajectories
from leakage.trainers.ensemble_checkpoints import Checkpoint
from leakage.trainers.ensembles import Recipe

ATTACKS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "global": loss_threshold.global_scores,
    "sample": loss_threshold.sample_scores,
    "lira": shadow_models.lira,
    "lira-own": partial(shadow_models.lira, variance="own"),
    "rmia": shadow_models.rmia,
}
"""`global` and `sample` are the paper's loss thresholds; the likelihood ratios are later, stronger attacks."""


def audit(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    attacks: Sequence[str] = tuple(ATTACKS),
    fprs: Sequence[float] = FPRS,
) -> dict[str, Tensor]:
    """Rates of every attack on every model, as `<attack>/<rate>`; see `metrics.scores.rates`.

    Raises:
        ValueError: if an attack is unknown, or as the attacks and `rates` do.
    """
    if unknown := set(attacks) - set(ATTACKS):
        raise ValueError(f"`attacks` must be among {', '.join(ATTACKS)}; got {', '.join(sorted(unknown))}.")
    return {
        f"{name}/{rate}": values
        for name in attacks
        for rate, values in rates(ATTACKS[name](losses, member, partner), member=member, fprs=fprs).items()
    }


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
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train the networks of one (width, split) and attack them at every recorded epoch.

    Args:
        point: the width, and the number of the repetition.
        features: see `trajectories`, as for all that follows up to `seed`.
        labels: classes.
        pool: points that may be members.
        models: networks.
        recipe: of the training.
        epochs: when to attack.
        seed: of all randomness.
        attacks: names in `ATTACKS`.
        fprs: rates of false alarms.
        kept: epochs (out of `epochs`) whose losses the result holds.
        checkpoint: lets a long training resume.

    Returns:
        `epochs`; `error`, `validation_loss`, `train_loss` and the rates of `audit`, each (epochs, models); and for
        `kept` epochs the `losses` (kept, models, pool) with the `thresholds` of the global attack (kept, models) and
        `member` (models, pool).

    Raises:
        ValueError: as `trajectories` and `audit`, or if an epoch to keep is not attacked.
    """
    if not set(kept) <= set(epochs):
        raise ValueError(f"`kept` must be among `epochs`, got {sorted(set(kept) - set(epochs))} besides.")
    width, split = point
    seen = trajectories(
        width,
        features=features,
        labels=labels,
        pool=pool,
        models=models,
        recipe=recipe,
        epochs=epochs,
        seed=seed,
        split=split,
        checkpoint=checkpoint,
    )
    losses, member, partner = seen["losses"], seen["member"], seen["partner"]
    found = {name: seen[name] for name in ("epochs", "error", "validation_loss")}
    found["train_loss"] = (losses * member).sum(-1) / member.sum(-1)
    found |= audit(losses, member, partner, attacks=attacks, fprs=fprs)
    if kept:
        places = [seen["epochs"].tolist().index(epoch) for epoch in kept]
        found |= {"losses": losses[places], "member": member}
        found["thresholds"] = loss_threshold.global_thresholds(losses[places], member, partner)
    return found
