r"""Networks trained by DP-SGD: test error against membership advantage, with the privacy guarantees.

`audit_private_training` is the experiment of Tan et al. (2023), Figure 12, for one width: train, attack, account. A
*front* holds the settings that no other setting beats on both axes; `error_gain_at_advantage` compares fronts over
pools.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage.metrics.estimates import Estimate, mean_of_groups
from leakage.trainers import dp_sgd, privacy_accounting
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.ensembles import MlpEnsemble
from reproduced.papers.blessing.early_stopping import Rates, audit_losses, draw_halves, measure_losses
from reproduced.runtime import Run, move


class Guarantees(NamedTuple):
    r"""The guarantees of each setting: ε at $\delta = 1/m$ for m rows, and the largest advantage of any attack."""

    epsilon: Float64[Tensor, " settings"]
    bound: Float64[Tensor, " settings"]


class PrivateAudit(NamedTuple):
    """Networks trained by DP-SGD under every setting: validation errors, the rates of each attack, guarantees."""

    noise: Float[Tensor, " settings"]
    learning_rate: Float[Tensor, " settings"]
    error: Float64[Tensor, "settings models"]
    attacks: dict[str, Rates]
    guarantees: Guarantees


def audit_private_training(
    width_and_split: tuple[int, int],
    *,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    pool: int,
    models: int,
    noise: Sequence[float],
    learning_rates: Sequence[float],
    recipe: PrivateRecipe,
    run: Run,
) -> PrivateAudit:
    r"""Train the networks of one (width, split) by DP-SGD under every setting and attack them.

    A setting is a learning rate η with a noise multiplier σ; the settings of one η are adjacent. All settings of a
    model share its initial weights, batches and noise, and all widths the same pool and pairs.
    """
    width, split = width_and_split
    own = draw_halves(features, labels, pool=pool, models=models, split=split, run=run)
    settings = list(itertools.product(learning_rates, noise))
    rate, spread = features.new_tensor(settings).reshape(-1, 2).unbind(-1)
    draws = run.stream(f"private networks/{split}/{width}")
    networks = dp_sgd.repeat_for_settings(own.initial(width, generator=draws), len(settings))
    device = run.device_for("private networks", recipe.batch * sum(part.numel() for part in networks.weights))
    own, networks = move((own, networks), device)
    trained = dp_sgd.train(
        networks,
        own.pool,
        own.pairs.rows,
        recipe,
        noise=spread.to(device),
        learning_rate=rate.to(device),
        generator=draws,
    )
    of_settings = (MlpEnsemble.from_mlp(trained[:, setting]) for setting in range(len(settings)))
    seen = [measure_losses(each, own.pool, own.validation) for each in of_settings]
    losses = torch.stack([one.losses for one in seen])
    audit = PrivateAudit(
        spread,
        rate,
        torch.stack([one.error for one in seen]),
        audit_losses(losses, own.pairs.member, own.pairs.partner, attacks=("global",), fprs=()),
        guarantees(spread, recipe=recipe, rows=pool // 2),
    )
    return move(audit, "cpu")


def guarantees(noise: Float[Tensor, " settings"], *, recipe: PrivateRecipe, rows: int) -> Guarantees:
    r"""ε at $\delta = 1/m$ and the largest advantage of any attack, for each noise multiplier.

    Both compare one training on m rows with the same on one more row (`trainers.privacy_accounting`). Here models are
    trained on halves of fixed size, so another point replaces one left out, which at most doubles the bound.
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
    return Guarantees(*torch.tensor(spent, dtype=torch.float64)[place].unbind(-1))


def pareto_front(
    error: Float[Tensor, "settings ..."], advantage: Float[Tensor, "settings ..."]
) -> Bool[Tensor, "settings ..."]:
    """The settings that no other setting beats on both axes; a tie on one axis is no defeat.

    Source: Tan et al. (2023), Appendix G.3; they take the means over the networks of a setting.
    """
    return ~((error < error.unsqueeze(1)) & (advantage < advantage.unsqueeze(1))).any(1)


def least_error(
    error: Float[Tensor, "settings ..."], advantage: Float[Tensor, "settings ..."], *, at_most: float
) -> Float[Tensor, "..."]:
    r"""The least error with an advantage of at most A = `at_most`; NaN where the advantage of every setting is larger.

    It is that of one setting, or of a random choice between two: with probability w the second, whose advantage is too
    large,

    $$ e = (1 - w)\, e_i + w\, e_j, \qquad (1 - w)\, A_i + w A_j = A. $$

    Both axes are expectations over the choice, since the attacker sees which network was released. So this is the lower
    convex hull of the front, every point of which can be attained.
    """
    low, high = advantage.unsqueeze(1), advantage.unsqueeze(0)
    allowed, beyond = low <= at_most, high > at_most
    share = torch.where(allowed & beyond, (at_most - low) / (high - low), 0.0)
    drawn = error.unsqueeze(1) + share * (error.unsqueeze(0) - error.unsqueeze(1))
    least = torch.where(allowed, drawn, math.inf).flatten(0, 1).amin(0)
    return torch.where(least.isinf(), math.nan, least)


def error_gain_at_advantage(
    first: tuple[Float[Tensor, "settings pools models"], Float[Tensor, "settings pools models"]],
    second: tuple[Float[Tensor, "others pools models"], Float[Tensor, "others pools models"]],
    *,
    at_most: float,
) -> Estimate:
    """The least error of the first front minus that of the second, at an advantage of at most `at_most`.

    Each front is the errors and advantages of some settings, of networks trained on the same pools. Each pool has its
    own two fronts, of the means over its models, so no setting is chosen on all pools and judged on the same.
    """
    one, other = (
        least_error(error.double().mean(-1), advantage.double().mean(-1), at_most=at_most)
        for error, advantage in (first, second)
    )
    return mean_of_groups(one - other)
