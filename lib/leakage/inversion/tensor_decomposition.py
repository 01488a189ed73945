r"""Symmetric tensors of full rank as sums of powers of unit vectors: $T = \sum_i \lambda_i\, u_i^{\otimes p}$.

The vectors need not be orthogonal and the weights may have either sign, so that the tensor cannot be whitened. A tensor
has as many terms as its side, as after a projection to the span of a batch. Leading dimensions are independent tensors.
Terms are ordered by $|\lambda_i|$, the largest first. For odd order $\lambda_i \ge 0$; for even order the tensor does
not determine the sign of a vector, and its largest coordinate is made positive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from leakage import draws

_MOST_SWEEPS = 300
_CONVERGED = 1e-13  # the change of the diagonaliser in a sweep below which the search ends
_SWEEPS_TO_CHECK = 5  # sweeps between two checks for convergence: each waits for the device
_LARGEST_UPDATE = 0.9  # the Frobenius norm below which I + E is invertible (Ziehe et al. 2004, Section 3)


@dataclass(frozen=True, eq=False)
class Decomposition:
    r"""The terms of a tensor: $u_i$ as the rows of `factors`, $\lambda_i$, and the relative error of their sum."""

    factors: Float[Tensor, "*b k k"]
    weights: Float[Tensor, "*b k"]
    residual: Float[Tensor, "*b"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Tensors of one order, with the settings of `decompose`; `slices` has the last `order - 2` slots flattened."""

    slices: Float[Tensor, "*b k k s"]
    order: int
    starts: int
    contractions: int | None
    generator: torch.Generator

    @property
    def side(self) -> int:
        return self.slices.shape[-2]

    def contract(self, directions: Float[Tensor, "*s l s"]) -> Float[Tensor, "*b l k k"]:
        r"""The slices combined along each of the `directions`: $T(I, I, w_l, \dots, w_l)$ along powers of the $w_l$."""
        return torch.einsum("...ijs,...ls->...lij", self.slices, directions)

    def random_directions(self, shape: tuple[int, ...]) -> Float[Tensor, "*s l s"]:
        """Products of independent uniform unit vectors, one for each slot but the first two."""
        drawn = [self.unit_vectors(shape) for _ in range(self.order - 2)]
        return reduce(_khatri_rao, drawn)

    def unit_vectors(self, shape: tuple[int, ...]) -> Float[Tensor, "*s k"]:
        like = self.slices
        size = (*shape, self.side)
        drawn = draws.gaussian(size, generator=self.generator, like=like)
        return normalize(drawn, dim=-1)


def decompose(
    tensor: Float[Tensor, "*sides"],
    *,
    order: int = 3,
    method: str | Callable[[Problem], Tensor] = "joint",
    starts: int = 3,
    contractions: int | None = 100,
    generator: torch.Generator,
) -> Decomposition:
    r"""Find the k terms of symmetric tensors with side k, from several starts.

    Keeps the start with the least residual. The weights are those of least squares, given the vectors. Tensors are
    first scaled to entries of about 1 by a power of two, which is exact.

    - `joint`: simultaneous diagonalisation of random contractions, then of the contractions with the inverse factors
      found, each of which leaves one term. Starts at the identity and, for the other `starts`, at `jennrich`.
    - `jennrich`: the eigenvectors of $M_1 M_2^{-1}$ for two random contractions.

    Source: Kuleshov et al. (2015), Algorithm 1, for tensors without orthogonal factors; the joint diagonaliser is
    that of Ziehe et al. (2004), and the starts besides the identity are ours.

    Args:
        order: $p \ge 3$.
        method: one of `METHODS`, or a function that gives unit vectors (starts, …, k, k) for a `Problem`.
        contractions: $L \ge 2$ of `joint`, unit vectors for each slot but the first two; `None` for infinitely many,
            which is equivalent to all slices of the tensor.
    """
    batch, side = tensor.shape[: tensor.ndim - order], tensor.shape[-1]
    largest = tensor.reshape(*batch, -1).abs().amax(-1)
    scale = largest / torch.frexp(largest).mantissa
    flat = (tensor.reshape(*batch, -1) / scale.unsqueeze(-1)).reshape(*batch, side, side, -1)
    problem = Problem(flat, order, starts, contractions, generator)
    candidates = (METHODS[method] if isinstance(method, str) else method)(problem)  # starts first
    weights, residuals = _fit(flat, candidates, order=order)
    best = residuals.argmin(0)[None]
    factors = torch.take_along_dim(candidates, best[..., None, None], 0)[0]
    weights = torch.take_along_dim(weights, best[..., None], 0)[0] * scale.unsqueeze(-1)
    return _sort_terms(factors, weights, residuals.gather(0, best)[0], order=order)


def powers(vectors: Float[Tensor, "*b k d"], exponent: int) -> Float[Tensor, "*b k n"]:
    r"""The flattened powers $u^{\otimes p}$ of the rows, of length $d^p$."""
    result = vectors
    for _ in range(exponent - 1):
        result = _khatri_rao(result, vectors)
    return result


def joint_diagonaliser(matrices: Float[Tensor, "*#b l k k"], start: Float[Tensor, "*b k k"]) -> Float[Tensor, "*b k k"]:
    r"""A matrix A with unit rows that makes all $A M_l A^\top$ as diagonal as possible.

    Each sweep linearises around the present diagonals $D_l$: with $z_{ij} = \sum_l D_{l,i} D_{l,j}$ and
    $y_{ij} = \sum_l D_{l,j} M_{l,ij}$,

    $$ A \leftarrow (I + E) A, \qquad E_{ij} = \frac{z_{ij} y_{ji} - z_{ii} y_{ij}}{z_{ii} z_{jj} - z_{ij}^2},
       \qquad \lVert E \rVert_F \le 0.9 . $$

    For $M_l = U^\top \operatorname{diag}(c_l)\, U$ with independent rows of U, A is their inverse transposed, up to
    scale and order.

    Source: Ziehe et al. (2004), Section 3, where rows keep their scale.
    """
    current = normalize(start, dim=-1)
    for sweep in range(_MOST_SWEEPS):
        A = current.unsqueeze(-3)
        move = _update(A @ matrices @ A.mT)
        current = normalize(current + move @ current, dim=-1)
        if sweep % _SWEEPS_TO_CHECK == 0 and bool(move.abs().amax() < _CONVERGED):
            break
    return current


def _update(matrices: Float[Tensor, "*b l k k"]) -> Float[Tensor, "*b k k"]:
    """E of `joint_diagonaliser`; 0 for pairs whose diagonals are proportional, which it cannot separate."""
    diagonals = matrices.diagonal(dim1=-2, dim2=-1)
    z = diagonals.mT @ diagonals
    y = torch.einsum("...lj,...lij->...ij", diagonals, matrices)
    z_diagonal = z.diagonal(dim1=-2, dim2=-1)
    z_products = z_diagonal.unsqueeze(-1) * z_diagonal.unsqueeze(-2)
    denominator = z_products - z.square()
    separable = denominator > torch.finfo(z_products.dtype).eps * z_products
    move = (z * y.mT - z_diagonal.unsqueeze(-1) * y) / torch.where(separable, denominator, 1)
    move = torch.where(separable, move, 0)
    length = torch.linalg.matrix_norm(move, keepdim=True)
    return move * (_LARGEST_UPDATE / length.clamp_min(_LARGEST_UPDATE))


def _joint_diagonalisation(problem: Problem) -> Float[Tensor, "starts *b k k"]:
    flat, slots = problem.slices, problem.slices.shape[-1]
    identity = torch.eye(problem.side, dtype=flat.dtype, device=flat.device)
    initial = identity.expand(1, *flat.shape[:-1])
    if problem.starts > 1:
        initial = torch.cat([initial, _inverse_factors(_jennrich(problem, problem.starts - 1))])
    if problem.contractions is None:
        directions = torch.eye(slots, dtype=flat.dtype, device=flat.device)
    else:
        drawn = problem.random_directions((*flat.shape[:-3], problem.contractions))
        # Sweeps only see sums over l, so that L contractions may be rotated into as few as there are slots.
        directions = torch.linalg.qr(drawn, mode="r").R
    first = joint_diagonaliser(problem.contract(directions), initial)
    second = joint_diagonaliser(problem.contract(powers(first, problem.order - 2)), first)
    return _inverse_factors(second)


def _jennrich(problem: Problem, starts: int | None = None) -> Float[Tensor, "starts *b k k"]:
    starts = problem.starts if starts is None else starts
    directions = problem.random_directions((starts, *problem.slices.shape[:-3], 2))
    one, other = problem.contract(directions).unbind(-3)
    values, vectors = torch.linalg.eig(one @ torch.linalg.pinv(other))
    # Noise may make two close eigenvalues conjugate; real and imaginary part of an eigenvector then span their plane.
    rows = torch.where(values.imag.unsqueeze(-1) < 0, vectors.imag.mT, vectors.real.mT)
    return normalize(rows, dim=-1)


METHODS: Mapping[str, Callable[[Problem], Tensor]] = {
    "joint": _joint_diagonalisation,
    "jennrich": _jennrich,
}


def _khatri_rao(one: Float[Tensor, "*b k c"], other: Float[Tensor, "*b k d"]) -> Float[Tensor, "*b k n"]:
    return (one.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)


def _inverse_factors(matrix: Float[Tensor, "*b k k"]) -> Float[Tensor, "*b k k"]:
    """From factors to the rows of their joint diagonaliser, and back; the pseudoinverse allows equal factors."""
    return normalize(torch.linalg.pinv(matrix).mT, dim=-1)


def _fit(
    flat: Float[Tensor, "*b k k s"], factors: Float[Tensor, "starts *b k k"], *, order: int
) -> tuple[Tensor, Tensor]:
    """Least-squares weights for each start, and the relative residuals they leave."""
    basis, triangle = torch.linalg.qr(powers(factors, order).mT)
    target = flat.flatten(-3).unsqueeze(-1)
    inside = basis.mT @ target
    weights = torch.linalg.pinv(triangle) @ inside
    remainder = target - basis @ (triangle @ weights)
    return weights.squeeze(-1), remainder.squeeze(-1).norm(dim=-1) / target.squeeze(-1).norm(dim=-1)


def _sort_terms(factors: Tensor, weights: Tensor, residual: Tensor, *, order: int) -> Decomposition:
    """The terms in the order and with the signs that the module's docstring states."""
    rank = weights.abs().argsort(dim=-1, descending=True)
    weights = weights.gather(-1, rank)
    factors = torch.take_along_dim(factors, rank.unsqueeze(-1), -2)
    largest = factors.gather(-1, factors.abs().argmax(-1, keepdim=True)).squeeze(-1)
    negative = (weights if order % 2 else largest) < 0
    sign = torch.where(negative, -1.0, 1.0).to(weights)
    return Decomposition(factors * sign.unsqueeze(-1), weights.abs() if order % 2 else weights, residual)
