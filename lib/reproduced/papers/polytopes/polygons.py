r"""Many convex polygons in one table, and cutting them by lines; `polytopes.subdivision` is made of them.

One row of each table is a polygon: its corners counter-clockwise, the last one repeated to the end of the row, so that
extremes over corners need no mask. Edge k leads from corner k to the next one and has an owner, the number of the
neuron whose line it is on. Coordinates are float64. A line that is closer to a corner than 1e-12 of the largest
coordinate of the windows counts as meeting it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_ROUNDING = 1e-12  # a corner is on a line if its height is below this share of the terms that the height is a sum of
_SPARE_CORNERS = 4  # added where a polygon outgrows the table, so that this happens rarely


class _Part(NamedTuple):
    """Polygons on one side of the lines that cut them."""

    vertices: Float[Tensor, "k v 2"]
    owners: Int[Tensor, "k v"]
    corners: Int[Tensor, " k"]


class Polygons:
    """A table of convex polygons that grows as they are cut.

    Attributes:
        count: R, the number of polygons. The tables hold more rows; those from R on are not in use.
        vertices: (rows, V, 2) corners.
        owners: (rows, V) owner of each edge; sides of the window are -1, -2, ...
        corners: (rows,) number of corners of each polygon.
        parents: (rows,) the polygon of the previous generation that each is a part of.
    """

    def __init__(self, windows: Float[Tensor, "windows v 2"]) -> None:
        count, sides, _ = windows.shape
        self.count, self.scale = count, windows.abs().max()
        # A copy: cutting in place must not change the caller's windows.
        self.vertices = windows.clone()
        self.owners = (-1 - torch.arange(sides, device=windows.device)).repeat(count, 1)
        self.corners = torch.full((count,), sides, device=windows.device)
        self.begin_generation()

    def begin_generation(self) -> None:
        """Make the present polygons the parents of all parts from now on."""
        self.parents = torch.arange(len(self.corners), device=self.corners.device)
        present = self.vertices[: self.count]
        low, high = present.amin(1).T, present.amax(1).T
        self.parent_boxes = torch.cat([(high + low) / 2, (high - low) / 2])  # their centres and half lengths

    def cut(self, lines: Float[Tensor, "3 parents"], *, owner: int) -> None:
        """Cut each polygon that has a corner strictly above its line $a_1 x + a_2 y + c = 0$ and one strictly below.

        A polygon's line is that of its parent. The part above takes the polygon's row and the part below is added at
        the end. A line without slope cuts nothing, and neither does one along an earlier cut.
        """
        chosen = _meets(lines, self.parent_boxes).index_select(0, self.parents[: self.count]).nonzero().squeeze(-1)
        sides, both = self._sides(lines.index_select(1, self.parents.index_select(0, chosen)), chosen)
        hit = chosen[both]
        if not len(hit):
            return
        twice = torch.cat([hit, hit])
        whole = _Part(*(table.index_select(0, twice) for table in (self.vertices, self.owners, self.corners)))
        parts = _above(whole, torch.cat([sides[both], -sides[both]]), owner)
        self._reserve(self.count + len(hit), int(parts.corners.max()))
        added = torch.arange(self.count, self.count + len(hit), device=hit.device)
        self._write(torch.cat([hit, added]), parts)
        self.parents[added] = self.parents[hit]
        self.count += len(hit)

    def _sides(self, line: Float[Tensor, "3 k"], chosen: Tensor) -> tuple[Float[Tensor, "k v"], Bool[Tensor, " k"]]:
        """The heights of corners over their lines, 0 where that is rounding, and which polygons have both signs."""
        x, y = self.vertices.index_select(0, chosen).unbind(-1)
        slope_x, slope_y, constant = line.unsqueeze(-1)
        heights = torch.addcmul(torch.addcmul(constant, x, slope_x), y, slope_y)
        rounding = _ROUNDING * (torch.hypot(slope_x, slope_y) * self.scale + constant.abs())
        heights = heights.masked_fill(heights.abs() <= rounding, 0.0)
        return heights, (heights > 0).any(-1) & (heights < 0).any(-1)

    def _write(self, rows: Tensor, part: _Part) -> None:
        """Write polygons into these rows. Parts have one slot more than their whole; not all use it."""
        slots = torch.arange(self.owners.shape[1], device=rows.device).clamp_max(part.owners.shape[1] - 1)
        self.vertices[rows] = part.vertices.index_select(1, slots)
        self.owners[rows] = part.owners.index_select(1, slots)
        self.corners[rows] = part.corners

    def _reserve(self, polygons: int, corners: int) -> None:
        """Enlarge the tables: twice the rows when they are full, so that copying costs no more than cutting."""
        rows, slots = self.owners.shape
        if corners > slots:
            more = corners + _SPARE_CORNERS - slots
            self.vertices, self.owners = (
                torch.cat([table, table[:, -1:].expand(-1, more, *table.shape[2:])], 1)
                for table in (self.vertices, self.owners)
            )
        if polygons > rows:
            more = max(polygons, 2 * rows) - rows
            tables = (self.vertices, self.owners, self.corners, self.parents)
            self.vertices, self.owners, self.corners, self.parents = (
                torch.cat([table, table.new_zeros((more, *table.shape[1:]))]) for table in tables
            )


def _meets(line: Float[Tensor, "3 r"], boxes: Float[Tensor, "4 r"]) -> Bool[Tensor, " r"]:
    """Whether each line meets its box: asked before the corners, it halves the time of 10^5 polygons (10 s to 5 s)."""
    centre_x, centre_y, half_x, half_y = boxes
    height = torch.addcmul(torch.addcmul(line[2], centre_x, line[0]), centre_y, line[1]).abs_()
    return height <= torch.addcmul(half_x * line[0].abs(), half_y, line[1].abs())


def _above(whole: _Part, heights: Float[Tensor, "k v"], owner: int) -> _Part:
    """The part of each polygon where the height is not negative; heights at the line itself must be exactly 0.

    Each old edge yields two slots in turn: its first corner, if that is kept, and the point where it meets the line,
    if its ends are on different sides. The edge along the line begins where the boundary leaves the part.
    """
    ahead = at_next_corner(heights, whole.corners)
    used = is_corner(whole.corners, heights.shape[1])
    kept, met = used & (heights >= 0), used & (heights * ahead < 0)
    share = torch.where(met, heights / (heights - ahead), 0.0).unsqueeze(-1)
    step = at_next_corner(whole.vertices, whole.corners) - whole.vertices
    at_corner = torch.where((heights == 0) & (ahead < 0), owner, whole.owners)
    at_cross = torch.where(heights > 0, owner, whole.owners)
    slots, corners = _first_slots(torch.stack([kept, met], 2).flatten(1), heights.shape[1] + 1)
    vertices = torch.stack([whole.vertices, whole.vertices + share * step], 2).flatten(1, 2)
    owners = torch.stack([at_corner, at_cross], 2).flatten(1).gather(1, slots)
    return _Part(vertices.gather(1, slots.unsqueeze(-1).expand(-1, -1, 2)), owners, corners)


def _first_slots(used: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """The slots in use from the left, the last one repeated to fill the row, and their number."""
    order = torch.sort(used.to(torch.int8), dim=1, descending=True, stable=True).indices
    corners = used.sum(1)
    wanted = torch.arange(slots, device=used.device)
    return order.gather(1, torch.minimum(wanted, corners.unsqueeze(-1) - 1)), corners


def is_corner(corners: Int[Tensor, " k"], slots: int) -> Bool[Tensor, "k v"]:
    """Which slots hold a corner; the others repeat the last one."""
    return torch.arange(slots, device=corners.device) < corners.unsqueeze(-1)


def centres(vertices: Float[Tensor, "k v 2"], corners: Int[Tensor, " k"]) -> Float[Tensor, "k 2"]:
    """The mean of each polygon's corners, which is inside."""
    used = is_corner(corners, vertices.shape[1])
    return (vertices * used.unsqueeze(-1)).sum(1) / corners.unsqueeze(-1)


def at_next_corner(values: Float[Tensor, "k v *a"], corners: Int[Tensor, " k"]) -> Float[Tensor, "k v *a"]:
    """The values at the next corner, counter-clockwise; for slots not in use, at the first."""
    places = torch.arange(1, values.shape[1] + 1, device=corners.device)
    places = torch.where(places < corners.unsqueeze(-1), places, 0)
    return values.gather(1, places.view(*places.shape, *[1] * (values.ndim - 2)).expand_as(values))


def sides(vertices: Float[Tensor, "k v 2"], corners: Int[Tensor, " k"]) -> Float[Tensor, "k v 2 2"]:
    """The two ends of each edge."""
    return torch.stack([vertices, at_next_corner(vertices, corners)], 2)


def triangle_fans(vertices: Float[Tensor, "k v 2"]) -> tuple[Float[Tensor, "k v-1 2"], Float[Tensor, "k v-1"]]:
    """Centres, relative to the first corner, and areas of the triangles of the first corner and each edge."""
    from_first = vertices - vertices[:, :1]
    here, ahead = from_first[:, :-1], from_first[:, 1:]
    return (here + ahead) / 3, (here[..., 0] * ahead[..., 1] - here[..., 1] * ahead[..., 0]) / 2


def is_inside(points: Float[Tensor, "t 2"], window: Float[Tensor, "w 2"]) -> Bool[Tensor, " t"]:
    """Whether points are in a convex polygon or, up to rounding, on its sides."""
    edges = window.roll(-1, 0) - window
    from_corner = points.unsqueeze(1) - window
    cross = edges[:, 0] * from_corner[..., 1] - edges[:, 1] * from_corner[..., 0]
    return (cross >= -_ROUNDING * window.abs().max() ** 2).all(-1)


def counterclockwise(window: Float[Tensor, "w 2"]) -> Float[Tensor, "w 2"]:
    """A copy of a convex polygon, counter-clockwise."""
    area = float(triangle_fans(window.unsqueeze(0))[1].sum())
    return window.clone() if area > 0 else window.flip(0).clone()
