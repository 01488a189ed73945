r"""Testing one centred Gaussian scale mixture against another, by quadrature instead of histograms.

A prediction that is Gaussian once the design is known has the law $\sum_i w_i\,N(0, v_i)$: symmetric, so that only
$|y|$ matters. Every function compares an outsider's law with a member's and works on distribution functions; the laws
are batched over leading dimensions. Nothing here draws a random number except `ScaleMixture.sample`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import blocks
from leakage.runtime import DTYPE
from leakage.theory.density_crossings import distance_from_gaps, sign_changes

_GRID = 384  # points of |y| on which the sign of the density difference is read, log-spaced
_TAIL = 12.0  # the grid ends at this many of the largest scales: a Gaussian has no mass beyond 12 deviations
_HEAD = 1e-3  # and begins at this fraction of the smallest scale
_CELLS = 4000  # of |y|, whose masses `power` adds up
_LEAST_FPR = 1e-13  # of `power`, whose masses are right to 1e-16
_UNIT = 1e-6  # how far a sum of weights may be from 1: rounding, in single precision too


@dataclass(frozen=True)
class ScaleMixture:
    r"""The law $\sum_i w_i\,N(0, v_i)$, batched over leading dimensions.

    Args:
        variances: $v_i > 0$, finite.
        weights: $w_i \ge 0$ with sum 1, one for each atom; equal if left out. Leading dimensions broadcast.
    """

    variances: Float[Tensor, "*batch atoms"]
    weights: Float[Tensor, "*#batch atoms"] | None = None

    @property
    def mean_variance(self) -> Float[Tensor, "*batch"]:
        r"""The variance of the mixture, $\sum_i w_i v_i$."""
        return (self.variances * self._weights).sum(-1)

    def cdf(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""$P(|Y| \le y) = \sum_i w_i\,\mathrm{erf}(y / \sqrt{2 v_i})$ for $y \ge 0$."""
        return self._evaluate(y, lambda z, _, weights: _weighted(z.mul_(math.sqrt(1 / 2)).erf(), weights))

    def density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""Density of $|Y|$ at $y \ge 0$: twice the density of $Y$."""
        norm = math.sqrt(2 / math.pi)
        return self._evaluate(
            y, lambda z, scale, weights: _weighted(_less_half_square(z.new_zeros(()), z).exp_(), norm * weights / scale)
        )

    def log_density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""Logarithm of `density`, finite also where the density is too small for a floating-point number."""
        norm = math.log(2 / math.pi) / 2
        return self._evaluate(
            y, lambda z, scale, weights: _less_half_square((weights / scale).log(), z).logsumexp(-1) + norm
        )

    def sample(self, size: int, *, generator: torch.Generator) -> Float[Tensor, "*batch size"]:
        """`size` signed draws from each law of the batch."""
        flat = self._weights.expand(self.variances.shape).reshape(-1, self.variances.shape[-1])
        atoms = torch.multinomial(flat, size, replacement=True, generator=generator)
        chosen = self.variances.reshape(flat.shape).gather(-1, atoms)
        noise = torch.randn(chosen.shape, generator=generator, dtype=chosen.dtype, device=chosen.device)
        return (chosen.sqrt() * noise).reshape(*self.variances.shape[:-1], size)

    @property
    def _weights(self) -> Tensor:
        atoms = self.variances.shape[-1]
        return self.weights if self.weights is not None else self.variances.new_full((atoms,), 1 / atoms)

    def _evaluate(self, y: Tensor, kernel: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Reduce the atoms by `kernel(y / scale, scale, weights)`, a few points at a time.

        The kernel may use up the quotients: each pass over new memory counts.
        """
        dtype = torch.promote_types(y.dtype, self.variances.dtype)
        scale, weights = self.variances.sqrt().to(dtype).unsqueeze(-2), self._weights.to(dtype).unsqueeze(-2)
        batch, points = torch.broadcast_shapes(y.shape[:-1], self.variances.shape[:-1]), y.shape[-1]
        return blocks.made(
            (*batch, points),
            blocks.of((*batch, self.variances.shape[-1], points)),
            lambda part: kernel(y[..., part].unsqueeze(-1) / scale, scale, weights),
            dtype=dtype,
            device=scale.device,
        )


def _weighted(values: Float[Tensor, "*b points atoms"], weights: Float[Tensor, "*#b 1 atoms"]) -> Tensor:
    """Sums over the atoms. The weights stand on the left: on the right a product takes a CPU five times as long."""
    return (weights @ values.mT).squeeze(-2)


def _less_half_square(offset: Float[Tensor, "*#z"], z: Float[Tensor, "*z"]) -> Float[Tensor, "*z"]:
    r"""$c - z^2/2$, in the memory of z unless it will be differentiated."""
    return torch.addcmul(offset, z, z, value=-0.5, out=None if offset.requires_grad or z.requires_grad else z)


class Laws(TypedDict):
    """Both laws of one prediction, to be handed on by keyword: `total_variation(**laws)`."""

    outsider: ScaleMixture
    member: ScaleMixture


def total_variation(*, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor) -> Float[Tensor, "*batch"]:
    r"""Total variation distance: the advantage of the likelihood ratio test, and so of the best attack.

    $$ \mathrm{TV} = \tfrac12 \sum_j \bigl| G(t_{j+1}) - G(t_j) \bigr|, \qquad G = F_0 - F_1, $$

    where $0 = t_0 < t_1 < \dots$ are the sign changes of $f_0 - f_1$ on $y \ge 0$.
    Source: Tan et al. (2022), Proposition 3.1, evaluated exactly.

    Args:
        member, outsider: the two laws, or tensors of variances with equal weights. Their batches broadcast.
    """
    crossings = thresholds(member=member, outsider=outsider)
    first, second = _as_mixture(outsider), _as_mixture(member)
    return distance_from_gaps(first.cdf(crossings) - second.cdf(crossings))


def thresholds(*, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor) -> Float[Tensor, "*batch crossings"]:
    r"""The values of $|y|$ at which the likelihood ratio crosses 1, ascending, padded with $+\infty$.

    A Gaussian against a Gaussian has one crossing; heavy tails add more.
    """
    first, second = _as_mixture(outsider), _as_mixture(member)
    return sign_changes(lambda y: first.density(y) - second.density(y), _log_grid(first, second))


def rule_advantage(
    threshold: Float[Tensor, "*#batch points"], *, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor
) -> Float[Tensor, "*batch points"]:
    r"""Advantage TPR − FPR of the rule "member iff $|y| > t$": $F_0(t) - F_1(t)$, negative for a bad rule."""
    return _as_mixture(outsider).cdf(threshold) - _as_mixture(member).cdf(threshold)


def log_likelihood_ratio(
    predictions: Float[Tensor, " draws"], *, member: ScaleMixture, outsider: ScaleMixture
) -> Float[Tensor, " draws"]:
    r"""Score of the best blind attack on one prediction seen without its label, positive for "member", in nats.

    $$ s(\hat y_0) = \log f_1(\hat y_0) - \log f_0(\hat y_0) $$

    The attacker knows both unbatched laws. Source: Tan et al. (2022), Proposition 3.1 and eq. (3).
    """
    size = predictions.abs()
    return member.log_density(size) - outsider.log_density(size)


def power(*, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor, fpr: float) -> Float[Tensor, "*batch"]:
    r"""Largest true positive rate at a false positive rate (Neyman–Pearson), from the masses of 4000 cells of $|y|$.

    The cells are ordered by likelihood ratio and filled until the false positive rate is spent; the last cell is used
    in part, which is the randomised test.

    A mass is a difference of distribution functions and may be off by 1e-16: at the least `fpr` that is 0.1 % of it.
    """
    first, second = _as_mixture(outsider), _as_mixture(member)
    grid = _log_grid(first, second, points=_CELLS)
    masses = [_cell_masses(law.cdf(grid)) for law in (first, second)]
    null, alternative = torch.broadcast_tensors(*masses)
    order = torch.argsort(alternative / null.clamp_min(torch.finfo(null.dtype).tiny), dim=-1, descending=True)
    null, alternative = null.gather(-1, order), alternative.gather(-1, order)
    room = (fpr - (null.cumsum(-1) - null)).clamp_min(0)
    share = torch.where(null > 0, (room / null.clamp_min(torch.finfo(null.dtype).tiny)).clamp(max=1), 1.0)
    return (share * alternative).sum(-1)


def _cell_masses(cdf: Tensor) -> Tensor:
    """Masses of the cells between the grid's points, and beyond its last one."""
    edges = torch.cat([torch.zeros_like(cdf[..., :1]), cdf, torch.ones_like(cdf[..., :1])], dim=-1)
    return torch.diff(edges, dim=-1).clamp_min(0)


def _log_grid(first: ScaleMixture, second: ScaleMixture, *, points: int = _GRID) -> Tensor:
    """Points of |y|, log-spaced, that cover every scale of both laws."""
    low = torch.minimum(first.variances.amin(-1), second.variances.amin(-1)).sqrt() * _HEAD
    high = torch.maximum(first.variances.amax(-1), second.variances.amax(-1)).sqrt() * _TAIL
    steps = torch.linspace(0, 1, points, dtype=DTYPE, device=low.device)
    return torch.exp(low.log().unsqueeze(-1) + (high / low).log().unsqueeze(-1) * steps)


def _as_mixture(law: ScaleMixture | Tensor) -> ScaleMixture:
    return law if isinstance(law, ScaleMixture) else ScaleMixture(law)
