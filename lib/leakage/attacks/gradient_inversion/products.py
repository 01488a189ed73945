r"""Products of a network's weights with what came back of its gradient, in fewer operations than they have entries.

Of a matrix of few directions only these are multiplied, and of a symmetric product only one half is made. Results are
those of the plain products up to rounding. Nothing here is random.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_ROWS = 8192  # rows at a time that are compared with their parts
_SEEN = 32  # rows from which a low rank is guessed
_LARGE, _BLOCKS = 256, 4  # dimensions from which on half of a symmetric product is faster than all of it, in one go


class Parts(NamedTuple):
    r"""A matrix as $A V^\top$: of as few columns as it has a rank, or itself and the identity."""

    shares: Float[Tensor, "m r"]
    basis: Float[Tensor, "d r"]


def parts(matrix: Float[Tensor, "m d"]) -> Parts:
    """The matrix by its few directions where it has few: a client's gradient has as many as its batch, unless noisy.

    A low rank is guessed from some rows and checked on all: what the parts leave over is rounding.
    """
    rows, width = matrix.shape
    whole = Parts(matrix, torch.eye(width, dtype=matrix.dtype, device=matrix.device))
    if min(rows, width) < _SEEN:
        return whole
    _, sizes, right = torch.linalg.svd(matrix[:: rows // _SEEN][:_SEEN], full_matrices=False)
    rounding = _SEEN * torch.finfo(matrix.dtype).eps
    basis = right[sizes > rounding * sizes[0]].mT.contiguous()
    if 4 * basis.shape[1] > width:
        return whole
    shares = matrix @ basis
    left = [
        (part - share @ basis.mT).norm() for part, share in zip(matrix.split(_ROWS), shares.split(_ROWS), strict=True)
    ]
    return Parts(shares, basis) if bool(torch.stack(left).norm() <= rounding * shares.norm()) else whole


def squares(weights: Float[Tensor, "m d"], values: Float[Tensor, " m"]) -> Float[Tensor, "d d"]:
    r"""$\sum_j c_j w_j w_j^\top$; of a large matrix only the blocks on one side of the diagonal."""
    weighted, width = values.unsqueeze(-1) * weights, weights.shape[1]
    if width < _LARGE:
        return weights.mT @ weighted
    step, total = -(-width // _BLOCKS), weights.new_empty(width, width)
    for start in range(0, width, step):
        part = weighted[:, start : start + step].mT @ weights[:, start:]
        total[start : start + step, start:] = part
        total[start:, start : start + step] = part.mT
    return total


def squares_times(
    weights: Float[Tensor, "m d"], values: Float[Tensor, " m"], vectors: Float[Tensor, "d k"]
) -> Float[Tensor, "d k"]:
    """`squares` times the vectors; formed only where they are as many as a basis has."""
    if vectors.shape[1] >= vectors.shape[0] / 2:
        return squares(weights, values) @ vectors
    return weights.mT @ (values.unsqueeze(-1) * (weights @ vectors))
