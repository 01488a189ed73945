r"""How far each step of the attack is from what it estimates: moments from powers of the inputs, terms from factors.

These functions see the secret, and no attack may. They play rounds of their own, determined by the seed, and give
numbers that fall as the step gets better.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import special
from tensorly.decomposition import parafac
from torch import Tensor
from torch.nn.functional import normalize

from leakage.draws import gaussian, integers
from leakage.inversion import hermite, moments, span, tensor_decomposition
from leakage.inversion.moments import Moments
from leakage.inversion.observation import Observation
from leakage.inversion.reconstruction import match_error, match_inputs
from leakage.inversion.tensor_decomposition import Problem, powers
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import error_laws
from reproduced.papers.gradient_inversion.games import INPUTS, Game, Round, alternating_signs, draw_round, play_round
from reproduced.runtime import stream

SOURCES: Mapping[str, Callable[[Observation], Moments]] = {
    "outputs": lambda seen: moments.from_outputs(seen, centre=False),
    "hidden": lambda seen: moments.from_hidden(seen, centre=False),
}
"""The paper's moments of either gradient, by the name of the gradient."""
ORDERS = (2, 3, 4)
_CHANCE = 2.5e-4  # of any entry of a moment of a game to seem biased although none is
_POWER_STEPS = 100
_ALS_SWEEPS = 1000


def estimate_moment(played: Round, basis: Float[Tensor, "d b"], *, source: str, order: int) -> tuple[Tensor, Tensor]:
    r"""A moment in a basis V, and its expected value $s_p \sum_i r_i (V^\top x_i)^{\otimes p}$, for unit inputs.

    Source: Wang et al., Lemma 4.1.
    """
    seen = played.observation
    residuals = seen.predictions(played.inputs) - played.labels
    weight = hermite.moment(seen.activation, residuals.new_ones(()), order=order)
    truth = assemble(played.inputs @ basis, weight * residuals, order=order)
    found = SOURCES[source](seen)
    return basis.mT @ found.second(basis) if order == 2 else found.tensor(basis, order=order), truth


def assemble(
    factors: Float[Tensor, "*b k d"], weights: Float[Tensor, "*b k"], *, order: int
) -> Float[Tensor, "*sides"]:
    r"""The tensor $\sum_i \lambda_i\, u_i^{\otimes p}$ with `order` sides."""
    flat = (weights.unsqueeze(-2) @ powers(factors, order)).squeeze(-2)
    return flat.reshape(*weights.shape[:-1], *[factors.shape[-1]] * order)


def one_sided_tensor(observation: Observation) -> Float[Tensor, "d d d"]:
    r"""$\sum_j G_j \otimes H_2(w_j)$, the $T_1$ of Appendix B, whose symmetric part is `HiddenMoments.tensor`."""
    found = moments.from_hidden(observation, centre=False)
    identity = torch.eye(found.weights.shape[1], dtype=DTYPE)
    cubes = torch.einsum("mi,mj,mk->ijk", found.rows, found.weights, found.weights)
    return cubes - torch.tensordot(found.first, identity, dims=0)


def measure_asymmetry(game: Game, *, rounds: int, seed: int) -> Float[Tensor, " rounds"]:
    """How far `one_sided_tensor` is from its symmetric part, relative to itself, in each round."""
    found = [one_sided_tensor(draw_round(game, seed=seed, index=index).observation) for index in range(rounds)]
    return torch.stack([(tensor - moments.symmetrised(tensor)).norm() / tensor.norm() for tensor in found])


def measure_span(game: Game, *, direction: str, rounds: int, seed: int) -> Float[Tensor, " rounds"]:
    r"""The part of the inputs outside the span that the moment of order 3 shows in one direction, in each round.

    The direction is that of the moment of order 1 ("mean"), or $(1, \dots, 1)/\sqrt d$ ("ones").

    Source: Wang et al., Remark 3, where it is any unit vector.
    """
    found = []
    for index in range(rounds):
        played = draw_round(game, seed=seed, index=index)
        estimate = moments.from_hidden(played.observation, centre=False)
        chosen = {"ones": torch.ones_like(estimate.first), "mean": estimate.first}[direction]
        draws = stream(seed, f"rem3/{index}")
        basis = span.from_moments(
            estimate, batch=game.batch, order=3, direction=normalize(chosen, dim=0), generator=draws
        ).basis
        found.append(error_laws.span_error(basis, played.inputs))
    return torch.stack(found)


class Deviations(NamedTuple):
    """How far the moments of each of `SOURCES` and `ORDERS` are from what they estimate, over draws of the weights."""

    values: Float[Tensor, "sources orders"]  # largest mean error of an entry in standard errors: 3 to 4 without bias
    biased: Int[Tensor, "sources orders"]  # how many entries are further off than chance allows for the largest of all
    entries: tuple[int, ...]  # how many different entries a moment of each order has
    sizes: Float[Tensor, "sources orders rounds"]  # component along the expected value, in units of that
    errors: Float[Tensor, "sources orders rounds"]  # norm of each draw's error


def measure_deviations(game: Game, *, rounds: int, seed: int) -> Deviations:
    """The deviations for one batch and `rounds` draws of weights."""
    basis = torch.eye(game.dimension, dtype=DTYPE)
    inputs = draw_round(game, seed=seed).inputs
    # The batch's own seed was played with already.
    rows = [play_round(game, inputs, seed=seed + 1, index=index) for index in range(rounds)]
    entries = [math.comb(game.dimension + order - 1, order) for order in ORDERS]
    most = -special.stdtrit(rounds - 1, _CHANCE / (2 * len(SOURCES) * sum(entries)))
    values, sizes, errors = (inputs.new_empty(len(SOURCES), len(ORDERS), size) for size in (1, rounds, rounds))
    biased = torch.zeros(len(SOURCES), len(ORDERS), dtype=torch.int64)
    for row, source in enumerate(SOURCES):
        for column, order in enumerate(ORDERS):
            pairs = [estimate_moment(played, basis, source=source, order=order) for played in rows]
            found, truths = (torch.stack(parts).flatten(1) for parts in zip(*pairs, strict=True))
            off = found - truths
            scores = (off.mean(0) / (off.std(0) / math.sqrt(rounds))).abs()
            different = torch.combinations(torch.arange(game.dimension), order, with_replacement=True)
            places = (different * game.dimension ** torch.arange(order - 1, -1, -1)).sum(-1)
            values[row, column] = scores.max()
            biased[row, column] = (scores[places] > most).sum()
            sizes[row, column] = 1 + (off * truths).sum(-1) / truths.square().sum(-1)
            errors[row, column] = off.norm(dim=-1)
    return Deviations(values.squeeze(-1), biased, tuple(entries), sizes, errors)


class Remainders(NamedTuple):
    """Norm of the moment of order 1, of order 2, and of order 3, minus its expected value, for each round."""

    vector: Float[Tensor, " rounds"]
    matrix: Float[Tensor, " rounds"]
    tensor: Float[Tensor, " rounds"]


def measure_remainders(game: Game, *, labels: Sequence[float], rounds: int, seed: int) -> Remainders:
    r"""$\lVert P - \E P \rVert$ in all coordinates and $\lVert T(V, V, V) - \E T(V, V, V) \rVert$ in the span.

    Before them $\lVert \frac1m \sum_j g_j w_j - s_1 \sum_i r^*_i x_i \rVert$, where $r^*_i = s_0 + b - y_i$ are the
    residuals of a network of infinite width. Each round draws inputs, of unit length, and weights.

    Source: Wang et al., Propositions A.1, 5.5 and 5.6; the tensor's norm is that of its flattening, b by b².
    """
    everywhere = torch.eye(game.dimension, dtype=DTYPE)
    norms = []
    for index in range(rounds):
        inputs = INPUTS[game.inputs](game, stream(seed, f"remainders/{game.dimension}/{index}"))
        played = play_round(game, inputs, inputs.new_tensor(labels), seed=seed, index=index)
        mean, slope = (hermite.moment(played.observation.activation, inputs.new_ones(()), order=p) for p in (0, 1))
        limit = slope * (mean + game.bias - played.labels) @ inputs
        norms.append(torch.linalg.vector_norm(SOURCES["outputs"](played.observation).first - limit))
        for order, basis in ((2, everywhere), (3, torch.linalg.qr(inputs.mT).Q)):
            found, truth = estimate_moment(played, basis, source="outputs", order=order)
            norms.append(torch.linalg.matrix_norm((found - truth).flatten(1), 2))
    return Remainders(*torch.stack(norms).view(rounds, 3).T)


def deflation(problem: Problem) -> Float[Tensor, "1 *b k k"]:
    r"""Power iterations $u \leftarrow T(I, u, \dots, u)$ and subtraction, term by term, each with all starts.

    It finds the terms only if they are orthogonal.
    """
    left, found = problem.slices, []
    for _ in range(problem.side):
        vector = problem.unit_vectors((problem.starts, *left.shape[:-3]))
        for _ in range(_POWER_STEPS):
            vector = normalize(_apply(left, vector, problem.order), dim=-1)
        sizes = (vector * _apply(left, vector, problem.order)).sum(-1)
        best = sizes.abs().argmax(0)[None]
        vector = torch.take_along_dim(vector, best.unsqueeze(-1), 0)[0]
        size = sizes.gather(0, best)[0]
        term = assemble(vector.unsqueeze(-2), size.unsqueeze(-1), order=problem.order)
        left = left - term.reshape(left.shape)
        found.append(vector)
    return torch.stack(found, -2).unsqueeze(0)


def alternating_least_squares(problem: Problem) -> Float[Tensor, "starts *b k k"]:
    """Alternating least squares of TensorLy, which do not use the symmetry of the tensor."""
    flat, side, order = problem.slices, problem.side, problem.order
    starts = integers(2**31, (problem.starts,), generator=problem.generator).tolist()
    tensors = flat.reshape(-1, *[side] * order).numpy()

    def fit(tensor: np.ndarray, start: int) -> Tensor:
        found = parafac(
            tensor, side, n_iter_max=_ALS_SWEEPS, tol=1e-12, init="random", normalize_factors=True, random_state=start
        )
        return torch.as_tensor(found.factors[0].T)

    found = [fit(tensor, start) for start in starts for tensor in tensors]
    vectors = torch.stack(found).reshape(problem.starts, *flat.shape[:-3], side, side)
    return normalize(vectors, dim=-1)


def _apply(slices: Float[Tensor, "*b k k s"], vector: Float[Tensor, "*s k"], order: int) -> Float[Tensor, "*s k"]:
    r"""$T(I, u, \dots, u)$."""
    return torch.einsum("...ijs,...j,...s->...i", slices, vector, powers(vector.unsqueeze(-2), order - 2).squeeze(-2))


METHODS: Mapping[str, Callable[[Problem], Tensor]] = {
    **tensor_decomposition.METHODS,
    "deflation": deflation,
    "als": alternating_least_squares,
}
"""The methods of `tensor_decomposition` and two usual ones: each gives unit vectors, `decompose` finds the weights."""


def factor_errors(
    *, batch: int, overlap: float, noise: float, rounds: int, seed: int
) -> dict[str, Float[Tensor, " rounds"]]:
    r"""The error of every method of decomposition on synthetic tensors of order 3, up to signs.

    Unit factors with a common inner product and weights 1 and -1 in turn, plus symmetric Gaussian noise of the given
    size relative to the tensor's. Errors are root mean squares over the factors of each tensor.
    """
    weights = alternating_signs(batch)
    errors = {name: [] for name in METHODS}
    for index in range(rounds):
        draws = stream(seed, f"decompose/{batch}/{overlap}/{noise}/{index}")
        factors = _draw_factors(batch, overlap, draws)
        clean = assemble(factors, weights, order=3)
        blurred = clean + noise * clean.norm() * _draw_blur(batch, draws)
        for name, method in METHODS.items():
            guess = tensor_decomposition.decompose(blurred, method=method, generator=draws).factors
            errors[name].append(match_error(guess, factors, signs=False))
    return {name: torch.tensor(found, dtype=DTYPE) for name, found in errors.items()}


def projection_errors(
    *, batch: int, overlap: float, noise: float, projections: Sequence[int | None], rounds: int, seed: int
) -> dict[int | None, Float[Tensor, " rounds"]]:
    """The error of joint diagonalisation with each number of random projections; `None` is the limit of many.

    The tensors are as in `factor_errors`, the same for every number.

    Source: Wang et al., Appendix C, where it is 100.
    """
    draws = stream(seed, f"projections/{batch}/{overlap}/{noise}")
    factors = [_draw_factors(batch, overlap, draws) for _ in range(rounds)]
    clean = [assemble(one, alternating_signs(batch), order=3) for one in factors]
    blurred = torch.stack([one + noise * one.norm() * _draw_blur(batch, draws) for one in clean])
    errors = {}
    for count in projections:
        chosen = stream(seed, f"projections/{batch}/{overlap}/{noise}/{count}")
        found = tensor_decomposition.decompose(blurred, contractions=count, generator=chosen).factors
        off = [match_error(guess, truth, signs=False) for guess, truth in zip(found, factors, strict=True)]
        errors[count] = torch.tensor(off, dtype=DTYPE)
    return errors


def unequal_weight_errors(
    *, batch: int, overlap: float, noise: float, ratios: Sequence[float], rounds: int, seed: int
) -> Float[Tensor, "ratios rounds"]:
    r"""The largest error of a component if the weights go from 1 to $\kappa$, for each ratio $\kappa$.

    `noise` is the norm of what is added to the tensor, whatever its weights; factors and noise are the same for every
    ratio.

    Source: Wang et al., Proposition 5.3, with $\lambda_{\min} = 1$.
    """
    draws = stream(seed, f"unequal/{batch}/{overlap}")
    factors = [_draw_factors(batch, overlap, draws) for _ in range(rounds)]
    blurs = torch.stack([_draw_blur(batch, draws) for _ in range(rounds)])
    errors = []
    for ratio in ratios:
        sizes = torch.logspace(0, math.log10(ratio), batch, dtype=DTYPE)
        clean = torch.stack([assemble(one, alternating_signs(batch) * sizes, order=3) for one in factors])
        chosen = stream(seed, f"unequal/{batch}/{overlap}/{ratio}")
        found = tensor_decomposition.decompose(clean + noise * blurs, contractions=None, generator=chosen).factors
        pairs = zip(found, factors, strict=True)
        off = [(match_inputs(guess, truth, signs=False) - truth).norm(dim=-1).max() for guess, truth in pairs]
        errors.append(torch.stack(off))
    return torch.stack(errors)


def _draw_factors(batch: int, overlap: float, generator: torch.Generator) -> Float[Tensor, "B B"]:
    """Unit vectors with a common inner product, turned at random."""
    gram = torch.full((batch, batch), overlap, dtype=DTYPE).fill_diagonal_(1.0)
    return torch.linalg.cholesky(gram) @ torch.linalg.qr(gaussian((batch, batch), generator=generator)).Q


def _draw_blur(batch: int, generator: torch.Generator) -> Float[Tensor, "B B B"]:
    """A symmetric Gaussian tensor of norm one."""
    blur = moments.symmetrised(gaussian((batch,) * 3, generator=generator))
    return blur / blur.norm()
