r"""Exact cutting against the slower ways to the same polytopes: do they agree, and what do they cost?

Seconds are processor time of this process, which other work on the machine hardly changes; look at their ratios.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.geometry.subdivision import Subdivision, subdivide
from leakage.models.mlp import Mlp
from reproduced.studies.polytopes.brute_force import (
    SOLVED,
    UNBOUNDED,
    Polytope,
    by_intersection,
    by_pixels,
    by_programs,
)


class Agreement(NamedTuple):
    """Cells by another method against the same cells by cutting.

    Attributes:
        same_edges: whether the same neurons and sides of the window bound the cell (none for areas alone).
        vertex_error: the largest distance from an end of an edge to the corner it should be.
        area_error: the difference in area, where the method gives one; else 0.
        seconds: processor time of the other method for each cell.
    """

    same_edges: Bool[Tensor, " cells"]
    vertex_error: Float[Tensor, " cells"]
    area_error: Float[Tensor, " cells"]
    seconds: Float[Tensor, " cells"]


def with_programs(fine: Subdivision, cells: Sequence[int] | Int[Tensor, " cells"]) -> Agreement:
    """Algorithm 4 by linear programs, with the window's sides as constraints; edges that are points are left out."""
    rows = [_by_programs(fine, int(cell)) for cell in cells]
    return Agreement(*(torch.tensor(column) for column in zip(*rows, strict=True)))


def _by_programs(fine: Subdivision, cell: int) -> tuple[bool, float, float, float]:
    begun = time.process_time()
    found = by_programs(fine.network, fine.middles[cell], window=fine.window)
    seconds = time.process_time() - begun
    corners = fine.vertices[cell, : int(fine.counts[cell])].cpu()
    owners = fine.owners[cell, : len(corners)].tolist()
    edges = dict(zip(owners, torch.stack([corners, corners.roll(-1, 0)], 1), strict=True))
    solved = dict(zip(found.owners[found.edges].tolist(), found.ends[found.edges], strict=True))
    gaps = [_ends_apart(edges[owner], solved[owner]) for owner in edges.keys() & solved.keys()]
    return edges.keys() == solved.keys(), max(gaps, default=torch.inf), 0.0, seconds


def _ends_apart(first: Tensor, second: Tensor) -> float:
    """How far two segments' ends are apart, in the better of the two orders."""
    orders = ((first - second.flip(0)), (first - second))
    return min(float(order.norm(dim=-1).max()) for order in orders)


def with_intersections(fine: Subdivision, cells: Sequence[int] | Int[Tensor, " cells"]) -> Agreement:
    """Half-space intersection by Qhull of all chosen cells at once; each gets an equal share of the time."""
    chosen = torch.as_tensor(cells, device=fine.counts.device)
    begun = time.process_time()
    found, areas = by_intersection(fine.network, fine.middles[chosen], window=fine.window)
    seconds = (time.process_time() - begun) / len(chosen)
    rows = []
    for cell, corners in zip(chosen.tolist(), found, strict=True):
        own = fine.vertices[cell, : int(fine.counts[cell])].cpu()
        gaps = torch.cdist(own, corners, compute_mode="donot_use_mm_for_euclid_dist")
        rows.append((len(own) == len(corners), float(torch.maximum(gaps.amin(1).max(), gaps.amin(0).max())), seconds))
    same, error, spent = (torch.tensor(column) for column in zip(*rows, strict=True))
    return Agreement(same, error, (areas - fine.areas[chosen].cpu()).abs(), spent)


class PixelCounts(NamedTuple):
    """How many cells the pixels of each resolution see, and in what time; and the same by cutting, which sees all."""

    sides: Int[Tensor, " k"]
    seen: Int[Tensor, " k"]
    seconds: Float[Tensor, " k"]
    cells: int
    cut_seconds: float


def with_pixels(network: Mlp, window: Float[Tensor, "4 2"], *, sides: Sequence[int], repeats: int = 3) -> PixelCounts:
    """The pixel method at several resolutions against the subdivision of the same window."""
    fine, cut_seconds = _timed(lambda: subdivide(network, window), repeats)
    seen, seconds = [], []
    for side in sides:
        picture, taken = _timed(lambda side=side: by_pixels(network, window, side=side), repeats)
        seen.append(int(picture.max()) + 1)
        seconds.append(taken)
    return PixelCounts(torch.tensor(sides), torch.tensor(seen), torch.tensor(seconds), len(fine), cut_seconds)


def _timed(work: Callable, repeats: int):
    """The result, and the shortest time of a few runs: other work on the machine only ever adds."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        result = work()
        times.append(time.process_time() - begun)
    return result, min(times)


class Work(NamedTuple):
    """Multiplications to find the polytopes of a window, by method.

    Attributes:
        pixels: for each resolution, the forward passes through the hidden layers.
        programs: a lower bound for Algorithm 4: its programs are about one edge each, so that every constraint of the
            polytope has to be put into the line of every neuron, once for both programs.
        cutting: an upper bound for the subdivision: every neuron at all corners that there are in the end, the adapted
            parameters of all cells of a layer, and the two corners of each cut.
    """

    pixels: Int[Tensor, " k"]
    programs: int
    cutting: int


def multiplications(fine: Subdivision, *, sides: Sequence[int]) -> Work:
    """The multiplications of each way to the polytopes of this window."""
    widths = fine.network.widths
    layers = zip(fine.layer_counts, widths[1:-1], widths[2:], strict=True)
    adapting = sum(3 * cells * into * out for cells, into, out in layers)
    corners = int(fine.counts.sum())
    return Work(
        pixels=_of_pixels(widths, sides),
        programs=len(fine) * _of_programs(widths),
        cutting=2 * sum(widths[1:-1]) * corners + adapting + 4 * len(fine),
    )


def programs_over_pixels(
    cells: Int[Tensor, " models"], *, widths: Sequence[int], sides: Sequence[int]
) -> Float[Tensor, "k models"]:
    """`Work.programs` over `Work.pixels` of networks of one shape with so many cells in the window."""
    return cells.cpu() * _of_programs(widths) / _of_pixels(widths, sides).unsqueeze(-1)


def _of_programs(widths: Sequence[int]) -> int:
    """For one cell."""
    return 2 * sum(widths[1:-1]) ** 2


def _of_pixels(widths: Sequence[int], sides: Sequence[int]) -> Int[Tensor, " k"]:
    forward = sum(into * out for into, out in itertools.pairwise(widths[:-1]))
    return torch.tensor(sides).square() * forward


class Defects(NamedTuple):
    """Where Algorithm 4 as printed gives no polytope.

    Attributes:
        optimum_gap: the largest minus the smallest $x_1 + x_2$ on the edge orthogonal to (1, 1), whose length is
            `edge_length`: 0, so any two points of the edge solve the two programs.
        edge_length: the true length of that edge.
        returned_length: how far apart the two points are that this solver returned.
        unbounded: how many neurons have an edge without end at the far point.
        edges: how many neurons have an edge there at all.
    """

    optimum_gap: float
    edge_length: float
    returned_length: float
    unbounded: int
    edges: int


def program_defects(network: Mlp, far_point: Float[Tensor, " 2"]) -> Defects:
    r"""Both ways in which Algorithm 4 fails as printed.

    The first on the triangle $x_1 + x_2 \le 1$, $x_1 \ge -0.2$, $x_2 \ge -0.2$, made by three neurons; the second on
    the polytope of a point of `network` that is far from where its hyperedges cross.
    """
    kind = {"dtype": far_point.dtype, "device": far_point.device}
    normals = torch.tensor([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]], **kind)
    triangle = Mlp(
        (normals, torch.ones((1, 3), **kind)), (torch.tensor([1.0, 0.2, 0.2], **kind), torch.zeros(1, **kind))
    )
    found: Polytope = by_programs(triangle, torch.zeros(2, **kind))
    slanted = found.ends[0]
    sums = slanted.sum(-1)
    far = by_programs(network, far_point)
    # A program without end has status 3; a neuron with an edge has no program without solution.
    endless = (far.status == UNBOUNDED).any(-1)
    return Defects(
        optimum_gap=float(sums[0] - sums[1]),
        edge_length=float((2 * 1.4**2) ** 0.5),
        returned_length=float((slanted[0] - slanted[1]).norm()),
        unbounded=int(endless.sum()),
        edges=int((endless | ((far.status == SOLVED).all(-1) & far.edges)).sum()),
    )
