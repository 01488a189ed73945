r"""The paper's system, and its best attack, computed as printed and without the shortcuts of `limit` and `output_law`.

`system_residuals` puts a solution into the six equations, with a plain two-dimensional rule over $Z_1$ and $Z_2$ and a
proximal operator by bisection: about 100,000 nodes a point, one point at a time. `integrated_advantage` is the printed
integral of two densities, and `check_single_crossing` has the numbers that a second crossing of the two would change,
which `output_law.best_attack_on_point` excludes. `proximal_tail` and `variance_over_bounds` are steps of the printed
proof of Theorem 7. Grids of outputs are a new last dimension. Nothing is random.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from reproduced.papers.blessing.limit import Setting, Solution
from reproduced.papers.blessing.output_law import OutputLaw, densities
from reproduced.papers.blessing.proximal_operator import curvature, inverse_prox, label_sign, prox

EQUATIONS = ("signal", "pull", "spread", "residual", "correlation", "curvature")
"""Names of the six equations, in the order of (12)."""
_END = 8.5  # deviations, of the normal rule
_STEP = 0.35  # of κZ1, αZ1 and σZ2: logistic functions vary on the scale of 1
_LEAST = 61  # nodes in each variable, whatever the scales
_HALVINGS = 70
_TAIL = 9.0  # deviations, of a grid of outputs
_NODES = 4001
_NUMBERS = 2**20  # of grids, that are held at once
_TINY = 1e-290  # below it log(1 + u)/u is 1 to the last digit, and u has few digits


class CrossingCheck(NamedTuple):
    r"""Evidence that the densities of member and outsider cross once, for each point.

    Attributes:
        largest_gap: $\max \lvert D \rvert$, the advantage of the best single threshold on the grid.
        excess: of the likelihood ratio's advantage over it, zero for one crossing.
        least_increase: the smallest step of S/a along the grid, relative to the size of S/a: at least 0 up to rounding,
            if S/a increases.
    """

    largest_gap: Float[Tensor, "*b"]
    excess: Float[Tensor, "*b"]
    least_increase: Float[Tensor, "*b"]


def system_residuals(setting: Setting, solution: Solution) -> dict[str, Float[Tensor, "*b"]]:
    r"""Relative residuals of the six equations at a solution of the bi-level ensemble (`Setting.bilevel`), by name.

    $$ \alpha = \frac{s\theta}{1 + \lambda s/\phi}, \quad \gamma = \frac s\delta\Bigl(\frac1{\phi + \lambda s}
       + \frac{\phi - 1}{\phi + (\lambda s/\eta)(\phi - 1)}\Bigr), $$
    $$ \kappa^2\alpha^2 + \sigma^2 = \frac{(s\theta\phi\kappa)^2 + (sr)^2\phi/\delta}{(\phi + \lambda s)^2}
       + \frac{(sr)^2 (\phi/\delta)(\phi - 1)}{(\phi + (\lambda s/\eta)(\phi - 1))^2}, $$
    $$ \gamma^2 = \frac2{r^2} \E[\rho'(-\kappa Z_1)(h - w)^2], \quad \theta\gamma = -2\E[\rho''(-\kappa Z_1)\,w], \quad
       1 - \frac\gamma s = \E\Bigl[\frac{2\rho'(-\kappa Z_1)}{1 + \gamma\rho''(w)}\Bigr], $$

    each divided by its left-hand side, the last by $\gamma/s$.

    Source: Tan et al. (2023), (53) for the first three and (12) for the others, with $\rho(z) = \log(1 + e^z)$.
    """
    points = zip(*(part.flatten() for part in solution[:7]), strict=True)
    integral = torch.stack([torch.stack(_integral_residuals(*point)) for point in points], -1)
    parts = (*_spectral_residuals(setting, solution), *integral.reshape(3, *setting.penalty.shape))
    return dict(zip(EQUATIONS, parts, strict=True))


def integrated_advantage(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = 4 * _NODES
) -> Float[Tensor, "*b"]:
    r"""The advantage of the best attacker as printed: $\int \max\{f_{\text{member}} - f_{\text{outsider}}, 0\}\,dz$.

    By the trapezoidal rule on `output_grid`; the kink where the densities cross leaves an error of the order of the
    step squared. Source: Tan et al. (2023), (7) and (68).
    """
    grid = output_grid(law, teacher=teacher, label=label, nodes=nodes)
    outsider, member = densities(law, grid, teacher=teacher, label=label)
    return torch.trapezoid((member - outsider).clamp_min(0), grid, dim=-1)


def check_single_crossing(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = _NODES
) -> CrossingCheck:
    r"""The difference between the likelihood ratio and the best single threshold, point by point.

    The advantage of the likelihood ratio is the positive variation of the gap D of the two distribution functions
    along the outputs, that of the best threshold is $\max \lvert D \rvert$: they agree if the ratio crosses 1 once. It
    does so because S/a increases, where

    $$ \frac Sa = p\,\frac{\log(1 + u)}u + \frac{2(z - m) - a}{2\sigma^2}, \quad p = \rho'(z), \quad
       u = \gamma p(1 - p) . $$

    Not in the paper, which attacks with the likelihood ratio. A few points at a time bound the memory of
    grids.
    """
    sided = label_sign(label).to(law.alpha.dtype) * teacher
    whole = torch.broadcast_tensors(law.alpha, law.sigma, law.gamma, law.kappa, sided)
    flat = [each.reshape(-1) for each in whole]
    found = []
    for *of_law, of_teacher in zip(*(each.split(max(1, _NUMBERS // (2 * nodes))) for each in flat), strict=True):
        found.append(_check_single_crossing(OutputLaw(*of_law), of_teacher, nodes))
    return CrossingCheck(*(torch.cat(parts).reshape(whole[0].shape) for parts in zip(*found, strict=True)))


def variation_excess(gaps: Float[Tensor, "*b grid"]) -> Float[Tensor, "*b"]:
    r"""The advantage that several thresholds have over one: 0 for laws whose densities cross once.

    It is the positive variation of `gaps`, a difference of distribution functions along a grid, minus its largest size.
    """
    edge = torch.zeros_like(gaps[..., :1])
    steps = torch.cat([edge, gaps, edge], dim=-1).diff(dim=-1)
    return steps.clamp_min(0).sum(-1) - gaps.abs().amax(-1)


def proximal_tail(
    delta: Float[Tensor, "*b"], *, a: float = 1.0, b: float = 1.0, c: float = 1.0, power: float = 1.0
) -> Float[Tensor, "*b"]:
    r"""The logarithm of $P\bigl(\operatorname{prox}_{a\rho/\delta}(bZ/\sqrt\delta) > \log x\bigr)$,
    $x = c\,\delta^k \log \tfrac1\delta$.

    The proximal operator is increasing and takes the value w at $w + (a/\delta)\rho'(w)$, so the probability is that of

    $$ Z > \frac{\sqrt\delta}b \Bigl(\log x + \frac a\delta\,\frac x{1 + x}\Bigr) . $$

    Source: Tan et al. (2023), (39), with the `power` $k = 1$ as printed; the proof there has $k = 1/2$ in (43).
    """
    x = c * delta**power * torch.log(1 / delta)
    return torch.special.log_ndtr(-(delta.sqrt() * torch.log(x) + a / delta.sqrt() * x / (1 + x)) / b)


class VarianceBounds(NamedTuple):
    r"""An output's variance over the two bounds of it that are printed, and over the first with $\lambda_{\max}^2$."""

    first: Float[Tensor, "*b"]
    second: Float[Tensor, "*b"]
    mended: Float[Tensor, "*b"]


def variance_over_bounds(setting: Setting, solution: Solution) -> VarianceBounds:
    r"""Ratios of $\kappa^2\alpha^2 + \sigma^2$ to the bounds of it: at most 1 where a bound holds.

    $$ \frac1{\lambda^2}\Bigl(\kappa^2\theta^2 + \frac{r^2}\delta\Bigr), \qquad
       \frac1{\lambda^2}\Bigl(4\kappa^2 + \frac1{4\delta}\Bigr), \qquad
       \frac{\lambda_{\max}^2(\Sigma)}{\lambda^2}\Bigl(\kappa^2\theta^2 + \frac{r^2}\delta\Bigr) . $$

    Source: Tan et al. (2023), (37) and (38); the third has the factor that (37) drops from (36).
    """
    scaled = (setting.penalty * solution.law.spread).square()
    first = (setting.kappa * solution.theta).square() + solution.r_squared / setting.delta
    second = 4 * setting.kappa.square() + 1 / (4 * setting.delta)
    largest = setting.spectrum.values.amax(-1).square()
    return VarianceBounds(scaled / first, scaled / second, scaled / (largest * first))


def output_grid(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = _NODES
) -> Float[Tensor, "*b grid"]:
    """Ascending outputs that are dense where either law has mass: a grid of equal steps for each law, merged."""
    mean = law.alpha * teacher
    steps = torch.linspace(-_TAIL, _TAIL, nodes, dtype=mean.dtype)
    fresh = mean[..., None] + law.sigma[..., None] * steps
    seen = prox(fresh, law.gamma[..., None], label[..., None])
    return torch.cat(torch.broadcast_tensors(fresh, seen), dim=-1).sort(dim=-1).values


def _spectral_residuals(setting: Setting, found: Solution) -> tuple[Tensor, Tensor, Tensor]:
    phi, delta, kappa, s = setting.spectrum.values[..., 0], setting.delta, setting.kappa, found.scale
    eta = setting.spectrum.values[..., 1] * (phi - 1) / phi
    head = phi + setting.penalty * s
    tail = phi + setting.penalty * s / eta * (phi - 1)
    alpha = s * found.theta / (1 + setting.penalty * s / phi)
    gamma = s / delta * (1 / head + (phi - 1) / tail)
    noise = s.square() * found.r_squared * phi / delta
    square = ((s * found.theta * phi * kappa).square() + noise) / head.square() + noise * (phi - 1) / tail.square()
    expected = (kappa * found.alpha).square() + found.sigma.square()
    return alpha / found.alpha - 1, gamma / found.gamma - 1, square / expected - 1


def _integral_residuals(
    alpha: Tensor, sigma: Tensor, gamma: Tensor, theta: Tensor, r_squared: Tensor, s: Tensor, kappa: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (z1, w1), (z2, w2) = (_normal_rule(scale) for scale in (torch.maximum(kappa, kappa * alpha), sigma))
    h = (kappa * alpha * z1)[:, None] + sigma * z2
    w = _prox_by_bisection(h, gamma)
    zero, bend = torch.sigmoid(-kappa * z1) * w1, curvature(kappa * z1) * w1
    pull = 2 * zero @ (h - w).square() @ w2 / r_squared
    correlation = -2 * bend @ w @ w2
    bent = 2 * zero @ (gamma * curvature(w) / (1 + gamma * curvature(w))) @ w2
    return pull / gamma.square() - 1, correlation / (theta * gamma) - 1, bent / (gamma / s) - 1


def _normal_rule(scale: Tensor) -> tuple[Tensor, Tensor]:
    """Equally spaced nodes of N(0, 1), close enough for functions that vary on the scale of 1 in `scale` times it."""
    count = max(_LEAST, math.ceil(2 * _END * float(scale) / _STEP) + 1)
    z = torch.linspace(-_END, _END, count, dtype=scale.dtype)
    weights = torch.exp(-z.square() / 2)
    return z, weights / weights.sum()


def _prox_by_bisection(h: Tensor, gamma: Tensor) -> Tensor:
    r"""The root of $w + \gamma\rho'(w) = h$ in $[h - \gamma, h]$."""
    low, high = h - gamma, h
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        below = middle + gamma * torch.sigmoid(middle) < h
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low + (high - low) / 2


def _check_single_crossing(law: OutputLaw, teacher: Tensor, nodes: int) -> CrossingCheck:
    """`check_single_crossing` for label 1; a point with label 0 is the mirror image of one with the teacher -Z."""
    mean, one = law.alpha * teacher, torch.ones_like(teacher)
    grid = output_grid(law, teacher=teacher, label=one, nodes=nodes)
    wide, mean = law.unsqueeze(), mean[..., None]
    before = inverse_prox(grid, wide.gamma, one[..., None])
    # The gap in the upper tail, the one in which members lie: 1 - F keeps its digits there.
    gaps = torch.special.ndtr((mean - before) / wide.sigma) - torch.special.ndtr((mean - grid) / wide.sigma)
    bend = wide.gamma * curvature(grid)
    first = torch.sigmoid(grid) * torch.where(bend > _TINY, torch.log1p(bend) / bend.clamp_min(_TINY), 1.0)
    scale, pull = 2 * wide.sigma.square(), wide.gamma * torch.sigmoid(-grid)
    second = (2 * (grid - mean) - pull) / scale
    # The rounding of a difference is in units of its terms.
    size = first.abs() + (2 * grid.abs() + 2 * mean.abs() + pull) / scale
    steps = (first + second).diff(dim=-1) / torch.maximum(size[..., 1:], size[..., :-1])
    return CrossingCheck(gaps.abs().amax(-1), variation_excess(gaps), steps.amin(-1))
