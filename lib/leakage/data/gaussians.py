"""Draws from Gaussian laws and laws made from them, float64 on the device of the generator."""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.draws import gaussian
from leakage.precision import DTYPE


def chi_square(dof: float | Tensor, size: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    r"""Independent $\chi^2_k$ draws of shape `size`, $k \ge 0$ = `dof` broadcast to it, with $\chi^2_0 = 0$."""
    degrees = torch.as_tensor(dof, dtype=DTYPE, device=generator.device)
    # The sampler refuses shape 0, and the law with no degrees of freedom is the point mass at 0.
    shapes = (degrees.clamp_min(torch.finfo(DTYPE).tiny) / 2).expand(size)
    # PyTorch's only gamma sampler that takes a generator.
    draws = 2 * torch._standard_gamma(shapes, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
    return torch.where(degrees == 0, torch.zeros_like(draws), draws)


def bartlett_factor(
    rows: int, columns: int, batch: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*batch rows rank"]:
    r"""Draw $F$ with $FF^\top$ distributed as $GG^\top$, $G$ Gaussian `rows` × `columns`, in the fewest columns.

    If `columns` > `rows`, $F$ is square and lower triangular with $F_{ii}^2 \sim \chi^2_{\text{columns} - i}$ (counting
    from 0) and $N(0, 1)$ below the diagonal, all independent: $G = FO$ with $O$ orthonormal and independent of $F$
    (Bartlett's decomposition). Otherwise $F = G$. A quantity that depends on $GG^\top$ alone then costs the same for
    any number of columns. The entries below the diagonal are drawn before the diagonal.
    """
    if columns <= rows:
        return gaussian((*batch, rows, columns), generator=generator)
    below = gaussian((*batch, rows, rows), generator=generator).tril(-1)
    return below + bartlett_diagonal(rows, columns, batch, generator=generator)


def bartlett_diagonal(
    rows: int, columns: int, batch: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*batch rows rows"]:
    """The diagonal part of a `bartlett_factor` with more columns than rows."""
    degrees = columns - torch.arange(rows, device=generator.device)
    return torch.diag_embed(chi_square(degrees, (*batch, rows), generator=generator).sqrt())


def sphere(count: int, dimension: int, *, generator: torch.Generator) -> Float[Tensor, "count dimension"]:
    """Independent points, uniform on the unit sphere, one a row."""
    points = gaussian((count, dimension), generator=generator)
    return points / points.norm(dim=-1, keepdim=True)


def standardise(inputs: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    r"""Inputs centred and scaled by one number, so that $\lVert x \rVert^2$ is d on average, as for Gaussian rows."""
    centred = inputs.to(DTYPE) - inputs.to(DTYPE).mean(0)
    return centred / centred.square().mean().sqrt()


def gaussian_equivalent(
    inputs: Float[Tensor, "n d"], count: int, *, generator: torch.Generator
) -> Float[Tensor, "count d"]:
    """`count` Gaussian rows with the covariance of centred `inputs`; only the covariance of the data is kept."""
    inputs = inputs.to(DTYPE)
    values, vectors = torch.linalg.eigh(inputs.T @ inputs / len(inputs))
    scaled = vectors * values.clamp_min(0).sqrt()
    return gaussian((count, inputs.shape[1]), generator=generator) @ scaled.T
