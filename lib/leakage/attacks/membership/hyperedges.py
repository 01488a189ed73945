r"""What rays through activation polytopes meet: distances of hyperedges, norms beyond them, angles between them.

The attacker sees the network's weights, and knows no label and no member: what comes out are features (points, …) for
`attack_models`, of which none is a score by itself. It is the hyperedge shooting of Peinemann (2021), with every
crossing found exactly instead of searched for. A ray that meets nothing more has infinite distances from there on and
repeats the last norm; `found` says how many it met. Nothing here trains.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.attacks.membership.boundary_distance import capped
from leakage.geometry.distances import nearest
from leakage.geometry.jacobian_norms import frobenius_norm
from leakage.geometry.patterns import Gates, adapted, pattern
from leakage.geometry.rays import walk
from leakage.geometry.row_space import row_space
from leakage.models.mlp import Mlp

SIGNALS = ("distance", "norm", "cosine")
"""The three metrics of Peinemann (2021), Sections 4.4.1 to 4.4.3."""

NEAREST = 4
"""Hyperedges whose mean distance is the cell distance."""
_ASIDE = 1e-12  # a part of a unit vector below this is rounding of the rest


class Shots(NamedTuple):
    r"""What each ray of each point met, in the order it met it.

    Attributes:
        distance: $\lVert p_k - x \rVert$ of the crossings $p_k$ from the point itself.
        norm: $\lVert A_P \rVert_F$ of the polytopes behind them.
        cosine: of the normals of two hyperedges in a row, both turned outwards; 0 where there is no second one.
        found: how many crossings there were.
    """

    distance: Float[Tensor, "t rays k"]
    norm: Float[Tensor, "t rays k"]
    cosine: Float[Tensor, "t rays k-1"]
    found: Int[Tensor, "t rays"]


def directions(points: Float[Tensor, "t d"], *, rays: int, generator: torch.Generator) -> Float[Tensor, "t rays d"]:
    r"""First directions: each coordinate from U(-1, 1), then normalised, anew for each point and ray.

    Source: Peinemann (2021), Algorithm 5, lines 1 to 4. Such directions prefer the corners of the cube to its faces.
    """
    shape = (len(points), rays, points.shape[-1])
    drawn = 2 * torch.rand(shape, generator=generator, device=points.device, dtype=points.dtype) - 1
    return drawn / drawn.norm(dim=-1, keepdim=True)


def shoot(
    network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"], *, boundaries: int = 5
) -> Shots:
    r"""Follow each ray to its first hyperedge, then go on along that one's normal, `boundaries` times.

    The next direction is $\pm w^*_i$ of the hyperedge crossed, the sign with $\langle n, p - x \rangle \ge 0$: away
    from the point. The pattern is carried over each crossing, so that no hyperedge is met twice in one place.

    Source: Peinemann (2021), Algorithm 5, with the activation boundaries of its text and not the classes of its code,
    and with exact crossings (`geometry.rays.walk`) in place of its search.
    """
    flight = _Flight(network, points, first)
    for _ in range(boundaries):
        flight.advance()
    shape = (len(points), first.shape[1])
    normals = torch.stack(flight.normals, dim=1)
    cosines = (normals[:, 1:] * normals[:, :-1]).sum(-1)
    distance, norm = (torch.stack(part, dim=-1).unflatten(0, shape) for part in (flight.distances, flight.norms))
    return Shots(distance, norm, cosines.unflatten(0, shape), distance.isfinite().sum(-1))


class _Flight:
    """Rays under way, in the row space of the first weight: normals lie there, and only the first direction does not.

    What the first direction has besides, `aside` for each unit of length, is gone at the first hyperedge and stays.
    """

    def __init__(self, network: Mlp, points: Float[Tensor, "t d"], first: Float[Tensor, "t rays d"]) -> None:
        space, rays = row_space(network), first.shape[1]
        self.network, starts = space.network, space.of(points)
        self.start = self.place = starts.repeat_interleave(rays, dim=0)
        inside = space.of(first.flatten(0, 1))
        length = inside.norm(dim=-1)
        # A part that is rounding has length 0 and any direction: such a ray runs along all hyperedges and meets none.
        self.share = torch.where(length > _ASIDE, length, 0.0)
        axis = torch.eye(1, inside.shape[-1], dtype=inside.dtype, device=inside.device)
        self.way = torch.where(self.share[:, None] > 0, inside / self.share[:, None], axis)
        self.aside = torch.zeros_like(self.share)
        self.gates: Gates = tuple(gate.repeat_interleave(rays, dim=0) for gate in pattern(self.network, starts))
        self.distances: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.normals: list[Tensor] = []

    def advance(self) -> None:
        """Go to the next hyperedge and turn along its normal; rays that meet none stay where they are."""
        before = self.gates
        crossing = walk(self.network, self.place, self.way, crossings=1, gates=before)
        length, neuron = crossing.lengths[:, 0], crossing.neurons[:, 0]
        met = (neuron >= 0) & (self.share > 0)
        self.gates = tuple(torch.where(met[:, None], *pair) for pair in zip(crossing.gates, before, strict=True))
        length = torch.where(met, length, 0.0)
        if not self.distances:
            rate = (1 - self.share.square()).clamp_min(0).sqrt() / torch.where(self.share > 0, self.share, 1.0)
            self.aside = length * rate
        self.place = self.place + length[:, None] * self.way
        gone = self.place - self.start
        normal = _normal(self.network, before, neuron.clamp_min(0))
        outward = torch.where(((normal * gone).sum(-1) < 0)[:, None], -normal, normal)
        self.way = torch.where(met[:, None], outward, self.way)
        self.distances.append(torch.where(met, torch.hypot(gone.norm(dim=-1), self.aside), torch.inf))
        self.norms.append(frobenius_norm(self.network, self.gates))
        self.normals.append(torch.where(met[:, None], outward, 0.0))


def _normal(network: Mlp, gates: Gates, neuron: Int[Tensor, " t"]) -> Float[Tensor, "t d"]:
    r"""The unit normal $w^*_i / \lVert w^*_i \rVert$ of one neuron at each point."""
    if len(gates) == 1:
        rows = network.weights[0][neuron]
    else:
        hidden = [layer.expand(len(neuron), -1, -1) for layer in adapted(network, gates)[0][:-1]]
        place = neuron[:, None, None].expand(-1, 1, network.widths[0])
        rows = torch.cat(hidden, dim=1).gather(1, place).squeeze(1)
    return rows / rows.norm(dim=-1, keepdim=True)


def features(shots: Shots, signal: str) -> Float[Tensor, "t f"]:
    """One of `SIGNALS` as a row of numbers for each point: of each ray in turn, in the order of the crossings.

    With several rays, whose order means nothing, each place in the order of crossings is sorted over the rays.
    """
    return getattr(shots, signal).sort(dim=1).values.flatten(1)


def cell_score(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    r"""Minus the mean distance of the nearest hyperedges, $-\frac14 \sum_{k \le 4} r_k(x)$: members lie closer to them.

    In all directions at once (`geometry.distances`), without a ray. Where fewer than four neurons are left, of these.

    Source: the signal of Peinemann (2021), Section 4.4.1; the mean over four is ours.
    """
    count = min(NEAREST, sum(network.widths[1:-1]))
    return -capped(nearest(network, points, count=count).distances).mean(-1)
