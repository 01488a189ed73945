"""How much of epsilon one training shows: beside the truth, where noise is Gaussian, and beside an accountant.

Every point is put in by the throw of a fair coin, as the bound of one run asks. Guesses are fixed before.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakage import arguments
from leakage.data.points import Labelled
from leakage.metrics.epsilon_bounds import one_run
from leakage.models import mlp
from leakage.runtime import stream
from leakage.trainers import dp_sgd
from leakage.trainers.criteria import Examples
from leakage.trainers.dp_sgd import PrivateRecipe

GUESSES = tuple((each, each) for each in (25, 50, 100, 200, 400))
"""How many members and outsiders are guessed; the error is shared among the five."""
DELTA = 1e-5


class PrivateRun(NamedTuple):
    """One training at each noise.

    Attributes:
        bounds: of ε from below, in nats.
        fit: share of members classified rightly.
    """

    bounds: Float64[Tensor, " noises"]
    fit: Float64[Tensor, " noises"]


def noisy_coins(run: int, *, noise: float, points: int, seed: int) -> float:
    """The bound of ε from coins that are told with Gaussian noise each, the score being the noisy coin itself.

    Raises:
        ValueError: if the noise is not positive, or there are fewer points than guesses.
    """
    arguments.number("noise", noise, above=0)
    draws = stream(seed, f"noisy coins/{noise!r}/{run}")
    member = torch.rand(points, generator=draws, dtype=torch.float64) < 0.5
    told = member + noise * torch.randn(points, generator=draws, dtype=torch.float64)
    return one_run(told, member, guesses=GUESSES, delta=DELTA).epsilon


def private_run(
    run: int,
    *,
    data: Labelled,
    points: int,
    noises: tuple[float, ...],
    steps: int,
    sampling_rate: float,
    learning_rate: float,
    hidden: int = 64,
    seed: int,
) -> PrivateRun:
    """Train one network by DP-SGD at each noise, on the points that a coin picks, and guess by the loss.

    The noises share initial weights, batches and draws. A step is as long as the expected batch of half of the points
    wants, whatever number the coins pick: the training shall not tell it.

    Args:
        run: names the points, the coins and the training.
        data: of which points are taken.
        points: how many throw a coin.
        noises: the noise multipliers σ, 0 for none.
        steps: T.
        sampling_rate: with which each point enters a batch.
        learning_rate: η.
        hidden: neurons of the one hidden layer.
        seed: of the run of the book.

    Raises:
        ValueError: as `dp_sgd.train` and `one_run`.
    """
    arguments.count("points", points, least=2, most=len(data))
    device = data.features.device
    draws = stream(seed, f"private run/{run}", device)
    chosen = torch.randperm(len(data), generator=draws, device=device)[:points]
    features, labels = data.features[chosen].float(), data.labels[chosen]
    member = torch.rand(points, dtype=torch.float32, generator=draws, device=device) < 0.5
    rows = member.nonzero().T
    recipe = PrivateRecipe(steps, sampling_rate * rows.shape[1])
    scale = learning_rate * rows.shape[1] / (points / 2)  # so that each example's step does not depend on their number
    start = mlp.initial((1,), (features.shape[1], hidden, data.classes), generator=draws, dtype=torch.float32)
    trained = dp_sgd.train(
        dp_sgd.for_settings(start, len(noises)),
        Examples((features,), labels),
        rows,
        recipe,
        noise=torch.tensor(noises, device=device),
        learning_rate=torch.full((len(noises),), scale, device=device),
        generator=draws,
    )
    logits = trained(features)[0].double()
    losses = torch.stack([cross_entropy(of_noise, labels, reduction="none") for of_noise in logits])
    bounds = [one_run(-of_noise, member, guesses=GUESSES, delta=DELTA).epsilon for of_noise in losses]
    right = (logits.argmax(-1) == labels)[:, member].double().mean(-1)
    return PrivateRun(torch.tensor(bounds, dtype=torch.float64), right)
