r"""The decision boundary of a network in a subdivided window, as exact line segments.

On a cell the outputs are affine, so the points where two classes share the largest output form at most one segment for
each pair of classes. Where the boundary runs along a hyperedge between two cells, the segment is listed once, for the
cell whose class has the larger number. If two outputs are equal on a whole cell, the class with the smaller
number is its label, as in `membership.rays`. Coordinates are those of the window.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from torch import Tensor
from torch.nn.functional import pad

from reproduced.papers.polytopes import polygons
from reproduced.papers.polytopes.polygons import at_next_corner, is_corner
from reproduced.papers.polytopes.subdivision import Subdivision

_ROUNDING = 1e-12  # relative differences of outputs, and fractions of a segment, below this are rounding
_SAME_POINT = 1e-9  # ends of segments closer than this, in units of the window's size, are one point


@dataclass(frozen=True, eq=False)
class Boundary:
    """The decision boundary in a window; it has no segments if the whole window has one label.

    Attributes:
        segments: the two ends of each segment.
        cells: the cell of the subdivision that each segment belongs to.
        classes: the two that meet at each segment.
        size: the largest absolute coordinate of the window.
    """

    segments: Float[Tensor, "s 2 2"]
    cells: Int[Tensor, " s"]
    classes: Int[Tensor, "s 2"]
    size: float

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def lengths(self) -> Float[Tensor, " s"]:
        """Length of each segment."""
        return (self.segments[:, 1] - self.segments[:, 0]).norm(dim=-1)

    @cached_property
    def components(self) -> int:
        """The number of connected pieces of the boundary."""
        if not len(self):
            return 0
        ends = self.segments.flatten(0, 1).cpu().numpy()
        meeting_ends = KDTree(ends).query_pairs(_SAME_POINT * self.size, output_type="ndarray")
        own = np.arange(len(ends)).reshape(-1, 2)  # the two ends of one segment
        links = np.concatenate([meeting_ends, own])
        graph = coo_array((np.ones(len(links)), links.T), shape=(len(ends),) * 2)
        return int(connected_components(graph, directed=False, return_labels=False))

    def distance(self, points: Float[Tensor, "t 2"]) -> Float[Tensor, " t"]:
        """Exact distance of each point to the nearest segment in the window; infinite if there is no segment."""
        if not len(self):
            return torch.full_like(points[:, 0], torch.inf)
        start, end = self.segments.unbind(1)
        along = end - start
        offset = points.unsqueeze(1) - start
        share = ((offset * along).sum(-1) / along.square().sum(-1).clamp_min(torch.finfo(along.dtype).tiny)).clamp(0, 1)
        return (offset - share.unsqueeze(-1) * along).norm(dim=-1).amin(1)


def decision_boundary(subdivision: Subdivision) -> Boundary:
    r"""Where the largest output changes: the segments $\{x \in P : o_k = o_m \ge o_q \ \forall q\}$ of all cells P.

    With two classes, $o_1 - o_0$ cuts the cells like one more neuron. With more classes, the segment of each pair on a
    cell is trimmed to the part where no third output is larger: the upper envelope of the affine outputs.
    """
    classes = subdivision.maps.shape[1]
    outputs = _outputs(subdivision.maps, subdivision.vertices)
    pairs = [(k, m) for k in range(classes) for m in range(k + 1, classes)]
    found = [
        find(subdivision, outputs, k, m) for find in (_segments_inside_cells, _segments_along_edges) for k, m in pairs
    ]
    segments, cells, pairs = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Boundary(segments, cells, pairs, float(subdivision.window.abs().max()))


def _outputs(maps: Float[Tensor, "k classes 3"], points: Float[Tensor, "k v 2"]) -> Float[Tensor, "k v classes"]:
    """The outputs of each affine map at its own points."""
    return points @ maps[..., :2].mT + maps[..., 2].unsqueeze(1)


def _gaps(outputs: Tensor, first: int, second: int) -> Float[Tensor, "cells v"]:
    """Second output minus first at the corners of every cell; 0 if the difference is only rounding."""
    gaps = outputs[..., second] - outputs[..., first]
    return gaps.masked_fill(gaps.abs() <= _ROUNDING * outputs.abs().amax((1, 2)).unsqueeze(-1), 0.0)


def _segments_inside_cells(
    subdivision: Subdivision, outputs: Tensor, first: int, second: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Segments inside cells where two given outputs are equal and no other is larger, their cells and classes."""
    gaps = _gaps(outputs, first, second)
    cells = ((gaps > 0).any(1) & (gaps < 0).any(1)).nonzero().squeeze(-1)
    segments = _zero_segments(subdivision.vertices[cells], subdivision.counts[cells], gaps[cells])
    return _trim(subdivision, segments, cells, first, second)


def _segments_along_edges(
    subdivision: Subdivision, outputs: Tensor, first: int, second: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same along hyperedges: where a side of a cell of the second class meets a side of a cell of the first."""
    gaps = _gaps(outputs, first, second)
    level = _level_sides(gaps, subdivision.counts)
    some = level.any(1).nonzero().squeeze(-1)  # few cells have such a side; for most pairs, none
    gaps, level, outputs = gaps[some], level[some], outputs[some]
    vertices, counts = subdivision.vertices[some], subdivision.counts[some]
    above, below = (gaps > 0).any(1), (gaps < 0).any(1)
    sides = polygons.sides(vertices, counts)
    of_second = level & (above & ~below).unsqueeze(-1) & _sides_of_class(counts, outputs, second)
    of_first = level & ~above.unsqueeze(-1) & _sides_of_class(counts, outputs, first)
    cells = some[of_second.nonzero()[:, 0]]
    size = float(subdivision.window.abs().max())
    segments, owner = _overlaps(sides[of_second], sides[of_first], least=_SAME_POINT * size)
    return _trim(subdivision, segments, cells[owner], first, second)


def _level_sides(gaps: Float[Tensor, "cells v"], counts: Int[Tensor, " cells"]) -> Bool[Tensor, "cells v"]:
    """The sides of each cell along which two outputs are equal, that is, their gaps are 0."""
    return is_corner(counts, gaps.shape[1]) & (gaps == 0) & (at_next_corner(gaps, counts) == 0)


def _sides_of_class(counts: Tensor, outputs: Tensor, own: int) -> Bool[Tensor, "cells v"]:
    """The sides of cells whose label can be class `own`: no class that ties with it on the side beats it inside."""
    lost = torch.zeros_like(outputs[..., 0], dtype=torch.bool)
    for other in range(outputs.shape[-1]) if len(outputs) else ():
        if other != own:
            gaps = _gaps(outputs, own, other)
            beaten = (gaps > 0).any(1) | (gaps == 0).all(1) if other < own else (gaps > 0).any(1)
            lost |= _level_sides(gaps, counts) & beaten.unsqueeze(-1)
    return ~lost


def _overlaps(ours: Tensor, theirs: Tensor, *, least: float) -> tuple[Float[Tensor, "k 2 2"], Int[Tensor, " k"]]:
    """Overlaps longer than `least` of our segments with theirs on the same line, and the number of ours for each."""
    start, along = ours[:, 0], ours[:, 1] - ours[:, 0]
    length = along.norm(dim=-1).clamp_min(torch.finfo(along.dtype).tiny)
    unit = along / length.unsqueeze(-1)
    offset = theirs - start[:, None, None]  # (ours, theirs, 2 ends, 2)
    axis = unit[:, None, None]
    across = (offset[..., 0] * axis[..., 1] - offset[..., 1] * axis[..., 0]).abs().amax(-1)
    place = (offset * axis).sum(-1)
    low, high = place.amin(-1).clamp_min(0), torch.minimum(place.amax(-1), length.unsqueeze(-1))
    owner, other = ((across <= least) & (high - low > least)).nonzero().unbind(-1)
    distances = torch.stack([low[owner, other], high[owner, other]], -1).unsqueeze(-1)
    return start[owner].unsqueeze(1) + distances * unit[owner].unsqueeze(1), owner


def _trim(
    subdivision: Subdivision, segments: Tensor, cells: Tensor, first: int, second: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Segments without the parts where a third output is larger than the two, their cells and classes."""
    others = [k for k in range(subdivision.maps.shape[1]) if k not in (first, second)]
    outputs = _outputs(subdivision.maps[cells], segments)
    at_start, at_end = (outputs[..., [first]] - outputs[..., others]).unbind(1)
    crossing = at_start / (at_start - at_end)
    low = torch.where((at_start < 0) & (at_end >= 0), crossing, 0.0)
    high = torch.where((at_start >= 0) & (at_end < 0), crossing, 1.0).masked_fill((at_start < 0) & (at_end < 0), -1.0)
    low, high = pad(low, (0, 1)).amax(1), pad(high, (0, 1), value=1.0).amin(1)  # without a third class: from 0 to 1
    kept = high - low > _ROUNDING
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    shares = torch.stack([low, high], 1).unsqueeze(-1)
    trimmed = start.unsqueeze(1) + shares * along.unsqueeze(1)
    pairs = torch.tensor([first, second], device=cells.device).expand(int(kept.sum()), 2)
    return trimmed[kept], cells[kept], pairs


def _zero_segments(vertices: Tensor, counts: Tensor, gaps: Tensor) -> Float[Tensor, "k 2 2"]:
    """The two points where the line of equal outputs, with `gaps` of 0, meets the edges of each polygon."""
    ahead, real = at_next_corner(gaps, counts), is_corner(counts, gaps.shape[1])
    crossings = vertices + (gaps / (gaps - ahead)).unsqueeze(-1) * (at_next_corner(vertices, counts) - vertices)
    # An edge includes its second corner but not its first, so that a corner on the line is met once.
    met = real & (gaps > 0) & (ahead <= 0), real & (gaps < 0) & (ahead >= 0)
    rows = torch.arange(len(gaps), device=gaps.device)
    return torch.stack([crossings[rows, edges.to(torch.int8).argmax(1)] for edges in met], 1)
