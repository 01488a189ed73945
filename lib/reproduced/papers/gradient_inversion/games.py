r"""Rounds of the game between a client and a designing server, for measuring attacks.

The server draws a network, the client computes one gradient of it on a private batch by automatic differentiation, and
noise may be added on the way. The attack gets the `Observation`; its result is compared with the batch here, and
nowhere else. The network and the batch have random streams of their own: with a common one the first weights would be
the inputs themselves. A round draws its weights, batch and noise anew, so that intervals are over rounds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.hermite import moment
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.reconstruction import match_error, match_inputs
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.precision import DTYPE
from reproduced import statistics
from reproduced.papers.gradient_inversion import server_weights
from reproduced.runtime import Run, move, stream

Attack = Callable[..., Reconstruction]


@dataclass(frozen=True)
class Game:
    """The rules of a round."""

    dimension: int
    width: int
    batch: int = 2  # labels are 1 and -1 in turn
    activation: str = "polynomial"
    bias: float = 30.0  # of the output, fixed by the server (Wang et al., Remark 1; 30 in their experiments)
    inputs: str = "axes"  # law of the batch, a name in `INPUTS`
    overlap: float = 0.0  # cosine of the angle between neighbours, for inputs that have one
    weights: str = "iid"  # how the server draws its weights, a name in `server_weights.KINDS`
    noise: float = 0.0  # z: each entry of the gradient gets N(0, z² s²) added
    # s is the standard deviation of the entries of the layer ("entry"), or the norm of the whole gradient ("norm"), as
    # after clipping to a fixed length.
    calibration: str = "entry"


@dataclass(frozen=True, eq=False)
class Round:
    """One round: the server's observation and the client's secret."""

    observation: Observation
    inputs: Float[Tensor, "B d"]
    labels: Float[Tensor, " B"]


def gradient_gap(first: Observation, second: Observation) -> float:
    """How far the first gradient is from the second: the relative distances of both layers, added."""
    gap = 0.0
    for one, other in ((first.hidden, second.hidden), (first.outputs, second.outputs)):
        assert one is not None
        assert other is not None
        gap += float((one - other).norm() / other.norm())
    return gap


def draw_round(game: Game, *, seed: int, index: int = 0) -> Round:
    """One round, determined by the rules, the seed and the index."""
    secret = stream(seed, f"client/{game.batch}/{game.dimension}/{game.inputs}/{index}")
    return play_round(game, INPUTS[game.inputs](game, secret), seed=seed, index=index)


def play_round(
    game: Game, inputs: Float[Tensor, "B d"], labels: Float[Tensor, " B"] | None = None, *, seed: int, index: int = 0
) -> Round:
    """One round with the batch given, such as images; labels are 1 and -1 in turn unless given."""
    draws = stream(seed, f"server/{game.width}/{game.dimension}/{game.weights}/{index}")
    weights = server_weights.draw_weights(game.weights, m=game.width, d=game.dimension, generator=draws)
    module = Client(weights, activation=game.activation, bias=game.bias)
    if labels is None:
        labels = alternating_signs(len(inputs))
    gradient = batch_gradient(module, inputs, labels, loss="half_sum")
    if game.noise:
        draws = stream(seed, f"noise/{game.width}/{index}")
        norm = torch.stack([value.norm() for value in gradient.values()]).norm()
        for name, value in gradient.items():
            size = value.std() if game.calibration == "entry" else norm
            gradient[name] = value + game.noise * size * gaussian(tuple(value.shape), generator=draws)
    # The activation and the bias, which `Observation.from_module` would find out, are known here.
    seen = Observation(weights, module.activation, game.bias, gradient["outputs"], gradient["hidden"])
    return Round(seen, inputs, labels)


def alternating_signs(count: int) -> Float[Tensor, " count"]:
    """1 and -1 in turn."""
    return torch.tensor([1.0, -1.0], dtype=DTYPE).repeat(count)[:count]


def attack_device(game: Game, run: Run) -> torch.device:
    """Where attacks on this game are computed; rounds are drawn on the CPU."""
    return run.device_for("gradient inversion", game.width * game.dimension)


def attack_errors(game: Game, attack: Attack, *, rounds: int, run: Run, signs: bool = True) -> Float[Tensor, " rounds"]:
    """`compare_attacks` for one attack."""
    return compare_attacks(game, {"": attack}, rounds=rounds, run=run, signs=signs)[""]


def compare_attacks(
    game: Game, attacks: Mapping[str, Attack], *, rounds: int, run: Run, signs: bool = True
) -> dict[str, Float[Tensor, " rounds"]]:
    """The root mean square error of each attack in each of `rounds` rounds (`inversion.reconstruction.match_error`).

    All attacks see the same rounds, and each draws as if it were alone. `signs` says whether an input and its negative
    differ.
    """
    found, device = {name: [] for name in attacks}, attack_device(game, run)
    for index in range(rounds):
        played = move(draw_round(game, seed=run.seed, index=index), device)
        for name, attack in attacks.items():
            draws = run.stream(f"attack/{index}")
            guess = attack(played.observation, batch=game.batch, generator=draws).inputs
            found[name].append(match_error(guess, played.inputs, signs=signs))
    return {name: torch.tensor(values, dtype=DTYPE) for name, values in found.items()}


def wrong_labels(game: Game, attack: Attack, *, rounds: int, run: Run) -> Bool[Tensor, " rounds"]:
    """Whether an input of the round has a label of the wrong sign; its label is that of the nearest line found."""
    found, device = [], attack_device(game, run)
    for index in range(rounds):
        played = move(draw_round(game, seed=run.seed, index=index), device)
        guess = attack(played.observation, batch=game.batch, generator=run.stream(f"attack/{index}"))
        found.append(bool((match_labels(guess, played.inputs) * played.labels <= 0).any()))
    return torch.tensor(found)


def match_labels(guess: Reconstruction, inputs: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
    """The label found for each true input, that of the nearest line."""
    assert guess.labels is not None
    return guess.labels[(inputs @ guess.inputs.mT).abs().argmax(-1)]


def direction_errors(
    game: Game, attack: Attack, *, lengths: Sequence[float], rounds: int, run: Run
) -> Float[Tensor, "rounds B"]:
    """How far the direction of each input is from the unit vector found for it, if inputs have these lengths."""
    found, device = [], attack_device(game, run)
    for index in range(rounds):
        directions = draw_round(game, seed=run.seed, index=index).inputs
        inputs = directions * directions.new_tensor(lengths).unsqueeze(-1)
        seen = move(play_round(game, inputs, seed=run.seed, index=index).observation, device)
        guess = attack(seen, batch=game.batch, generator=run.stream(f"attack/{index}")).inputs
        found.append((match_inputs(guess.cpu(), directions) - directions).norm(dim=-1))
    return torch.stack(found)


def geometric_mean_ratio(first: Float[Tensor, " n"], second: Float[Tensor, " n"]) -> Estimate:
    r"""The typical ratio of two positive numbers of a round, $\exp\overline{\log(a_i / b_i)}$, with its t interval."""
    return statistics.geometric_mean(first.double().log() - second.double().log())


def fitted_exponent(x: Sequence[float], values: Float[Tensor, "points n"]) -> Estimate:
    r"""The exponent p of $y \propto x^p$, fitted to each round by itself: the mean over rounds with its t interval."""
    places = torch.tensor([math.log(place) for place in x], dtype=DTYPE)
    rounds = values.double().log().mT
    return mean_interval(torch.tensor([statistics.slope(places, one) for one in rounds], dtype=DTYPE))


def weight_ratio(
    activation: Callable[[Tensor], Tensor], *, bias: float = 0.0, labels: Sequence[float] = (-1.0, 1.0)
) -> float:
    r"""$\kappa = \max|r^{*}| / \min|r^{*}|$, the largest ratio of two components' weights, for inputs of norm 1.

    Inputs of one norm have one $s_p$, so that only the residuals of a wide network, $r^{*} = s_0 + b - y$, differ. κ
    is 1 where $s_0 + b = 0$ and infinite where a label equals $s_0 + b$, which hides its input.

    Source: Wang et al., Claim 5.4 and Remark 1. The claim has κ = 1 for "odd activations like sigmoid or tanh", but the
    sigmoid is odd only about its mean 1/2.
    """
    mean = float(moment(activation, torch.ones((), dtype=DTYPE), order=0))
    residuals = [abs(mean + bias - label) for label in labels]
    rounding = 1e-12 * (abs(mean) + abs(bias) + max(abs(label) for label in labels))
    return max(residuals) / min(residuals) if min(residuals) > rounding else math.inf


def _chain(game: Game, generator: torch.Generator) -> Tensor:
    """Unit vectors, each with the given overlap with the one before."""
    rows = list(sphere(1, game.dimension, generator=generator))
    for _ in range(game.batch - 1):
        other = gaussian((game.dimension,), generator=generator)
        other = normalize(other - (other @ rows[-1]) * rows[-1], dim=0)
        rows.append(game.overlap * rows[-1] + math.sqrt(1 - game.overlap**2) * other)
    return torch.stack(rows)


INPUTS: Mapping[str, Callable[[Game, torch.Generator], Tensor]] = {
    "axes": lambda game, generator: torch.eye(game.batch, game.dimension, dtype=DTYPE),
    "sphere": lambda game, generator: sphere(game.batch, game.dimension, generator=generator),
    "chain": _chain,
}
"""Laws of the batch: the first unit vectors, as in the paper's Figure 2; uniform on the sphere; neighbours that
overlap."""
