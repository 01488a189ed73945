"""Networks of one hidden layer trained on halves of a pool, and every attack on each of them at every recorded epoch.

`width_audit` is the experiment of Tan et al. (2023), Figures 3 to 6, 8 to 11 and 13, for one width; `audit` attacks the
losses of any models. The number of the split and the seed fix the pool and the pairs of networks, so all widths see the
same ones and can be compared model by model.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.attacks.membership import loss_threshold, shadow_models
from leakage.data.membership_splits import Pairs, complementary_pairs
from leakage.metrics.scores import FPRS, rates
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import Perceptrons
from reproduced.studies.blessing import trajectories

ATTACKS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "global": loss_threshold.global_scores,
    "sample": loss_threshold.sample_scores,
    "lira": shadow_models.lira,
    "lira-own": partial(shadow_models.lira, variance="own"),
    "rmia": shadow_models.rmia,
}
"""`global` and `sample` are the paper's loss thresholds; the likelihood ratios are later, stronger attacks."""


class Halves(NamedTuple):
    """A pool that members and outsiders come from, the other examples, which validate, and the pairs of models."""

    pool: Examples
    validation: Examples
    pairs: Pairs

    def initial(self, width: int, *, generator: torch.Generator) -> Mlp:
        """A network of one hidden layer for each model."""
        points = self.pool.inputs[0]
        classes = max(int(examples.targets.max()) for examples in (self.pool, self.validation)) + 1
        models = (len(self.pairs.rows),)
        return mlp.initial(models, (points.shape[1], width, classes), generator=generator, dtype=points.dtype)


def draw_halves(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, pool: int, models: int, split: int, seed: int
) -> Halves:
    """A random pool of `pool` points and complementary pairs of `models` models on it; the other points validate."""
    draws = stream(seed, f"pool/{split}", features.device)
    order = torch.rand(len(labels), dtype=torch.float32, generator=draws, device=features.device).argsort()
    everything = Examples((features,), labels)
    pairs = complementary_pairs(pool, models, generator=draws)
    return Halves(everything[order[:pool]], everything[order[pool:]], pairs)


class Rates(NamedTuple):
    """What one attack achieves against each model; see `metrics.scores.rates`.

    Attributes:
        advantage: of calling points with positive scores members.
        auc: area under the ROC curve.
        tpr: true positive rate by false positive rate.
    """

    advantage: Float64[Tensor, "*e models"]
    auc: Float64[Tensor, "*e models"]
    tpr: dict[float, Float64[Tensor, "*e models"]]


class Kept(NamedTuple):
    """Losses of all models on the pool at some epochs, the thresholds of the global attack, and the members."""

    losses: Float64[Tensor, "*s kept models pool"]
    thresholds: Float64[Tensor, "*s kept models"]
    member: Bool[Tensor, "*s models pool"]


class WidthAudit(NamedTuple):
    """The networks of one (width, split), or of several splits (`together`), at every recorded epoch.

    `error` and `validation_loss` are means over the validation points, `train_loss` over each model's members.
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
    """The rates of every attack against every model."""
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
    """Train the networks of one (width, split) and attack them at all `epochs`; keep their losses at those `kept`."""
    width, split = point
    own = draw_halves(features, labels, pool=pool, models=models, split=split, seed=seed)
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
    """Audits of several splits as one, with the splits as the first dimension of every tensor."""
    return _each(lambda *parts: torch.stack(parts), *several)


def stopped(found: WidthAudit, places: Sequence[int]) -> WidthAudit:
    """Audits `together`, each split at one of its epochs (their positions): without the dimension of epochs."""
    index = torch.arange(len(places)), torch.tensor(places)
    return _each(lambda part: part[index], found._replace(kept=None))


def _each(function: Callable[..., Tensor], *records: Any) -> Any:
    """Records of one form as one: `function` applied to the tensors of each field."""
    first = records[0]
    if isinstance(first, Tensor):
        return function(*records)
    if isinstance(first, dict):
        return {name: _each(function, *(record[name] for record in records)) for name in first}
    return None if first is None else type(first)(*(_each(function, *parts) for parts in zip(*records, strict=True)))
