r"""What DP-SGD costs and what it buys: test error against membership advantage, with the guarantee beside them.

`private_audit` is the experiment of Tan et al. (2023), Figure 12, for one width: train, attack, account. A *front*
holds the settings that no other setting beats on both axes. Nothing here chooses a setting by looking at one network
and judges it on the same: `front_gain` compares fronts over pools.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import arguments
from leakage.metrics.intervals import Estimate
from leakage.runtime import stream
from leakage.studies.blessing import halves, trajectories
from leakage.studies.blessing.pools import over_pools
from leakage.studies.blessing.width_audit import Rates, audit
from leakage.trainers import dp_sgd, privacy_accounting
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.perceptrons import Perceptrons


class Guarantees(NamedTuple):
    r"""What differential privacy promises of each setting.

    Attributes:
        epsilon: at $\delta = 1/m$ for m rows.
        bound: the largest advantage of any attacker.
    """

    epsilon: Float64[Tensor, " settings"]
    bound: Float64[Tensor, " settings"]


class PrivateAudit(NamedTuple):
    """Networks trained by DP-SGD under every setting, and what attacks achieve against them.

    Attributes:
        noise: the noise multiplier σ of each setting.
        learning_rate: η.
        error: share of the validation points misclassified.
        attacks: what each attack achieves, by name.
        guarantees: of each setting.
    """

    noise: Float[Tensor, " settings"]
    learning_rate: Float[Tensor, " settings"]
    error: Float64[Tensor, "settings models"]
    attacks: dict[str, Rates]
    guarantees: Guarantees


def private_audit(
    point: tuple[int, int],
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    noise: Sequence[float],
    learning_rates: Sequence[float],
    recipe: PrivateRecipe,
    seed: int,
    attacks: Sequence[str] = ("global",),
    fprs: Sequence[float] = (),
) -> PrivateAudit:
    r"""Train the networks of one (width, split) by DP-SGD under every setting and attack them.

    All settings of a model share its initial weights, batches and noise (`trainers.dp_sgd`), and all widths see the
    same pool and pairs.

    Args:
        point: the width, and the number of the repetition.
        features: see `halves.drawn`, as for the next three.
        labels: classes.
        pool: points that may be members.
        models: networks of each setting.
        noise: the noise multipliers σ.
        learning_rates: η; a setting is one of them with one σ, and the σ of one η are neighbours.
        recipe: steps, expected batch, clipping bound.
        seed: of all randomness.
        attacks: see `audit`.
        fprs: see `audit`.

    Raises:
        ValueError: as `halves.drawn`, `dp_sgd.train`, `audit` and `privacy_accounting.epsilon`.
    """
    width, split = point
    own = halves.drawn(features, labels, pool=pool, models=models, split=split, seed=seed)
    settings = list(itertools.product(learning_rates, noise))
    rate, spread = features.new_tensor(settings).reshape(-1, 2).unbind(-1)
    draws = stream(seed, f"private networks/{split}/{width}", features.device)
    trained = dp_sgd.train(
        dp_sgd.for_settings(own.initial(width, generator=draws), len(settings)),
        own.pool,
        own.pairs.rows,
        recipe,
        noise=spread,
        learning_rate=rate,
        generator=draws,
    )
    seen = [
        trajectories.look(Perceptrons.of(trained[:, setting]), own.pool, own.validation)
        for setting in range(len(settings))
    ]
    losses = torch.stack([one.losses for one in seen])
    return PrivateAudit(
        spread,
        rate,
        torch.stack([one.error for one in seen]),
        audit(losses, own.pairs.member, own.pairs.partner, attacks=attacks, fprs=fprs),
        guarantees(spread, recipe=recipe, rows=pool // 2),
    )


def guarantees(noise: Float[Tensor, " settings"], *, recipe: PrivateRecipe, rows: int) -> Guarantees:
    r"""Epsilon at $\delta = 1/m$ and the largest advantage of any attacker, of each noise multiplier.

    Both are of one training on m rows against the same with one row more (`trainers.privacy_accounting`). Where models
    are trained on halves of fixed size, a point left out makes room for another one, which at most doubles the bound.

    Raises:
        ValueError: as `privacy_accounting.epsilon`.
    """
    rate = recipe.sampling_rate(rows)
    each, place = noise.unique(return_inverse=True)
    spent = [
        (
            privacy_accounting.epsilon(sampling_rate=rate, noise_multiplier=sigma, steps=recipe.steps, delta=1 / rows),
            privacy_accounting.advantage_bound(sampling_rate=rate, noise_multiplier=sigma, steps=recipe.steps),
        )
        for sigma in each.tolist()
    ]
    return Guarantees(*torch.tensor(spent, dtype=torch.float64, device=noise.device)[place].unbind(-1))


def pareto_front(
    error: Float[Tensor, "settings ..."], advantage: Float[Tensor, "settings ..."]
) -> Bool[Tensor, "settings ..."]:
    """The settings that no other setting beats on both axes; a tie on one axis is no defeat.

    Source: Tan et al. (2023), Appendix G.3; they take the means over the networks of a setting.

    Raises:
        ValueError: if shapes differ or a number is not finite.
    """
    _check(error, advantage)
    return ~((error < error.unsqueeze(1)) & (advantage < advantage.unsqueeze(1))).any(1)


def least_error(
    error: Float[Tensor, "settings ..."], advantage: Float[Tensor, "settings ..."], *, at_most: float
) -> Float[Tensor, "..."]:
    r"""The least error that can be had for an advantage of at most this; NaN where no setting's is as small.

    A setting may be taken alone, or one of two by lot: with probability w the second, whose advantage is too large,

    $$ e = (1 - w)\, e_i + w\, e_j, \qquad (1 - w)\, A_i + w A_j = A. $$

    Both axes are expectations over the lot, since the attacker sees which network was released. So this is the lower
    convex hull of the front: every point of it can be attained, between settings too.

    Raises:
        ValueError: if shapes differ or a number is not finite.
    """
    _check(error, advantage)
    low, high = advantage.unsqueeze(1), advantage.unsqueeze(0)
    allowed, beyond = low <= at_most, high > at_most
    share = torch.where(allowed & beyond, (at_most - low) / (high - low), 0.0)
    drawn = error.unsqueeze(1) + share * (error.unsqueeze(0) - error.unsqueeze(1))
    least = torch.where(allowed, drawn, math.inf).flatten(0, 1).amin(0)
    return torch.where(least.isinf(), math.nan, least)


def front_gain(
    first: tuple[Float[Tensor, "settings pools models"], Float[Tensor, "settings pools models"]],
    second: tuple[Float[Tensor, "others pools models"], Float[Tensor, "others pools models"]],
    *,
    at_most: float,
) -> Estimate:
    """How much lower the least error of the second front is than that of the first, at no more than this advantage.

    Each pool has its own two fronts, of the means over its models, so nothing is chosen on all pools and then judged on
    the same; the interval is over the pools' differences (`over_pools`).

    Args:
        first: error and advantage of every setting of, say, the narrow networks.
        second: the same of the wide ones, trained on the same pools; its settings may be others.
        at_most: the advantage allowed.

    Returns:
        The gain, positive if the second is better; anything if some pool attains the advantage under no setting.

    Raises:
        ValueError: if shapes differ, there are fewer than two pools, or a number is not finite.
    """
    if first[0].ndim != 3 or first[0].shape[1:] != second[0].shape[1:]:
        raise ValueError(
            f"`first` and `second` must be (settings, pools, models) over the same pools, got "
            f"{tuple(first[0].shape)} and {tuple(second[0].shape)}."
        )
    one, other = (
        least_error(error.double().mean(-1), advantage.double().mean(-1), at_most=at_most)
        for error, advantage in (first, second)
    )
    return over_pools(one - other)


def _check(error: Tensor, advantage: Tensor) -> None:
    arguments.real("error", error)
    arguments.real("advantage", advantage)
    if error.shape != advantage.shape or not error.numel():
        raise ValueError(
            f"`error` and `advantage` must be of the same settings, got {tuple(error.shape)}, {tuple(advantage.shape)}."
        )
