r"""Different batches with one gradient, which no attack on a two-layer network can tell apart.

Each function takes inputs $x_i$ and residuals $r_i = f(x_i) - y_i$ and returns others for which

$$ g_j = \sum_i r_i\, \sigma(w_j^\top x_i), \qquad G_j = \frac1m \sum_i r_i\, \sigma'(w_j^\top x_i)\, x_i $$

are the same, whatever the weights $w_j$. The labels that go with them are $y_i = f(x_i) - r_i$. `play_twin` and
`measure_twins` compute both gradients by automatic differentiation.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.inversion import span
from leakage.inversion.reconstruction import match_error
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.error_laws import span_error
from reproduced.papers.gradient_inversion.games import Game, Round, draw_round, gradient_gap, play_round
from reproduced.runtime import stream

_RANK_TOLERANCE = 1e-9  # singular values that are 0 come out below 1e-14, the others above 1e-4

Batch = tuple[Float[Tensor, "B d"], Float[Tensor, " B"]]
"""Inputs and residuals."""


def mirror(inputs: Tensor, residuals: Tensor, *, flips: Bool[Tensor, " B"] | None = None) -> Batch:
    r"""$(x_i, r_i) \to (-x_i, -r_i)$ for the inputs chosen, by default for all.

    If $\sigma(-t) = 2c - \sigma(t)$ it leaves every $G_j$ as it is and lowers every $g_j$ by $2c \sum_{i \in
    \text{flips}} r_i$: by nothing for an odd activation, by one constant for the sigmoid.
    The labels of the flipped become $2(c + b) - y_i$ with the output bias b, if $\sum_j a_j = 1$.

    Source: our observation; the sign statement of Wang et al., Theorem 5.1, cannot hold for odd activations unless a
    bias breaks the symmetry.
    """
    flips = torch.ones_like(residuals, dtype=torch.bool) if flips is None else flips
    signs = torch.where(flips, -1.0, 1.0).to(inputs)
    return signs.unsqueeze(-1) * inputs, signs * residuals


def rotate(inputs: Tensor, residuals: Tensor, *, angle: float) -> Batch:
    r"""Turn the first two inputs of a quadratic network into each other, with $z_i = \sqrt{|r_i|}\, x_i$:

    $$ (z_1, z_2) \to (z_1 \cos\omega + z_2 \sin\omega,\; z_2 \cos\omega - z_1 \sin\omega) $$

    for residuals of one sign, and $(z_1 \cosh\omega + z_2 \sinh\omega,\; z_2 \cosh\omega + z_1 \sinh\omega)$ for two of
    opposite signs. Both leave $\sum_i r_i x_i x_i^\top$, all that the gradient depends on, as it is.

    Source: Wang et al., Section 5 (only the span can be recovered); the rotations are ours.
    """
    sizes = residuals[:2].abs().sqrt().unsqueeze(-1)
    first, second = sizes * inputs[:2]
    if bool(residuals[0] * residuals[1] > 0):
        same, other, sign = math.cos(angle), math.sin(angle), -1.0
    else:
        same, other, sign = math.cosh(angle), math.sinh(angle), 1.0
    pair = torch.stack([same * first + other * second, same * second + sign * other * first])
    return torch.cat([pair / sizes, inputs[2:]]), residuals


def displace(inputs: Tensor, residuals: Tensor, *, shift: Float[Tensor, " d"]) -> Batch:
    r"""$x_1 \to x_1 + v / r_1$ and $x_2 \to x_2 - v / r_2$ for a linear network, whose gradient is $\sum_i r_i x_i$."""
    moves = torch.stack([shift, -shift]) / residuals[:2].unsqueeze(-1)
    return torch.cat([inputs[:2] + moves, inputs[2:]]), residuals


class TwinRounds(NamedTuple):
    """A round, the round of its twin, and how far apart their gradients are: both layers' relative distances, added."""

    first: Round
    twin: Round
    gap: float


def play_twin(game: Game, twin: Callable[[Tensor, Tensor], Batch], *, seed: int, index: int = 0) -> TwinRounds:
    """A round of the game, and the round with the same weights and the other batch that `twin` makes of its batch."""
    first = draw_round(game, seed=seed, index=index)
    seen = first.observation
    inputs, residuals = twin(first.inputs, seen.predictions(first.inputs) - first.labels)
    other = play_round(game, inputs, seen.predictions(inputs) - residuals, seed=seed, index=index)
    return TwinRounds(first, other, gradient_gap(other.observation, seen))


class Twins(NamedTuple):
    """For each round: how far the twin's inputs are from the true ones, how far its gradient, and what the span misses.

    `outside` is the part of the true inputs outside the row space of the gradient.
    """

    apart: Float[Tensor, " rounds"]
    gap: Float[Tensor, " rounds"]
    outside: Float[Tensor, " rounds"]


def measure_twins(game: Game, twin: Callable[[Tensor, Tensor], Batch], *, rounds: int, seed: int) -> Twins:
    """The twins of `rounds` batches."""
    found = []
    for index in range(rounds):
        first, other, gap = play_twin(game, twin, seed=seed, index=index)
        hidden = first.observation.hidden
        assert hidden is not None
        rows = span.from_rows(hidden, generator=stream(seed, f"twins/{index}")).basis
        apart = match_error(other.inputs, first.inputs, signs=False)
        found.append((apart, gap, float(span_error(rows, first.inputs))))
    return Twins(*torch.tensor(found, dtype=DTYPE).T)


def count_free_directions(game: Game, *, seed: int, index: int = 0) -> int:
    r"""In how many directions a round's inputs and residuals can move while the output gradient stays, to first order.

    The B(d + 1) unknowns of $g_j = \sum_i r_i\, \sigma(w_j^\top x_i)$ less the rank of the derivatives

    $$ \partial g_j / \partial r_i = \sigma(w_j^\top x_i), \qquad
       \partial g_j / \partial x_i = r_i\, \sigma'(w_j^\top x_i)\, w_j , $$

    over all m neurons. It is 0 where the gradient identifies the batch to first order, B for ReLU, whose inputs have
    free lengths, $B(d + 1) - d$ for a linear and $B(B + 1)/2$ for a quadratic activation.
    """
    played = draw_round(game, seed=seed, index=index)
    inputs, seen = played.inputs, played.observation
    values, slopes = seen.activation.derivatives(inputs @ seen.weights.mT, order=1)
    residuals = seen.predictions(inputs) - played.labels
    moved = (residuals[:, None] * slopes).unsqueeze(-1) * seen.weights  # (B, m, d)
    jacobian = torch.cat([values.mT, moved.transpose(0, 1).flatten(1)], dim=1)
    sizes = torch.linalg.svdvals(jacobian / jacobian.norm(dim=0))
    return jacobian.shape[1] - int((sizes > _RANK_TOLERANCE * sizes[0]).sum())
