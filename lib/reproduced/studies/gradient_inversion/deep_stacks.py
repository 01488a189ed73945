r"""Batches below a stack of layers that lose no information, and the error of their recovery, over draws of both.

For chapters and tests alone: these functions see the secret.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage.attacks.gradient_inversion import deep, design, recover, tensor
from leakage.metrics.reconstruction import match_error
from leakage.models.clients import DeepStack
from leakage.runtime import DTYPE, stream
from leakage.trainers.federated import batch_gradient
from reproduced.studies.gradient_inversion.games import INPUTS, Game


class StackErrors(NamedTuple):
    """The error of the inputs in each draw; NaN where no inputs give the features that were found.

    Attributes:
        recovered: by exact recovery of the features and inversion of the layers.
        by_moments: of the features, by the paper's tensor from the hidden gradient, up to signs; NaN for a stack that
            changes its input.
        searched: as `recovered`, from the directions of the features and a search for their length; NaN where the
            activation is not 0 at 0, or the stack does not change its input.
    """

    recovered: Float[Tensor, " rounds"]
    by_moments: Float[Tensor, " rounds"]
    searched: Float[Tensor, " rounds"]


def errors(
    game: Game, *, depth: int, kind: str, rounds: int, seed: int, device: torch.device | str = "cpu"
) -> StackErrors:
    """The errors in `rounds` rounds, with the network of the game on top of `depth - 1` layers.

    Every depth sees the same batches and weights.
    """
    return StackErrors(
        *torch.tensor([_round(game, depth, kind, index, seed, device) for index in range(rounds)], dtype=DTYPE).T
    )


def _round(
    game: Game, depth: int, kind: str, index: int, seed: int, device: torch.device | str
) -> tuple[float, float, float]:
    name = f"stack/{game.width}/{game.dimension}/{index}"
    weights = design.draw(
        game.weights, m=game.width, d=game.dimension, generator=stream(seed, f"{name}/server", device)
    )
    inputs = INPUTS[game.inputs](game, stream(seed, f"{name}/client", device))
    labels = inputs.new_tensor([1.0, -1.0]).repeat(game.batch)[: game.batch]
    stack = DeepStack(weights, activation=game.activation, depth=depth, kind=kind, bias=game.bias)
    gradient = batch_gradient(stack, inputs, labels, loss="half_sum")
    seen = deep.effective_observation(stack, gradient, batch=game.batch, loss="half_sum")
    keeps = seen.activation.degree == 1 and kind == "paired"
    draws = stream(seed, f"{name}/attack/{game.activation}/{kind}/{depth}", device)
    found = recover.recover(seen, batch=game.batch, norm=1.0 if keeps else None, generator=draws).inputs
    back = deep.inputs_from(found, seen.activation, depth=depth, kind=kind)
    by_moments = searched = torch.nan
    if keeps:
        draws = stream(seed, f"{name}/moments", device)
        rough = tensor.reconstruct(seen, batch=game.batch, source="hidden", centre=False, generator=draws)
        by_moments = match_error(rough.inputs, inputs, signs=False)
    elif not bool(seen.activation(torch.zeros(1)).any()):
        along = deep.inputs_along(normalize(found, dim=-1), seen.activation, depth=depth, kind=kind)
        searched = match_error(along, inputs)
    return match_error(back, inputs), by_moments, searched
