"""The experiments of Tan et al. (2022) as the paper describes them: draw a data set, train, ask once, start again.

One model at a time, in NumPy, whose normal draws and LAPACK calls are faster than PyTorch's here: the other side of the
benchmark is the straightforward method at its best. Only what a model is trained on is drawn; nothing is kept between
two models.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Solver = Callable[[Array, Array], Array]


def least_squares(features: Array, labels: Array) -> Array:
    """The coefficients of minimum norm."""
    return np.asarray(np.linalg.lstsq(features, labels, rcond=None)[0], dtype=np.float64)


def ridge(mu: float) -> Solver:
    """Coefficients $(F^T F + mu I)^{-1} F^T y$ by the p × p inverse, as the formula reads."""

    def solve(features: Array, labels: Array) -> Array:
        return np.linalg.inv(features.T @ features + mu * np.eye(features.shape[1])) @ (features.T @ labels)

    return solve


def ridge_by_rows(mu: float) -> Solver:
    """The same coefficients as `ridge` from an n × n system: for samples that the p × p inverse would take too long."""

    def solve(features: Array, labels: Array) -> Array:
        return features.T @ np.linalg.solve(features @ features.T + mu * np.eye(len(features)), labels)

    return solve


def linear_prediction(
    point: Array, p: int, solve: Solver, *, n: int, sigma: float, member: bool = False, rng: np.random.Generator
) -> float:
    """Train on `n` Gaussian rows, the first of them `point` for a member, and predict at `point` from p features."""
    rows = rng.standard_normal((n, len(point)))
    if member:
        rows[0] = point
    beta = rng.standard_normal(len(point)) / np.sqrt(len(point))
    labels = rows @ beta + sigma * rng.standard_normal(n)
    return float(point[:p] @ solve(rows[:, :p], labels))


def latent_prediction(latent: Array, directions: Array, *, n: int, sigma: float, rng: np.random.Generator) -> float:
    """Train on `n` noisy views of Gaussian latent vectors, and predict at the clean view of `latent`."""
    p, d = directions.shape
    latents = rng.standard_normal((n, d))
    features = latents @ directions.T + rng.standard_normal((n, p))
    labels = latents @ rng.standard_normal(d) / np.sqrt(d) + sigma * rng.standard_normal(n)
    return float(directions @ latent @ least_squares(features, labels))


def relu_prediction(point: Array, p: int, *, n: int, sigma: float, rng: np.random.Generator) -> float:
    """Train on p random ReLU features of `n` Gaussian rows, and predict at the features of `point`."""
    D = len(point)
    rows = rng.standard_normal((n, D))
    directions = rng.standard_normal((D, p))
    directions /= np.linalg.norm(directions, axis=0)
    labels = rows @ rng.standard_normal(D) / np.sqrt(D) + sigma * rng.standard_normal(n)
    return float(np.maximum(point @ directions, 0) @ least_squares(np.maximum(rows @ directions, 0), labels))
