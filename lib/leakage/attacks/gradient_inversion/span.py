r"""The subspace that the inputs span: exactly, from the rows of a gradient, or estimated, from its moments.

Each row of $G = \frac1m R X$ is a combination of the inputs, so its row space is theirs, without any sampling error;
moments of the gradient average that error over the neurons instead. A basis is (d, B) with orthonormal columns. The
size of what was left out is reported as a gap and never judged here; random starts only cost time and are not seen in
a result with a gap.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.moments import Moments

_DENSE = 512  # dimensions up to which all eigenvectors of a moment cost less than the leading ones alone
_OVERSAMPLING = 8  # columns of a random block beyond the number asked for
_DEPTH = 8  # products with an operator before its best subspace is read off
_ROUNDS = 40  # how often that is repeated at most; a subspace with a gap needs one to three
_SETTLED = 1e-8  # of the largest eigenvalue: what may be left over of an eigenvector, far below any sampling error
_SHARPENINGS = 2
_CLEAR = 1e3  # a gap that tells data from rounding: sampling or added noise gives 1 to 10, float64 1e8 and more


@dataclass(frozen=True, eq=False)
class Span:
    r"""A subspace and how clearly it stands out.

    Attributes:
        basis: V, its orthonormal basis.
        sizes: the eigenvalues or singular values that belong to it, largest size first.
        next_size: the largest one that does not.
    """

    basis: Float[Tensor, "d b"]
    sizes: Float[Tensor, " b"]
    next_size: float

    @property
    def gap(self) -> float:
        r"""$|e_B| / |e_{B+1}|$; infinite where nothing is left over."""
        least = float(self.sizes[-1].abs())
        return least / self.next_size if self.next_size > 0 else math.inf


def from_rows(gradient: Float[Tensor, "m d"], *, batch: int | None = None, generator: torch.Generator) -> Span:
    r"""The row space of the gradient G of the hidden weights, which is the span of the inputs.

    $$ G = \tfrac1m R X, \quad R_{ji} = r_i\, \sigma'(w_j^\top x_i), \qquad Q = \operatorname{qr}(G^\top \Omega), \quad
       G Q = A \Sigma B^\top, \quad V = Q B . $$

    Exact up to rounding where R has rank B: every $r_i \ne 0$, $m \ge B$, $\sigma$ not linear, and independent inputs.
    A gradient with noise has full rank; then V is its leading right singular vectors.

    Source: not in Wang et al.; the sketch is Halko, Martinsson and Tropp (2011), Algorithm 4.1.

    Args:
        gradient: G, or any multiple of it.
        batch: B; `None` reads it off the singular values, as the count before their largest drop.
        generator: draws Ω.

    Raises:
        ValueError: if `gradient` is no matrix, is zero or not finite, `batch` is below 1 or above m or d, the rank is
            below `batch` (equal or dependent inputs, a residual of zero, or a linear activation), or there is no
            clear drop to read `batch` off.
    """
    limit = _check(gradient, batch)
    columns = min(limit, (batch or _OVERSAMPLING) + _OVERSAMPLING)
    while True:
        start = torch.randn((columns, len(gradient)), generator=generator, dtype=gradient.dtype, device=gradient.device)
        sizes, basis = _leading(gradient, _orthonormal((start @ gradient).mT))
        rounding = _rounding(gradient, sizes)
        exhausted = columns == limit or float(sizes[-1]) <= rounding
        if exhausted or batch:
            break
        columns = min(limit, 2 * columns)
    rank = int((sizes > rounding).sum())
    if batch is None:
        batch = _largest_drop(sizes, rounding)
    _refuse(rank, batch)
    if exhausted:
        return _cut(sizes, basis, batch)
    if float(sizes[batch - 1]) >= _CLEAR * float(sizes[batch]):
        wide = _orthonormal(gradient.mT @ _orthonormal(gradient @ basis))
    else:
        wide = _principal(lambda vectors: gradient.mT @ (gradient @ vectors), basis, kept=batch + 1)[1]
    return _cut(*_leading(gradient, wide), batch)


def check_rank(gradient: Float[Tensor, "m d"], *, batch: int, generator: torch.Generator) -> None:
    """Raise the errors of `from_rows`: a rank below `batch` shows in a sketch of a few more rows."""
    columns = min(_check(gradient, batch), batch + _OVERSAMPLING)
    start = torch.randn((columns, len(gradient)), generator=generator, dtype=gradient.dtype, device=gradient.device)
    sizes = torch.linalg.svdvals(start @ gradient)
    _refuse(int((sizes > _rounding(gradient, sizes)).sum()), batch)


def from_moments(
    moments: Moments,
    *,
    batch: int,
    order: int = 2,
    direction: Float[Tensor, " d"] | None = None,
    generator: torch.Generator,
) -> Span:
    r"""The leading eigenvectors, by size, of the moment of order 2, or of order 3 in one direction a.

    Residuals have either sign, so that both ends of the spectrum count. For order 3 every $a^\top x_i$ must differ
    from 0. A fixed a has $a^\top x_i \sim d^{-1/2}$, which costs a factor $\sqrt d$; the moment of order 1, the
    default, is a combination of the inputs and does not.

    Source: Wang et al., Section 4.1 and Remark 3, where a is any unit vector.

    Raises:
        ValueError: if `batch` is not between 1 and d, `order` is neither 2 nor 3, or `direction` is given for order 2,
            is zero or has not d entries.
    """
    weights, width = moments.weights, moments.weights.shape[1]
    arguments.count("batch", batch, least=1, most=width)
    operator = _operator(moments, order, direction)
    columns = min(width, batch + _OVERSAMPLING)
    start = torch.randn((width, columns), generator=generator, dtype=weights.dtype, device=weights.device)
    values, vectors = _principal(operator, _orthonormal(start), kept=min(width, batch + 1))
    return _cut(values, vectors, batch)


def sharpen(moments: Moments, span: Span) -> Span:
    r"""A span improved by the moment of order 3, contracted within the span itself.

    Two slots of $T = s_3 \sum_i r_i x_i^{\otimes 3}$ are projected onto V, and V becomes the B leading left singular
    vectors of $T(I, V, V)$ as a d by $B^2$ matrix: no direction has to be chosen, and residuals cannot cancel. An input
    that the given span misses altogether stays lost.

    Source: not in Wang et al.; this is orthogonal iteration for a symmetric tensor (De Lathauwer et al. 2000).
    """
    for _ in range(_SHARPENINGS):
        basis = span.basis
        slices = torch.cat([moments.third(basis, column) for column in basis.mT], dim=1)
        vectors, sizes, _ = torch.linalg.svd(slices, full_matrices=False)
        span = _cut(sizes, vectors, basis.shape[1])
    return span


def _check(gradient: Tensor, batch: int | None) -> int:
    """Raise the errors of `from_rows` that need no rank, and give the largest rank there can be."""
    arguments.filled("gradient", arguments.real("gradient", gradient, "m d"))
    if not bool(gradient.any()):
        raise ValueError("`gradient` must not be zero: it has no row space.")
    limit = min(gradient.shape)
    if batch is not None:
        arguments.count("batch", batch, least=1, most=limit)
    return limit


def _rounding(gradient: Tensor, sizes: Tensor) -> float:
    """What rounding leaves of a singular value that is 0."""
    return max(gradient.shape) * torch.finfo(gradient.dtype).eps * float(sizes[0])


def _refuse(rank: int, batch: int) -> None:
    if rank < batch:
        raise ValueError(
            f"`gradient` has rank {rank}, too low for `batch` = {batch}: inputs depend on each other, a residual is 0, "
            "or the activation is linear."
        )


def _operator(moments: Moments, order: int, direction: Tensor | None) -> Callable[[Tensor], Tensor]:
    if order == 2 and direction is None:
        return moments.second
    if order != 3:
        raise ValueError(f"`order` must be 2, or 3 with or without a `direction`; got {order!r}.")
    direction = moments.first if direction is None else direction
    length = torch.linalg.vector_norm(arguments.real("direction", direction, like=moments.weights))
    if direction.shape != moments.weights.shape[1:] or not bool(length > 0):
        raise ValueError(f"`direction` must be {moments.weights.shape[1]} numbers, not all 0; got {direction!r}.")
    return lambda vectors: moments.third(vectors, direction / length)


def _largest_drop(sizes: Tensor, rounding: float) -> int:
    """How many sizes come before the largest ratio of neighbours."""
    floored = sizes.clamp_min(rounding)
    drops = torch.cat([torch.ones_like(sizes[:1]), floored[:-1] / floored[1:]])
    if not float(drops.max()) >= _CLEAR:
        raise ValueError(f"`batch` must be given: no drop of the singular values exceeds {float(drops.max()):.3g}.")
    return int(drops.argmax())


def _orthonormal(vectors: Tensor) -> Tensor:
    return torch.linalg.qr(vectors).Q


def _leading(matrix: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values and right singular vectors of a matrix within the span of `basis`, with no square of them."""
    image = (basis.mT @ matrix.mT).mT  # for tall matrices twice as fast as matrix @ basis
    _, sizes, right = torch.linalg.svd(torch.linalg.qr(image, mode="r").R)
    return sizes, basis @ right.mT


def _cut(values: Tensor, vectors: Tensor, batch: int) -> Span:
    """The first `batch` of the pairs as a span, the next one as what was left out."""
    left = float(values[batch].abs()) if len(values) > batch else 0.0
    return Span(vectors[:, :batch], values[:batch], left)


def _principal(operator: Callable[[Tensor], Tensor], block: Tensor, *, kept: int) -> tuple[Tensor, Tensor]:
    """The eigenpairs of largest size of a symmetric operator, by restarted block Krylov spaces, largest first."""
    if len(block) <= max(_DENSE, _DEPTH * block.shape[1]):
        return _ritz(torch.eye(len(block), dtype=block.dtype, device=block.device), operator, kept)[:2]
    for _ in range(_ROUNDS):
        values, block, left = _ritz(_krylov(operator, block), operator, block.shape[1])
        if float(left[:kept].max()) <= _SETTLED * float(values[0].abs()):
            break
    return values[:kept], block[:, :kept]


def _ritz(space: Tensor, operator: Callable[[Tensor], Tensor], kept: int) -> tuple[Tensor, Tensor, Tensor]:
    """The leading eigenpairs of an operator within a subspace, and how far each is from one of the operator itself."""
    image = operator(space)
    small = space.mT @ image
    values, vectors = torch.linalg.eigh((small + small.mT) / 2)
    order = values.abs().argsort(descending=True)[:kept]
    values, vectors = values[order], vectors[:, order]
    found = space @ vectors
    return values, found, torch.linalg.vector_norm(image @ vectors - found * values, dim=0)


def _krylov(operator: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
    """An orthonormal basis of the span of the columns of X, A X, A² X, …"""
    space = newest = block
    for _ in range(_DEPTH - 1):
        newest = operator(newest)
        for _ in range(2):  # once more, as orthogonality to a space that holds nearly all of a vector needs
            newest = _orthonormal(newest - space @ (space.mT @ newest))
        space = torch.cat([space, newest], dim=1)
    return space
