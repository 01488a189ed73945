r"""Rays through activation polytopes: distances of the hyperedges they cross, norms behind these, angles between them.

The attacker sees the network's weights. This is the hyperedge shooting of Peinemann (2021), with every crossing found
exactly instead of searched for. It gives features (points, ...) for `attack_models`; only `cell_score` is a score by
itself. A ray that crosses nothing more has infinite distances from there on and repeats the last norm.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.attacks.membership.boundary_distance import replace_infinite
from leakage.geometry.polytopes import (
    Gates,
    activation_pattern,
    jacobian_norm,
    layer_maps,
    nearest_hyperedges,
    row_space,
)
from leakage.geometry.rays import ray_crossings
from leakage.models.mlp import Mlp

SIGNALS = ("distance", "norm", "cosine")
"""The three metrics of Peinemann (2021), Sections 4.4.1 to 4.4.3."""

NEAREST = 4
"""Hyperedges whose mean distance is the cell distance."""
_ROUNDING = 1e-12  # a part of a unit vector below this is rounding of the rest


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
    drawn = 2 * torch.rand(shape, generator=generator, device=points.device, dtype=points.dtype) - 1
    return drawn / drawn.norm(dim=-1, keepdim=True)


def shoot_rays(
    network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"], *, boundaries: int = 5
) -> Crossings:
    r"""Follow each ray to its first hyperedge, then go on along that one's normal, `boundaries` times.

    The next direction is $\pm w^*_i$ of the hyperedge crossed, the sign with $\langle n, p - x \rangle \ge 0$: away
    from the point. The pattern is carried over each crossing, so that no hyperedge is met twice in one place.

    Source: Peinemann (2021), Algorithm 5, with the activation boundaries of its text and not the classes of its code,
    and with exact crossings (`geometry.rays.ray_crossings`) in place of its search.
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
    """The paths of all rays, in the row space of the first weight: only the first direction leaves it, until the first
    hyperedge. How far it leaves it on the way there is `outside`."""

    def __init__(self, network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"]) -> None:
        space, rays = row_space(network), first.shape[1]
        self.network, starts = space.network, space.project(points)
        self.start = self.place = starts.repeat_interleave(rays, dim=0)
        inside = space.project(first.flatten(0, 1))
        length = inside.norm(dim=-1)
        # A part that is rounding has length 0 and any direction: such a ray runs along all hyperedges and meets none.
        self.share = torch.where(length > _ROUNDING, length, 0.0)
        axis = torch.eye(1, inside.shape[-1], dtype=inside.dtype, device=inside.device)
        self.direction = torch.where(self.share[:, None] > 0, inside / self.share[:, None], axis)
        self.outside = torch.zeros_like(self.share)
        self.gates: Gates = tuple(
            gate.repeat_interleave(rays, dim=0) for gate in activation_pattern(self.network, starts)
        )
        self.distances: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.normals: list[Tensor] = []

    def advance(self) -> None:
        """Go to the next hyperedge and turn along its normal; rays that meet none stay where they are."""
        before = self.gates
        crossing = ray_crossings(self.network, self.place, self.direction, crossings=1, gates=before)
        length, neuron = crossing.lengths[:, 0], crossing.neurons[:, 0]
        met = (neuron >= 0) & (self.share > 0)
        self.gates = tuple(torch.where(met[:, None], *pair) for pair in zip(crossing.gates, before, strict=True))
        length = torch.where(met, length, 0.0)
        if not self.distances:
            rate = (1 - self.share.square()).clamp_min(0).sqrt() / torch.where(self.share > 0, self.share, 1.0)
            self.outside = length * rate
        self.place = self.place + length[:, None] * self.direction
        gone = self.place - self.start
        normal = _normal(self.network, before, neuron.clamp_min(0))
        outward = torch.where(((normal * gone).sum(-1) < 0)[:, None], -normal, normal)
        self.direction = torch.where(met[:, None], outward, self.direction)
        self.distances.append(torch.where(met, torch.hypot(gone.norm(dim=-1), self.outside), torch.inf))
        self.norms.append(jacobian_norm(self.network, self.gates))
        self.normals.append(torch.where(met[:, None], outward, 0.0))


def _normal(network: Mlp, gates: Gates, neuron: Int[Tensor, " t"]) -> Float[Tensor, "t d"]:
    r"""The unit normal $w^*_i / \lVert w^*_i \rVert$ of one neuron at each point."""
    if len(gates) == 1:
        rows = network.weights[0][neuron]
    else:
        hidden = [layer.expand(len(neuron), -1, -1) for layer in layer_maps(network, gates)[0][:-1]]
        place = neuron[:, None, None].expand(-1, 1, network.widths[0])
        rows = torch.cat(hidden, dim=1).gather(1, place).squeeze(1)
    return rows / rows.norm(dim=-1, keepdim=True)


def ray_features(crossings: Crossings, signal: str) -> Float[Tensor, "t f"]:
    """One of `SIGNALS` as a row of numbers for each point: of each ray in turn, in the order of the crossings.

    With several rays, whose order means nothing, each place in the order of crossings is sorted over the rays.
    """
    return getattr(crossings, signal).sort(dim=1).values.flatten(1)


def cell_score(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    r"""Minus the mean distance of the nearest hyperedges, $-\frac14 \sum_{k \le 4} r_k(x)$: members lie closer to them.

    In all directions at once (`geometry.polytopes`), without a ray. Where there are fewer than four neurons, of these.

    Source: the signal of Peinemann (2021), Section 4.4.1; the mean over four is ours.
    """
    count = min(NEAREST, sum(network.widths[1:-1]))
    return -replace_infinite(nearest_hyperedges(network, points, count=count).distances).mean(-1)
