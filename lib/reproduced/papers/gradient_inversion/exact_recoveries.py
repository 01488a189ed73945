"""Rounds of the exact recovery, which is not in the paper: its certificates, lengths it does not know, another loss.

These functions see the secret; the attack gets the observation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.inversion import nonlinear_least_squares
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.observation import Observation
from leakage.inversion.reconstruction import match_error
from leakage.inversion.recover import recover
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import server_weights
from reproduced.papers.gradient_inversion.games import Attack, Game, draw_round, play_round
from reproduced.runtime import Run


class Recoveries(NamedTuple):
    """For each round the error of the inputs, and whether the attack certified its answer."""

    errors: Float[Tensor, " rounds"]
    certified: Bool[Tensor, " rounds"]


def recover_rounds(game: Game, attack: Attack, *, rounds: int, run: Run) -> Recoveries:
    """The errors and certificates of `rounds` rounds."""
    errors, certified = [], []
    for index in range(rounds):
        played = draw_round(game, seed=run.seed, index=index)
        draws = run.stream(f"exact/{game.activation}/{game.batch}/{index}")
        result = attack(played.observation, batch=game.batch, generator=draws)
        errors.append(match_error(result.inputs, played.inputs))
        certified.append(result.misfit < nonlinear_least_squares.CERTIFICATE_THRESHOLD)
    return Recoveries(torch.tensor(errors, dtype=DTYPE), torch.tensor(certified))


def unequal_length_errors(game: Game, *, lengths: Sequence[float], rounds: int, run: Run) -> Float[Tensor, " rounds"]:
    """The error of a batch whose inputs have these lengths, which the attack does not know."""
    errors = []
    for index in range(rounds):
        unit = draw_round(game, seed=run.seed, index=index).inputs
        stretched = unit * unit.new_tensor(lengths)[:, None]
        played = play_round(game, stretched, seed=run.seed, index=index)
        result = recover(played.observation, batch=game.batch, norm=None, generator=run.stream(f"uneven/{index}"))
        errors.append(match_error(result.inputs, stretched))
    return torch.tensor(errors, dtype=DTYPE)


def logistic_errors(game: Game, *, rounds: int, run: Run) -> Float[Tensor, " rounds"]:
    """The error of a batch with labels 1 and 0 in turn, from a gradient of the logistic loss."""
    errors, labels = [], torch.tensor([1.0, 0.0], dtype=DTYPE).repeat(game.batch)[: game.batch]
    for index in range(rounds):
        inputs = draw_round(game, seed=run.seed, index=index).inputs
        draws = run.stream(f"logistic/{index}")
        weights = server_weights.draw_weights(game.weights, m=game.width, d=game.dimension, generator=draws)
        module = Client(weights, activation=game.activation, bias=game.bias)
        gradient = batch_gradient(module, inputs, labels, loss="logistic")
        seen = Observation.from_module(module, gradient, batch=game.batch, loss="logistic")
        draws = run.stream(f"logistic attack/{index}")
        result = recover(seen, batch=game.batch, norm=1.0, labels=(0.0, 1.0), generator=draws)
        errors.append(match_error(result.inputs, inputs))
    return torch.tensor(errors, dtype=DTYPE)
