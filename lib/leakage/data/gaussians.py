"""Draws from the synthetic laws of the papers, as float64 tensors on the device of the generator.

Nothing here reads a file or keeps a state of its own: the generator passed in is the only source of randomness.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.runtime import DTYPE

_MANY = 2**13  # draws from which on vectorised functions are worth their overhead
_TOGETHER = 2**14  # of them, a multiple of 16: 128 KiB stay in the cache


def gaussian(size: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """Independent standard normal draws of shape `size`: up to rounding those of `torch.randn`, which are slower.

    On a CPU PyTorch turns sixteen uniform numbers at a time into normal ones by the method of Box and Muller, one by
    one in float64; where their number is no multiple of sixteen, the last sixteen are drawn again. The same is done
    here with whole arrays, and leaves the generator in the same state.
    """
    count = math.prod(size)
    if generator.device.type != "cpu" or count < _MANY:
        return torch.randn(size, generator=generator, device=generator.device, dtype=DTYPE)
    drawn = torch.rand(count, generator=generator, dtype=DTYPE)
    for part in drawn[: count - count % 16].split(_TOGETHER):
        _box_muller(part)
    if count % 16:
        drawn[-16:] = _box_muller(torch.rand(16, generator=generator, dtype=DTYPE))
    return drawn.view(size)


def _box_muller(uniform: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Normal numbers from uniform ones, sixteen from sixteen, in place."""
    first, second = uniform.view(-1, 2, 8).unbind(1)
    radius = (1 - first).log_().mul_(-2).sqrt_()
    angle = second * (2 * math.pi)
    torch.mul(radius, angle.cos(), out=first)
    torch.mul(radius, angle.sin_(), out=second)
    return uniform


def chi_square(dof: float | Tensor, size: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    r"""Independent $\chi^2_k$ draws of shape `size`, with $\chi^2_0 = 0$.

    Args:
        dof: Degrees of freedom $k \ge 0$, a number or a tensor that broadcasts to `size`.
        size: Shape of the result.
        generator: Source of randomness; its device is the result's.

    Raises:
        ValueError: if a degree of freedom is negative or not finite.
    """
    degrees = arguments.real("dof", torch.as_tensor(dof, dtype=DTYPE, device=generator.device), least=0)
    # Gamma refuses shape 0, and the law of no degrees of freedom is the point mass at 0.
    shapes = (degrees.clamp_min(torch.finfo(DTYPE).tiny) / 2).expand(size)
    # The one gamma sampler of torch that takes a generator.
    draws = 2 * torch._standard_gamma(shapes, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
    return torch.where(degrees == 0, torch.zeros_like(draws), draws)


def gaussian_factor(
    rows: int, columns: int, batch: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*batch rows rank"]:
    r"""Draw $F$ with $FF^\top$ distributed as $GG^\top$, $G$ Gaussian `rows` × `columns`, in the fewest columns.

    If `columns` > `rows`, $F$ is square and lower triangular with $F_{ii}^2 \sim \chi^2_{\text{columns} - i}$ (counting
    from 0) and $N(0, 1)$ below the diagonal, all independent: $G = FO$ with $O$ orthonormal and independent of $F$
    (Bartlett's decomposition). Otherwise $G$ itself has no more columns than rows and is returned. What depends on
    $GG^\top$ alone then costs the same for any number of columns.

    Args:
        rows: order of the Gram matrix, at least 1.
        columns: degrees of freedom, at least 0.
        batch: leading dimensions of the result.
        generator: draws what is below the diagonal, then the diagonal.

    Raises:
        ValueError: if `rows` is below 1 or `columns` is negative.
    """
    rows, columns = arguments.count("rows", rows, least=1), arguments.count("columns", columns)
    if columns <= rows:
        return gaussian((*batch, rows, columns), generator=generator)
    below = gaussian((*batch, rows, rows), generator=generator).tril(-1)
    return below + factor_diagonal(rows, columns, batch, generator=generator)


def factor_diagonal(
    rows: int, columns: int, batch: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*batch rows rows"]:
    """The diagonal part of a `gaussian_factor` with more columns than rows; the caller draws what is below it."""
    degrees = columns - torch.arange(rows, device=generator.device)
    return torch.diag_embed(chi_square(degrees, (*batch, rows), generator=generator).sqrt())


def sphere(count: int, dimension: int, *, generator: torch.Generator) -> Tensor:
    """`count` independent points, uniform on the unit sphere of R^`dimension`, one a row.

    Raises:
        ValueError: if `count` is negative or `dimension` below 1.
    """
    size = arguments.count("count", count), arguments.count("dimension", dimension, least=1)
    points = gaussian(size, generator=generator)
    return points / points.norm(dim=-1, keepdim=True)


def standardised(inputs: Tensor) -> Tensor:
    r"""Inputs centred and scaled by one number, so that $\lVert x \rVert^2$ is d on average: the norm of Gaussian rows.

    Raises:
        ValueError: if an input is not finite, or all are equal.
    """
    # Compared before centring, whose rounding makes small differences out of none.
    if not bool(torch.isfinite(inputs).all()) or bool((inputs == inputs[:1]).all()):
        raise ValueError("`inputs` must be finite and not all equal: there is nothing to scale.")
    centred = inputs.to(DTYPE) - inputs.to(DTYPE).mean(0)
    return centred / centred.square().mean().sqrt()


def gaussian_twin(inputs: Tensor, count: int, *, generator: torch.Generator) -> Tensor:
    r"""`count` Gaussian rows with the covariance of centred `inputs`: what is left of data when only it matters.

    Raises:
        ValueError: if `inputs` are not finite rows, or `count` is negative.
    """
    inputs = arguments.real("inputs", inputs, "n d").to(DTYPE)
    count = arguments.count("count", count)
    values, vectors = torch.linalg.eigh(inputs.T @ inputs / len(inputs))
    spread = vectors * values.clamp_min(0).sqrt()
    return gaussian((count, inputs.shape[1]), generator=generator) @ spread.T
