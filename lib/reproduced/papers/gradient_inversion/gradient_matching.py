r"""Gradient matching, the usual attack: move a dummy batch until its gradient is the observed one.

$$ \min_{x, y} D\bigl(\nabla L(x, y), \nabla L\bigr), \qquad
   D = \frac{\lVert u - v \rVert^2}{\lVert v \rVert^2} \text{ or } 1 - \cos(u, v), $$

by L-BFGS from Gaussian dummies. The gradients of the two layers, whose sizes differ by the factor m, are divided by the
norms of the observed ones first, which the published attacks do not do. The server need not choose the weights for this
attack. It is the baseline here, and its success depends on the scale of the dummies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import threadpoolctl
import torch
from jaxtyping import Float
from scipy import optimize
from torch import Tensor

from leakage import draws
from leakage.inversion.observation import Observation, Reconstruction
from leakage.inversion.reconstruction import match_error
from reproduced.papers.gradient_inversion.games import Game, draw_round
from reproduced.runtime import Run

DISTANCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda ours, target: (ours - target).square().sum() / target.square().sum(),
    "cosine": lambda ours, target: 1 - torch.dot(ours, target) / (ours.norm() * target.norm()),
}
"""`squared` is that of Zhu et al. (2019) divided by a constant, `cosine` that of Geiping et al. (2020)."""
_MOST_EVALUATIONS = 10**9  # no limit: iterations are counted instead


def match_gradient(
    observation: Observation,
    *,
    batch: int,
    scale: float,
    generator: torch.Generator,
    distance: str = "squared",
    labels: Float[Tensor, " B"] | None = None,
    restarts: int = 1,
    iterations: int = 300,
) -> Reconstruction:
    r"""The best of several descents, judged by the distance that they minimise.

    Args:
        scale: standard deviation of the entries of the first dummies; $1/\sqrt d$ gives inputs of norm 1.
        labels: those of the batch if they are known; otherwise they are optimised too, from standard normal draws.
        iterations: of SciPy's L-BFGS in each descent, on the CPU; gradients are computed on the device of the weights.
    """
    layers = [part.flatten() for part in (observation.outputs, observation.hidden) if part is not None]
    target, norms = torch.cat(layers), torch.cat([layer.norm().expand(len(layer)) for layer in layers])

    def objective(inputs: Tensor, guesses: Tensor) -> Tensor:
        ours = _simulate_gradient(observation, inputs, _residuals(observation, inputs, guesses))
        return DISTANCES[distance](ours / norms, target / norms)

    runs = [
        _descend(objective, *_draw_dummies(observation, batch, scale, generator, labels), iterations=iterations)
        for _ in range(restarts)
    ]
    inputs, guesses, _ = min(runs, key=lambda run: run[2])
    residuals = _residuals(observation, inputs, guesses)
    misfit = float((_simulate_gradient(observation, inputs, residuals) - target).norm() / target.norm())
    return Reconstruction(inputs, residuals, guesses, misfit)


def match_rounds(
    game: Game, dummies: Mapping[str, Mapping[str, Any]], *, rounds: int, restarts: int, iterations: int, run: Run
) -> dict[str, list[float]]:
    """The error of `match_gradient` in each round, for each kind of `dummies`: its name and its options."""
    errors = {kind: [] for kind in dummies}
    for index in range(rounds):
        played = draw_round(game, seed=run.seed, index=index)
        for kind, options in dummies.items():
            guess = match_gradient(
                played.observation,
                batch=game.batch,
                restarts=restarts,
                iterations=iterations,
                generator=run.stream(f"match/{game.batch}/{kind}/{index}"),
                **options,
            )
            errors[kind].append(match_error(guess.inputs, played.inputs))
    return errors


def _draw_dummies(
    observation: Observation, batch: int, scale: float, generator: torch.Generator, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A first batch and its labels, which require gradients if they are unknown."""
    weights = observation.weights
    size = (batch, weights.shape[1] + 1)
    drawn = draws.gaussian(size, generator=generator, like=weights)
    guesses = drawn[:, -1].clone().requires_grad_() if labels is None else labels
    return (scale * drawn[:, :-1]).requires_grad_(), guesses


def _residuals(observation: Observation, inputs: Tensor, labels: Tensor) -> Tensor:
    outputs = observation.predictions(inputs)
    return (torch.sigmoid(outputs) if observation.logistic else outputs) - labels


def _simulate_gradient(observation: Observation, inputs: Tensor, residuals: Tensor) -> Tensor:
    """The observed part of $(g, G)$ for this batch, as one vector; differentiable."""
    values, slopes = observation.activation.derivatives(inputs @ observation.weights.mT, order=1)
    parts = []
    if observation.outputs is not None:
        parts.append((residuals.unsqueeze(-1) * values).sum(0))
    if observation.hidden is not None:
        parts.append(((residuals.unsqueeze(-1) * slopes).mT @ inputs).flatten() / len(observation.weights))
    return torch.cat(parts)


def _descend(
    objective: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, labels: Tensor, *, iterations: int
) -> tuple[Tensor, Tensor, float]:
    """Where one descent ends, and the distance there."""
    unknowns = [part for part in (inputs, labels) if part.requires_grad]

    def move_to(point: np.ndarray) -> None:
        parts = torch.from_numpy(point).split([part.numel() for part in unknowns])
        with torch.no_grad():
            for part, values in zip(unknowns, parts, strict=True):
                part.copy_(values.to(part.device).view_as(part))

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        move_to(point)
        value = objective(inputs, labels)
        return float(value.detach()), _to_numpy(torch.autograd.grad(value, unknowns))

    start = _to_numpy([part.detach() for part in unknowns])
    # Only the iterations and rounding end the search; a history of 20 steps descends as far as one of a hundred.
    options = dict(maxiter=iterations, maxfun=_MOST_EVALUATIONS, maxcor=20, ftol=0, gtol=0)
    # With a few hundred numbers, several threads take thirty times as long as one.
    with threadpoolctl.threadpool_limits(1, "blas"):
        found = optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options)
    move_to(found.x)
    with torch.no_grad():
        return inputs.detach(), labels.detach(), float(objective(inputs, labels).nan_to_num(torch.inf))


def _to_numpy(parts: Sequence[Tensor]) -> np.ndarray:
    """All parts in one vector."""
    return torch.cat([part.flatten() for part in parts]).double().cpu().numpy()
