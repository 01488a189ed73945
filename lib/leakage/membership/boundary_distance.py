r"""The distance of points to another predicted label: an upper bound (DeepFool) and a lower one (certified radius).

The attacker sees the network's weights. A distance is Euclidean in the input, from the predicted label to any other. A
member is expected to be further away, so that a distance is a score as it is.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.membership.polytopes import activation_pattern, inscribed_radius, output_jacobian, row_space
from leakage.membership.rays import segment_label_change
from leakage.models.mlp import Mlp

MAX_PROJECTIONS = 50  # after which a point counts as not reached
OVERSHOOT = 0.02  # what a projection goes further than the boundary, so that the label does change
_MIN_STEP = 1e-12  # the shortest step, relative to the largest coordinate, or to 1 if all are smaller
_JACOBIAN_ENTRIES = 2**22  # entries of the Jacobians held at once: 32 MiB of float64


def deepfool(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    r"""Upper bounds of the distance to another label, infinite where none was found.

    Project onto $\{g_k = 0\}$, $g_k = o_{y} - o_k$, with the least $g_k / \lVert \nabla g_k \rVert$, and repeat:

    $$ x \leftarrow x - (1 + \eta) \frac{g_k}{\lVert \nabla g_k \rVert^2} \nabla g_k $$

    y is the label predicted at the start. In the row space of $W_1$ the same is done in $\min(d, n_1)$ dimensions.

    Source: Moosavi-Dezfooli et al. (2016), Algorithm 2. Departures: the overshoot is part of each step; the distance is
    that of the first label change on the segment from the point to where the projections ended, found exactly. A step
    is at least as long as 1e-12 of the largest coordinate, so that a point on a boundary leaves it.
    """
    if network.widths[0] > network.widths[1]:
        network, basis = row_space(network)
        points = points @ basis
    return torch.cat([_deepfool(network, part) for part in points.split(_points_at_once(network))])


def _deepfool(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    ends, labels = points.clone(), network(points).argmax(-1)
    moving = torch.arange(len(points), device=points.device)
    nearest = first = _nearest_boundary(network, points, labels)
    for step in range(MAX_PROJECTIONS):
        if step:
            nearest = _nearest_boundary(network, ends[moving], labels[moving])
        # A little further than the boundary, and never so little that rounding hides it; nowhere if there is none.
        length = torch.where(nearest.distances.isfinite(), (1 + OVERSHOOT) * nearest.distances, 0.0)
        ends[moving] += torch.maximum(length, _shortest_step(ends[moving]))[:, None] * nearest.directions
        moving = moving[network(ends[moving]).argmax(-1) == labels[moving]]
        if not len(moving):
            break
    distances = segment_label_change(network, points, ends)
    # Within the shortest step a change cannot be told from rounding error, but the affine piece says where it is.
    distances = torch.where(distances <= _shortest_step(points), torch.minimum(distances, first.distances), distances)
    return distances.index_fill(0, moving, torch.inf)


def _shortest_step(points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    return _MIN_STEP * points.abs().amax(-1).clamp_min(1)


class _NearestBoundary(NamedTuple):
    """Of the affine piece at each point: the distance and the unit direction of the nearest boundary of a class."""

    distances: Float[Tensor, " t"]
    directions: Float[Tensor, "t d"]


def _nearest_boundary(network: Mlp, points: Float[Tensor, "t d"], labels: Int[Tensor, " t"]) -> _NearestBoundary:
    """Infinite, with the direction 0, where the piece is constant."""
    outputs, weights = network(points), output_jacobian(network, activation_pattern(network, points))
    own = labels[:, None]
    slopes = torch.take_along_dim(weights, own[..., None], 1) - weights
    gaps, norms = outputs.gather(1, own) - outputs, slopes.norm(dim=-1)
    # The own class has a slope of exactly zero, so it never is the nearest unless all have.
    distances = torch.where(norms > 0, gaps / norms, torch.inf)
    nearest = distances.argmin(1, keepdim=True)
    distance = distances.gather(1, nearest)
    direction = -torch.take_along_dim(slopes, nearest[..., None], 1).squeeze(1)
    scale = torch.where(distance.isfinite(), 1 / norms.gather(1, nearest), 0.0)
    return _NearestBoundary(distance.squeeze(1), scale * direction)


def replace_infinite(distances: Float[Tensor, "*shape"], *others: Float[Tensor, "*other"]) -> Float[Tensor, "*shape"]:
    """The distances with one finite number for the infinite ones, larger than all distances and all `others`."""
    maxima = [part[part.isfinite()].amax() for part in (distances, *others) if bool(part.isfinite().any())]
    largest = torch.stack(maxima).amax() if maxima else distances.new_zeros(())
    return torch.where(distances.isinf(), 2 * largest + 1, distances)


def certified_radius(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    r"""A radius within which the predicted label cannot change: $\min(r(x), \min_k g_k / \lVert \nabla g_k \rVert)$.

    Within the inscribed radius $r(x)$ the network is the affine map of its polytope, and there
    $g_k / \lVert \nabla g_k \rVert$ is the distance to label k.

    Source: ours.
    """
    reduced, basis = row_space(network)
    parts = (points @ basis).split(_points_at_once(reduced))
    linearised = [_nearest_boundary(reduced, part, reduced(part).argmax(-1)).distances for part in parts]
    return torch.minimum(torch.cat(linearised), inscribed_radius(network, points))


def _points_at_once(network: Mlp) -> int:
    return max(1, _JACOBIAN_ENTRIES // (network.widths[-1] * network.widths[0]))
