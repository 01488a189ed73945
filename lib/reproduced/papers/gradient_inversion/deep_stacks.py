r"""Batches below a stack of layers that lose no information, and the error of their recovery, over draws of both.

`stack_errors` attacks every kind of stack in double precision, `long_arithmetic_errors` plain sigmoid layers in fifty
digits. These functions see the secret.
"""

from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage.data.gaussians import sphere
from leakage.inversion import recover, tensor_attack
from leakage.inversion.federated import DeepStack, batch_gradient
from leakage.inversion.reconstruction import match_error
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import deep_networks, server_weights
from reproduced.papers.gradient_inversion.games import (
    INPUTS,
    Game,
    alternating_signs,
    attack_device,
    draw_round,
    gradient_gap,
)
from reproduced.runtime import Run, move, stream


class StackErrors(NamedTuple):
    """The error of the inputs by three attacks in each draw; NaN if no inputs give the recovered features.

    `recovered` is by exact recovery of the features and inversion of the layers. `by_moments` is that of the features,
    by the paper's tensor from the hidden gradient, up to signs, for stacks that keep their input. `searched` is from
    the directions of the features and a search for their length, for other stacks with an activation that is 0 at 0.
    """

    recovered: Float[Tensor, " rounds"]
    by_moments: Float[Tensor, " rounds"]
    searched: Float[Tensor, " rounds"]


def stack_errors(game: Game, *, depth: int, kind: str, rounds: int, run: Run) -> StackErrors:
    """The errors with the network of the game on top of `depth - 1` layers; every depth sees the same draws."""
    errors, device = [], attack_device(game, run)
    for index in range(rounds):
        name = f"stack/{game.width}/{game.dimension}/{index}"
        draws = run.stream(f"{name}/server")
        weights = server_weights.draw_weights(game.weights, m=game.width, d=game.dimension, generator=draws)
        inputs = INPUTS[game.inputs](game, run.stream(f"{name}/client"))
        stack = DeepStack(weights, activation=game.activation, depth=depth, kind=kind, bias=game.bias)
        gradient = batch_gradient(stack, inputs, alternating_signs(game.batch), loss="half_sum")
        seen = deep_networks.effective_observation(stack, gradient, batch=game.batch, loss="half_sum")
        seen, inputs = move((seen, inputs), device)
        keeps = seen.activation.homogeneity == 1 and kind == "paired"
        draws = run.stream(f"{name}/attack/{game.activation}/{kind}/{depth}")
        found = recover.recover(seen, batch=game.batch, norm=1.0 if keeps else None, generator=draws).inputs
        back = deep_networks.invert_features(found, seen.activation, depth=depth, kind=kind)
        by_moments = searched = torch.nan
        if keeps:
            draws = run.stream(f"{name}/moments")
            rough = tensor_attack.reconstruct(seen, batch=game.batch, source="hidden", centre=False, generator=draws)
            by_moments = match_error(rough.inputs, inputs, signs=False)
        elif not bool(seen.activation(torch.zeros(1)).any()):
            unit = normalize(found, dim=-1)
            along = deep_networks.invert_scaled_features(unit, seen.activation, depth=depth, kind=kind)
            searched = match_error(along, inputs)
        errors.append((match_error(back, inputs), by_moments, searched))
    return StackErrors(*torch.tensor(errors, dtype=DTYPE).T)


def two_layer_gaps(game: Game, *, depth: int, rounds: int, seed: int) -> Float[Tensor, " rounds"]:
    """How far what a paired stack returns is from the gradient of the two-layer client with the same weights.

    Both get the same batch; the distances of the two layers are relative, and added. Where they are 0, every attack on
    two layers is an attack on the stack, with the same error.

    Source: Wang et al., Corollary 5.2.
    """
    gaps = []
    for index in range(rounds):
        played = draw_round(game, seed=seed, index=index)
        seen = played.observation
        stack = DeepStack(seen.weights, activation=game.activation, depth=depth, kind="paired", bias=game.bias)
        gradient = batch_gradient(stack, played.inputs, played.labels, loss="half_sum")
        below = deep_networks.effective_observation(stack, gradient, batch=game.batch, loss="half_sum")
        gaps.append(gradient_gap(below, seen))
    return torch.tensor(gaps, dtype=DTYPE)


# ── two inputs below sigmoid layers, in fifty digits ─────────────────────────────────────────────────────────────────
#
# Each layer brings the features h₁, h₂ of different inputs nearer to each other, so that least squares for hᵢ and rᵢ
# crawls along a valley. In R = r₁ + r₂, the mean μ, m = ½ √(1 - s²) (h₁ - h₂) and s = (r₂ - r₁)/R it does not: to
# leading order the gradient fixes R and μ by itself, then m by terms of order two in the distance, then s by terms of
# order three.

_DIGITS = 50
_NEURONS = 60
_BIAS = 30  # the output bias, as in the paper's experiments
_STEPS = 100
_EXPLAINED = {False: Decimal("1e-40"), True: Decimal("2e-16")}  # relative misfit that is left to rounding
_DISTANCES = ("0.3", "0.03", "0.003")  # between the features, to start from; the units are unknown
_exp, _log = (np.vectorize(function, otypes=[object]) for function in (Decimal.exp, Decimal.ln))
_long = np.vectorize(Decimal, otypes=[object])


def long_arithmetic_errors(
    *, dimension: int, depth: int, rounds: int, seed: int, rounded: bool = False
) -> Float[Tensor, " rounds"]:
    """The largest distance of an input from its reconstruction in each draw, from a gradient that may be `rounded`.

    The attack sees the weights, and starts at the fixed point of the layers, near the features of every such network.
    """
    errors = []
    for index in range(rounds):
        name = f"long/{dimension}/{index}"
        draws = stream(seed, f"{name}/server")
        weights = _long(server_weights.draw_weights("iid", m=_NEURONS, d=dimension, generator=draws).numpy())
        inputs = _long(sphere(2, dimension, generator=stream(seed, f"{name}/client")).numpy())
        with localcontext(prec=_DIGITS):
            features = inputs
            for _ in range(depth - 1):
                features = _sigmoid(features)
            values = _sigmoid(weights @ features.T)
            residuals = values.sum(0) / _NEURONS + _BIAS - _long([1.0, -1.0])
            rows = (values * (1 - values) * residuals) @ features  # of the gradient, times m
            if rounded:
                rows = _long(rows.astype(float))
            found = _undo_layers(_recover_features(weights, rows, _EXPLAINED[rounded]), depth - 1)
            errors.append(
                float("inf")
                if found is None
                else float(min(max(map(_norm, found - inputs[order])) for order in ([0, 1], [1, 0])))
            )
    return torch.tensor(errors, dtype=DTYPE)


def _recover_features(weights: np.ndarray, rows: np.ndarray, explained: Decimal) -> np.ndarray:
    """The features that explain the rows of a gradient."""
    first = rows.sum(0) / _norm(rows.sum(0))
    rest = max(rows - np.outer(rows @ first, first), key=_norm)
    second = rest / _norm(rest)
    second = second - (second @ first) * first
    basis = np.stack([first, second / _norm(second)], axis=1)
    inner, target = weights @ basis, rows @ basis
    fixed = Decimal("0.66") * Decimal(weights.shape[1]).sqrt()  # the sigmoid has its fixed point at 0.66
    ends = []
    for distance in _DISTANCES:
        start = np.array([Decimal(2 * _BIAS + 1), fixed, Decimal(0), Decimal(0), Decimal(distance), Decimal(0)])
        ends.append(_descend(inner, target, start, explained))
        if ends[-1][1] < explained:
            break
    state, _ = min(ends, key=lambda end: end[1])
    return _features(state)[0] @ basis.T


def _descend(
    inner: np.ndarray, target: np.ndarray, state: np.ndarray, explained: Decimal
) -> tuple[np.ndarray, Decimal]:
    """Levenberg–Marquardt, and the relative misfit where it ends."""
    total, damping = _norm(target), Decimal("1e-3")
    left, jacobian = _equations(inner, target, state)
    for _ in range(_STEPS):
        gram, slope = jacobian.T @ jacobian, jacobian.T @ left.ravel()
        while True:
            step = _solve(gram + np.diag(np.diag(gram)) * damping + np.eye(6, dtype=int) * Decimal("1e-60"), slope)
            if abs(state[5] + step[5]) < 1:
                nearer, other = _equations(inner, target, state + step)
                if _norm(nearer) < _norm(left):
                    break
            damping *= 10
            if damping > 10**8:
                return state, _norm(left) / total
        state, left, jacobian, damping = state + step, nearer, other, damping / 30
        if _norm(left) < explained * total:
            break
    return state, _norm(left) / total


def _equations(inner: np.ndarray, target: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of the gradient that the state leaves unexplained, and the derivatives of the explained part."""
    points, residuals, chain = _features(state)
    values = _sigmoid(inner @ points.T)
    slopes = values * (1 - values)
    bends = slopes * (1 - 2 * values)
    columns = []
    for i in range(2):
        for slot in range(2):
            column = np.outer(residuals[i] * bends[:, i] * inner[:, slot], points[i])
            column[:, slot] += residuals[i] * slopes[:, i]
            columns.append(column.ravel())
    columns += [np.outer(slopes[:, i], points[i]).ravel() for i in range(2)]
    return target - (slopes * residuals) @ points, np.stack(columns, axis=1) @ chain


def _features(state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and residuals of a state $(R, \\mu, m, s)$, and their derivatives in it."""
    total, mean, half, skew = state[0], state[1:3], state[3:5], state[5]
    scale = 2 / (1 - skew * skew).sqrt()
    apart = scale * half
    bent = apart * skew / (1 - skew * skew)
    shares = ((1 + skew) / 2, -(1 - skew) / 2)
    points = np.stack([mean + share * apart for share in shares])
    chain = np.full((6, 6), Decimal(0))
    for i, share in enumerate(shares):
        for slot in range(2):
            chain[2 * i + slot, 1 + slot], chain[2 * i + slot, 3 + slot] = Decimal(1), share * scale
            chain[2 * i + slot, 5] = apart[slot] / 2 + share * bent[slot]
    chain[4, 0], chain[5, 0], chain[4, 5], chain[5, 5] = (1 - skew) / 2, (1 + skew) / 2, -total / 2, total / 2
    return points, np.array([total * (1 - skew) / 2, total * (1 + skew) / 2]), chain


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Gauss' elimination, for a positive matrix: it needs no pivots."""
    rows = np.column_stack([matrix, right])
    for place in range(len(rows)):
        rows[place] = rows[place] / rows[place, place]
        for other in range(len(rows)):
            if other != place:
                rows[other] = rows[other] - rows[other, place] * rows[place]
    return rows[:, -1]


def _sigmoid(t: np.ndarray) -> np.ndarray:
    return 1 / (1 + _exp(-t))


def _undo_layers(features: np.ndarray, times: int) -> np.ndarray | None:
    """The inputs that so many sigmoid layers take to these features; None if there are none."""
    for _ in range(times):
        if not all(0 < value < 1 for value in features.ravel()):
            return None
        features = _log(features / (1 - features))
    return features


def _norm(values: np.ndarray) -> Decimal:
    return sum(values.ravel() ** 2, Decimal(0)).sqrt()
