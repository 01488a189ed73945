r"""Networks trained by DP-SGD to be attacked: every learning rate with every noise, on halves of a pool.

One call is one point (width, split) of an experiment's grid, so that `sweeps.sweep` can keep it; within a point all
models and settings are one tensor program. Pool and pairs depend on seed and split alone: all widths see the same ones.
Nothing here attacks, and nothing here knows what ε is.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data.membership_splits import complementary_pairs
from leakage.models import mlp
from leakage.runtime import stream
from leakage.trainers import dp_sgd, ensembles
from leakage.trainers.dp_sgd import Recipe


def private_targets(
    point: tuple[int, int],
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    noise: Sequence[float],
    learning_rates: Sequence[float],
    recipe: Recipe,
    seed: int,
) -> dict[str, Tensor]:
    """Train networks of one hidden layer by DP-SGD, as many as there are settings for each model, and ask them.

    All settings of a model share its initial weights, batches and noise (`trainers.dp_sgd`).

    Args:
        point: the width, and the number of the repetition: another one has another pool, other pairs, other networks.
        features: all points, in the precision that the networks are trained in.
        labels: classes from 0.
        pool: how many points members and outsiders come from; the rest validates.
        models: in complementary pairs.
        noise: the noise multipliers σ.
        learning_rates: η; a setting is one of them with one σ, and the σ of one η are neighbours.
        recipe: steps, expected batch, clipping bound.
        seed: of all randomness.

    Returns:
        `losses` on the pool (settings, models, pool), `error` on the validation points (settings, models), `member`
        (models, pool), `partner` (models), `noise` and `learning_rate` (settings).

    Raises:
        ValueError: as `dp_sgd.train` and `complementary_pairs`, or if no point is left to validate.
    """
    width, split = point
    if pool >= len(labels):
        raise ValueError(f"`pool` must leave points to validate, got {pool} of {len(labels)}.")
    device = features.device
    draws = stream(seed, f"pool/{split}", device)
    order = torch.rand(len(labels), generator=draws, device=device).argsort()
    pairs = complementary_pairs(pool, models, generator=draws)
    settings = torch.tensor(list(itertools.product(learning_rates, noise)), dtype=features.dtype, device=device)
    rate, spread = settings.reshape(-1, 2).unbind(-1)
    draws = stream(seed, f"private networks/{split}/{width}", device)
    sizes = (features.shape[1], width, int(labels.max()) + 1)
    start = mlp.initial((models,), sizes, generator=draws, dtype=features.dtype)
    trained = dp_sgd.train(
        dp_sgd.for_settings(start, len(settings)),
        features,
        labels,
        order[pairs.rows],
        recipe,
        noise=spread,
        learning_rate=rate,
        generator=draws,
    )
    each = [dp_sgd.at_setting(trained, setting) for setting in range(len(settings))]
    inside, outside = order[:pool], order[pool:]
    wrong = [ensembles.mistakes(networks, features[outside], labels[outside]).double().mean(-1) for networks in each]
    return {
        "losses": torch.stack([ensembles.losses(networks, features[inside], labels[inside]) for networks in each]),
        "error": torch.stack(wrong),
        "member": pairs.member,
        "partner": pairs.partner,
        "noise": spread,
        "learning_rate": rate,
    }
