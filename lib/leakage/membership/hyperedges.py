r"""Rays through activation polytopes: distances of the hyperedges they cross, norms behind these, angles between them.

The attacker sees the network's weights. This is the hyperedge shooting of Peinemann (2021), with every crossing found
exactly instead of searched for. The *hyperedge* of a neuron is where its pre-activation is 0, a bent hyperplane. Rays
give features (points, ...) for `attack_models`; only `hyperedge_distance_score` is a score by itself. A ray that
crosses nothing more has infinite distances from there on and repeats the last norm.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import draws
from leakage.membership.boundary_distance import replace_infinite
from leakage.membership.polytopes import (
    Gates,
    activation_pattern,
    jacobian_norm,
    layer_maps,
    nearest_hyperedges,
    row_space,
)
from leakage.membership.rays import ray_crossings
from leakage.models.mlp import Mlp

SIGNALS = ("distance", "norm", "cosine")
"""The three signals of Peinemann (2021), Sections 4.4.1 to 4.4.3."""

NEAREST = 4
"""Number of nearest hyperedges whose distances are averaged."""
_LENGTH_ROUNDING = 1e-12  # a part of a unit vector below this is rounding of the rest


class Crossings(NamedTuple):
    r"""The hyperedges that each ray of each point crosses, in this order.

    Attributes:
        distance: $\lVert p_k - x \rVert$ of the crossings $p_k$ from the point itself.
        norm: $\lVert A_P \rVert_F$ of the polytopes behind them.
        cosine: of the normals of two hyperedges in a row, both turned outwards; 0 where there is no second one.
    """

    distance: Float[Tensor, "t rays k"]
    norm: Float[Tensor, "t rays k"]
    cosine: Float[Tensor, "t rays k-1"]


def draw_directions(
    points: Float[Tensor, "t d"], *, rays: int, generator: torch.Generator
) -> Float[Tensor, "t rays d"]:
    r"""First directions: each coordinate from U(-1, 1), then normalised, anew for each point and ray.

    Source: Peinemann (2021), Algorithm 5, lines 1 to 4. Such directions prefer the corners of the cube to its faces.
    """
    shape = (len(points), rays, points.shape[-1])
    drawn = 2 * draws.uniform(shape, generator=generator, like=points) - 1
    return drawn / drawn.norm(dim=-1, keepdim=True)


def shoot_rays(
    network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"], *, boundaries: int = 5
) -> Crossings:
    r"""Follow each ray to its first hyperedge, then on along its normal, to `boundaries` hyperedges in all.

    The next direction is $n = \pm w^*_i$ of the hyperedge crossed, with $\langle n, p - x \rangle \ge 0$: away from
    the point. The pattern is carried over each crossing, so that no hyperedge is met twice in one place.

    Source: Peinemann (2021), Algorithm 5, stopping at activation boundaries, as its prose says, and not where the
    predicted class changes, as its pseudocode does; crossings are exact (`rays.ray_crossings`), not searched.
    """
    paths = _Paths(network, points, first)
    for _ in range(boundaries):
        paths.advance()
    shape = (len(points), first.shape[1])
    normals = torch.stack(paths.normals, dim=1)
    cosines = (normals[:, 1:] * normals[:, :-1]).sum(-1)
    distance, norm = (torch.stack(part, dim=-1).unflatten(0, shape) for part in (paths.distances, paths.norms))
    return Crossings(distance, norm, cosines.unflatten(0, shape))


class _Paths:
    """The paths of all rays, in the row space of the first weight. Only the first directions have a part outside this
    space; `outside` is the length of this part at the first hyperedge."""

    def __init__(self, network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"]) -> None:
        (self.network, basis), rays = row_space(network), first.shape[1]
        starts = points @ basis
        self.start = self.position = starts.repeat_interleave(rays, dim=0)
        inside = first.flatten(0, 1) @ basis
        length = inside.norm(dim=-1)
        # If the part inside is only rounding error, `inside_norm` is 0: the network is constant along such a ray.
        self.inside_norm = torch.where(length > _LENGTH_ROUNDING, length, 0.0)
        axis = torch.eye(1, inside.shape[-1], dtype=inside.dtype, device=inside.device)
        self.direction = torch.where(self.inside_norm[:, None] > 0, inside / self.inside_norm[:, None], axis)
        self.outside = torch.zeros_like(self.inside_norm)
        self.gates: Gates = tuple(
            gate.repeat_interleave(rays, dim=0) for gate in activation_pattern(self.network, starts)
        )
        self.distances: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.normals: list[Tensor] = []

    def advance(self) -> None:
        """Go to the next hyperedge and turn along its normal; rays that meet none stay where they are."""
        before = self.gates
        crossing = ray_crossings(self.network, self.position, self.direction, crossings=1, gates=before)
        length, neuron = crossing.lengths[:, 0], crossing.neurons[:, 0]
        met = (neuron >= 0) & (self.inside_norm > 0)
        self.gates = tuple(torch.where(met[:, None], *pair) for pair in zip(crossing.gates, before, strict=True))
        length = torch.where(met, length, 0.0)
        if not self.distances:
            outside_norm = (1 - self.inside_norm.square()).clamp_min(0).sqrt()
            self.outside = length * (outside_norm / torch.where(self.inside_norm > 0, self.inside_norm, 1.0))
        self.position = self.position + length[:, None] * self.direction
        displacement = self.position - self.start
        normal = _normal(self.network, before, neuron.clamp_min(0))
        outward = torch.where(((normal * displacement).sum(-1) < 0)[:, None], -normal, normal)
        self.direction = torch.where(met[:, None], outward, self.direction)
        self.distances.append(torch.where(met, torch.hypot(displacement.norm(dim=-1), self.outside), torch.inf))
        self.norms.append(jacobian_norm(self.network, self.gates))
        self.normals.append(torch.where(met[:, None], outward, 0.0))


def _normal(network: Mlp, gates: Gates, neuron: Int[Tensor, " t"]) -> Float[Tensor, "t d"]:
    r"""The unit normal $w^*_i / \lVert w^*_i \rVert$ of one neuron at each point."""
    if len(gates) == 1:
        rows = network.weights[0][neuron]
    else:
        hidden = [layer.expand(len(neuron), -1, -1) for layer in layer_maps(network, gates)[0][:-1]]
        index = neuron[:, None, None].expand(-1, 1, network.widths[0])
        rows = torch.cat(hidden, dim=1).gather(1, index).squeeze(1)
    return rows / rows.norm(dim=-1, keepdim=True)


def ray_features(crossings: Crossings, signal: str) -> Float[Tensor, "t f"]:
    """One of `SIGNALS` as a row of numbers for each point: of each ray in turn, in the order of the crossings.

    With several rays, whose order means nothing, each place in the order of crossings is sorted over the rays.
    """
    return getattr(crossings, signal).sort(dim=1).values.flatten(1)


def hyperedge_distance_score(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    r"""Minus the mean of the smallest `hyperedge_distances`, $-\frac14 \sum_{k \le 4} r_k(x)$; members lie closer.

    In all directions at once, without a ray: to the hyperplanes of the neurons on the polytope of x. With fewer than
    four neurons, over all of them.

    Source: the signal of Peinemann (2021), Section 4.4.1; the mean over four is ours.
    """
    count = min(NEAREST, sum(network.widths[1:-1]))
    return -replace_infinite(nearest_hyperedges(network, points, count=count).distances).mean(-1)
