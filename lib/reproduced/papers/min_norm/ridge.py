r"""Ridge regression on the first p of D Gaussian features: variances as n grows, and exact laws at finite n.

$\hat\beta = (X_p^\top X_p + n\lambda I)^{-1} X_p^\top y$ with the penalty $\lambda$. `least_squares` has the case
$\lambda = 0$ and defines the model and the query. The exact laws follow from four scalars of the spectral measure
$\nu$ of a Gaussian matrix at one unit vector $e$ (`Resolvent`).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from scipy.optimize import root_scalar
from torch import Tensor

from leakage.data.gaussians import chi_square
from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm import two_gaussians
from reproduced.papers.min_norm.gaussian_mixtures import Laws, ScaleMixture, total_variation
from reproduced.papers.min_norm.least_squares import Design, Query, sample_unexplained_variance, sample_unused_direction

_ROUNDING = 2.0**-53  # relative error that truncation may add to any of the four scalars
_SPREAD = 8.0  # a singular value lies further than this outside √p ± √n with a probability below exp(-32)


class Variances(NamedTuple):
    r"""Variances of a prediction: $\sigma_1^2$ at a training point, $\sigma_0^2$ at a fresh one."""

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
    p, penalty = design.widths(p), penalty.to(DTYPE)
    used, unused, n, D = query.used, query.unused, design.n, design.D
    m, mu_product, e, a = limit_moments(p / n, penalty)
    q, t = used * m / n, 1 + design.sigma**2 - p / D
    outsider = used * (a / D + t * e / n)
    # q/(1 + q) and 1/(1 + q), because q² may overflow.
    kept, lost = 1 / (1 + 1 / q), 1 / (1 + q)
    signal = used / D * (kept.square() + 2 * kept * lost * mu_product + a * lost.square())
    member = signal + kept.square() * (unused / D + design.sigma**2) + t * used * e / n * lost.square()
    interpolates = torch.isinf(m)  # λ = 0 and p > n: q is infinite and the prediction is the label
    return Variances(torch.where(interpolates, design.sigma**2 + query.total / D, member), outsider)


def limit_advantage(
    design: Design, p: int | Real[Tensor, "*#b"], penalty: Float[Tensor, "*#b"], query: Query
) -> Float[Tensor, "*b"]:
    """Advantage of the best attack in the limit, where predictions are Gaussian with `limit_variances`."""
    limit = limit_variances(design, p, penalty, query)
    return two_gaussians.advantage(member=limit.member, outsider=limit.outsider)


def limit_moments(gamma: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
    # 1 - v and γ - v. Each has two equal forms, because the first cancels where its argument is negative.
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
    kappa = gamma / psi
    L = gamma + 1 - 2 * shrinkage
    unexplained = 1 + sigma**2 - kappa
    return L + kappa * (gamma - shrinkage.square()) / (kappa * L + unexplained * gamma)


def shrinkage(penalty: Float[Tensor, "*#b"], gamma: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$v = q/(1 + q)$ at the typical point: the share of its own label a training point's prediction contains.

    The smaller root of $v^2 - (1 + \gamma + \lambda)v + \gamma = 0$.
    """
    total = 1 + gamma + penalty
    return 2 * gamma / (total + ((1 - gamma + penalty).square() + 4 * gamma * penalty).sqrt())


class Rise(NamedTuple):
    """From which ratio on the variance ratio is above 1 at one penalty, and its least step on a grid from there on."""

    start: float
    least_step: float


def rise_with_width(penalty: float, psi: float, *, sigma: float, nodes: int = 4000) -> Rise:
    r"""Where the typical $\rho = \sigma_1^2/\sigma_0^2$ last crosses 1, and the least later step of $\log\rho$.

    The grid of $\gamma$ is logarithmic, from 0.01 to $\psi$; the crossing is 0 if $\rho > 1$ on all of it. As
    $\psi \to \infty$ it tends to $2 - 2\lambda$. Not in the paper.
    """

    def logarithm(gamma: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        level, whole = torch.tensor(penalty, dtype=DTYPE), torch.tensor(psi, dtype=DTYPE)
        return variance_ratio(shrinkage(level, gamma), gamma, whole, sigma=sigma).log()

    grid = torch.logspace(-2, math.log10(psi), nodes, dtype=DTYPE)
    on_grid = logarithm(grid)
    below = (on_grid <= 0).nonzero()
    if not len(below):
        return Rise(0.0, float(torch.diff(on_grid).min()))
    last = int(below[-1])
    bracket = float(grid[last]), float(grid[last + 1])
    start = root_scalar(lambda gamma: float(logarithm(torch.tensor(gamma, dtype=DTYPE))), bracket=bracket).root
    return Rise(start, float(torch.diff(on_grid[last + 1 :]).min()))


def zero_advantage_penalty(
    gamma: Float[Tensor, "*#b"], psi: Float[Tensor, "*#b"], *, sigma: float
) -> Float[Tensor, "*b"]:
    r"""The penalty $\lambda^*$ at which members and outsiders have equal variance, so that the limit advantage is zero.

    With $T = \psi(1 + \sigma^2)$,

    $$ v^* = \tfrac13\Bigl[\gamma + 1 + T - \sqrt{(\gamma + 1 + T)^2 - 3\gamma(T + 2)}\Bigr], \qquad
       \lambda^* = \frac{(\gamma - v^*)(1 - v^*)}{v^*}, $$

    which tends to $1 - \gamma/2$ as $\psi \to \infty$. NaN from $\gamma^* = 2 - 1/(\psi(1 + \sigma^2))$ on, where every
    penalty leaves an advantage. Not in the paper.
    """
    # The root as a quotient, in units of T: a difference would lose digits at large ψ, and a square may overflow.
    inverse = 1 / (psi * (1 + sigma**2))
    total, factor = 1 + (gamma + 1) * inverse, 1 + 2 * inverse
    v = gamma * factor / (total + (total.square() - 3 * gamma * factor * inverse).sqrt())
    penalty = (gamma - v) * (1 - v) / v
    return torch.where(gamma < crossover_ratio(psi, sigma=sigma), penalty, torch.nan)


def crossover_ratio(psi: Float[Tensor, "*b"], *, sigma: float) -> Float[Tensor, "*b"]:
    r"""$\gamma^* = 2 - 1/(\psi(1 + \sigma^2))$: where unregularised members and outsiders have equal variance."""
    return 2 - 1 / (psi * (1 + sigma**2))


class Resolvent(NamedTuple):
    r"""Four scalars of $X^\top X$ at a fixed unit vector $e$; $\nu$ is the spectral measure at $e$, $\mu = n\lambda$.

    `inverse` $R = \int (\ell + \mu)^{-1} d\nu$, `inverse_square` $\int (\ell + \mu)^{-2} d\nu$,
    `noise_gain` $E = \int \ell (\ell + \mu)^{-2} d\nu$, `signal_gain` $C = \int \ell^2 (\ell + \mu)^{-2} d\nu$.
    """

    inverse: Float[Tensor, "*b"]
    inverse_square: Float[Tensor, "*b"]
    noise_gain: Float[Tensor, "*b"]
    signal_gain: Float[Tensor, "*b"]


def sample_resolvent(
    rows: int, columns: int, mu: Float[Tensor, "*m"], *, trials: int, generator: torch.Generator
) -> Resolvent:
    r"""Exact draws of the four scalars for a Gaussian matrix, without the matrix: a random continued fraction.

    One step relates an $a \times b$ matrix to a $(b-1) \times a$ one through a single $c \sim \chi^2_a$:

    $$ g = \frac1{1 + cR'}, \quad R = \frac g\mu, \quad R_2 = R^2 (1 + cE'), \quad E = g^2 c R_2', \quad
       C = g^2 c\,(E' + cR'^2), $$

    from $a = 0$, where $R = 1/\mu$, $R_2 = 1/\mu^2$, $E = C = 0$. All terms are positive, so nothing cancels at any
    $\mu$. It is Golub–Kahan bidiagonalisation of a Gaussian matrix read backwards; not in the paper. The innermost
    matrices are left out where they cannot change the result (`_depth`).

    Args:
        rows, columns: shape of the matrix, at least 0 and 1.
        mu: $\mu = n\lambda > 0$, at least 1e-150; the same draws serve every value.
    """
    heights = _heights(rows, columns, depth=_depth(rows, columns, mu=float(mu.min())))
    mu = mu.to(DTYPE).unsqueeze(-1)
    inverse = (1 / mu).expand(*mu.shape[:-1], trials)
    state = Resolvent(inverse, inverse.square(), torch.zeros_like(inverse), torch.zeros_like(inverse))
    for height in reversed(heights):
        state = _extend(state, chi_square(height, (trials,), generator=generator), mu)
    return state


def _extend(inner: Resolvent, c: Tensor, mu: Tensor) -> Resolvent:
    """One step of the continued fraction (see `sample_resolvent`)."""
    g = 1 / (1 + c * inner.inverse)
    inverse = g / mu
    weight = g.square() * c
    return Resolvent(
        inverse,
        inverse.square() * (1 + c * inner.noise_gain),
        weight * inner.inverse_square,
        weight * (inner.noise_gain + c * inner.inverse.square()),
    )


def _heights(rows: int, columns: int, *, depth: int) -> list[int]:
    """The number of rows of each matrix in the recursion, largest first; two steps remove one row and one column."""
    steps = range(min(rows, columns, depth))
    return [height for step in steps for height in (rows - step, columns - 1 - step) if height > 0]


def _depth(rows: int, columns: int, *, mu: float) -> int:
    r"""Pairs of steps after which the continued fraction has converged to rounding, for all inner matrices.

    Starting $k$ pairs deep, as if no rows were left there, integrates against $\nu$ by the Gauss–Radau rule with nodes
    at 0 and at $k$ points among the other eigenvalues. If these lie in $[\ell, L]$ its error falls as $\rho^{2k}$ with

    $$ \rho = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1} = e^{-2 \operatorname{artanh}(1/\sqrt\kappa)}, \qquad
       \kappa = \frac{L + \mu}{\ell + \mu}, $$

    the rate at which polynomials approximate $1/(x + \mu)$ on $[\ell, L]$. The factor before it is at most about
    $(L/\mu + 1)^3$ relative to each of the four integrals.
    """
    small, large = sorted(math.sqrt(side) for side in (rows, columns))
    low = max(large - small - _SPREAD, 0.0) ** 2 + mu
    high = (large + small + _SPREAD) ** 2 + mu
    speed = math.atanh(min(max(math.sqrt(low / high), 1e-9), 0.999))  # the bounds keep it finite and positive
    return math.ceil((3 * math.log(high / mu) - math.log(_ROUNDING)) / (4 * speed))


@dataclass(frozen=True)
class ResolventSamples:
    r"""Draws for one (n, p): resolvent scalars for both laws at every penalty, and the label noise $\tau^2$.

    The scalars do not depend on the query, D or σ, so the same draws serve all queries.
    """

    design: Design
    p: int
    mu: Float[Tensor, " m"]
    outsider: Resolvent
    member: Resolvent
    unexplained: Float[Tensor, " trials"]

    @classmethod
    def draw(
        cls, design: Design, p: int, penalty: Float[Tensor, " m"], *, trials: int, generator: torch.Generator
    ) -> "ResolventSamples":
        """Draw `trials` designs for the penalties λ > 0."""
        mu = penalty.to(DTYPE) * design.n
        tau2 = sample_unexplained_variance(design, p, (trials,), generator=generator)
        outsider, member = (
            sample_resolvent(rows, p, mu, trials=trials, generator=generator) for rows in (design.n, design.n - 1)
        )
        return cls(design, p, mu, outsider, member, tau2)

    def outsider_mixture(self, query: Query) -> ScaleMixture:
        r"""Law at a fresh point, shape `[*q, m, trials]`: $V_0 = r^2 (C/D + \tau^2 E)$, exact."""
        return ScaleMixture(
            _outsider_variance(self.design, query.used[..., None, None], self.outsider, self.unexplained)
        )

    def member_mixture(self, query: Query) -> ScaleMixture:
        r"""Law at a training point, shape `[*q, m, trials]`, with $q = r^2 R$:

        $$ V_1 = \frac{(r^2/D)\,(q^2 + 2q(1 - \mu R) + C) + q^2 (\rho^2/D + \sigma^2) + \tau^2 r^2 E}{(1 + q)^2}. $$

        The coefficient along the unused part of $x_0$ is averaged out: exact in variance, $O(1/D)$ in law.
        """
        used, unused = query.used[..., None, None], query.unused[..., None, None]
        resolvent, mu, D = self.member, self.mu.unsqueeze(-1), self.design.D
        q = used * resolvent.inverse
        signal = used / D * (q.square() + 2 * q * (1 - mu * resolvent.inverse) + resolvent.signal_gain)
        own_noise = q.square() * (unused / D + self.design.sigma**2)
        variance = (signal + own_noise + self.unexplained * used * resolvent.noise_gain) / (1 + q).square()
        return ScaleMixture(variance)

    def laws(self, query: Query) -> Laws:
        """`outsider_mixture` and `member_mixture`."""
        return {"outsider": self.outsider_mixture(query), "member": self.member_mixture(query)}


def exact_advantages(
    design: Design,
    p: int,
    penalty: Float[Tensor, " m"],
    query: Query,
    *,
    sets: int,
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, "sets *q m"]:
    """Advantage of the best attack at finite n, by each of `sets` independent sets of `trials` drawn spectra.

    The sets differ by sampling only, so their spread gives an interval. See `ResolventSamples`.
    """
    drawn = [ResolventSamples.draw(design, p, penalty, trials=trials, generator=generator) for _ in range(sets)]
    return torch.stack([total_variation(**spectra.laws(query)) for spectra in drawn])


def sample_outsider(
    design: Design, p: int, penalty: float, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    """`trials` draws of the prediction at a fresh point, each for a design of its own."""
    mu = torch.tensor(penalty * design.n, dtype=DTYPE)
    tau2 = sample_unexplained_variance(design, p, (trials,), generator=generator)
    resolvent = sample_resolvent(design.n, p, mu, trials=trials, generator=generator)
    variance = _outsider_variance(design, query.used.unsqueeze(-1), resolvent, tau2)
    return variance.sqrt() * gaussian((*variance.shape,), generator=generator)


def _outsider_variance(design: Design, used: Tensor, resolvent: Resolvent, unexplained: Tensor) -> Tensor:
    r"""$V_0 = r^2 (C/D + \tau^2 E)$."""
    return used * (resolvent.signal_gain / design.D + unexplained * resolvent.noise_gain)


def sample_member(
    design: Design, p: int, penalty: float, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    r"""`trials` draws of the prediction at a training point. With $v_b = (r^2/D)(q^2 + 2q(1-\mu R)+C) + \tau^2 r^2 E$,

    $$ \hat y_0 = \frac{\sqrt{v_b}\,N + q\,(\rho\theta + \sigma N')}{1 + q}. $$
    """
    mu = torch.tensor(penalty * design.n, dtype=DTYPE)
    resolvent = sample_resolvent(design.n - 1, p, mu, trials=trials, generator=generator)
    used, unused = query.used.unsqueeze(-1), query.unused.unsqueeze(-1)
    along, tau2 = sample_unused_direction(design, p, (trials,), generator=generator)
    q = used * resolvent.inverse
    signal = used / design.D * (q.square() + 2 * q * (1 - mu * resolvent.inverse) + resolvent.signal_gain)
    spread = (signal + tau2 * used * resolvent.noise_gain).sqrt()
    size = (*query.used.shape, trials)
    label = unused.sqrt() * along + design.sigma * gaussian(size, generator=generator)
    return (spread * gaussian(size, generator=generator) + q * label) / (1 + q)
