r"""Means over the draw of the point asked about, without drawing one.

A Gaussian point enters every law through $r^2 \sim \chi^2_p$ and $\rho^2 \sim \chi^2_{D-p}$, which are independent: a
mean over points is a quadrature in their quantiles. Nothing here is random.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from leakage import arguments
from leakage.runtime import DTYPE
from leakage.theory.least_squares import Design, Query


class Points(NamedTuple):
    """Points that stand for all: `weights @ f(query)` is the mean of `f` over Gaussian points, at every width."""

    query: Query
    weights: Float[Tensor, " points"]

    def mean(self, values: Float[Tensor, "*b points widths"]) -> Float[Tensor, "*b widths"]:
        """The mean over points of what was computed at `query`."""
        return (self.weights[:, None] * values).sum(-2)


def points(design: Design, p: Sequence[int], *, nodes: tuple[int, int] = (64, 4)) -> Points:
    r"""The nodes of Gauss–Legendre in the quantiles of $r^2$ and $\rho^2$, at each of the widths `p`.

    Unlike `Query.draw` it does not follow one point through the widths: only means over points are right.

    Args:
        nodes: how many for $r^2$ and for $\rho^2$; compare with the doubled numbers for the error.

    Raises:
        ValueError: if a width is no whole number from 1 to D, or a number of nodes is less than 1.
    """
    first, second = (arguments.count("nodes", count, least=1) for count in nodes)
    widths = design.widths(list(p))
    used, used_weights = _chi_square_nodes(widths, first)
    unused, unused_weights = _chi_square_nodes(design.D - widths, second)
    query = Query(used.repeat_interleave(second, 0), unused.repeat(first, 1))
    return Points(query, torch.outer(used_weights, unused_weights).flatten())


def _chi_square_nodes(dof: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Quantiles of chi-squared laws at the nodes, one column for each number of degrees of freedom; 0 for none."""
    spots, weights = np.polynomial.legendre.leggauss(count)
    quantiles = 2 * special.gammaincinv(dof.clamp_min(1).numpy() / 2, (spots[:, None] + 1) / 2)
    return torch.where(dof > 0, torch.from_numpy(quantiles), 0.0).to(DTYPE), torch.from_numpy(weights / 2)
