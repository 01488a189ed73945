"""Lower bounds of epsilon from one run, for noisy coins, whose epsilon is known, and for networks trained by DP-SGD.

A fair coin decides for every point whether it is a member, as the bound from one run requires. The numbers of guesses
are fixed in advance.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakage.data.tabular import LabelledData
from leakage.metrics.epsilon_bounds import one_run
from leakage.models import mlp
from leakage.trainers import dp_sgd
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.ensembles import Examples
from reproduced.runtime import Run, move, stream

GUESSES = tuple((each, each) for each in (25, 50, 100, 200, 400))
"""Numbers of guessed members and outsiders; the five bounds share the error probability."""
DELTA = 1e-5


class PrivateRun(NamedTuple):
    """One training at each noise: lower bounds of ε in nats, and shares of the members classified correctly."""

    bounds: Float64[Tensor, " noises"]
    member_accuracy: Float64[Tensor, " noises"]


def bound_noisy_coins(repetition: int, *, noise: float, points: int, seed: int) -> float:
    """The lower bound of ε when each coin is released with Gaussian noise and the noisy coin is the score."""
    draws = stream(seed, f"noisy coins/{noise!r}/{repetition}")
    member = torch.rand(points, generator=draws, dtype=torch.float64) < 0.5
    told = member + noise * torch.randn(points, generator=draws, dtype=torch.float64)
    return one_run(told, member, guesses=GUESSES, delta=DELTA).epsilon


def bound_private_run(
    repetition: int,
    *,
    data: LabelledData,
    points: int,
    noises: tuple[float, ...],
    steps: int,
    sampling_rate: float,
    learning_rate: float,
    run: Run,
) -> PrivateRun:
    """Bounds and fits of one network trained by DP-SGD at each noise multiplier; the score is minus the loss.

    The repetition has points, coins and a training of its own. The noises share initial weights, batches and draws.
    The length of a step is that for the expected number of members, half of the points: it does not reveal how many
    points the coins made members.
    """
    draws = run.stream(f"private run/{repetition}")
    chosen = torch.randperm(len(data), generator=draws)[:points]
    features, labels = data.features[chosen].float(), data.labels[chosen]
    member = torch.rand(points, dtype=torch.float32, generator=draws) < 0.5
    rows = member.nonzero().T
    recipe = PrivateRecipe(steps, sampling_rate * rows.shape[1])
    scale = learning_rate * rows.shape[1] / (points / 2)  # so that each example's step does not depend on their number
    start = mlp.initial((1,), (features.shape[1], 64, data.classes), generator=draws, dtype=torch.float32)
    begun = dp_sgd.repeat_for_settings(start, len(noises))
    size = recipe.batch * sum(part.numel() for part in (*begun.weights, *begun.biases))
    given = begun, Examples((features,), labels), rows, torch.tensor(noises), torch.full((len(noises),), scale)
    begun, examples, rows, noise, rate = move(given, run.device_for("private networks", size))
    trained = dp_sgd.train(begun, examples, rows, recipe, noise=noise, learning_rate=rate, generator=draws)
    logits = move(trained, "cpu")(features)[0].double()
    losses = torch.stack([cross_entropy(of_noise, labels, reduction="none") for of_noise in logits])
    bounds = [one_run(-of_noise, member, guesses=GUESSES, delta=DELTA).epsilon for of_noise in losses]
    right = (logits.argmax(-1) == labels)[:, member].double().mean(-1)
    return PrivateRun(torch.tensor(bounds, dtype=torch.float64), right)
