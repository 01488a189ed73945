r"""How far points are from the boundary of their activation polytope, in all directions at once and exactly.

A distance is Euclidean in the input. The boundary is that of the activation polytope: where the neuron that flips has
no active path to the output, the function of the network does not change there. Nothing here follows a ray.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments
from leakage.geometry.jacobian_norms import row_norms
from leakage.geometry.patterns import check, joined
from leakage.models.mlp import Mlp


class Nearest(NamedTuple):
    """The hyperedges nearest to each point, in ascending order: distance, and the neuron counted through all layers."""

    distances: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]


def hyperedge_distances(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t N"]:
    r"""$|z_i(x)| / \lVert w^*_i \rVert$ of all N hidden neurons, in the order of the layers.

    This is the distance to the hyperplane that neuron i has on the polytope of x. The smallest is the distance to the
    boundary of the polytope, the others may be to hyperplanes beyond it. Infinite where $w^*_i = 0$. Squares of weights
    must be numbers: between 1e-150 and 1e150 (1e-18 and 1e18 in single precision) they are.

    Raises:
        ValueError: if a point is not finite or does not fit the network, or the network has no hidden layer.
    """
    check(network, points)
    heights = network.preactivations(points)[:-1]
    if not heights:
        raise ValueError("`network` must have a hidden layer: without one there is no boundary.")
    norms = row_norms(network, tuple(height > 0 for height in heights))
    # A neuron with w* = 0 never flips on this polytope, even where its constant value is 0.
    ratios = [
        torch.where(norm > 0, height.abs() / norm, torch.inf) for height, norm in zip(heights, norms, strict=True)
    ]
    return joined(tuple(ratios))


def nearest(network: Mlp, points: Float[Tensor, "*b t d"], *, count: int = 1) -> Nearest:
    r"""The `count` smallest of `hyperedge_distances`; the first is the inscribed radius $r(x) = \min_i$ of them.

    The neuron closest to a point in the sense of Algorithm 5 of Peinemann (2021) is `neurons[..., 0]`. The paper takes
    the smallest $|z_i|$ instead, which is the closest hyperedge only where all $\lVert w^*_i \rVert$ are equal.

    Raises:
        ValueError: if there are fewer than `count` neurons, or as in `hyperedge_distances`.
    """
    found = hyperedge_distances(network, points)
    arguments.check_count("count", count, least=1, most=found.shape[-1])
    values, neurons = found.topk(count, dim=-1, largest=False, sorted=True)
    return Nearest(values, neurons)


def inscribed_radius(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t"]:
    r"""$r(x) = \min_i |z_i(x)| / \lVert w^*_i \rVert$, the radius of the largest ball around x inside its polytope.

    Raises:
        ValueError: as in `hyperedge_distances`.
    """
    return hyperedge_distances(network, points).amin(-1)
