r"""Gaussian matrices seen only through their Gram matrix.

If $G$ is a `rows` × `columns` matrix of independent $N(0, 1)$, whatever depends on $GG^\top$ alone can be computed
from a factor with at most `rows` columns (Bartlett's decomposition). This is what makes the samplers of
`latent_space` and `relu_features` independent of the number of features or of inputs. Nothing here but the draw
itself is random.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.synthetic import chi_square, gaussian


def gaussian_factor(
    rows: int, columns: int, batch: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*batch rows rank"]:
    r"""Draw $F$ with $FF^\top$ distributed as $GG^\top$, $G$ Gaussian `rows` × `columns`, in the fewest columns.

    If `columns` > `rows`, $F$ is square and lower triangular with $F_{ii}^2 \sim \chi^2_{\text{columns} - i}$ (counting
    from 0) and $N(0, 1)$ below the diagonal, all independent: $G = FO$ with $O$ orthonormal and independent of $F$.
    Otherwise $G$ itself has no more columns than rows and is returned.

    Args:
        rows: order of the Gram matrix, at least 1.
        columns: degrees of freedom, at least 0.
        batch: leading dimensions of the result.

    Raises:
        ValueError: if `rows` is below 1 or `columns` is negative.
    """
    if rows < 1 or columns < 0:
        raise ValueError(f"`rows` must be at least 1 and `columns` at least 0, got {rows} and {columns}.")
    if columns <= rows:
        return gaussian((*batch, rows, columns), generator=generator)
    below = gaussian((*batch, rows, rows), generator=generator).tril(-1)
    degrees = columns - torch.arange(rows, device=generator.device)
    return below + torch.diag_embed(chi_square(degrees, (*batch, rows), generator=generator).sqrt())
