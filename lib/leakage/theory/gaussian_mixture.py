r"""Testing one Gaussian mixture $\frac1S \sum_i N(\mu_i, v_i)$ against another, on the whole line.

For predictions whose mean depends on the design, as with real labels. Centred mixtures have their own, faster module,
`scale_mixture`. Batched over leading dimensions; nothing here is random.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.theory.crossings import distance_from_gaps, sign_changes

_GRID = 1500  # points between the outermost components, spaced evenly in rank: dense where the laws have mass
_TAIL = 9.0


@dataclass(frozen=True)
class GaussianMixture:
    r"""Equal mixture of $N(\mu_i, v_i)$ along the last dimension.

    Raises:
        ValueError: if a mean is not finite or a variance not positive and finite.
    """

    means: Float[Tensor, "*batch atoms"]
    variances: Float[Tensor, "*batch atoms"]

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.means).all()):
            raise ValueError("`means` must be finite.")
        if not bool((torch.isfinite(self.variances) & (self.variances > 0)).all()):
            raise ValueError("`variances` must be positive and finite.")

    def cdf(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        """Distribution function; y may be ±∞."""
        return torch.special.ndtr(self._standardised(y)).mean(-1)

    def density(self, y: Float[Tensor, "*#batch points"]) -> Float[Tensor, "*batch points"]:
        """Density at finite y."""
        scale = self.variances.sqrt().unsqueeze(-2)
        return (torch.exp(-self._standardised(y).square() / 2) / scale).mean(-1) / (2 * torch.pi) ** 0.5

    def _standardised(self, y: Tensor) -> Tensor:
        return (y.unsqueeze(-1) - self.means.unsqueeze(-2)) / self.variances.sqrt().unsqueeze(-2)


def total_variation(outsider: GaussianMixture, member: GaussianMixture) -> Float[Tensor, "*batch"]:
    """Total variation distance, the advantage of the best attack, from the distribution functions at the crossings."""
    crossings = sign_changes(lambda y: outsider.density(y) - member.density(y), _grid(outsider, member))
    return distance_from_gaps(outsider.cdf(crossings) - member.cdf(crossings))


def _grid(first: GaussianMixture, second: GaussianMixture) -> Float[Tensor, "*batch points"]:
    """Points spaced evenly in rank among all components' quantiles from -9 to 9 deviations."""
    steps = torch.linspace(-_TAIL, _TAIL, 61, dtype=first.means.dtype, device=first.means.device)
    quantiles = [
        (law.means.unsqueeze(-1) + law.variances.sqrt().unsqueeze(-1) * steps).flatten(-2) for law in (first, second)
    ]
    batch = torch.broadcast_shapes(*(points.shape[:-1] for points in quantiles))
    pooled = torch.cat([points.expand(*batch, -1) for points in quantiles], dim=-1).sort(dim=-1).values
    count = min(_GRID, pooled.shape[-1])
    ranks = torch.linspace(0, pooled.shape[-1] - 1, count, device=pooled.device).round().long()
    return pooled[..., ranks]
