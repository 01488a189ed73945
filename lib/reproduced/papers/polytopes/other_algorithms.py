r"""Other ways to the polytopes of `polytopes.subdivision` and to the crossings of `membership.rays`: do they agree?

In a window: Algorithm 4 of the thesis by linear programs, half-space intersection, and counting patterns on a grid of
pixels; two inputs only, through SciPy. On rays: cutting a ray layer by layer, and the printed search.
None shares code with the way that the library goes, and each is compared with it. Seconds are processor time of this
process, which other work on the machine hardly changes; look at their ratios.
"""

import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from torch import Tensor

from leakage.membership import rays
from leakage.membership.polytopes import activation_pattern, join_layers, layer_maps
from leakage.membership.rays import TIE_TOLERANCE
from leakage.models.mlp import Mlp
from reproduced.papers.polytopes.polygons import counterclockwise
from reproduced.papers.polytopes.subdivision import Subdivision, subdivide
from reproduced.papers.polytopes.windows import lattice

# ── polytopes by linear programs and by half-spaces ──────────────────────────────────────────────────────────────────

SOLVED, INFEASIBLE, UNBOUNDED = 0, 2, 3
"""Status codes of SciPy's solver."""


class Polytope(NamedTuple):
    """What Algorithm 4 returns for one point.

    Attributes:
        ends: the two solutions of each constraint's programs, the one that maximises $x_1 + x_2$ first; NaN if none.
        status: the solver's status for each of the two programs.
        owners: the neuron of each constraint, counted through all layers; sides of a window are -1, -2, ...
    """

    ends: Float[Tensor, "n 2 2"]
    status: Int[Tensor, "n 2"]
    owners: Int[Tensor, " n"]

    @property
    def edges(self) -> Bool[Tensor, " n"]:
        """Which constraints have a piece of positive length on the polytope."""
        lengths = (self.ends[:, 0] - self.ends[:, 1]).norm(dim=-1)
        return (self.status == SOLVED).all(-1) & (lengths > 1e-9)


def solve_programs(network: Mlp, point: Float[Tensor, " 2"], *, window: Float[Tensor, "w 2"] | None = None) -> Polytope:
    r"""The polytope of a point by two linear programs for each neuron.

    For each neuron: maximise and minimise $x_1 + x_2$ on its hyperedge $w^*_i \cdot x + c^*_i = 0$, subject to all
    constraints of the polytope. As printed the algorithm has no window. Then (i) on an edge orthogonal to (1, 1) both
    programs have one optimum for all of the edge, and which of its points they return is the solver's choice; (ii) an
    edge without end has no solution (status 3).

    Source: Peinemann (2021), Algorithm 4, with HiGHS in place of Gurobi and variables free in sign.
    """
    rows, owners = _half_spaces(network, point.unsqueeze(0), window)
    bounding = rows[0, :, :2].norm(dim=-1) > 0
    table, owners = rows[0, bounding].numpy(), owners[bounding]
    ends, status = np.full((len(table), 2, 2), np.nan), np.zeros((len(table), 2), dtype=np.int64)
    inside = {"A_ub": -table[:, :2], "b_ub": table[:, 2], "bounds": (None, None), "method": "highs"}
    for index, row in enumerate(table):
        for side, sign in enumerate((-1.0, 1.0)):
            found = linprog(sign * np.ones(2), A_eq=row[None, :2], b_eq=-row[2:], **inside)
            status[index, side] = found.status
            if found.status == SOLVED:
                ends[index, side] = found.x
    return Polytope(torch.from_numpy(ends), torch.from_numpy(status), owners)


def _half_spaces(
    network: Mlp, points: Float[Tensor, "t 2"], window: Float[Tensor, "w 2"] | None
) -> tuple[Float[Tensor, "t n 3"], Int[Tensor, " n"]]:
    r"""The polytope of each point as $a \cdot x + c \ge 0$, rows (a, c), and the neuron of each row.

    $(2 s_i - 1)(w^*_i \cdot x + c^*_i) \ge 0$ for every neuron, then the sides of the window if there is one. Rows
    with $a = 0$ bound nothing.
    """
    gates = activation_pattern(network, points)
    weights, biases = layer_maps(network, gates)
    layers = zip(weights[:-1], biases[:-1], strict=True)
    rows = torch.cat([torch.cat([w, c.unsqueeze(-1)], -1).expand(len(points), -1, -1) for w, c in layers], 1)
    owners = torch.arange(rows.shape[1])
    signed = rows * (2 * join_layers(gates).to(rows.dtype) - 1).unsqueeze(-1)
    if window is None:
        return signed, owners
    corners = counterclockwise(window)
    along = corners.roll(-1, 0) - corners
    normal = torch.stack([-along[:, 1], along[:, 0]], -1)
    sides = torch.cat([normal, -(normal * corners).sum(-1, keepdim=True)], -1)
    owners = torch.cat([owners, -1 - torch.arange(len(sides))])
    return torch.cat([signed, sides.expand(len(points), -1, -1)], 1), owners


class Agreement(NamedTuple):
    """Cells by another method against the same cells by cutting.

    Attributes:
        same_edges: whether the same neurons and sides of the window bound the cell; for half-spaces, as many.
        vertex_error: the largest distance from an end of an edge to the corner it should be.
        area_error: the difference in area, where the method gives one; else 0.
        seconds: processor time of the other method for each cell.
    """

    same_edges: Bool[Tensor, " cells"]
    vertex_error: Float[Tensor, " cells"]
    area_error: Float[Tensor, " cells"]
    seconds: Float[Tensor, " cells"]


def compare_programs(cells: Subdivision, chosen: Sequence[int] | Int[Tensor, " k"]) -> Agreement:
    """Algorithm 4 by linear programs, with the window's sides as constraints; edges that are points are left out."""
    rows = []
    for cell in map(int, chosen):
        begun = time.process_time()
        found = solve_programs(cells.network, cells.centres[cell], window=cells.window)
        seconds = time.process_time() - begun
        corners = cells.vertices[cell, : int(cells.counts[cell])]
        owners = cells.owners[cell, : len(corners)].tolist()
        edges = dict(zip(owners, torch.stack([corners, corners.roll(-1, 0)], 1), strict=True))
        solved = dict(zip(found.owners[found.edges].tolist(), found.ends[found.edges], strict=True))
        gaps = [  # between both ends, in the better of the two orders
            min(float((edges[owner] - ends).norm(dim=-1).max()) for ends in (solved[owner].flip(0), solved[owner]))
            for owner in edges.keys() & solved.keys()
        ]
        rows.append((edges.keys() == solved.keys(), max(gaps, default=torch.inf), 0.0, seconds))
    return Agreement(*(torch.tensor(column) for column in zip(*rows, strict=True)))


def compare_half_spaces(cells: Subdivision, chosen: Sequence[int] | Int[Tensor, " k"]) -> Agreement:
    """Qhull's half-space intersection of all chosen cells at once; each gets an equal share of the time."""
    chosen = torch.as_tensor(chosen)
    begun, points = time.process_time(), cells.centres[chosen]
    hulls = []
    for half_spaces, point in zip(_half_spaces(cells.network, points, cells.window)[0].numpy(), points, strict=True):
        bounding = half_spaces[(half_spaces[:, :2] != 0).any(1)]
        unit = bounding / np.linalg.norm(bounding[:, :2], axis=1, keepdims=True)
        hulls.append(ConvexHull(HalfspaceIntersection(-unit, point.numpy()).intersections))  # corners in any order
    seconds = (time.process_time() - begun) / len(chosen)
    rows = []
    for cell, hull in zip(chosen.tolist(), hulls, strict=True):
        own, corners = cells.vertices[cell, : int(cells.counts[cell])], torch.from_numpy(hull.points[hull.vertices])
        gaps = torch.cdist(own, corners, compute_mode="donot_use_mm_for_euclid_dist")
        error = torch.maximum(gaps.amin(1).max(), gaps.amin(0).max())
        rows.append((len(own) == len(corners), float(error), abs(hull.volume - float(cells.areas[cell])), seconds))
    return Agreement(*(torch.tensor(column) for column in zip(*rows, strict=True)))


class Algorithm4Failures(NamedTuple):
    """Where Algorithm 4 as printed gives no polytope.

    Attributes:
        optimum_gap: the largest minus the smallest $x_1 + x_2$ on the edge orthogonal to (1, 1), whose length is
            `edge_length`: 0, so any two points of the edge solve the two programs.
        edge_length: the true length of that edge.
        unbounded: how many neurons have an edge without end at the far point.
        edges: how many neurons have an edge there at all.
    """

    optimum_gap: float
    edge_length: float
    unbounded: int
    edges: int


def algorithm_4_failures(network: Mlp, far_point: Float[Tensor, " 2"]) -> Algorithm4Failures:
    r"""Both ways in which Algorithm 4 fails as printed.

    The first on the triangle $x_1 + x_2 \le 1$, $x_1 \ge -0.2$, $x_2 \ge -0.2$, made by three neurons; the second on
    the polytope of a point of `network` that is far from where its hyperedges cross.
    """
    normals = far_point.new_tensor([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
    biases = far_point.new_tensor([1.0, 0.2, 0.2]), far_point.new_zeros(1)
    triangle = solve_programs(Mlp((normals, far_point.new_ones((1, 3))), biases), torch.zeros_like(far_point))
    sums = triangle.ends[0].sum(-1)
    far = solve_programs(network, far_point)
    # A program without end has status 3; a neuron with an edge has no program without solution.
    endless = (far.status == UNBOUNDED).any(-1)
    return Algorithm4Failures(
        optimum_gap=float(sums[0] - sums[1]),
        edge_length=float((2 * 1.4**2) ** 0.5),
        unbounded=int(endless.sum()),
        edges=int((endless | ((far.status == SOLVED).all(-1) & far.edges)).sum()),
    )


# ── pixels ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_ROW = 4096  # pixels whose patterns are computed at once


def number_pixels(network: Mlp, window: Float[Tensor, "w 2"], *, side: int) -> Int[Tensor, "side side"]:
    """Which pattern each pixel of an upright rectangle has, numbered from 0; rows go with $x_2$.

    A pixel is its middle: a cell that holds no middle is not seen.

    Source: Peinemann (2021), Section 5.2.
    """
    low, high = window.amin(0), window.amax(0)
    pixels = low + lattice(side) * (high - low)
    rows = torch.cat([join_layers(activation_pattern(network, block)) for block in pixels.split(_ROW)])
    packed = np.packbits(rows.numpy(), axis=1)
    # Rows as single items: sorting bytes is many times faster than comparing rows of booleans.
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    numbers = np.unique(keys, return_inverse=True)[1]
    return torch.from_numpy(numbers.reshape(side, side))


class PixelCounts(NamedTuple):
    """How many cells pixels of each resolution see, and how many there are by cutting; both with processor times."""

    sides: Int[Tensor, " k"]
    seen: Int[Tensor, " k"]
    seconds: Float[Tensor, " k"]
    cells: int
    cut_seconds: float


def compare_pixels(network: Mlp, window: Float[Tensor, "4 2"], *, sides: Sequence[int]) -> PixelCounts:
    """The pixel method at several resolutions against the subdivision of the same window."""
    cells, seconds = 0, []
    for _ in range(3):  # the shortest counts: other work on the machine only ever adds
        begun = time.process_time()
        cells = len(subdivide(network, window))
        seconds.append(time.process_time() - begun)
    seen, spent = [], []
    for side in sides:
        begun = time.process_time()
        seen.append(int(number_pixels(network, window, side=side).max()) + 1)
        spent.append(time.process_time() - begun)
    return PixelCounts(torch.tensor(sides), torch.tensor(seen), torch.tensor(spent), cells, min(seconds))


class MultiplicationCounts(NamedTuple):
    """Multiplications to find the polytopes of a window: by pixels of each resolution, and by cutting."""

    pixels: Int[Tensor, " k"]
    cutting: int


def multiplications(cells: Subdivision, *, sides: Sequence[int]) -> MultiplicationCounts:
    """The multiplications of both ways to the polytopes of this window.

    Pixels need the forward passes through the hidden layers. For cutting it is an upper bound: every neuron at all
    corners that there are in the end, the adapted parameters of all cells of a layer, and two corners of each cut.
    """
    widths = cells.network.widths
    layers = zip(cells.layer_counts, widths[1:-1], widths[2:], strict=True)
    adapting = sum(3 * count * into * out for count, into, out in layers)
    cutting = 2 * sum(widths[1:-1]) * int(cells.counts.sum()) + adapting + 4 * len(cells)
    return MultiplicationCounts(_pixel_work(widths, sides), cutting)


def program_pixel_ratios(
    cells: Int[Tensor, " models"], *, widths: Sequence[int], sides: Sequence[int]
) -> Float[Tensor, "k models"]:
    """Multiplications of Algorithm 4 divided by those of the pixel method, for networks of one shape.

    `cells` counts the cells of each network in the window. The ratio is a lower bound: the programs of a cell are about
    one edge each, so that every constraint of the polytope has to be put into the line of every neuron, once for both
    programs: two products. Clipping each line by each constraint, with four products and a quotient, solves them.
    """
    return cells * (2 * sum(widths[1:-1]) ** 2) / _pixel_work(widths, sides).unsqueeze(-1)


def _pixel_work(widths: Sequence[int], sides: Sequence[int]) -> Int[Tensor, " k"]:
    forward = sum(into * out for into, out in itertools.pairwise(widths[:-1]))
    return torch.tensor(sides).square() * forward


# ── rays ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Crossings(NamedTuple):
    """All crossings up to a length, ascending, and the neurons that flip there; padded with infinity and -1."""

    lengths: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]


def cut_rays(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, until: float
) -> Crossings:
    r"""Every hyperedge on $0 < t \le$ `until` in unit directions, by cutting the ray layer by layer, at all at once.

    Between the breaks of the layers before, the heights $z^l$ are affine in t: a change of sign between two
    neighbouring breaks is one crossing, at $t_0 + (t_1 - t_0)\, z_0 / (z_0 - z_1)$. `membership.rays` follows the ray
    from polytope to polytope instead.
    """
    ends = torch.tensor([0.0, until], dtype=points.dtype)
    grid = ends.expand(*points.shape[:-1], 2)
    owners = torch.full_like(grid, -1, dtype=torch.int64)
    before = 0
    for layer, width in enumerate(network.widths[1:-1]):
        heights = _heights_along(network, points, directions, grid)[layer]
        lengths, neurons = _sign_changes(grid, heights)
        grid, order = torch.cat([grid, lengths], -1).sort(dim=-1, stable=True)
        owners = torch.cat([owners, torch.where(neurons >= 0, neurons + before, -1)], -1).gather(-1, order)
        # Padding sits on the last point of the grid, where pieces have no length and nothing can cross.
        grid, before = grid.clamp_max(until), before + width
    lengths, order = torch.where(owners >= 0, grid, torch.inf).sort(dim=-1, stable=True)
    most = int((owners >= 0).sum(-1).max())
    return Crossings(lengths[..., :most], owners.gather(-1, order)[..., :most])


def _heights_along(network: Mlp, points: Tensor, directions: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
    """The heights of all layers (…, t, grid, n_l) at the points of the grid on each ray."""
    places = points.unsqueeze(-2) + grid.unsqueeze(-1) * directions.unsqueeze(-2)
    return tuple(z.unflatten(-2, grid.shape[-2:]) for z in network.preactivations(places.flatten(-3, -2)))


def _sign_changes(grid: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths and neurons of the changes of activity between neighbours of the grid, padded to the longest ray."""
    low, high = heights[..., :-1, :], heights[..., 1:, :]
    change = (low > 0) != (high > 0)
    left, step = grid[..., :-1].unsqueeze(-1), grid.diff(dim=-1).unsqueeze(-1)
    places = torch.where(change, left + step * low / (low - high), torch.inf).flatten(-2)
    neurons = torch.arange(heights.shape[-1]).expand_as(change).flatten(-2)
    most = int(change.flatten(-2).sum(-1).max())
    lengths, slots = places.topk(most, dim=-1, largest=False, sorted=True)
    return lengths, torch.where(lengths.isfinite(), neurons.gather(-1, slots), -1)


def cut_rays_by_label(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, until: float
) -> Float[Tensor, "*b t"]:
    """The length at which each ray first changes its label, from the outputs at the crossings of `cut_rays`."""
    lengths = cut_rays(network, points, directions, until=until).lengths.clamp_max(until)
    ends = torch.zeros_like(points[..., :1]), torch.full_like(points[..., :1], until)
    grid = torch.cat([ends[0], lengths, ends[1]], -1)
    outputs = _heights_along(network, points, directions, grid)[-1]
    label = outputs[..., :1, :].argmax(-1, keepdim=True).expand(*outputs.shape[:-1], 1)
    lead = outputs.gather(-1, label) - outputs
    lead = lead.masked_fill(lead.abs() <= TIE_TOLERANCE * outputs.abs().amax((-2, -1), keepdim=True), 0.0)
    low, high = lead[..., :-1, :], lead[..., 1:, :]
    left, step = grid[..., :-1].unsqueeze(-1), grid.diff(dim=-1).unsqueeze(-1)
    lower = torch.arange(outputs.shape[-1]) < label[..., 1:, :]
    places = torch.where(high < 0, left + step * (low / (low - high)).clamp_min(0), torch.inf)
    places = torch.where(lower & (low == 0) & (high == 0), left, places)
    places = torch.where(step > TIE_TOLERANCE * until, places, torch.inf)
    return places.flatten(-2).amin(-1)


def search_rays(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, steps: int, event: str
) -> Float[Tensor, "*b t"]:
    r"""The length at which each ray meets its first event by the printed search; infinite if it meets none.

    An event is a change of the predicted class (`label`), as in the printed Algorithm 5, or of the activation pattern
    (`pattern`), as in its text. Unit steps until something changes, then halved steps: every event that differs from
    the last one seen turns the direction round; from the first on, the step is halved after each move. The search sees
    the ends of its steps only, so a unit step may hide several events, of which it then finds any. Without an event the
    algorithm leaves its result undefined; here it is infinite.

    Source: Peinemann (2021), Algorithm 5, lines 5 to 24.
    """

    def look(places: Tensor) -> Tensor:
        if event == "pattern":
            return join_layers(activation_pattern(network, places))
        return network(places).argmax(-1, keepdim=True)

    last = look(points)
    place = torch.zeros_like(points[..., 0])
    step, found = torch.ones_like(place), torch.full_like(place, torch.inf)
    for _ in range(steps):
        place = place + step
        seen = look(points + place.unsqueeze(-1) * directions)
        changed = (seen != last).any(-1)
        found = torch.where(changed, place, found)
        last = seen
        # The sign of `step` is the direction; it is halved once anything was met.
        step = torch.where(found.isfinite(), step / 2, step) * torch.where(changed, -1.0, 1.0)
    return found


_SAME = 1e-6  # lengths that differ by more are not those of one crossing: 60 halvings of a unit step leave 1e-18


class RayEvents(NamedTuple):
    """One event on each ray by the exact methods and by the printed search; infinite where a method finds none.

    Attributes:
        walked: by following the ray from polytope to polytope.
        cut: by cutting the ray layer by layer.
        searched: by Algorithm 5 as printed.
    """

    walked: Float[Tensor, " t"]
    cut: Float[Tensor, " t"]
    searched: Float[Tensor, " t"]

    @property
    def disagreement(self) -> Float[Tensor, ""]:
        """The largest difference between the exact methods; infinite if only one of them finds an event."""
        both = self.walked.isfinite() & self.cut.isfinite()
        one = self.walked.isfinite() != self.cut.isfinite()
        gap = torch.where(both, (self.walked - self.cut).abs(), 0.0)
        return torch.where(one, torch.inf, gap).max()

    @property
    def missed(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds nothing, whether or not there is something."""
        return self.searched.isinf()

    @property
    def overlooked(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds nothing although there is something within its reach."""
        return self.missed & self.walked.isfinite()

    @property
    def wrong(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds something that is not the first event."""
        return ~self.missed & ((self.searched - self.walked).abs() > _SAME)


def compare_rays(
    network: Mlp, points: Float[Tensor, "t d"], directions: Float[Tensor, "t d"], *, steps: int, event: str
) -> RayEvents:
    """Where each ray first has an event of `search_rays`, up to `steps` units of length: as far as the search sees."""
    searched, until = search_rays(network, points, directions, steps=steps, event=event), float(steps)
    if event == "label":
        walked = rays.ray_label_change(network, points, directions, until=until)
        return RayEvents(walked, cut_rays_by_label(network, points, directions, until=until), searched)
    walked = rays.ray_crossings(network, points, directions, crossings=1).lengths[..., 0]
    lengths = cut_rays(network, points, directions, until=until).lengths
    cut = torch.nn.functional.pad(lengths, (0, 1), value=torch.inf)[..., 0]
    return RayEvents(torch.where(walked <= steps, walked, torch.inf), cut, searched)
