r"""KKT points known in closed form, for the tests of everything that claims to hold at one.

Half of n training points have label 1, half -1, and $x_i^\top x_j + 1 = \kappa 1[i = j] + \rho$. Neurons with $v_j > 0$
see the positive points at height c and have all negative ones exactly on their kink, and the other way round.
"""

import math
from dataclasses import dataclass

import torch

from leakage.models.two_layer import TwoLayer
from leakage.precision import DTYPE


@dataclass(frozen=True)
class Symmetric:
    """The KKT point with n points, kernel κ on the diagonal and ρ > 1 added everywhere, and margin m."""

    n: int = 6
    kappa: float = 200.0
    rho: float = 3.0
    margin: float = 2.0

    @property
    def height(self):
        """c, the height at which a neuron sees its own points: the u of norm 1 that solves for it."""
        half = self.rho * self.n / 2
        return math.sqrt(self.kappa * (self.kappa + 2 * half) / (self.n / 2 * (self.kappa + half)))

    @property
    def multiplier(self):
        """λ, the same for all points."""
        return 2 / (self.n * self.height)

    @property
    def subgradient(self):
        """s of a point at a neuron of the other sign, strictly between 0 and 1."""
        half = self.rho * self.n / 2
        return half / (self.kappa + half)

    @property
    def labels(self):
        return torch.tensor([1.0, -1.0] * (self.n // 2), dtype=DTYPE)

    @property
    def points(self):
        gram = self.kappa * torch.eye(self.n, dtype=DTYPE) + self.rho - 1
        return torch.linalg.cholesky(gram)

    def network(self, shares=((1.0,), (1.0,))):
        """Neurons that share the work of either sign in these proportions of v², each group summing to 1."""
        lifted = torch.cat([self.points, torch.ones(self.n, 1, dtype=DTYPE)], dim=-1)
        rows, outputs = [], []
        for sign, parts in zip((1.0, -1.0), shares, strict=True):
            mine = (self.labels == sign).to(DTYPE)
            weights = self.multiplier * self.labels * (mine + self.subgradient * (1 - mine))
            for part in parts:
                outputs.append(sign * math.sqrt(part * self.margin / self.height))
                rows.append(outputs[-1] * weights @ lifted)
        hidden = torch.stack(rows)
        return TwoLayer(hidden[:, :-1], hidden[:, -1], torch.tensor(outputs, dtype=DTYPE))
