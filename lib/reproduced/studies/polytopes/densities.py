r"""How many cells there are and how their edges lie, near the data and away from them.

`by_distance` counts cells by their distance to the nearest data point. `in_discs` looks at the pieces of hyperedge
inside discs, clipped exactly. A direction is a line without arrow, so its angle is doubled: $e^{2i\theta}$. Coordinates
are those of the window.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.geometry.subdivision import Subdivision

_CHUNK = 2**16  # numbers in the largest table of distances: it stays in the cache


class Densities(NamedTuple):
    """Cells by their distance to the nearest data point.

    Attributes:
        counts: cells whose middle is that far.
        areas: of the part of the window that is that far.
    """

    counts: Int[Tensor, "*b bins"]
    areas: Float[Tensor, "*b bins"]

    def per_area(self, first: int, last: int) -> Float[Tensor, "*b"]:
        """Cells per area in the bins from `first` to before `last`; NaN where there is no area."""
        return self.counts[..., first:last].sum(-1) / self.areas[..., first:last].sum(-1)


def by_distance(
    subdivision: Subdivision,
    data: Float[Tensor, "n 2"],
    *,
    edges: Sequence[float],
    lattice: Float[Tensor, "t 2"],
) -> Densities:
    """Numbers of cells and areas between the distances `edges`, which ascend from 0; the last bin has no end.

    The points of `lattice` stand for equal parts of the window.
    """
    steps = torch.tensor(edges, dtype=data.dtype, device=data.device)
    found = [
        torch.bincount(torch.searchsorted(steps, nearest(points, data), right=True) - 1, minlength=len(steps))
        for points in (subdivision.middles, lattice)
    ]
    return Densities(found[0], found[1] / len(lattice) * subdivision.areas.sum())


def nearest(points: Float[Tensor, "t 2"], data: Float[Tensor, "n 2"]) -> Float[Tensor, " t"]:
    """The distance from each point to the nearest of the data."""
    across, along = data.mT
    found = []
    for part in points.split(max(1, _CHUNK // len(data))):  # of squares: `torch.cdist` takes every root
        first, second = part[:, :1] - across, part[:, 1:] - along
        found.append(first.square_().addcmul_(second, second).amin(1))
    return torch.cat(found).sqrt_()


class Discs(NamedTuple):
    r"""Pieces of hyperedge in discs.

    Attributes:
        lengths: their length $L = \sum_e \ell_e$ per area of the disc.
        directions: real and imaginary part of $\sum_e \ell_e e^{2i\theta_e} / L$.
        parallelism: the mean of $\cos 2(\theta_e - \theta_f)$ over pairs of pieces of different neurons, weighted by
            $\ell_e \ell_f$: 1 if all are parallel, 0 in the mean if directions are independent, however few they are.
    """

    lengths: Float[Tensor, " discs"]
    directions: Float[Tensor, "discs 2"]
    parallelism: Float[Tensor, " discs"]

    @property
    def order(self) -> Float[Tensor, " discs"]:
        r"""$|\sum_e \ell_e e^{2i\theta_e}| / L$: 1 if all pieces are parallel; with few pieces large by chance."""
        return self.directions.norm(dim=-1)

    def alignment(self, axes: Float[Tensor, "#discs 2"]) -> Float[Tensor, " discs"]:
        r"""The mean of $\cos 2(\theta_e - \phi)$ with a direction of each disc, or of all: 1 along it, -1 across."""
        return (self.directions * _doubled(axes)).sum(-1)


def in_discs(subdivision: Subdivision, centres: Float[Tensor, "discs 2"], *, radius: float) -> Discs:
    """Length and directions of the hyperedges inside discs; NaN for directions where there is none."""
    segments, neurons = subdivision.hyperedges()
    inside = _clipped(segments, centres, radius)
    turned = _doubled(segments[:, 1] - segments[:, 0])
    total = inside.sum(-1)
    vectors = inside @ turned
    # Pieces of one neuron are one line, bent at most: pairs of them say nothing about parallelism.
    size = (len(centres), subdivision.pattern.shape[1])
    own_length = inside.new_zeros(size).index_add(1, neurons, inside)
    own = [inside.new_zeros(size).index_add(1, neurons, inside * part) for part in turned.unbind(-1)]
    pairs = total.square() - own_length.square().sum(-1)
    agreeing = vectors.square().sum(-1) - sum(part.square().sum(-1) for part in own)
    parallelism = torch.where(pairs > _ROUNDING * total.square(), agreeing / pairs, torch.nan)
    return Discs(total / (torch.pi * radius**2), vectors / total.unsqueeze(-1), parallelism)


_ROUNDING = 1e-12  # pairs of a single neuron sum to 0 up to this share


def _clipped(
    segments: Float[Tensor, "s 2 2"], centres: Float[Tensor, "discs 2"], radius: float
) -> Float[Tensor, "discs s"]:
    """The length of each segment inside each disc: between the roots of a quadratic, cut to the segment."""
    along = segments[:, 1] - segments[:, 0]
    length = along.norm(dim=-1)
    unit = along / length.clamp_min(torch.finfo(length.dtype).tiny).unsqueeze(-1)
    offset = segments[:, 0] - centres.unsqueeze(1)
    middle = -(offset * unit).sum(-1)
    across = (offset[..., 0] * unit[:, 1] - offset[..., 1] * unit[:, 0]).square()
    half = (radius**2 - across).clamp_min(0).sqrt()
    low, high = (middle - half).clamp_min(0), torch.minimum(middle + half, length)
    return (high - low).clamp_min(0)


def _doubled(directions: Float[Tensor, "k 2"]) -> Float[Tensor, "k 2"]:
    r"""$e^{2i\theta}$ of vectors at angle θ; 0 for the vector 0."""
    x, y = directions.unbind(-1)
    square = (x.square() + y.square()).clamp_min(torch.finfo(x.dtype).tiny)
    return torch.stack([x.square() - y.square(), 2 * x * y], -1) / square.unsqueeze(-1)
