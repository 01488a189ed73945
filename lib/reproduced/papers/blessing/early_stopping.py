"""Networks on halves of a pool, their losses epoch by epoch while they train, and every attack at every recorded epoch.

`audit_width` is the experiment of Tan et al. (2023), Figures 3 to 6, 8 to 11 and 13, for one width; `record_training`
serves any kind of network, and `audit_losses` attacks the losses of any models. The number of the split and the seed
fix the pool and the complementary pairs of networks, so all widths can be compared model by model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.data.membership_splits import Pairs, complementary_pairs
from leakage.membership.loss_threshold import global_thresholds
from leakage.membership.table import ATTACKS
from leakage.membership.trained_models import TrainedModels
from leakage.metrics.scores import FPRS, rates
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Ensemble, Examples, MlpEnsemble, Recipe
from reproduced.runtime import Run, map_tensors, move
from reproduced.statistics import rank_correlation

LOSS_ATTACKS: Mapping[str, str] = {
    "global": "global threshold",
    "sample": "sample threshold",
    "lira": "LiRA",
    "lira-own": "LiRA, own variance",
    "rmia": "RMIA",
}
"""Short names of rows of the table of attacks. `global` and `sample` are the paper's loss thresholds; the likelihood
ratios are later, stronger attacks."""


class Halves(NamedTuple):
    """One split: the pool, the examples for validation, and pairs of models trained on complementary halves."""

    pool: Examples
    validation: Examples
    pairs: Pairs

    def initial(self, width: int, *, generator: torch.Generator) -> Mlp:
        """A network of one hidden layer for each model."""
        points = self.pool.inputs[0]
        classes = max(int(examples.targets.max()) for examples in (self.pool, self.validation)) + 1
        models = (len(self.pairs.rows),)
        return mlp.initial(models, (points.shape[1], width, classes), generator=generator, dtype=points.dtype)


class NetworkLosses(NamedTuple):
    """Losses and errors of networks on a pool and on validation examples.

    Attributes:
        losses: on the pool, each divided by its number of answers.
        error: share of wrong answers to the validation examples.
        validation_loss: mean over the validation examples.
    """

    losses: Float64[Tensor, "*e models pool"]
    error: Float64[Tensor, "*e models"]
    validation_loss: Float64[Tensor, "*e models"]


class Trajectory(NamedTuple):
    """Losses and errors of networks epoch by epoch, and their members.

    Attributes:
        recorded: with the epochs as first dimension.
        member: which examples of the pool each network is trained on.
        partner: the other network of each network's pair.
        epochs: after which losses and errors were recorded.
    """

    recorded: NetworkLosses
    member: Bool[Tensor, "models pool"]
    partner: Int[Tensor, " models"]
    epochs: Float[Tensor, " e"]


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


class EpochLosses(NamedTuple):
    """Losses of all models on the pool at some epochs, the thresholds of the global attack, and the members."""

    losses: Float64[Tensor, "*s kept models pool"]
    thresholds: Float64[Tensor, "*s kept models"]
    member: Bool[Tensor, "*s models pool"]


class WidthAudit(NamedTuple):
    """The networks of one (width, split), or of several splits (`stack_splits`), at every recorded epoch.

    `error` and `validation_loss` are means over the validation points, `train_loss` over each model's members.
    """

    epochs: Float[Tensor, "*s e"]
    error: Float64[Tensor, "*s e models"]
    validation_loss: Float64[Tensor, "*s e models"]
    train_loss: Float64[Tensor, "*s e models"]
    attacks: dict[str, Rates]
    kept: EpochLosses | None


def draw_halves(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], *, pool: int, models: int, split: int, run: Run
) -> Halves:
    """A random pool of `pool` points and complementary pairs of `models` models on it; the other points validate."""
    draws = run.stream(f"pool/{split}")
    order = torch.rand(len(labels), dtype=torch.float32, generator=draws).argsort()
    everything = Examples((features,), labels)
    pairs = complementary_pairs(pool, models, generator=draws)
    return Halves(everything[order[:pool]], everything[order[pool:]], pairs)


def measure_losses(networks: Ensemble, pool: Examples, validation: Examples) -> NetworkLosses:
    """Losses and errors of the networks in their present state."""
    found, other = (networks.compute_losses(asked) for asked in (pool, validation))
    return NetworkLosses(
        found.losses / found.answers,
        other.wrong.sum(-1).double() / other.answers.sum(-1),
        (other.losses / other.answers).mean(-1),
    )


def record_training(
    networks: Ensemble,
    pool: Examples,
    validation: Examples,
    recipe: Recipe,
    *,
    pairs: Pairs,
    epochs: Sequence[float],
    parts: int = 1,
    generator: torch.Generator,
) -> Trajectory:
    """Train the initial `networks` on halves of a pool, and record losses and errors after the given epochs.

    `parts` cuts each epoch into so many, and `epochs` are multiples of `1 / parts`. Steps stay the same if each part
    has whole batches.
    """
    passed, found = [], []

    def record(part: int, seen: Ensemble) -> None:
        passed.append(part)
        found.append(measure_losses(seen, pool, validation))

    orders = [ensembles.shuffle_rows(pairs.rows, generator=generator) for _ in range(recipe.epochs)]
    ensembles.train(
        networks,
        pool,
        pairs.rows,
        replace(recipe, epochs=parts * recipe.epochs),
        generator=generator,
        orders=[part for order in orders for part in order.chunk(parts, -1)],
        observe=record,
        observed_epochs=[round(parts * epoch) for epoch in epochs],
    )
    recorded = NetworkLosses(*(torch.stack(each) for each in zip(*found, strict=True)))
    return Trajectory(recorded, pairs.member, pairs.partner, torch.tensor(passed) / parts)


def audit_losses(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"],
    *,
    attacks: Sequence[str] = tuple(LOSS_ATTACKS),
    fprs: Sequence[float] = FPRS,
) -> dict[str, Rates]:
    """The rates of every attack against every model."""
    audited, models = {}, TrainedModels.from_losses(losses, member, partner)
    for name in attacks:
        scores = ATTACKS[LOSS_ATTACKS[name]].score(models, torch.Generator())  # which draws nothing
        found = rates(scores, member=member, fprs=fprs)
        tpr = {fpr: found[f"tpr_at_{fpr}"] for fpr in fprs}
        audited[name] = Rates(found["advantage"], found["auc"], tpr)
    return audited


def audit_width(
    width_and_split: tuple[int, int],
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    recipe: Recipe,
    epochs: Sequence[float],
    parts: int = 1,
    run: Run,
    attacks: Sequence[str] = tuple(LOSS_ATTACKS),
    fprs: Sequence[float] = FPRS,
    kept: Sequence[int] = (),
) -> WidthAudit:
    """Train the networks of one (width, split) and attack them at all `epochs`; keep their losses at those `kept`."""
    width, split = width_and_split
    own = draw_halves(features, labels, pool=pool, models=models, split=split, run=run)
    draws = run.stream(f"networks/{split}/{width}")
    networks = MlpEnsemble.from_mlp(own.initial(width, generator=draws))
    device = run.device_for("networks", recipe.batch * sum(part.numel() for part in networks.parameters))
    own, networks = move((own, networks), device)
    (losses, error, validation_loss), member, partner, when = record_training(
        networks, own.pool, own.validation, recipe, pairs=own.pairs, epochs=epochs, parts=parts, generator=draws
    )
    some = losses[[when.tolist().index(epoch) for epoch in kept]]
    audit = WidthAudit(
        when,
        error,
        validation_loss,
        (losses * member).sum(-1) / member.sum(-1),
        audit_losses(losses, member, partner, attacks=attacks, fprs=fprs),
        EpochLosses(some, global_thresholds(some, member, partner), member) if kept else None,
    )
    return move(audit, "cpu")


def log_loss_gap(kept: EpochLosses) -> Float64[Tensor, "*s kept models"]:
    """Mean logarithm of the loss on outsiders less that on members; losses below 1e-6 count as 1e-6."""
    logs, member = kept.losses.clamp_min(1e-6).log(), kept.member.unsqueeze(-3)
    inside, outside = ((logs * side).sum(-1) / side.sum(-1) for side in (member, ~member))
    return outside - inside


def lead_of_loss_gap(audits: Sequence[WidthAudit], attack: str) -> Float64[Tensor, " s"]:
    """How much better the loss gap orders an attack's advantages than the test accuracy does, for each split.

    Spearman's correlation of advantage and loss gap (validation less training), less that of advantage and accuracy,
    over all epochs of all `audits`, each of several splits; means over networks.
    """
    gap, accuracy, advantage = (
        torch.cat([part.mean(-1) for part in parts], -1)
        for parts in zip(
            *((one.validation_loss - one.train_loss, -one.error, one.attacks[attack].advantage) for one in audits),
            strict=True,
        )
    )
    pairs = zip(advantage, gap, accuracy, strict=True)
    return torch.tensor([rank_correlation(a, g) - rank_correlation(a, c) for a, g, c in pairs], dtype=torch.float64)


def stack_splits(audits: Sequence[WidthAudit]) -> WidthAudit:
    """Audits of several splits as one, with the splits as the first dimension of every tensor."""
    return map_tensors(lambda *parts: torch.stack(parts), *audits)


def at_epochs(audit: WidthAudit, epochs: Sequence[float]) -> WidthAudit:
    """The audit of one split at some of its recorded epochs."""
    recorded = audit.epochs.tolist()
    places = [recorded.index(epoch) for epoch in epochs]
    return map_tensors(lambda part: part[places], audit._replace(kept=None))._replace(kept=audit.kept)


def select_epochs(audits: WidthAudit, places: Sequence[int]) -> WidthAudit:
    """Keep one epoch of each split, given by its position; the dimension of epochs disappears."""
    index = torch.arange(len(places)), torch.tensor(places)
    return map_tensors(lambda part: part[index], audits._replace(kept=None))
