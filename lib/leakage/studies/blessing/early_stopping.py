"""Networks of one width watched while they train: every model's losses on the whole pool, epoch by epoch.

The models are in complementary pairs on a pool of points; the points left over validate. Split number and seed fix pool
and pairs, so all widths see the same ones and can be compared model by model. Nothing here attacks.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data.membership_splits import complementary_pairs
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.trainers import ensembles
from leakage.trainers.ensemble_checkpoints import Checkpoint
from leakage.trainers.ensembles import Recipe, Recorder


def trajectories(
    width: int,
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    recipe: Recipe,
    epochs: Sequence[int],
    seed: int,
    split: int = 0,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train `models` networks of one hidden layer on halves of a pool and record what an attacker may look at.

    Args:
        width: neurons of the hidden layer.
        features: all points, in the precision that the networks are trained in.
        labels: classes from 0.
        pool: how many points members and outsiders come from; the rest validates.
        models: in complementary pairs.
        recipe: of the training.
        epochs: when to record.
        seed: of all randomness.
        split: number of the repetition: another one has another pool, other pairs and other networks.
        checkpoint: lets a long training resume.

    Returns:
        `losses` on the pool (epochs, models, pool), `error` on the validation points (epochs, models),
        `validation_loss` (epochs, models), `member` (models, pool), `partner` (models) and `epochs`.

    Raises:
        ValueError: as `ensembles.train` and `complementary_pairs`, or if no point is left to validate.
    """
    if pool >= len(labels):
        raise ValueError(f"`pool` must leave points to validate, got {pool} of {len(labels)}.")
    device = features.device
    draws = stream(seed, f"pool/{split}", device)
    order = torch.rand(len(labels), generator=draws, device=device).argsort()
    pairs = complementary_pairs(pool, models, generator=draws)
    draws = stream(seed, f"networks/{split}/{width}", device)
    sizes = (features.shape[1], width, int(labels.max()) + 1)
    start = mlp.initial((models,), sizes, generator=draws, dtype=features.dtype)

    points, classes = features[order], labels[order]

    def measure(networks: Mlp) -> dict[str, Tensor]:
        losses, mistakes = ensembles.outcomes(networks, points, classes)
        rest = losses[:, pool:], mistakes[:, pool:].double()
        return {"losses": losses[:, :pool], "validation_loss": rest[0].mean(-1), "error": rest[1].mean(-1)}

    watch = Recorder(measure)
    ensembles.train(
        start,
        features,
        labels,
        order[pairs.rows],
        recipe,
        generator=draws,
        observe=watch,
        epochs_observed=epochs,
        checkpoint=checkpoint,
    )
    return watch.stacked() | {"member": pairs.member, "partner": pairs.partner}
