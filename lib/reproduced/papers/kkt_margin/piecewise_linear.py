r"""Continuous piecewise linear functions of one variable, such as two-layer ReLU networks with one input.

A function is given by its kinks, its values there and its slopes outside. With B kinks there are B + 1 pieces, counted
from the left. Piece i lies between kinks i - 1 and i; the first and the last piece are unbounded.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reproduced.papers.kkt_margin.two_layer import TwoLayer


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """A function given by its kinks (`nodes`), its `values` there, and its slopes left and right of all kinks.

    A linear function has one node, at which it does not bend.
    """

    nodes: Float[Tensor, " B"]
    values: Float[Tensor, " B"]
    left_slope: Float[Tensor, ""]
    right_slope: Float[Tensor, ""]

    @property
    def slopes(self) -> Float[Tensor, " pieces"]:
        """The slopes of all B + 1 pieces."""
        inner = self.values.diff() / self.nodes.diff()
        return torch.cat([self.left_slope[None], inner, self.right_slope[None]])

    def __call__(self, points: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """The function at every point."""
        piece = torch.searchsorted(self.nodes, points.contiguous())
        anchor = (piece - 1).clamp_min(0)
        return self.values[anchor] + self.slopes[piece] * (points - self.nodes[anchor])

    def flat(self, level: float, *, tolerance: float) -> Bool[Tensor, " pieces"]:
        """Whether each piece stays within `tolerance` of `level`; an unbounded one must also have slope 0.

        A slope counts as 0 if it moves the function by at most `tolerance` over the distance between the outermost
        kinks, or over a distance of 1 if there is only one kink.
        """
        near = (self.values - level).abs() <= tolerance
        span = self.nodes[-1] - self.nodes[0] if len(self.nodes) > 1 else 1.0
        level_out = span * self.slopes.abs() <= tolerance
        return torch.cat([near[:1] & level_out[:1], near[:-1] & near[1:], near[-1:] & level_out[-1:]])

    def crossings(self, level: float, *, tolerance: float) -> Float[Tensor, " pieces"]:
        """The point of each closed piece at which the function is `level`, NaN where there is none.

        A piece with an end within `tolerance` of the level has that end as its point. Pieces with slope 0 have none.
        """
        slopes, infinity = self.slopes, self.nodes.new_full((1,), math.inf)
        anchors = torch.cat([self.nodes[:1], self.nodes])
        offsets = level - torch.cat([self.values[:1], self.values])
        low, high = torch.cat([-infinity, self.nodes]), torch.cat([self.nodes, infinity])
        points = (anchors + offsets / slopes).clamp(low, high)
        missed = (slopes * (points - anchors) - offsets).abs() > tolerance
        return points.where((slopes != 0) & ~missed, math.nan)


def from_network(model: TwoLayer, *, tolerance: float = 1e-9) -> PiecewiseLinear:
    r"""The function of a network with one input, with its kinks at $-b_j / w_j$.

    A neuron changes the slope by $v_j |w_j|$. Kinks at most `tolerance` apart (in units of the input) are merged into
    one at their mean, weighted by $|v_j w_j|$. Merged kinks whose changes of slope cancel to `tolerance` are dropped.
    Neurons with $|w_j| \le \text{tolerance} \cdot |b_j|$, whose kink is far away, count as constants.
    """
    weights = model.weights[:, 0]
    bending = (weights != 0) & (weights.abs() > tolerance * model.biases.abs())
    w, b, v = weights[bending], model.biases[bending], model.outputs[bending]
    nodes = _merge_kinks(-b / w, v * w.abs(), tolerance)
    left, right = (torch.where(side, v * w, 0.0).sum() for side in (w < 0, w > 0))
    nodes = nodes if len(nodes) else weights.new_zeros(1)
    return PiecewiseLinear(nodes, model(nodes[:, None]), left, right)


def _merge_kinks(kinks: Tensor, bends: Tensor, tolerance: float) -> Tensor:
    """Ascending kinks, one for each group of kinks closer than `tolerance` whose bends do not cancel."""
    kinks, order = kinks.sort()
    places, group = merge_close(kinks, bends[order].abs(), tolerance)
    total, bend = (torch.zeros_like(places).index_add(0, group, part[order]) for part in (bends.abs(), bends))
    return places[bend.abs() > tolerance * total]


def merge_close(values: Float[Tensor, " k"], weights: Float[Tensor, " k"], distance: float) -> tuple[Tensor, Tensor]:
    """Weighted means of the groups of ascending values whose neighbours are at most `distance` apart, and the groups.

    They are relative to the first value of each group, so that equal values stay exactly where they are.
    """
    opens = torch.cat([torch.ones_like(values[:1], dtype=torch.bool), values.diff() > distance])
    group, first = opens.cumsum(0) - 1, values[opens]
    empty = torch.zeros_like(first)
    total = empty.index_add(0, group, weights)
    return first + empty.index_add(0, group, weights * (values - first[group])) / total, group


def simplify(function: PiecewiseLinear, *, low: float, high: float, tolerance: float) -> PiecewiseLinear:
    r"""A function with few kinks that differs by at most `tolerance` from `function` between `low` and `high`.

    Ramer-Douglas-Peucker: the chord between two kept kinks replaces the kinks between them if all their values are
    within `tolerance` of it; otherwise the furthest is kept too. The outermost pieces extend outside of the window.
    """
    inside = function.nodes[(function.nodes > low) & (function.nodes < high)]
    x = torch.cat([inside.new_tensor([low]), inside, inside.new_tensor([high])])
    y = function(x)
    kept, waiting = {0, len(x) - 1}, [(0, len(x) - 1)]
    while waiting:
        start, end = waiting.pop()
        chord = y[start] + (y[end] - y[start]) * (x[start:end] - x[start]) / (x[end] - x[start])
        furthest = int((y[start:end] - chord).abs().argmax())
        if float((y[start + furthest] - chord[furthest]).abs()) > tolerance:
            kept.add(start + furthest)
            waiting += [(start, start + furthest), (start + furthest, end)]
    stay = torch.tensor(sorted(kept), device=x.device)
    slopes = y[stay].diff() / x[stay].diff()
    inner = stay[1:-1] if len(stay) > 2 else stay[:1]
    return PiecewiseLinear(x[inner], y[inner], slopes[0], slopes[-1])


@dataclass(frozen=True, eq=False)
class Margins:
    """The pieces of a function that stay on ±m, and the points where the others reach m and -m (NaN: nowhere)."""

    flat: Bool[Tensor, " pieces"]
    crossings: Float[Tensor, "pieces 2"]

    @classmethod
    def from_function(cls, function: PiecewiseLinear, margin: float, *, tolerance: float) -> "Margins":
        """For ±`margin`; flat pieces are within `tolerance` · m of m, or of -m, everywhere."""
        levels, near = (margin, -margin), tolerance * margin
        flat = function.flat(margin, tolerance=near) | function.flat(-margin, tolerance=near)
        crossings = torch.stack([function.crossings(level, tolerance=near) for level in levels], dim=-1)
        return cls(flat, crossings.where(~flat[:, None], math.nan))

    def points(self, pieces: Bool[Tensor, " pieces"]) -> Float[Tensor, " c"]:
        """All crossings of `pieces`; an end shared by two pieces is listed twice."""
        found = self.crossings[pieces].flatten()
        return found[~found.isnan()]

    def neighbours(self, *, outer: bool = False) -> Bool[Tensor, " pieces"]:
        """The bounded pieces, or with `outer` all, that are not flat and have a neighbour of the same kind."""
        free = ~self.flat
        if not outer:
            free[0] = free[-1] = False
        beside = torch.zeros_like(free)
        beside[1:] |= free[:-1]
        beside[:-1] |= free[1:]
        return free & beside
