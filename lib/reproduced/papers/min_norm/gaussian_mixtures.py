r"""Testing one mixture of Gaussians against another: total variation, thresholds, power and scores, by quadrature.

Given the design, a prediction is Gaussian; over random designs its law is a mixture. If the mean is 0 for every design,
it is a `ScaleMixture` $\sum_i w_i\,N(0, v_i)$, where only $|y|$ matters. If the mean depends on the design, as with
real labels, it is a `GaussianMixture` $\frac1S \sum_i N(\mu_i, v_i)$. The functions compare an outsider's law with a
member's. Leading dimensions are independent problems. Only `ScaleMixture.sample` draws random numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from leakage.draws import gaussian
from leakage.precision import DTYPE

_CHUNK = 2**20  # points times atoms evaluated at once
_SCALE_GRID = 384  # log-spaced points of |y| at which the sign of the density difference is computed
_SCALE_START = 1e-3  # this grid starts at this multiple of the smallest scale
_SCALE_END = 12.0  # and ends at this multiple of the largest: a Gaussian has no mass beyond 12 deviations
_MEANS_GRID = 1500  # about the least number of points of y, for laws with means, shared among all components
_FEWEST_POINTS = 25  # of this grid for each component, with its mean, so that no peak is missed
_MEANS_REACH = 9.0  # this grid reaches so many deviations to both sides of each mean
_ROUNDS = 5  # each round divides the bracket of every sign change by `_SPLIT`
_SPLIT = 8
_CELLS = 4000  # intervals of |y| whose masses `power` adds up


@dataclass(frozen=True)
class ScaleMixture:
    r"""The law $\sum_i w_i\,N(0, v_i)$ of a number Y. `cdf` and `density` are those of $|Y|$.

    Args:
        variances: $v_i > 0$, finite.
        weights: $w_i \ge 0$ with sum 1, one for each atom; equal by default. Leading dimensions broadcast.
    """

    variances: Float[Tensor, "*batch atoms"]
    weights: Float[Tensor, "*#batch atoms"] | None = None

    @property
    def mean_variance(self) -> Float[Tensor, "*batch"]:
        r"""The variance of the mixture, $\sum_i w_i v_i$."""
        return (self.variances * self._weights).sum(-1)

    def cdf(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""$P(|Y| \le y) = \sum_i w_i\,\mathrm{erf}(y / \sqrt{2 v_i})$ for $y \ge 0$."""
        return self._evaluate(y, lambda z, _, weights: _weighted_sum(z.mul_(math.sqrt(1 / 2)).erf(), weights))

    def density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""Density of $|Y|$ at $y \ge 0$: twice the density of $Y$."""
        norm = math.sqrt(2 / math.pi)
        return self._evaluate(
            y,
            lambda z, scale, weights: _weighted_sum(
                _minus_half_square(z.new_zeros(()), z).exp_(), norm * weights / scale
            ),
        )

    def log_density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        r"""Logarithm of `density`, also finite where the density itself rounds to 0."""
        norm = math.log(2 / math.pi) / 2
        return self._evaluate(
            y, lambda z, scale, weights: _minus_half_square((weights / scale).log(), z).logsumexp(-1) + norm
        )

    def sample(self, size: int, *, generator: torch.Generator) -> Float[Tensor, "*batch size"]:
        """`size` draws of Y, with their signs, from each law of the batch."""
        flat = self._weights.expand(self.variances.shape).reshape(-1, self.variances.shape[-1])
        atoms = torch.multinomial(flat, size, replacement=True, generator=generator)
        chosen = self.variances.reshape(flat.shape).gather(-1, atoms)
        noise = gaussian(chosen.shape, generator=generator, dtype=chosen.dtype)
        return (chosen.sqrt() * noise).reshape(*self.variances.shape[:-1], size)

    @property
    def _weights(self) -> Tensor:
        atoms = self.variances.shape[-1]
        return self.weights if self.weights is not None else self.variances.new_full((atoms,), 1 / atoms)

    def _evaluate(self, y: Tensor, kernel: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """`kernel(y / scale, scale, weights)`; it must sum over the atoms and may overwrite its first argument."""
        dtype = torch.promote_types(y.dtype, self.variances.dtype)
        scale, weights = self.variances.sqrt().to(dtype).unsqueeze(-2), self._weights.to(dtype).unsqueeze(-2)
        return _evaluate_in_chunks(y, self.variances.shape, lambda part: kernel(part / scale, scale, weights))


@dataclass(frozen=True)
class GaussianMixture:
    r"""The law $\frac1S \sum_i N(\mu_i, v_i)$, with the S components along the last dimension."""

    means: Float[Tensor, "*batch atoms"]
    variances: Float[Tensor, "*batch atoms"]

    def cdf(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        """Distribution function; y may be ±∞."""
        return self._evaluate(y, lambda z, _: torch.special.ndtr(z))

    def density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        """Density at finite y."""
        norm = 1 / math.sqrt(2 * math.pi)
        return self._evaluate(y, lambda z, scale: norm * torch.exp(-z.square() / 2) / scale)

    def _evaluate(self, y: Tensor, kernel: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Average `kernel((y - mean) / scale, scale)` over the components."""
        mean, scale = self.means.unsqueeze(-2), self.variances.sqrt().unsqueeze(-2)
        return _evaluate_in_chunks(y, self.means.shape, lambda part: kernel((part - mean) / scale, scale).mean(-1))


def _evaluate_in_chunks(y: Tensor, shape: torch.Size, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function` of points (…, points, 1), a few points at a time; `shape` is that of the atoms."""
    batch = torch.broadcast_shapes(y.shape[:-1], shape[:-1])
    step = max(1, _CHUNK // max(1, math.prod(batch) * shape[-1]))
    found = y.new_empty((*batch, y.shape[-1]))
    for start in range(0, y.shape[-1], step):
        found[..., start : start + step] = function(y[..., start : start + step, None])
    return found


def _weighted_sum(values: Float[Tensor, "*b points atoms"], weights: Float[Tensor, "*#b 1 atoms"]) -> Tensor:
    """Weighted sums over the atoms. On a CPU, `values @ weights` takes five times as long."""
    return (weights @ values.mT).squeeze(-2)


def _minus_half_square(offset: Float[Tensor, "*#z"], z: Float[Tensor, "*z"]) -> Float[Tensor, "*z"]:
    r"""$c - z^2/2$ for the offset c. Overwrites z, which is three times as fast, unless gradients are needed."""
    return torch.addcmul(offset, z, z, value=-0.5, out=None if offset.requires_grad or z.requires_grad else z)


class Laws(TypedDict):
    """The outsider's and the member's law of one prediction, as keyword arguments: `total_variation(**laws)`."""

    outsider: ScaleMixture
    member: ScaleMixture


Law = ScaleMixture | GaussianMixture | Tensor
"""A mixture, or a tensor of variances: a `ScaleMixture` with equal weights."""


def total_variation(*, member: Law, outsider: Law) -> Float[Tensor, "*batch"]:
    r"""The total variation distance, which is the advantage of the best attack, the likelihood ratio test.

    $$ \mathrm{TV} = \tfrac12 \sum_j \bigl| G(t_{j+1}) - G(t_j) \bigr|, \qquad G = F_0 - F_1, $$

    where $F_0$ and $f_0$ belong to the outsider, $F_1$ and $f_1$ to the member. The $t_1 < t_2 < \dots$ are the sign
    changes of $f_0 - f_1$ (`thresholds`), and G is 0 at both ends of the line. As $G' = 0$ at a sign change, an error h
    in its place changes the distance by $O(h^2)$ only.

    Source: Tan et al. (2022), Proposition 3.1, evaluated exactly.

    The grid for a `GaussianMixture` grows with the number of atoms, and every atom is evaluated on all of it, so the
    cost is quadratic: 0.3 s for 600 atoms in each law, some minutes for 5000.
    """
    outsider, member = _as_mixture(outsider), _as_mixture(member)
    crossings = thresholds(member=member, outsider=outsider)
    gaps = outsider.cdf(crossings) - member.cdf(crossings)
    edge = torch.zeros_like(gaps[..., :1])
    return 0.5 * torch.diff(torch.cat([edge, gaps, edge], dim=-1), dim=-1).abs().sum(-1)


def thresholds(*, member: Law, outsider: Law) -> Float[Tensor, "*batch crossings"]:
    r"""The values of y, or of $|y|$ for scale mixtures, where the likelihood ratio crosses 1; ascending, padded with ∞.

    Two Gaussians of mean 0 have one crossing in $|y|$; mixtures with heavy tails have more.
    """
    outsider, member = _as_mixture(outsider), _as_mixture(member)
    if isinstance(outsider, ScaleMixture) and isinstance(member, ScaleMixture):
        grid = _log_grid(outsider, member)
    elif isinstance(outsider, GaussianMixture) and isinstance(member, GaussianMixture):
        grid = _grid_around_means(outsider, member)
    else:
        raise TypeError("`member` and `outsider` must both be a `ScaleMixture`, or both a `GaussianMixture`.")
    return sign_changes(lambda y: outsider.density(y) - member.density(y), grid)


def threshold_advantage(
    threshold: Float[Tensor, "*#batch points"], *, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor
) -> Float[Tensor, "*batch points"]:
    r"""Advantage TPR − FPR of the rule "member iff $|y| > t$": $F_0(t) - F_1(t)$, negative for a bad rule."""
    return _as_mixture(outsider).cdf(threshold) - _as_mixture(member).cdf(threshold)


def log_likelihood_ratio(
    predictions: Float[Tensor, " draws"], *, member: ScaleMixture, outsider: ScaleMixture
) -> Float[Tensor, " draws"]:
    r"""Score of the best attack that sees a prediction without its label, in nats; positive for "member".

    $$ s(\hat y_0) = \log f_1(\hat y_0) - \log f_0(\hat y_0) $$

    The attacker knows both laws, which have no batch dimensions.

    Source: Tan et al. (2022), Proposition 3.1 and eq. (3).
    """
    size = predictions.abs()
    return member.log_density(size) - outsider.log_density(size)


def power(*, member: ScaleMixture | Tensor, outsider: ScaleMixture | Tensor, fpr: float) -> Float[Tensor, "*batch"]:
    r"""Largest true positive rate at a false positive rate (Neyman–Pearson), from the masses of 4000 intervals.

    The test says "member" on the intervals of $|y|$ with the largest likelihood ratios, as many as `fpr` allows; on the
    last of them it says so with a probability below 1. A mass is a difference of distribution functions with an error
    of about 1e-16, so `fpr` should not be below 1e-13, where the relative error is 0.1 %.
    """
    laws = _as_mixture(outsider), _as_mixture(member)
    grid = _log_grid(*laws, points=_CELLS)
    # Of the intervals from 0 through the points of the grid to infinity.
    masses = [pad(pad(law.cdf(grid), (1, 0)), (0, 1), value=1.0).diff(dim=-1).clamp_min(0) for law in laws]
    null, alternative = torch.broadcast_tensors(*masses)
    order = torch.argsort(alternative / null.clamp_min(torch.finfo(null.dtype).tiny), dim=-1, descending=True)
    null, alternative = null.gather(-1, order), alternative.gather(-1, order)
    room = (fpr - (null.cumsum(-1) - null)).clamp_min(0)
    share = torch.where(null > 0, (room / null.clamp_min(torch.finfo(null.dtype).tiny)).clamp(max=1), 1.0)
    return (share * alternative).sum(-1)


def _as_mixture(law):
    return ScaleMixture(law) if isinstance(law, Tensor) else law


def _log_grid(first: ScaleMixture, second: ScaleMixture, *, points: int = _SCALE_GRID) -> Tensor:
    """Log-spaced points of |y| that cover every scale of both laws."""
    low = torch.minimum(first.variances.amin(-1), second.variances.amin(-1)).sqrt() * _SCALE_START
    high = torch.maximum(first.variances.amax(-1), second.variances.amax(-1)).sqrt() * _SCALE_END
    steps = torch.linspace(0, 1, points, dtype=DTYPE)
    return torch.exp(low.log().unsqueeze(-1) + (high / low).log().unsqueeze(-1) * steps)


def _grid_around_means(first: GaussianMixture, second: GaussianMixture) -> Float[Tensor, "*batch points"]:
    """Points from -9 to 9 deviations around the mean of every component, in ascending order."""
    parts = []
    for law in (first, second):
        each = max(_FEWEST_POINTS, _MEANS_GRID // (2 * law.means.shape[-1]) | 1)  # odd, so that the mean is one of them
        steps = torch.linspace(-_MEANS_REACH, _MEANS_REACH, each, dtype=law.means.dtype)
        parts.append((law.means.unsqueeze(-1) + law.variances.sqrt().unsqueeze(-1) * steps).flatten(-2))
    batch = torch.broadcast_shapes(*(points.shape[:-1] for points in parts))
    return torch.cat([points.expand(*batch, -1) for points in parts], dim=-1).sort(dim=-1).values


def sign_changes(
    difference: Callable[[Tensor], Tensor], grid: Float[Tensor, "*#batch points"]
) -> Float[Tensor, "*batch crossings"]:
    """Arguments at which `difference` changes sign along `grid`, ascending, padded with +∞."""
    sign = torch.sign(difference(grid))
    # A zero takes the last sign before it, so that a root on a point of the grid is found, too.
    places = torch.arange(sign.shape[-1])
    sign = sign.gather(-1, torch.where(sign != 0, places, 0).cummax(dim=-1).values)
    change = sign[..., 1:] * sign[..., :-1] < 0
    count = max(1, int(change.sum(-1).max()))
    # Stable descending sort of 0/1: the indices of the changes come first, in ascending order.
    where = torch.sort(change.to(torch.int8), dim=-1, descending=True, stable=True).indices[..., :count]
    valid, left = change.gather(-1, where), sign.gather(-1, where)
    low, high = (grid.expand(sign.shape).gather(-1, where + offset) for offset in (0, 1))
    for _ in range(_ROUNDS):
        low, high = _narrow(difference, low, high, left)
    return torch.where(valid, (low + high) / 2, torch.inf).sort(dim=-1).values


def _narrow(difference: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Shrink each bracket of a sign change by a factor of `_SPLIT`; `left` is the sign at its lower end."""
    fractions = torch.linspace(0, 1, _SPLIT + 1, dtype=low.dtype)
    points = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * fractions
    values = difference(points.flatten(-2)).unflatten(-1, (low.shape[-1], _SPLIT + 1))
    same = (torch.sign(values[..., :-1]) == left.unsqueeze(-1)).to(torch.int8)
    # The last point before the first change of sign; the lower end counts even if its sign is 0.
    index = same.cumprod(-1).sum(-1).clamp(min=1).sub(1).unsqueeze(-1).long()
    return points.gather(-1, index).squeeze(-1), points.gather(-1, index + 1).squeeze(-1)
