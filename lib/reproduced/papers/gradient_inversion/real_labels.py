r"""Labels that are real numbers (Remark 1 of the paper): how far off they are, and what unequal residuals cost.

The label of an input is $\hat y = f(\hat x) - \hat r$. These functions see the secret.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import draws
from leakage.inversion.hermite import moment
from leakage.inversion.reconstruction import match_error, match_inputs
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.games import Attack, Game, attack_device, draw_round, match_labels, play_round
from reproduced.runtime import Run, move


class LabelErrors(NamedTuple):
    """Root mean square errors of the labels and of the inputs of each round."""

    labels: Float[Tensor, " rounds"]
    inputs: Float[Tensor, " rounds"]


def label_errors(game: Game, attack: Attack, *, rounds: int, run: Run) -> LabelErrors:
    """The errors where labels are uniform in [-1, 1); the label of an input is that of the nearest line found."""
    found, device = [], attack_device(game, run)
    for index in range(rounds):
        inputs = draw_round(game, seed=run.seed, index=index).inputs
        labels = 2 * draws.uniform((game.batch,), generator=run.stream(f"real labels/{game.batch}/{index}")) - 1
        played = move(play_round(game, inputs, labels, seed=run.seed, index=index), device)
        guess = attack(played.observation, batch=game.batch, generator=run.stream(f"attack/{index}"))
        off = match_labels(guess, played.inputs) - played.labels
        found.append((float(off.square().mean().sqrt()), match_error(guess.inputs, played.inputs)))
    return LabelErrors(*torch.tensor(found, dtype=DTYPE).T)


def unequal_residual_errors(
    game: Game, attack: Attack, *, residuals: Sequence[float], rounds: int, run: Run
) -> Float[Tensor, "rounds B"]:
    """The error of each input of a batch whose labels give it these residuals in a network of infinite width."""
    found, device = [], attack_device(game, run)
    for index in range(rounds):
        played = draw_round(game, seed=run.seed, index=index)
        mean = moment(played.observation.activation, torch.ones((), dtype=DTYPE), order=0)
        labels = mean + game.bias - played.inputs.new_tensor(residuals)
        seen = move(play_round(game, played.inputs, labels, seed=run.seed, index=index).observation, device)
        guess = attack(seen, batch=game.batch, generator=run.stream(f"attack/{index}")).inputs.cpu()
        found.append((match_inputs(guess, played.inputs) - played.inputs).norm(dim=-1))
    return torch.stack(found)
