r"""Ridge regression on the first p of D Gaussian features as n grows: who leaks how much, and where nobody does.

$\hat\beta = (X_p^\top X_p + n\lambda I)^{-1} X_p^\top y$ with the penalty $\lambda$; the model and the query are those
of `least_squares`. Exact laws at finite n are in `ridge_law`. Nothing here is random.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

from leakage.runtime import DTYPE
from leakage.theory import two_gaussians
from leakage.theory.least_squares import Design, Query


class Variances(NamedTuple):
    r"""Of a prediction: $\sigma_1^2$ at a training point, $\sigma_0^2$ at a fresh one."""

    member: Float[Tensor, "*b"]
    outsider: Float[Tensor, "*b"]


def limit_variances(
    design: Design, p: int | Real[Tensor, "*#b"], penalty: Float[Tensor, "*#b"], query: Query
) -> Variances:
    r"""Variances of the prediction as n grows with p/n and D/n fixed.

    With $b = 1 - \gamma + \lambda$ and $s = \sqrt{b^2 + 4\gamma\lambda}$, the Stieltjes transform of the
    Marchenko–Pastur law is $m = 2/(b + s)$, or $(s - b)/(2\gamma\lambda)$ where $b < 0$; $u = 1/(1 + \gamma m)$,
    $q = r^2 m/n$, $t = 1 + \sigma^2 - p/D$, and

    $$ e = \frac{(mu)^2}{1 - \gamma (mu)^2} = \frac{mu}s, \quad a = e\,(u + \gamma\lambda m), \quad
       \sigma_0^2 = r^2 \Bigl(\frac aD + \frac{te}n\Bigr), $$
    $$ \sigma_1^2 = \frac{(r^2/D)(q^2 + 2qmu + a) + q^2 (\rho^2/D + \sigma^2) + t r^2 e/n}{(1 + q)^2}. $$

    Source: Tan et al. (2022), Theorem 4.1, without the derivatives of m, which cancel at large γ or λ.
    """
    p = design.widths(p, device=query.used.device)
    penalty = penalty.to(DTYPE).to(query.used.device)
    used, unused, n, D = query.used, query.unused, design.n, design.D
    m, mu_product, e, a = _limit_moments(p / n, penalty)
    q, t = used * m / n, 1 + design.sigma**2 - p / D
    outsider = used * (a / D + t * e / n)
    # Shares, since q² may be no number.
    kept, lost = 1 / (1 + 1 / q), 1 / (1 + q)
    signal = used / D * (kept.square() + 2 * kept * lost * mu_product + a * lost.square())
    member = signal + kept.square() * (unused / D + design.sigma**2) + t * used * e / n * lost.square()
    interpolates = torch.isinf(m)  # λ = 0 and p > n: q is infinite and the prediction is the label
    return Variances(torch.where(interpolates, design.sigma**2 + query.total / D, member), outsider)


def limit_advantage(
    design: Design, p: int | Real[Tensor, "*#b"], penalty: Float[Tensor, "*#b"], query: Query
) -> Float[Tensor, "*b"]:
    """Advantage of the best attack in the limit: of the Gaussians with the variances of `limit_variances`."""
    limit = limit_variances(design, p, penalty, query)
    return two_gaussians.advantage(member=limit.member, outsider=limit.outsider)


def _limit_moments(gamma: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""$m$, $mu$, $e$ and $a$ of `limit_variances`, each as a ratio of positive terms.

    With $T = 1 + \gamma + \lambda$ and $s = \sqrt{T^2 - 4\gamma}$, $v = \gamma mu = 2\gamma/(T + s)$ is the
    smaller root of $v^2 - Tv + \gamma = 0$. Then $1 - v\,mu = mu\,s$ and $u + \gamma\lambda m = (1 - v) + (\gamma - v)$
    by $\lambda m = 1 - mu$ and $u = 1 - v$.
    """
    gamma, penalty = torch.broadcast_tensors(gamma, penalty)
    root = 2 * (gamma * penalty).sqrt()
    below, above = 1 - gamma + penalty, gamma - 1 + penalty
    s = torch.hypot(below, root)
    whole = 1 + gamma + penalty + s
    mu_product = 2 / whole
    m = torch.where(below >= 0, 2 / (below + s), (s - below) / (2 * gamma * penalty))
    e = mu_product / s
    # 1 - v and γ - v, where one of the two sums would cancel.
    one_left = torch.where(below >= 0, below + s, root.square() / (s - below)) / whole
    gamma_left = gamma * torch.where(
        above >= 0, above + s, 4 * penalty / (torch.hypot(above, 2 * penalty.sqrt()) - above)
    )
    return m, mu_product, e, e * (one_left + gamma_left / whole)


def variance_ratio(
    shrinkage: Float[Tensor, "*#b"], gamma: Float[Tensor, "*#b"], psi: Float[Tensor, "*#b"], *, sigma: float
) -> Float[Tensor, "*b"]:
    r"""The limit ratio $\rho = \sigma_1^2 / \sigma_0^2$ at the typical point, as a function of one shrinkage variable.

    $$ \rho = L + \frac{\kappa\,(\gamma - v^2)}{\kappa L + t\gamma}, \qquad L = \gamma + 1 - 2v, \quad
       \kappa = \gamma/\psi, \quad t = 1 + \sigma^2 - \kappa, $$

    where $v = q/(1+q) \in [0, \min(1, \gamma)]$ falls as $\lambda = (\gamma - v)(1 - v)/v$ grows. Not in the paper; the
    chapter derives it and proves that ρ decreases in v.
    """
    phi = gamma / psi
    width = gamma + 1 - 2 * shrinkage
    unexplained = 1 + sigma**2 - phi
    return width + phi * (gamma - shrinkage.square()) / (phi * width + unexplained * gamma)


def shrinkage(penalty: Float[Tensor, "*#b"], gamma: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$v = q/(1 + q)$ at the typical point: the share of its own label a training point's prediction contains.

    The smaller root of $v^2 - (1 + \gamma + \lambda)v + \gamma = 0$.
    """
    total = 1 + gamma + penalty
    return 2 * gamma / (total + ((1 - gamma + penalty).square() + 4 * gamma * penalty).sqrt())


def silent_penalty(gamma: Float[Tensor, "*#b"], psi: Float[Tensor, "*#b"], *, sigma: float) -> Float[Tensor, "*b"]:
    r"""The penalty $\lambda^*$ at which members and outsiders have equal variance, so that the limit advantage is zero.

    With $T = \psi(1 + \sigma^2)$,

    $$ v^* = \tfrac13\Bigl[\gamma + 1 + T - \sqrt{(\gamma + 1 + T)^2 - 3\gamma(T + 2)}\Bigr], \qquad
       \lambda^* = \frac{(\gamma - v^*)(1 - v^*)}{v^*}, $$

    which tends to $1 - \gamma/2$ as $\psi \to \infty$. NaN from $\gamma^* = 2 - 1/(\psi(1 + \sigma^2))$ on, where every
    penalty leaves an advantage. Not in the paper.
    """
    # The root as a quotient, in units of T: a difference would lose digits at large ψ, and a square may be no number.
    inverse = 1 / (psi * (1 + sigma**2))
    total, factor = 1 + (gamma + 1) * inverse, 1 + 2 * inverse
    v = gamma * factor / (total + (total.square() - 3 * gamma * factor * inverse).sqrt())
    penalty = (gamma - v) * (1 - v) / v
    return torch.where(gamma < crossover_ratio(psi, sigma=sigma), penalty, torch.nan)


def crossover_ratio(psi: Float[Tensor, "*b"], *, sigma: float) -> Float[Tensor, "*b"]:
    r"""$\gamma^* = 2 - 1/(\psi(1 + \sigma^2))$: where unregularised members and outsiders have equal variance."""
    return 2 - 1 / (psi * (1 + sigma**2))
