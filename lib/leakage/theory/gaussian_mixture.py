r"""Testing one Gaussian mixture $\frac1S \sum_i N(\mu_i, v_i)$ against another, on the whole line.

For predictions whose mean depends on the design, as with real labels. Centred mixtures have their own, faster module,
`scale_mixture`. Batched over leading dimensions; nothing here is random.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import blocks
from leakage.theory.density_crossings import distance_from_gaps, sign_changes

_GRID = 1500  # points on which the sign of the density difference is read, at least: quantiles of all components
_FEWEST = 25  # of each component, its mean among them, however many components there are: no peak is stepped over
_TAIL = 9.0  # the outermost quantiles, in deviations


@dataclass(frozen=True)
class GaussianMixture:
    r"""Equal mixture of $N(\mu_i, v_i)$ along the last dimension."""

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
        """Average `kernel((y - mean) / scale, scale)` over the components, a few points at a time."""
        mean, scale = self.means.unsqueeze(-2), self.variances.sqrt().unsqueeze(-2)
        batch, points = torch.broadcast_shapes(y.shape[:-1], self.means.shape[:-1]), y.shape[-1]
        return blocks.made(
            (*batch, points),
            blocks.of((*batch, self.means.shape[-1], points)),
            lambda part: kernel((y[..., part].unsqueeze(-1) - mean) / scale, scale).mean(-1),
            dtype=torch.promote_types(y.dtype, scale.dtype),
            device=scale.device,
        )


def total_variation(*, member: GaussianMixture, outsider: GaussianMixture) -> Float[Tensor, "*batch"]:
    """Total variation distance, the advantage of the best attack, from the distribution functions at the crossings.

    Every atom is evaluated at some points of every atom, so the cost grows with the square of their number: 0.3 s for
    600 atoms a side, some minutes for 5000.
    """
    crossings = sign_changes(lambda y: outsider.density(y) - member.density(y), _grid(outsider, member))
    return distance_from_gaps(outsider.cdf(crossings) - member.cdf(crossings))


def _grid(first: GaussianMixture, second: GaussianMixture) -> Float[Tensor, "*batch points"]:
    """Points from -9 to 9 deviations round the mean of every component, in ascending order."""
    quantiles = []
    for law in (first, second):
        each = max(_FEWEST, _GRID // (2 * law.means.shape[-1]) | 1)  # odd: the mean is one of them
        steps = torch.linspace(-_TAIL, _TAIL, each, dtype=law.means.dtype, device=law.means.device)
        quantiles.append((law.means.unsqueeze(-1) + law.variances.sqrt().unsqueeze(-1) * steps).flatten(-2))
    batch = torch.broadcast_shapes(*(points.shape[:-1] for points in quantiles))
    return torch.cat([points.expand(*batch, -1) for points in quantiles], dim=-1).sort(dim=-1).values
