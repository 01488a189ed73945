r"""The residuals of the nonlinear system as the paper writes it, computed without any of the solver's tricks.

All six equations, with a plain two-dimensional rule over $Z_1$ and $Z_2$ and a proximal operator by bisection. The rule
shares nothing with the quadrature of `fixed_point`, and is slow: about 100,000 nodes a point, one point at a time.
Nothing is random.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.theory.logistic.fixed_point import Solution
from leakage.theory.logistic.problem import Setting
from leakage.theory.logistic.prox import curvature

EQUATIONS = ("signal", "pull", "spread", "residual", "correlation", "curvature")
"""Names of the six equations, in the order of (12)."""
_END = 8.5
_STEP = 0.35  # of κZ1, αZ1 and σZ2: logistic functions vary on the scale of 1
_LEAST = 61  # nodes in each variable, whatever the scales
_HALVINGS = 70


def residuals(setting: Setting, solution: Solution) -> dict[str, Float[Tensor, "*b"]]:
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
    spectral = _spectral(setting, solution)
    points = zip(*(part.flatten() for part in solution[:7]), strict=True)
    integral = torch.stack([torch.stack(_integral(*point)) for point in points], -1)
    return dict(zip(EQUATIONS, (*spectral, *integral.reshape(3, *setting.shape)), strict=True))


def _spectral(setting: Setting, found: Solution) -> tuple[Tensor, Tensor, Tensor]:
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


def _integral(
    alpha: Tensor, sigma: Tensor, gamma: Tensor, theta: Tensor, r_squared: Tensor, s: Tensor, kappa: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (z1, w1), (z2, w2) = (_normal_rule(scale) for scale in (torch.maximum(kappa, kappa * alpha), sigma))
    h = (kappa * alpha * z1)[:, None] + sigma * z2
    w = _halved(h, gamma)
    zero, bend = torch.sigmoid(-kappa * z1) * w1, curvature(kappa * z1) * w1
    pull = 2 * zero @ (h - w).square() @ w2 / r_squared
    correlation = -2 * bend @ w @ w2
    bent = 2 * zero @ (gamma * curvature(w) / (1 + gamma * curvature(w))) @ w2
    return pull / gamma.square() - 1, correlation / (theta * gamma) - 1, bent / (gamma / s) - 1


def _normal_rule(scale: Tensor) -> tuple[Tensor, Tensor]:
    """Equally spaced nodes of N(0, 1), close enough for functions that vary on the scale of 1 in `scale` times it."""
    count = max(_LEAST, math.ceil(2 * _END * float(scale) / _STEP) + 1)
    z = torch.linspace(-_END, _END, count, dtype=scale.dtype, device=scale.device)
    weights = torch.exp(-z.square() / 2)
    return z, weights / weights.sum()


def _halved(h: Tensor, gamma: Tensor) -> Tensor:
    r"""The root of $w + \gamma\rho'(w) = h$ in $[h - \gamma, h]$."""
    low, high = h - gamma, h
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        below = middle + gamma * torch.sigmoid(middle) < h
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low + (high - low) / 2
