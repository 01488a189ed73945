r"""The decision boundary of a network in a subdivided window, as exact line segments.

On a cell the outputs are affine, so the points where two classes share the largest output form at most one segment for
each pair of classes. Where the boundary runs along a hyperedge between two cells, the segment is listed for the cell of
the higher class. A cell on which two outputs are equal belongs to the lower class, as in `geometry.rays`. Coordinates
are those of the window.
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

from leakage.geometry import polygons
from leakage.geometry.polygons import at_next_corner, is_corner
from leakage.geometry.subdivision import Subdivision

_ROUNDING = 1e-12  # heights and shares of a segment below this are rounding
_JOINT = 1e-9  # ends of segments closer than this, in units of the window's size, are one point


@dataclass(frozen=True, eq=False)
class Boundary:
    """The decision boundary in a window; it has no segments if the whole window has one label.

    Attributes:
        segments: the two ends of each.
        cells: the cell of the subdivision of each segment.
        classes: the two classes that meet there.
        size: the largest coordinate of the window.
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
    def component_of(self) -> Int[Tensor, " s"]:
        """The connected piece of the boundary, from 0, that each segment belongs to."""
        if not len(self):
            return self.cells
        ends = self.segments.flatten(0, 1).cpu().numpy()
        joints = KDTree(ends).query_pairs(_JOINT * self.size, output_type="ndarray")
        own = np.arange(len(ends)).reshape(-1, 2)  # the two ends of one segment
        links = np.concatenate([joints, own])
        graph = coo_array((np.ones(len(links)), links.T), shape=(len(ends),) * 2)
        labels = connected_components(graph, directed=False)[1]
        return torch.from_numpy(labels[::2].astype(np.int64)).to(self.cells.device)

    @property
    def components(self) -> int:
        """The number of connected pieces of the boundary."""
        return int(self.component_of.max()) + 1 if len(self) else 0

    def draw(self, count: int, *, generator: torch.Generator) -> tuple[Float[Tensor, "t 2"], Int[Tensor, " t"]]:
        """Points uniform in length on the boundary, and the segment of each."""
        total = self.lengths.cumsum(0)
        drawn = torch.rand((2, count), generator=generator, device=generator.device, dtype=total.dtype).to(total.device)
        chosen = torch.searchsorted(total, drawn[0] * total[-1]).clamp_max(len(self) - 1)
        start, end = self.segments[chosen].unbind(1)
        return start + drawn[1].unsqueeze(-1) * (end - start), chosen

    def distance(self, points: Float[Tensor, "t 2"]) -> Float[Tensor, " t"]:
        """Distance of each point to the nearest segment in the window, exact; infinite if there is none."""
        if not len(self):
            return torch.full_like(points[:, 0], torch.inf)
        start, end = self.segments.unbind(1)
        along = end - start
        offset = points.unsqueeze(1) - start
        share = ((offset * along).sum(-1) / along.square().sum(-1).clamp_min(torch.finfo(along.dtype).tiny)).clamp(0, 1)
        return (offset - share.unsqueeze(-1) * along).norm(dim=-1).amin(1)


def decision_boundary(subdivision: Subdivision) -> Boundary:
    r"""Where the largest output changes: the segments $\{x \in P : o_k = o_m \ge o_q \ \forall q\}$ of all cells P.

    With two classes $o_1 - o_0$ acts as one more neuron that cuts the cells. With more, the segment of each pair on a
    cell is shortened to where no third class is larger: the upper envelope of the affine outputs.
    """
    classes = subdivision.maps.shape[1]
    outputs = _outputs(subdivision.maps, subdivision.vertices)
    pairs = [(k, m) for k in range(classes) for m in range(k + 1, classes)]
    found = [part(subdivision, outputs, k, m) for part in (_within, _between) for k, m in pairs]
    segments, cells, pairs = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Boundary(segments, cells, pairs, float(subdivision.window.abs().max()))


def _outputs(maps: Float[Tensor, "k classes 3"], places: Float[Tensor, "k v 2"]) -> Float[Tensor, "k v classes"]:
    """The outputs of each affine map at its places."""
    return places @ maps[..., :2].mT + maps[..., 2].unsqueeze(1)


def _gaps(outputs: Tensor, first: int, second: int) -> Float[Tensor, "cells v"]:
    """Second output minus first at the corners of every cell, 0 where that is rounding."""
    gaps = outputs[..., second] - outputs[..., first]
    return gaps.masked_fill(gaps.abs() <= _ROUNDING * outputs.abs().amax((1, 2)).unsqueeze(-1), 0.0)


def _within(subdivision: Subdivision, outputs: Tensor, first: int, second: int) -> tuple[Tensor, Tensor, Tensor]:
    """Segments, cells and classes where two given outputs are equal inside a cell and no other is larger."""
    gaps = _gaps(outputs, first, second)
    cells = ((gaps > 0).any(1) & (gaps < 0).any(1)).nonzero().squeeze(-1)
    segments = _zeros(subdivision.vertices[cells], subdivision.counts[cells], gaps[cells])
    return _trimmed(subdivision, segments, cells, first, second)


def _between(subdivision: Subdivision, outputs: Tensor, first: int, second: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same along hyperedges: overlaps of a side behind which the second class leads and one behind which not."""
    gaps = _gaps(outputs, first, second)
    level = _level_sides(gaps, subdivision.counts)
    some = level.any(1).nonzero().squeeze(-1)  # few cells, of most pairs none
    gaps, level, outputs = gaps[some], level[some], outputs[some]
    vertices, counts = subdivision.vertices[some], subdivision.counts[some]
    above, below = (gaps > 0).any(1), (gaps < 0).any(1)
    sides = polygons.sides(vertices, counts)
    ours = level & (above & ~below).unsqueeze(-1) & _leads(counts, outputs, second)
    theirs = level & ~above.unsqueeze(-1) & _leads(counts, outputs, first)
    cells = some[ours.nonzero()[:, 0]]
    size = float(subdivision.window.abs().max())
    segments, owner = _common(sides[ours], sides[theirs], least=_JOINT * size)
    return _trimmed(subdivision, segments, cells[owner], first, second)


def _level_sides(gaps: Float[Tensor, "cells v"], counts: Int[Tensor, " cells"]) -> Bool[Tensor, "cells v"]:
    """The sides of each cell along which two outputs are equal."""
    return is_corner(counts, gaps.shape[1]) & (gaps == 0) & (at_next_corner(gaps, counts) == 0)


def _leads(counts: Tensor, outputs: Tensor, own: int) -> Bool[Tensor, "cells v"]:
    """The sides behind which, in the cell, no class with an output equal to one's own along the side has the label."""
    lost = torch.zeros_like(outputs[..., 0], dtype=torch.bool)
    for other in range(outputs.shape[-1]) if len(outputs) else ():
        if other != own:
            gaps = _gaps(outputs, own, other)
            taken = (gaps > 0).any(1) | (gaps == 0).all(1) if other < own else (gaps > 0).any(1)
            lost |= _level_sides(gaps, counts) & taken.unsqueeze(-1)
    return ~lost


def _common(ours: Tensor, theirs: Tensor, *, least: float) -> tuple[Float[Tensor, "k 2 2"], Int[Tensor, " k"]]:
    """The overlaps, longer than `least`, of segments on one line, and the number of the one of ours that each is on."""
    start, along = ours[:, 0], ours[:, 1] - ours[:, 0]
    length = along.norm(dim=-1).clamp_min(torch.finfo(along.dtype).tiny)
    unit = along / length.unsqueeze(-1)
    offset = theirs - start[:, None, None]  # (ours, theirs, 2 ends, 2)
    axis = unit[:, None, None]
    across = (offset[..., 0] * axis[..., 1] - offset[..., 1] * axis[..., 0]).abs().amax(-1)
    place = (offset * axis).sum(-1)
    low, high = place.amin(-1).clamp_min(0), torch.minimum(place.amax(-1), length.unsqueeze(-1))
    owner, other = ((across <= least) & (high - low > least)).nonzero().unbind(-1)
    shares = torch.stack([low[owner, other], high[owner, other]], -1).unsqueeze(-1)
    return start[owner].unsqueeze(1) + shares * unit[owner].unsqueeze(1), owner


def _trimmed(
    subdivision: Subdivision, segments: Tensor, cells: Tensor, first: int, second: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Segments without the parts on which a third output is larger than the two, their cells and classes."""
    others = [k for k in range(subdivision.maps.shape[1]) if k not in (first, second)]
    outputs = _outputs(subdivision.maps[cells], segments)
    before, behind = (outputs[..., [first]] - outputs[..., others]).unbind(1)
    meets = before / (before - behind)
    low = torch.where((before < 0) & (behind >= 0), meets, 0.0)
    high = torch.where((before >= 0) & (behind < 0), meets, 1.0).masked_fill((before < 0) & (behind < 0), -1.0)
    low, high = pad(low, (0, 1)).amax(1), pad(high, (0, 1), value=1.0).amin(1)  # without a third class, all of it
    kept = high - low > _ROUNDING
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    shares = torch.stack([low, high], 1).unsqueeze(-1)
    trimmed = start.unsqueeze(1) + shares * along.unsqueeze(1)
    pairs = torch.tensor([first, second], device=cells.device).expand(int(kept.sum()), 2)
    return trimmed[kept], cells[kept], pairs


def _zeros(vertices: Tensor, counts: Tensor, gaps: Tensor) -> Float[Tensor, "k 2 2"]:
    """The two points at which the line of equal outputs meets the edges of each polygon."""
    ahead, used = at_next_corner(gaps, counts), is_corner(counts, gaps.shape[1])
    places = vertices + (gaps / (gaps - ahead)).unsqueeze(-1) * (at_next_corner(vertices, counts) - vertices)
    # Each edge owns its first corner: a corner on the line is met once, and then the edge's share is 0.
    met = used & (gaps > 0) & (ahead <= 0), used & (gaps < 0) & (ahead >= 0)
    rows = torch.arange(len(gaps), device=gaps.device)
    return torch.stack([places[rows, edges.to(torch.int8).argmax(1)] for edges in met], 1)
