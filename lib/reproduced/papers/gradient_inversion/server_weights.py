r"""Hidden weights that a server may send: each row looks standard normal, and averages over the rows converge faster.

Moments of a gradient are averages over the rows, and their error depends on how evenly the rows cover the sphere.
Every kind has $\E\, w_j w_j^\top = I$; for `white` kinds $W^\top W / m = I$ holds exactly. Antithetic rows come in
pairs w, -w: the second half of the matrix is minus the first. This cancels moments of the wrong parity; for an odd or
even activation it only repeats the first half.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

from leakage import draws
from leakage.data.gaussians import chi_square
from leakage.draws import gaussian


def draw_weights(kind: str, *, m: int, d: int, generator: torch.Generator) -> Float[Tensor, "m d"]:
    r"""Weights of m neurons for inputs of dimension d, of a kind in `KINDS`.

    Args:
        kind: `iid` for independent rows; `orthogonal` for blocks of d orthogonal rows with the lengths of Gaussian
            ones; `white` for columns that are orthogonal over all rows; `sobol` for scrambled Sobol points; and the
            first three with `antithetic` pairs.
    """
    rows, antithetic = KINDS[kind]
    if not antithetic:
        return rows(m, d, generator)
    half = rows(m // 2, d, generator)
    return torch.cat([half, -half])


def _iid(m: int, d: int, generator: torch.Generator) -> Tensor:
    return gaussian((m, d), generator=generator)


def _haar(blocks: tuple[int, ...], rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniformly distributed matrices with orthonormal columns; the signs that QR chooses are undone."""
    q, r = torch.linalg.qr(gaussian((*blocks, rows, columns), generator=generator))
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def _orthogonal(m: int, d: int, generator: torch.Generator) -> Tensor:
    # A fixed length √d would change the fourth moments by a factor d/(d + 2), an error that no number of rows removes.
    directions = _haar((-(-m // d),), d, d, generator).reshape(-1, d)[:m]
    return directions * chi_square(d, (m, 1), generator=generator).sqrt()


def _white(m: int, d: int, generator: torch.Generator) -> Tensor:
    return m**0.5 * _haar((), m, d, generator)


def _sobol(m: int, d: int, generator: torch.Generator) -> Tensor:
    seed = draws.integers(2**31, (), generator=generator)
    points = SobolEngine(d, scramble=True, seed=int(seed)).draw(m, dtype=torch.float64)
    least = 2.0**-31  # half the distance between the points' levels: 0 itself would become an infinite weight
    return torch.special.ndtri(points.clamp(least, 1 - least)).to(generator.device)


KINDS: Mapping[str, tuple[Callable[[int, int, torch.Generator], Tensor], bool]] = {
    "iid": (_iid, False),
    "antithetic": (_iid, True),
    "orthogonal": (_orthogonal, False),
    "orthogonal_antithetic": (_orthogonal, True),
    "white": (_white, False),
    "white_antithetic": (_white, True),
    "sobol": (_sobol, False),
}
"""What draws the rows, and whether the second half is minus the first."""
