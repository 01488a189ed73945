r"""Clusters2D: pairs of discs of opposite classes in the unit square, a small gap apart.

Classes are 0 and 1; the first disc of a pair is class 0. Points are float64, in the order of their discs, on the device
of the generator.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.runtime import DTYPE

_PROPOSALS = 10_000  # pairs proposed for one data set


@dataclass(frozen=True)
class Layout:
    """How many discs there are and how they lie.

    Attributes:
        pairs: K, pairs of discs.
        points: n, points in each disc.
        radius: r of the discs, in units of the square's side.
        gap: g, between the two discs of a pair; twice this separates discs of different pairs.
    """

    pairs: int = 6
    points: int = 60
    radius: float = 0.04
    gap: float = 0.02

    @property
    def spread(self) -> float:
        """The distance between the centres of a pair, 2r + g."""
        return 2 * self.radius + self.gap


LAYOUT = Layout()
"""The data of the book."""


class Clusters(NamedTuple):
    """A data set and the centres of its discs.

    Attributes:
        points: in the unit square, disc after disc.
        labels: 0 or 1.
        centres: those of each pair, class 0 first.
    """

    points: Float[Tensor, "n 2"]
    labels: Int[Tensor, " n"]
    centres: Float[Tensor, "pairs 2 2"]

    @property
    def middles(self) -> Float[Tensor, "pairs 2"]:
        """The middle of each pair's gap."""
        return self.centres.mean(1)

    @property
    def axes(self) -> Float[Tensor, "pairs 2"]:
        """The unit vector of each pair from class 0 to class 1."""
        across = self.centres[:, 1] - self.centres[:, 0]
        return across / across.norm(dim=-1, keepdim=True)

    @property
    def walls(self) -> Float[Tensor, "pairs 2"]:
        """The unit vector along each pair's gap, a quarter turn from its axis."""
        return self.axes.flip(-1) * self.axes.new_tensor([-1.0, 1.0])


def draw(layout: Layout = LAYOUT, *, generator: torch.Generator) -> Clusters:
    r"""One data set of Clusters2D.

    Pairs are proposed with middle $m \sim U[0,1]^2$ and direction $u = (\cos\theta, \sin\theta)$,
    $\theta \sim U[0, 2\pi)$, and have their centres at $m \mp (r + g/2)\,u$. A pair is placed if its discs lie in the
    unit square and at least 2g, edge to edge, from all discs placed before. Points are uniform on their discs, at
    radius $r\sqrt U$.

    Source: Peinemann (2021), Section 4.2, which describes the data in words; numbers and law are ours.
    """
    centres = _placed(_proposed(layout, generator), layout)
    shape = (layout.pairs, 2, layout.points)
    share, turn = torch.rand((2, *shape), generator=generator, device=generator.device, dtype=DTYPE)
    offsets = layout.radius * share.sqrt().unsqueeze(-1) * _unit(2 * math.pi * turn)
    labels = torch.arange(2, device=centres.device).view(1, 2, 1).expand(shape)
    return Clusters((centres.unsqueeze(2) + offsets).flatten(0, 2), labels.flatten(), centres)


def _proposed(layout: Layout, generator: torch.Generator) -> Float[Tensor, "k 2 2"]:
    """Pairs of centres in the order of their proposal, without those that leave the square."""
    x, y, turn = torch.rand((3, _PROPOSALS), generator=generator, device=generator.device, dtype=DTYPE)
    half = layout.spread / 2 * _unit(2 * math.pi * turn)
    middles = torch.stack([x, y], -1)
    centres = torch.stack([middles - half, middles + half], 1)
    fits = ((centres >= layout.radius) & (centres <= 1 - layout.radius)).all(-1).all(-1)
    return centres[fits]


def _placed(proposed: Float[Tensor, "k 2 2"], layout: Layout) -> Float[Tensor, "pairs 2 2"]:
    """The first proposals, as many as wanted, that keep away from all placed before them; an error if too few do."""
    placed: list[Tensor] = []
    while len(placed) < layout.pairs:
        # All that come too close to the one placed are rejected at once: the first of the rest is placed next.
        placed.append(proposed[0])
        proposed = proposed[1:][_apart(proposed[1:], proposed[0], layout)]
    return torch.stack(placed)


def _apart(proposed: Float[Tensor, "k 2 2"], pair: Float[Tensor, "2 2"], layout: Layout) -> Bool[Tensor, " k"]:
    """Whether both discs of each proposal are 2g from both discs of a pair."""
    distances = (proposed.unsqueeze(2) - pair).norm(dim=-1)
    return (distances >= 2 * layout.radius + 2 * layout.gap).flatten(1).all(1)


def _unit(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], -1)


class Properties(NamedTuple):
    """What the definition promises of every data set.

    Attributes:
        spread_error: the largest difference between the distance of a pair's centres and 2r + g.
        opposite_gap: the smallest distance between points of opposite classes, at least g.
        imbalance: points of class 1 minus points of class 0.
        outside: points outside of the unit square.
    """

    spread_error: float
    opposite_gap: float
    imbalance: int
    outside: int


def properties(data: Clusters, layout: Layout = LAYOUT) -> Properties:
    """The properties of a data set, measured."""
    across = (data.centres[:, 1] - data.centres[:, 0]).norm(dim=-1)
    # Differences, not the matrix product that large inputs would get: it loses half of the digits.
    apart = torch.cdist(
        data.points[data.labels == 0], data.points[data.labels == 1], compute_mode="donot_use_mm_for_euclid_dist"
    )
    return Properties(
        spread_error=float((across - layout.spread).abs().max()),
        opposite_gap=float(apart.min()),
        imbalance=int((2 * data.labels - 1).sum()),
        outside=int(((data.points < 0) | (data.points > 1)).any(-1).sum()),
    )
