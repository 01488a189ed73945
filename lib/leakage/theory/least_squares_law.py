r"""Minimum-norm least squares: the exact law of one prediction at finite n, in O(1) per sample or by quadrature.

Given an outsider's design the prediction is Gaussian, with a variance that depends on three independent scalars:

$$ \hat y_0 = \sqrt{r^2 B\,\bigl(1/D + \tau^2 / K\bigr)}\;N, \qquad
   B \sim \mathrm{Beta}\bigl(\tfrac n2, \tfrac{p - n}2\bigr), \quad
   K \sim \chi^2_{|p - n| + 1}, \quad \tau^2 = \sigma^2 + \chi^2_{D - p} / D, $$

with $B = 1$ for $p \le n$. So the noise part is Student with $|p - n| + 1$ degrees of freedom. This replaces the n×D
draw and the least squares solve of Lemma C.1 of Tan et al. (2022), and is not in the paper; the chapter proves it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage.data.gaussians import chi_square, gaussian
from leakage.runtime import DTYPE
from leakage.theory.least_squares import Design, Query
from leakage.theory.scale_mixture import Laws, ScaleMixture, total_variation

NODES = (24, 64, 8)
"""Quadrature nodes in B, K and τ². Total variation is good to 2e-5 from n = 100 on. At small sizes the laws have
heavier tails, and it is good to 4e-5 at n = 12, to 7e-5 at n = 2 and to 1.4e-4 at n = p = 1."""


def sample_outsider(
    design: Design, p: int, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    """`trials` predictions at a fresh point, for any n and p; the design is drawn anew for each."""
    size = (*query.used.shape, trials)
    scale = _outsider_scale(design, p, size, generator)
    return (query.used.unsqueeze(-1) * scale).sqrt() * gaussian(size, generator=generator)


def _outsider_scale(design: Design, p: int, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws of $B (1/D + τ²/K)$: the prediction's variance for r² = 1."""
    beta = torch.ones(size, dtype=DTYPE, device=generator.device)
    if p > design.n:
        kept = chi_square(design.n, size, generator=generator)
        beta = kept / (kept + chi_square(p - design.n, size, generator=generator))
    tail = chi_square(abs(p - design.n) + 1, size, generator=generator)
    return beta * (1 / design.D + unexplained(design, p, size, generator=generator) / tail)


def unexplained(design: Design, p: int, size: tuple[int, ...], *, generator: torch.Generator) -> Float[Tensor, "*size"]:
    r"""Draws of $\tau^2$: the label's variance given the features in use, conditional on β."""
    return design.sigma**2 + chi_square(design.D - p, size, generator=generator) / design.D


def sample_member(
    design: Design, p: int, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    r"""`trials` predictions at a training point.

    For $p \ge n$ the model interpolates and the prediction is the label, $N(0, \lVert x_0 \rVert^2/D + \sigma^2)$. For
    $p < n$ leaving the point out gives, with $q = r^2 / \chi^2_{n-p}$ its leverage odds and $h = q/(1+q)$,

    $$ \hat y_0 = \sqrt{r^2/D}\,N_1 + h\,(\rho\theta + \sigma N_2) + \frac{\sqrt{\tau^2 q}}{1 + q}\,N_3, \qquad
       \theta \sim N(0, 1/D), \quad \tau^2 = \sigma^2 + \theta^2 + \chi^2_{D-p-1}/D. $$
    """
    size = (*query.used.shape, trials)
    used, unused = query.used.unsqueeze(-1), query.unused.unsqueeze(-1)
    if p >= design.n:
        return ((used + unused) / design.D + design.sigma**2).sqrt() * gaussian(size, generator=generator)
    odds = used / chi_square(design.n - p, size, generator=generator)
    along, tau2 = unused_direction(design, p, size, generator=generator)
    label = unused.sqrt() * along + design.sigma * gaussian(size, generator=generator)
    signal = (used / design.D).sqrt() * gaussian(size, generator=generator)
    others = (tau2 * odds).sqrt() / (1 + odds) * gaussian(size, generator=generator)
    return signal + odds / (1 + odds) * label + others


def unused_direction(
    design: Design, p: int, size: tuple[int, ...], *, generator: torch.Generator
) -> tuple[Float[Tensor, "*size"], Float[Tensor, "*size"]]:
    r"""Draws of $c$, the coefficient along the unused part of $x_0$, and of $\tau^2$ given it.

    The unused part moves the member's own label and, through $\tau^2$, everybody's: the two draws are dependent.
    """
    if p == design.D:
        zero = torch.zeros(size, dtype=DTYPE, device=generator.device)
        return zero, zero + design.sigma**2
    along = gaussian(size, generator=generator) / design.D**0.5
    rest = chi_square(design.D - p - 1, size, generator=generator) / design.D
    return along, design.sigma**2 + along.square() + rest


def outsider_mixture(design: Design, p: int, query: Query, *, nodes: Sequence[int] = NODES) -> ScaleMixture:
    r"""The exact law at a fresh point as a Gaussian scale mixture, by Gauss–Legendre in the quantiles of B, K and τ².

    The batch is that of the query. Deterministic: total variation without sampling noise.
    """
    gap = p - design.n
    beta, beta_weight = _quantile_rule(nodes[0], lambda u: special.betaincinv(design.n / 2, gap / 2, u), gap > 0, 1.0)
    tail, tail_weight = _chi_square_rule(nodes[1], abs(gap) + 1)
    rest, rest_weight = _chi_square_rule(nodes[2], design.D - p)
    tau2 = design.sigma**2 + rest / design.D
    scale = beta[:, None, None] * (1 / design.D + tau2[None, None, :] / tail[None, :, None])
    weights = beta_weight[:, None, None] * tail_weight[None, :, None] * rest_weight[None, None, :]
    flat = scale.flatten().to(query.used.device)
    return ScaleMixture(query.used.unsqueeze(-1) * flat, weights.flatten().to(query.used.device))


def member_mixture(design: Design, p: int, query: Query) -> ScaleMixture:
    """The exact law at a training point for p ≥ n: one Gaussian (see `sample_member`)."""
    return ScaleMixture((query.total / design.D + design.sigma**2).unsqueeze(-1))


def laws(design: Design, p: int, query: Query, *, nodes: Sequence[int] = NODES) -> Laws:
    """`outsider_mixture` and `member_mixture`, with the errors of the latter."""
    outsider = outsider_mixture(design, p, query, nodes=nodes)
    return {"outsider": outsider, "member": member_mixture(design, p, query)}


def total_variations(
    design: Design, widths: Sequence[int], query: Query, *, nodes: Sequence[int] = NODES
) -> Float[Tensor, "*q w"]:
    """Advantage of the best attack at finite n, by quadrature, for every p ≥ n in `widths` (the query's last axis)."""
    columns = [total_variation(**laws(design, p, query.at(index), nodes=nodes)) for index, p in enumerate(widths)]
    return torch.stack(columns, dim=-1)


def _chi_square_rule(count: int, dof: int) -> tuple[Tensor, Tensor]:
    return _quantile_rule(count, lambda u: 2 * special.gammaincinv(dof / 2, u), dof > 0, 0.0)


def _quantile_rule(count: int, quantile, varies: bool, constant: float) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss–Legendre on (0, 1), sent through a quantile function; one node if nothing varies."""
    if not varies:
        return torch.tensor([constant], dtype=DTYPE), torch.ones(1, dtype=DTYPE)
    points, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy(quantile((points + 1) / 2)), torch.from_numpy(weights / 2)
