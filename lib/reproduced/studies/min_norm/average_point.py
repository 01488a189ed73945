r"""Means over Gaussian query points by quadrature, without drawing a point.

A Gaussian point enters every law only through two independent numbers, $r^2 \sim \chi^2_p$ and
$\rho^2 \sim \chi^2_{D-p}$: a mean over points is an integral over their quantiles. Nothing here is random.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage.runtime import DTYPE
from leakage.theory.least_squares import Design, Query


class Points(NamedTuple):
    """Nodes and weights of the quadrature: `mean(f(query))` is the mean of `f` over Gaussian points, at every width."""

    query: Query
    weights: Float[Tensor, " points"]

    def mean(self, values: Float[Tensor, "*b points widths"]) -> Float[Tensor, "*b widths"]:
        """The weighted mean over the nodes of `values`, which were computed at `query`."""
        return (self.weights[:, None] * values).sum(-2)


def points(design: Design, p: Sequence[int], *, nodes: tuple[int, int] = (64, 4)) -> Points:
    r"""Gauss–Legendre nodes in the quantiles of $r^2$ and $\rho^2$ at each of the widths `p`, with their weights.

    `nodes` are their numbers for $r^2$ and for $\rho^2$. A node is not one point seen at all widths, as `Query.draw`
    gives: only means over all nodes are right.
    """
    first, second = nodes
    widths = design.widths(list(p))
    used, used_weights = _chi_square_nodes(widths, first)
    unused, unused_weights = _chi_square_nodes(design.D - widths, second)
    query = Query(used.repeat_interleave(second, 0), unused.repeat(first, 1))
    return Points(query, torch.outer(used_weights, unused_weights).flatten())


def _chi_square_nodes(dof: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Chi-squared quantiles at the nodes, a column for each number of degrees of freedom (0 for none), and weights."""
    spots, weights = np.polynomial.legendre.leggauss(count)
    quantiles = 2 * special.gammaincinv(dof.clamp_min(1).numpy() / 2, (spots[:, None] + 1) / 2)
    return torch.where(dof > 0, torch.from_numpy(quantiles), 0.0).to(DTYPE), torch.from_numpy(weights / 2)
