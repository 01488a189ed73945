r"""The subspace that the inputs span: exact, from the rows of a gradient, or estimated, from its moments.

Each row of $G = \frac1m R X$ is a combination of the inputs, so that the row space of G is their span, without any
error. Moments of the gradient are averages over neurons, so that the span from them has a sampling error. A basis is
(d, B) with orthonormal columns. If the span has a clear gap, the random start does not change the result.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import draws
from leakage.inversion.moments import Moments

_DENSE = 512  # up to this dimension, all eigenvectors of a moment together cost less than the leading ones alone
_OVERSAMPLING = 8  # extra columns of a random block, beyond the number of vectors wanted
_KRYLOV_DEPTH = 8  # blocks of a Krylov space, before eigenvectors are computed in it
_RESTARTS = 40  # at most; a subspace with a gap needs one to three
_NEW_DIRECTION = 1e-12  # of the norm of a block: what it adds to a Krylov space; rounding leaves 1e-15
_EIGENVECTOR_TOLERANCE = 1e-8  # relative to the largest eigenvalue, far below any sampling error
_SHARPENING_STEPS = 2
_ROUNDING_GAP = 1e3  # a larger gap separates the inputs from rounding: noise gives 1 to 10, float64 1e8 and more


@dataclass(frozen=True, eq=False)
class Span:
    r"""A subspace, and how clearly it differs from the other directions.

    Attributes:
        basis: V, its orthonormal basis.
        gap: $|e_B| / |e_{B+1}|$ of the eigenvalues or singular values e, in descending order of their absolute values;
            infinite if $e_{B+1}$, the first outside the subspace, is 0.
    """

    basis: Float[Tensor, "d b"]
    gap: float


def from_rows(gradient: Float[Tensor, "m d"], *, batch: int | None = None, generator: torch.Generator) -> Span:
    r"""The row space of the gradient G of the hidden weights, which is the span of the inputs.

    $$ G = \tfrac1m R X, \quad R_{ji} = r_i\, \sigma'(w_j^\top x_i), \qquad Q = \operatorname{qr}(G^\top \Omega), \quad
       G Q = A \Sigma B^\top, \quad V = Q B . $$

    Exact up to rounding where R has rank B: every $r_i \ne 0$, $m \ge B$, $\sigma$ not linear, and independent inputs.
    A gradient with noise has full rank; then V contains its leading right singular vectors. B is `batch`, by default
    the number of singular values before their largest drop; `gradient` may be any multiple of G.

    Source: not in Wang et al.; the sketch is Halko, Martinsson and Tropp (2011), Algorithm 4.1.
    """
    limit = min(gradient.shape)
    columns = min(limit, (batch or _OVERSAMPLING) + _OVERSAMPLING)
    while True:
        start = draws.gaussian((columns, len(gradient)), generator=generator, like=gradient)
        sizes, basis = _singular_pairs(gradient, torch.linalg.qr((start @ gradient).mT).Q)
        rounding = max(gradient.shape) * torch.finfo(gradient.dtype).eps * float(sizes[0])
        exhausted = columns == limit or float(sizes[-1]) <= rounding
        if exhausted or batch:
            break
        columns = min(limit, 2 * columns)
    rank = int((sizes > rounding).sum())
    if batch is None:
        batch = _largest_drop(sizes, rounding)
    if rank < batch:
        raise ValueError(
            f"`gradient` has rank {rank}, too low for `batch` = {batch}: inputs depend on each other, a residual is 0, "
            "or the activation is linear."
        )
    if exhausted:
        return _leading_span(sizes, basis, batch)
    if float(sizes[batch - 1]) >= _ROUNDING_GAP * float(sizes[batch]):
        wide = torch.linalg.qr(gradient.mT @ torch.linalg.qr(gradient @ basis).Q).Q
    else:
        wide = _eigenpairs(lambda vectors: gradient.mT @ (gradient @ vectors), basis, count=batch + 1)[1]
    return _leading_span(*_singular_pairs(gradient, wide), batch)


def from_moments(
    moments: Moments,
    *,
    batch: int,
    order: int = 2,
    direction: Float[Tensor, " d"] | None = None,
    generator: torch.Generator,
) -> Span:
    r"""The leading eigenvectors of the moment of order 2, or of the moment of order 3 in a direction a.

    Residuals may be negative, so eigenvalues are compared by their absolute values. For order 3 every $a^\top x_i$
    must differ from 0. A direction chosen without the inputs has $a^\top x_i \sim d^{-1/2}$, which makes the signal
    $\sqrt d$ times smaller. The default a, the moment of order 1, is a combination of the inputs and avoids this.

    Source: Wang et al., Section 4.1 and Remark 3, where a is any unit vector.
    """
    weights, width = moments.weights, moments.weights.shape[1]
    if order == 2:
        operator = moments.second
    else:
        direction = moments.first if direction is None else direction
        unit = direction / torch.linalg.vector_norm(direction)

        def operator(vectors: Tensor) -> Tensor:
            return moments.third(vectors, unit)

    columns = min(width, batch + _OVERSAMPLING)
    start = draws.gaussian((width, columns), generator=generator, like=weights)
    values, vectors = _eigenpairs(operator, torch.linalg.qr(start).Q, count=min(width, batch + 1))
    return _leading_span(values, vectors, batch)


def sharpen(moments: Moments, span: Span) -> Span:
    r"""A more accurate span, from the moment of order 3 contracted with vectors of the given span.

    Two slots of $T = s_3 \sum_i r_i x_i^{\otimes 3}$ are projected onto V, and V becomes the B leading left singular
    vectors of $T(I, V, V)$ as a d by $B^2$ matrix. No direction has to be chosen, and residuals cannot cancel. An input
    that is orthogonal to the given span cannot be found.

    Source: not in Wang et al.; this is orthogonal iteration for a symmetric tensor (De Lathauwer et al. 2000).
    """
    for _ in range(_SHARPENING_STEPS):
        basis = span.basis
        slices = torch.cat([moments.third(basis, column) for column in basis.mT], dim=1)
        vectors, sizes, _ = torch.linalg.svd(slices, full_matrices=False)
        span = _leading_span(sizes, vectors, basis.shape[1])
    return span


def _largest_drop(sizes: Tensor, rounding: float) -> int:
    """The number of singular values before their largest drop, as a ratio of neighbours."""
    floored = sizes.clamp_min(rounding)
    drops = torch.cat([torch.ones_like(sizes[:1]), floored[:-1] / floored[1:]])
    if not float(drops.max()) >= _ROUNDING_GAP:
        raise ValueError(
            "`batch` must be given: no drop of the singular values is large enough to show it; the largest is a "
            f"factor {float(drops.max()):.3g}, below {_ROUNDING_GAP:g}."
        )
    return int(drops.argmax())


def _singular_pairs(matrix: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values and right singular vectors of a matrix within the span of `basis`, without its Gram matrix."""
    image = (basis.mT @ matrix.mT).mT  # for tall matrices, twice as fast as matrix @ basis
    _, sizes, right = torch.linalg.svd(torch.linalg.qr(image, mode="r").R)
    return sizes, basis @ right.mT


def _leading_span(values: Tensor, vectors: Tensor, batch: int) -> Span:
    """The span of the first `batch` vectors."""
    least, following = float(values[batch - 1].abs()), float(values[batch].abs()) if len(values) > batch else 0.0
    return Span(vectors[:, :batch], least / following if following > 0 else math.inf)


def _eigenpairs(operator: Callable[[Tensor], Tensor], block: Tensor, *, count: int) -> tuple[Tensor, Tensor]:
    """The eigenpairs of largest absolute eigenvalue of a symmetric operator, by restarted block Krylov spaces."""
    if len(block) <= max(_DENSE, _KRYLOV_DEPTH * block.shape[1]):
        return _ritz_pairs(torch.eye(len(block), dtype=block.dtype, device=block.device), operator, count)[:2]
    for _ in range(_RESTARTS):
        values, block, errors = _ritz_pairs(_krylov_basis(operator, block), operator, block.shape[1])
        if float(errors[:count].max()) <= _EIGENVECTOR_TOLERANCE * float(values[0].abs()):
            break
    return values[:count], block[:, :count]


def _ritz_pairs(space: Tensor, operator: Callable[[Tensor], Tensor], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The leading eigenvalues λ and eigenvectors v of an operator A within a subspace, and the errors ‖A v - λ v‖."""
    image = operator(space)
    small = space.mT @ image
    values, vectors = torch.linalg.eigh((small + small.mT) / 2)
    order = values.abs().argsort(descending=True)[:count]
    values, vectors = values[order], vectors[:, order]
    found = space @ vectors
    return values, found, torch.linalg.vector_norm(image @ vectors - found * values, dim=0)


def _krylov_basis(operator: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
    """An orthonormal basis of the columns of X, A X, A² X, …, for the block X and the operator A.

    Directions that the space contains already are left out: an operator of low rank, such as the moment of order 2 of
    a hidden gradient, soon has no others, and rounding would stand in their place.
    """
    space = newest = block
    for _ in range(_KRYLOV_DEPTH - 1):
        newest = operator(newest)
        least = _NEW_DIRECTION * float(torch.linalg.matrix_norm(newest))
        for _ in range(2):  # once leaves a rounding error if the space contains nearly all of a vector
            left, sizes, _ = torch.linalg.svd(newest - space @ (space.mT @ newest), full_matrices=False)
            newest, least = left[:, sizes > least], 0.5  # what is new has length one the second time
        if not newest.shape[1]:
            break
        space = torch.cat([space, newest], dim=1)
    return space
