r"""Slower ways to the polytopes of `geometry.subdivision`, which share no code with it.

Algorithm 4 of the thesis by linear programs, half-space intersection, and counting patterns on a grid of pixels. Two
inputs only; they run on the CPU through SciPy, whatever the network's device. Nothing else in the library uses them.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from torch import Tensor

from leakage.geometry.patterns import adapted, joined, pattern
from leakage.geometry.polygons import oriented
from leakage.models.mlp import Mlp

SOLVED, INFEASIBLE, UNBOUNDED = 0, 2, 3
"""Status codes of SciPy's solver."""
_ROW = 4096  # pixels whose patterns are computed at once


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
        apart = (self.ends[:, 0] - self.ends[:, 1]).norm(dim=-1)
        return (self.status == SOLVED).all(-1) & (apart > 1e-9)


def half_spaces(
    network: Mlp, points: Float[Tensor, "t 2"], *, window: Float[Tensor, "w 2"] | None = None
) -> tuple[Float[Tensor, "t n 3"], Int[Tensor, " n"]]:
    r"""The polytope of each point as $a \cdot x + c \ge 0$, rows (a, c), and the neuron of each row.

    $(2 s_i - 1)(w^*_i \cdot x + c^*_i) \ge 0$ for every neuron, then the sides of the window if there is one. Rows
    with $a = 0$ bound nothing.
    """
    gates = pattern(network, points)
    weights, biases = adapted(network, gates)
    layers = zip(weights[:-1], biases[:-1], strict=True)
    rows = torch.cat([torch.cat([w, c.unsqueeze(-1)], -1).expand(len(points), -1, -1) for w, c in layers], 1)
    owners = torch.arange(rows.shape[1], device=rows.device)
    signed = rows * (2 * joined(gates).to(rows.dtype) - 1).unsqueeze(-1)
    if window is None:
        return signed, owners
    corners = oriented(window)
    along = corners.roll(-1, 0) - corners
    normal = torch.stack([-along[:, 1], along[:, 0]], -1)
    sides = torch.cat([normal, -(normal * corners).sum(-1, keepdim=True)], -1)
    owners = torch.cat([owners, -1 - torch.arange(len(sides), device=rows.device)])
    return torch.cat([signed, sides.expand(len(points), -1, -1)], 1), owners


def by_programs(network: Mlp, point: Float[Tensor, " 2"], *, window: Float[Tensor, "w 2"] | None = None) -> Polytope:
    r"""The polytope of a point by two linear programs for each neuron.

    For each neuron: maximise and minimise $x_1 + x_2$ on its hyperedge $w^*_i \cdot x + c^*_i = 0$, subject to all
    constraints of the polytope. As printed the algorithm has no window. Then (i) on an edge orthogonal to (1, 1) both
    programs have one optimum for all of the edge, and which of its points they return is the solver's choice; (ii) an
    edge without end has no solution (status 3).

    Source: Peinemann (2021), Algorithm 4, with HiGHS in place of Gurobi and variables free in sign.
    """
    rows, owners = half_spaces(network, point.unsqueeze(0), window=window)
    bounding = rows[0, :, :2].norm(dim=-1) > 0
    table, owners = rows[0, bounding].cpu().numpy(), owners[bounding]
    ends, status = np.full((len(table), 2, 2), np.nan), np.zeros((len(table), 2), dtype=np.int64)
    for index, row in enumerate(table):
        for side, sign in enumerate((-1.0, 1.0)):
            found = _program(sign * np.ones(2), table, row)
            status[index, side] = found.status
            if found.status == SOLVED:
                ends[index, side] = found.x
    return Polytope(torch.from_numpy(ends), torch.from_numpy(status), owners.cpu())


def _program(objective: np.ndarray, rows: np.ndarray, edge: np.ndarray):
    """Minimise the objective on the line of one row, subject to all rows."""
    return linprog(
        objective,
        A_ub=-rows[:, :2],
        b_ub=rows[:, 2],
        A_eq=edge[None, :2],
        b_eq=-edge[2:],
        bounds=(None, None),
        method="highs",
    )


def by_intersection(
    network: Mlp, points: Float[Tensor, "t 2"], *, window: Float[Tensor, "w 2"]
) -> tuple[list[Float[Tensor, "v 2"]], Float[Tensor, " t"]]:
    """Corners, counter-clockwise, and area of each point's polytope in a window, by Qhull's half-space intersection."""
    rows, _ = half_spaces(network, points, window=window)
    places, table = points.cpu().numpy(), rows.cpu().numpy()
    found = [_intersect(own[(own[:, :2] != 0).any(1)], place) for own, place in zip(table, places, strict=True)]
    areas = torch.tensor([hull.volume for _, hull in found], dtype=points.dtype)
    return [torch.from_numpy(corners[hull.vertices]) for corners, hull in found], areas


def _intersect(rows: np.ndarray, point: np.ndarray) -> tuple[np.ndarray, ConvexHull]:
    """The corners of one polytope in any order, and their convex hull, which has the order."""
    unit = rows / np.linalg.norm(rows[:, :2], axis=1, keepdims=True)
    corners = HalfspaceIntersection(-unit, point).intersections
    return corners, ConvexHull(corners)


def by_pixels(network: Mlp, window: Float[Tensor, "w 2"], *, side: int) -> Int[Tensor, "side side"]:
    """Which pattern each pixel of an upright rectangle has, numbered from 0 as they are met; rows go with $x_2$.

    A pixel is its middle: a cell that holds no middle is not seen. The window is an upright rectangle.

    Source: Peinemann (2021), Section 5.2.
    """
    low, high = window.amin(0), window.amax(0)
    steps = (torch.arange(side, dtype=window.dtype, device=window.device) + 0.5) / side
    x, y = (low + steps.unsqueeze(-1) * (high - low)).unbind(-1)
    pixels = torch.stack([x.expand(side, side), y.unsqueeze(-1).expand(side, side)], -1).flatten(0, 1)
    rows = torch.cat([joined(pattern(network, block)) for block in pixels.split(_ROW)])
    packed = np.packbits(rows.cpu().numpy(), axis=1)
    # Rows as single items: sorting bytes is many times faster than comparing rows of booleans.
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    seen = np.unique(keys, return_inverse=True)[1]
    return torch.from_numpy(seen.reshape(side, side)).to(window.device)
