r"""One matrix that makes several symmetric ones as diagonal as possible, of any signs and without orthogonality.

Leading dimensions are independent problems. Nothing here draws, or knows of tensors or gradients.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_MOST_SWEEPS = 300
_STILL = 1e-13  # a sweep that changes the diagonaliser by less has arrived
_CHECK_EVERY = 5  # sweeps between two looks at whether all have arrived: each look waits for the device
_LONGEST_SWEEP = 0.9  # the Frobenius norm below which I + E is invertible (Ziehe et al. 2004, Section 3)


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
    current = torch.nn.functional.normalize(start, dim=-1)
    for sweep in range(_MOST_SWEEPS):
        outer = current.unsqueeze(-3)
        move = _sweep(outer @ matrices @ outer.mT)
        current = torch.nn.functional.normalize(current + move @ current, dim=-1)
        if sweep % _CHECK_EVERY == 0 and bool(move.abs().amax() < _STILL):
            break
    return current


def _sweep(matrices: Float[Tensor, "*b l k k"]) -> Float[Tensor, "*b k k"]:
    """E of `joint_diagonaliser`; 0 for pairs whose diagonals are proportional, which it cannot tell apart."""
    diagonals = matrices.diagonal(dim1=-2, dim2=-1)
    products = diagonals.mT @ diagonals
    mixed = torch.einsum("...lj,...lij->...ij", diagonals, matrices)
    own = products.diagonal(dim1=-2, dim2=-1)
    spread = own.unsqueeze(-1) * own.unsqueeze(-2)
    denominator = spread - products.square()
    told_apart = denominator > torch.finfo(spread.dtype).eps * spread
    move = (products * mixed.mT - own.unsqueeze(-1) * mixed) / torch.where(told_apart, denominator, 1)
    move = torch.where(told_apart, move, 0)
    length = torch.linalg.matrix_norm(move, keepdim=True)
    return move * (_LONGEST_SWEEP / length.clamp_min(_LONGEST_SWEEP))
