r"""Planes through data of many dimensions: are there more hyperedges around members than around outsiders?

A plane goes through three records of three classes, either three members of the network's training set or three
outsiders of the same classes. Which records of a class are members is chance, so without training both planes have one
law; the same planes through a network that was trained on none of the six must show no difference. Distances are those
of the input.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.polytopes.shadow_attacks import AttackedNetwork, Task, train_pair
from reproduced.papers.polytopes.subdivision import Plane, Subdivision, subdivide_planes
from reproduced.papers.polytopes.windows import box_corners, hyperedges_in_discs, nearest_distance
from reproduced.runtime import Run

RADII = (0.25, 0.5, 1.0, 2.0, 3.0)
"""Ends of the rings around a record. Two users of Location-30 in one class are some 6 apart, in two classes 8.5."""


class RecordPlane(NamedTuple):
    """A plane through three points, with the points in its coordinates and a square window around them.

    Attributes:
        plane: its origin is the points' mean, its basis is orthonormal.
        points: the three points in coordinates of the plane.
        window: corners of the square; no point is closer to its sides than the frame.
    """

    plane: Plane
    points: Float[Tensor, "3 2"]
    window: Float[Tensor, "4 2"]


def plane_through(points: Float[Tensor, "3 d"], *, frame: float) -> RecordPlane:
    """The plane through three points and a window that leaves a frame of this width around them."""
    origin = points.mean(0)
    basis = torch.linalg.qr((points[:2] - points[2]).T).Q.T.contiguous()
    flat = (points - origin) @ basis.T
    half = float(flat.abs().max()) + frame
    return RecordPlane(Plane(origin, basis), flat, box_corners((-half, -half), (half, half)))


class Rings(NamedTuple):
    """In each ring around the three points of a plane, per area: the length of hyperedges and the middles of cells."""

    lengths: Float[Tensor, "*b rings"]
    cells: Float[Tensor, "*b rings"]


def ring_densities(cells: Subdivision, points: Float[Tensor, "3 2"], *, radii: tuple[float, ...]) -> Rings:
    """Edges and cells per area, in rings that end at these radii; rings of different points may overlap."""
    ends = torch.tensor(radii, dtype=points.dtype)
    areas = torch.pi * ends.square()
    discs = [hyperedges_in_discs(cells, points, radius=radius).lengths.mean() for radius in radii]
    away = torch.stack([nearest_distance(cells.centres, point.unsqueeze(0)) for point in points])
    counts = (away.unsqueeze(-1) < ends).to(points.dtype).sum(1).mean(0)
    nought = areas.new_zeros(1)
    width = areas.diff(prepend=nought)
    return Rings(*(total.diff(prepend=nought) / width for total in (torch.stack(discs) * areas, counts)))


class PlaneRings(NamedTuple):
    """The rings around records, for planes through members and through outsiders of one network.

    Attributes:
        radii: ends of the rings.
        member: of each plane through members, in the target.
        outsider: of each plane through outsiders, in the target.
        null_member: of the planes through members in the shadow, which has seen none of these records.
        null_outsider: of the planes through outsiders in the shadow.
    """

    radii: Float[Tensor, " rings"]
    member: Rings
    outsider: Rings
    null_member: Rings
    null_outsider: Rings


def measure_planes(split: int, *, task: Task, planes: int, run: Run, radii: tuple[float, ...] = RADII) -> PlaneRings:
    """Train target and shadow on one split and measure `planes` planes through members and as many through outsiders.

    Plane k of both kinds goes through the same three classes.
    """
    pair = train_pair(task, split=split, run=run)
    rows = draw_triples(pair.target, planes, generator=run.stream(f"planes/{split}")).flatten(0, 1)
    views = [plane_through(pair.target.points[three], frame=radii[-1]) for three in rows]
    windows, through, kinds = torch.stack([view.window for view in views]), [view.plane for view in views], []
    for side in pair:
        planes_cut = zip(subdivide_planes(side.network, windows, through), views, strict=True)
        found = [ring_densities(cells, view.points, radii=radii) for cells, view in planes_cut]
        kinds += [Rings(*map(torch.stack, zip(*found[kind::2], strict=True))) for kind in (0, 1)]
    return PlaneRings(torch.tensor(radii, dtype=DTYPE), *kinds)


def draw_triples(side: AttackedNetwork, count: int, *, generator: torch.Generator) -> Int[Tensor, "count 2 3"]:
    """`count` times, the rows of three members and of three outsiders, of the same three classes in the same order."""
    classes = [kind for kind in side.labels.unique() if len(side.member[side.labels == kind].unique()) == 2]

    def draw(size: int) -> Tensor:
        return torch.rand((count, size), dtype=torch.float32, generator=generator)

    order = draw(len(classes)).argsort(-1)[:, :3]
    # The largest of independent uniform numbers picks one row of each class and kind.
    lot = draw(len(side.labels)).unsqueeze(1)
    fits = side.labels == torch.stack(classes)[order].unsqueeze(-1)
    picked = [lot.masked_fill(~(fits & right), -1.0).argmax(-1) for right in (side.member, ~side.member)]
    return torch.stack(picked, 1)
