r"""Exact probabilities that independent points overlap much, or are short, and the bounds of Appendix D on them.

All are natural logarithms, in double precision, so that $10^{-3000}$ is a number like any other. They say in which
dimension Assumption 3.1 holds with which $\tau$.

Source of the bounds: Smorodinsky et al., Assumption 3.1, Lemmas D.1 and D.3.
"""

import math

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage.precision import DTYPE

_NODES = 4001  # of the integral over the squared length of a point
_REACH = 14  # standard deviations of the integrand on either side of its peak
_MEAN_NODES = 40  # of Gauss-Hermite, over the coordinate along the mean
_DECAY = 60  # a tail beyond e⁻⁶⁰ of its largest value is nothing


def log_sphere_tail(dimension: float, level: float) -> float:
    r"""$\log \Pr(|x^\top y| > \text{level} \cdot d)$ of independent uniform points on the sphere of radius $\sqrt d$.

    $(x^\top y / d)^2 \sim \text{Beta}(\tfrac12, a)$ with $a = (d - 1)/2$, so with $t$ for the level

    $$ \Pr = \frac{(1 - t^2)^a\, t}{a B(a, \tfrac12)}\, {}_2F_1(a + \tfrac12, 1; a + 1; 1 - t^2), $$

    a series of positive terms.
    """
    a, z = (dimension - 1) / 2, 1 - level**2
    total = term = 1.0
    k = 0
    while term > 1e-17 * total:
        term *= (a + 0.5 + k) / (a + 1 + k) * z
        total, k = total + term, k + 1
    return a * math.log1p(-(level**2)) + math.log(level) - math.log(a) - special.betaln(a, 0.5) + math.log(total)


def log_sphere_bound(dimension: float) -> float:
    r"""The logarithm of Lemma D.1's bound at $|x^\top y| > \sqrt d \log d$: $(1 - \tfrac{\ln d}4) \ln d$.

    It is positive, so that the bound is empty, for $d < e^4 \approx 54.6$.
    """
    return (1 - math.log(dimension) / 4) * math.log(dimension)


def log_product_tail(dimension: int, level: float, *, mean: float = 0.0) -> float:
    r"""$\log \Pr(|x^\top y| > \text{level})$ of independent points of the mixture of $N(\pm\mu, I)$.

    `mean` is $\|\mu\|$. Given x, $x^\top y$ is $N(\pm u \|\mu\|, \|x\|^2)$ with $u$ the coordinate of x along $\mu$;
    what is left is an integral over $u$ and the squared length of the rest, $\chi^2_{d-1}$, in its logarithm. With
    mean 0 it is over $\|x\|^2 \sim \chi^2_d$ alone.
    """
    if mean:
        places, masses = special.roots_hermitenorm(_MEAN_NODES)
        along = mean + torch.as_tensor(places, dtype=DTYPE)[:, None]  # the other component gives the same
        log_masses = torch.as_tensor(masses / masses.sum(), dtype=DTYPE).log()[:, None]
        freedom = dimension - 1
    else:
        along, log_masses, freedom = torch.zeros((1, 1), dtype=DTYPE), torch.zeros((1, 1), dtype=DTYPE), dimension
    # exp(-level²/2R) times the density of R peaks at this R, as a function of log R with this curvature.
    peak = (freedom + math.sqrt(freedom**2 + 4 * level**2)) / 2
    width = _REACH / math.sqrt(level**2 / (2 * peak) + peak / 2)
    logs = math.log(peak) + torch.linspace(-width, width, _NODES, dtype=DTYPE)
    lengths = (logs.exp() + along.square()).sqrt()
    beyond = torch.logaddexp(
        torch.special.log_ndtr(-(level - mean * along) / lengths),
        torch.special.log_ndtr(-(level + mean * along) / lengths),
    )
    step = math.log(2 * width / (_NODES - 1))
    return float((beyond + log_masses + _log_density(logs, freedom) + step).flatten().logsumexp(0))


def log_length_tail(dimension: int, square: float, *, above: bool) -> float:
    r"""$\log \Pr(\|z\|^2 > \text{square})$ of $z \sim N(0, I_d)$, or that it is below."""
    sign, edge = 1 if above else -1, math.log(square)
    slope = abs(dimension - square) / 2  # of the logarithm of the density, in log R
    spread = math.sqrt(max(square, dimension) / 2)
    reach = min(_DECAY / slope if slope else math.inf, 2 * _REACH / spread + 2 * abs(math.log(dimension) - edge))
    logs = edge + sign * torch.linspace(0, reach, 10 * _NODES, dtype=DTYPE)
    density = _log_density(logs, dimension)
    density[0] -= math.log(2)  # the trapezoidal rule
    return float(density.logsumexp(0)) + math.log(reach / (10 * _NODES - 1))


def log_tau(dimension: int, *, rows: int, mean: float = 0.0) -> tuple[float, float]:
    r"""$\log \tau$ by either part of Assumption 3.1, if it reads $n |x^\top y| \le d/4$ and $\|x\|^2 \ge 3d/4$.

    $\tau_1 = n^2 \Pr(n |x^\top y| > d/4)$ and $\tau_2 = n \Pr(\|x\|^2 < 3d/4)$ for the mixture with this mean (the
    second for mean 0, which is no shorter). Within these events $n\delta/\Delta \le \tfrac13$.
    """
    overlap = log_product_tail(dimension, dimension / (4 * rows), mean=mean)
    return 2 * math.log(rows) + overlap, math.log(rows) + log_length_tail(dimension, 0.75 * dimension, above=False)


def _log_density(logs: Float[Tensor, "*b"], freedom: int) -> Float[Tensor, "*b"]:
    """The logarithm of the density of log R, R of the χ² law."""
    half = freedom / 2
    return half * (logs - math.log(2)) - logs.exp() / 2 - math.lgamma(half)
