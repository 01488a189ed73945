r"""How far each step of the attack is from what it estimates: moments from powers of the inputs, terms from factors.

For chapters and tests alone: whatever is called here has seen the secret, and no attack may. Every
function plays rounds of its own, determined by the seed, and gives numbers that fall as the step gets better.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion import decompose, moments
from leakage.attacks.gradient_inversion.moments import Moments
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.data.gaussians import gaussian
from leakage.metrics.reconstruction import match_error
from leakage.runtime import DTYPE, stream
from leakage.studies.gradient_inversion.games import INPUTS, Game, Round, exchange, play
from leakage.studies.gradient_inversion.rival_decompositions import METHODS
from leakage.theory import hermite

SOURCES: Mapping[str, Callable[[Observation], Moments]] = {
    "outputs": lambda seen: moments.of_outputs(seen, centre=False),
    "hidden": lambda seen: moments.of_hidden(seen, centre=False),
}
"""The moments of either gradient as the paper has them, by the name of the gradient."""
ORDERS = (2, 3, 4)
_CHANCE = 2.5e-4  # that an entry of any moment of a game seems biased though none is


def moment_error(
    played: Round, basis: Float[Tensor, "d b"], *, source: str = "outputs", order: int = 2
) -> Float[Tensor, "b b *b"]:
    r"""A moment in a basis V less what it estimates, $s_p \sum_i r_i (V^\top x_i)^{\otimes p}$, for unit inputs.

    Source: Wang et al., Lemma 4.1.

    Raises:
        ValueError: if `source` is unknown, or `order` is not 2, 3 or 4.
    """
    estimate, truth = _moment(played, basis, source, order)
    return estimate - truth


def _moment(played: Round, basis: Tensor, source: str, order: int) -> tuple[Tensor, Tensor]:
    """A moment in a basis, and what it estimates."""
    arguments.choice("source", source, SOURCES)
    arguments.count("order", order, least=ORDERS[0], most=ORDERS[-1])
    arguments.real("basis", basis, "d b", like=played.inputs, d=played.inputs.shape[1])
    seen = played.observation
    residuals = seen.predictions(played.inputs) - played.labels
    weight = hermite.moment(seen.activation, residuals.new_ones(()), order=order)
    truth = decompose.assemble(played.inputs @ basis, weight * residuals, order=order)
    found = SOURCES[source](seen)
    return basis.mT @ found.second(basis) if order == 2 else found.tensor(basis, order=order), truth


def one_sided(observation: Observation) -> Float[Tensor, "d d d"]:
    r"""$\sum_j G_j \otimes H_2(w_j)$, before its first slot is made like the others.

    Source: Wang et al., Appendix B, $T_1$; its symmetric part is `HiddenMoments.tensor`.
    """
    found = moments.of_hidden(observation, centre=False)
    identity = torch.eye(found.weights.shape[1], dtype=found.weights.dtype, device=found.weights.device)
    cubes = torch.einsum("mi,mj,mk->ijk", found.rows, found.weights, found.weights)
    return cubes - torch.tensordot(found.mean, identity, dims=0)


class Deviations(NamedTuple):
    """How far moments are from what they estimate, over draws of the weights.

    Attributes:
        sources: names of `SOURCES`, one for each row.
        orders: of the moments, one for each column.
        values: the largest mean error of an entry in standard errors, around 3 to 4 if a moment has no bias.
        biased: how many of the different entries are further off than chance allows for any of all of them.
        entries: how many different entries a moment of each order has.
        sizes: the part of each draw's moment along what it estimates, in units of that: 1 but for noise.
        errors: the norm of each draw's error.
    """

    sources: tuple[str, ...]
    orders: tuple[int, ...]
    values: Float[Tensor, "sources orders"]
    biased: Int[Tensor, "sources orders"]
    entries: tuple[int, ...]
    sizes: Float[Tensor, "sources orders rounds"]
    errors: Float[Tensor, "sources orders rounds"]

    def of(self, source: str) -> Float[Tensor, " orders"]:
        """The largest deviations of one gradient."""
        return self.values[self.sources.index(source)]


def deviations(game: Game, *, rounds: int, seed: int, device: torch.device | str = "cpu") -> Deviations:
    """How far the moments of each gradient and order are off on average, of one batch and `rounds` draws of weights.

    Raises:
        ValueError: if there are fewer than two rounds.
    """
    arguments.count("rounds", rounds, least=2)  # one draw has no standard error
    basis = torch.eye(game.dimension, dtype=DTYPE, device=device)
    inputs = play(game, seed=seed, device=device).inputs
    # The batch's own seed was played with already.
    rows = [exchange(game, inputs, seed=seed + 1, index=index) for index in range(rounds)]
    entries = [math.comb(game.dimension + order - 1, order) for order in ORDERS]
    most = -special.stdtrit(rounds - 1, _CHANCE / (2 * len(SOURCES) * sum(entries)))
    values, sizes, errors = (inputs.new_empty(len(SOURCES), len(ORDERS), size) for size in (1, rounds, rounds))
    biased = torch.zeros(len(SOURCES), len(ORDERS), dtype=torch.int64)
    for row, source in enumerate(SOURCES):
        for column, order in enumerate(ORDERS):
            found, truths = map(
                torch.stack, zip(*(_moment(played, basis, source, order) for played in rows), strict=True)
            )
            off, truths = (found - truths).flatten(1), truths.flatten(1)
            scores = (off.mean(0) / (off.std(0) / math.sqrt(rounds))).abs()
            different = torch.combinations(torch.arange(game.dimension), order, with_replacement=True)
            places = (different * game.dimension ** torch.arange(order - 1, -1, -1)).sum(-1).to(scores.device)
            values[row, column] = scores.max()
            biased[row, column] = (scores[places] > most).sum()
            sizes[row, column] = 1 + (off * truths).sum(-1) / truths.square().sum(-1)
            errors[row, column] = off.norm(dim=-1)
    return Deviations(tuple(SOURCES), ORDERS, values.squeeze(-1), biased, tuple(entries), sizes, errors)


class Remainders(NamedTuple):
    """Spectral norms of two moments of the output gradient less what they estimate, of each round."""

    matrix: Float[Tensor, " rounds"]
    tensor: Float[Tensor, " rounds"]


def remainders(
    game: Game, *, labels: Sequence[float], rounds: int, seed: int, device: torch.device | str = "cpu"
) -> Remainders:
    r"""$\lVert P - \E P \rVert$ in all coordinates and $\lVert T(V, V, V) - \E T(V, V, V) \rVert$ in the span.

    Source: Wang et al., Propositions 5.5 and 5.6; the tensor's norm is that of its flattening, b by b².

    Args:
        game: the rules; inputs have to be of unit length.
        labels: of the batch.
        rounds: draws of the inputs and the weights.
        seed: of them all.
        device: where to compute.

    Raises:
        ValueError: if `labels` do not fit the batch, or there are no rounds.
    """
    arguments.count("rounds", rounds, least=1)
    if len(labels) != game.batch:
        raise ValueError(f"`labels` must be {game.batch}, one for each input, got {len(labels)}.")
    everywhere = torch.eye(game.dimension, dtype=DTYPE, device=device)
    norms = []
    for index in range(rounds):
        inputs = INPUTS[game.inputs](game, stream(seed, f"remainders/{game.dimension}/{index}", device))
        bases = {2: everywhere, 3: torch.linalg.qr(inputs.mT).Q}
        played = exchange(game, inputs, inputs.new_tensor(labels), seed=seed, index=index)
        errors = (moment_error(played, basis, order=order) for order, basis in bases.items())
        norms.append(torch.stack([torch.linalg.matrix_norm(error.flatten(1), 2) for error in errors]))
    return Remainders(*torch.stack(norms, dim=1))


class FactorErrors(NamedTuple):
    """What each method makes of the same tensors.

    Attributes:
        methods: names of `rival_decompositions.METHODS`, one for each row.
        errors: root mean squares over the factors of each tensor.
    """

    methods: tuple[str, ...]
    errors: Float[Tensor, "methods rounds"]

    @property
    def medians(self) -> dict[str, float]:
        """The median error of each method, the mean of the two middle ones of an even number."""
        return dict(zip(self.methods, np.median(self.errors.numpy(force=True), axis=-1).tolist(), strict=True))


def factor_errors(
    *, batch: int, overlap: float, noise: float, rounds: int, seed: int, device: torch.device | str = "cpu"
) -> FactorErrors:
    r"""The error of every method of decomposition on synthetic tensors of order 3, up to signs.

    Unit factors with a common inner product and weights 1 and -1 in turn, plus symmetric Gaussian noise of the given
    size relative to the tensor's.

    Raises:
        ValueError: if a count is below 1, `overlap` is not in [0, 1), or `noise` is negative.
    """
    arguments.count("batch", batch, least=1)
    arguments.count("rounds", rounds, least=1)
    arguments.number("overlap", overlap, least=0, below=1)
    arguments.number("noise", noise, least=0)
    gram = torch.full((batch, batch), overlap, dtype=DTYPE, device=device).fill_diagonal_(1.0)
    weights = torch.tensor([1.0, -1.0], dtype=DTYPE, device=device).repeat(batch)[:batch]
    found: list[list[float]] = []
    for index in range(rounds):
        draws = stream(seed, f"decompose/{batch}/{overlap}/{noise}/{index}", device)
        factors = torch.linalg.cholesky(gram) @ torch.linalg.qr(gaussian((batch, batch), generator=draws)).Q
        clean = decompose.assemble(factors, weights, order=3)
        blur = moments.symmetrised(gaussian((batch,) * 3, generator=draws))
        blurred = clean + noise * blur * clean.norm() / blur.norm()
        guesses = (decompose.decompose(blurred, method=method, generator=draws) for method in METHODS.values())
        found.append([match_error(terms.factors, factors, signs=False) for terms in guesses])
    return FactorErrors(tuple(METHODS), torch.tensor(found, dtype=DTYPE).T)
