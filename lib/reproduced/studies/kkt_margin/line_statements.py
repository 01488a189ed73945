r"""What the KKT conditions say about networks on the line, counted on a network whose training points are known.

Marginal points are those with a positive multiplier. `recovery` judges an attack's candidates. A `Count` says how often
the premise of one statement occurs, and how often its conclusion fails there: at a KKT point, never. Unlike
`attacks.line_reconstruction` this sees the training points.
Source: Smorodinsky et al., Section 4 and Appendix F.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.models.two_layer import TwoLayer
from leakage.theory.piecewise_linear import Margins, PiecewiseLinear, from_network

SIMPLIFICATION = 1e-5
"""Share of the margin to which the function of an exact optimum is simplified (`piecewise_linear.simplify`) before its
pieces are counted. Two neurons share a kink only to the solver's accuracy; merging kinks by their distance instead
would merge those of close training points."""
TOLERANCE = 1e-4
"""Share of the margin, and distance on the line from a kink to a point."""
_SAME_KINK = 1e-5  # on the line, between neurons of one sign of w
_NO_MULTIPLIER = 1e-7  # share of the sum; interior points leave 1e-9 of a multiplier that is 0


class FreeRun(NamedTuple):
    """How many pieces a run has, how many marginal points lie in it, and how often it crosses the margin."""

    pieces: int
    inside: int
    crossings: int


class Count(NamedTuple):
    """How often a premise occurred and how often its conclusion was violated."""

    occurrences: int
    violations: int


class Recovery(NamedTuple):
    """How many candidates there are, the share of them that are training points, and the share of those found."""

    candidates: int
    precision: float
    recall: float


def recovery(candidates: Float[Tensor, " c"], points: Float[Tensor, " n"], *, tolerance: float) -> Recovery:
    """The recovery by candidates, which find the points within `tolerance`; without candidates its precision is NaN."""
    finds = (candidates[:, None] - points).abs() <= tolerance
    precision = float(finds.any(1).double().mean()) if len(candidates) else math.nan
    return Recovery(len(candidates), precision, float(finds.any(0).double().mean()))


def marginal(points: Float[Tensor, " n"], multipliers: Float[Tensor, " n"]) -> Float[Tensor, " c"]:
    """The points with a positive multiplier, ascending."""
    return points[multipliers > _NO_MULTIPLIER * multipliers.sum()].sort().values


def off_flats(
    function: PiecewiseLinear, margin: float, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE
) -> Float[Tensor, " r"]:
    """The points that lie on no piece that is flat on the margin; on such a piece every point is a candidate."""
    flat = Margins.of(function, margin, tolerance=tolerance).flat
    beside = torch.stack([torch.searchsorted(function.nodes, points + shift) for shift in (-tolerance, tolerance)])
    return points[~flat[beside].any(0)]


def unit_lengths(
    model: TwoLayer, points: Float[Tensor, " n"], labels: Float[Tensor, " n"], multipliers: Float[Tensor, " n"]
) -> Float[Tensor, " r"]:
    r"""Lengths of $u_j = \sum_i \lambda_i y_i s_{ij} (x_i, 1)$, of neurons without a kink at a marginal point.

    They are 1 at a KKT point. With a kink at a marginal point, $s_{ij}$ is not known from the network.
    """
    lifted = torch.stack([points, torch.ones_like(points)], dim=-1)
    reach = model.preactivations(points[:, None])
    size = torch.cat([model.weights, model.biases[:, None]], dim=-1).norm(dim=-1) * lifted.norm(dim=-1)[:, None]
    weighted = multipliers > _NO_MULTIPLIER * multipliers.sum()
    clear = ((reach.abs() > TOLERANCE * size) | ~weighted[:, None]).all(0)
    directions = ((reach > 0).to(lifted) * (multipliers * labels)[:, None]).mT @ lifted
    return directions[clear].norm(dim=-1)


def neighbouring_pieces(
    function: PiecewiseLinear, margin: float, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE
) -> Count:
    """How often two bounded pieces in a row, neither constant on the margin, hold no marginal point.

    Source: Theorem 4.2; such a pair has at most 4 crossings. `points` are the marginal ones.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    free = ~met.flat[1:-1]
    pair = free[:-1] & free[1:]
    held = _holds(function.nodes[: len(pair)], function.nodes[2:], points, tolerance)
    return Count(int(pair.sum()), int((pair & ~held).sum()))


def ramps(
    function: PiecewiseLinear, margin: float, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE
) -> Count:
    """How often a bounded piece off the margin, between two flat ones on it, has no marginal point at its ends.

    Source: Theorem 4.3, for networks with a neuron that is active on all points. `points` are the marginal ones.
    """
    flat = Margins.of(function, margin, tolerance=tolerance).flat[1:-1]
    ramp = flat[:-2] & ~flat[1:-1] & flat[2:]
    starts, ends = function.nodes[1 : 1 + len(ramp)], function.nodes[2 : 2 + len(ramp)]
    held = _holds(starts, starts, points, tolerance) | _holds(ends, ends, points, tolerance)
    return Count(int(ramp.sum()), int((ramp & ~held).sum()))


def kinks_in_gaps(model: TwoLayer, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE) -> Count:
    """How often two kinks of neurons with one sign of w lie between neighbouring marginal points.

    Gaps are counted for each sign of w. Kinks within `tolerance` of a point are in no gap.

    Source: Lemma F.1. `points` are the marginal ones, ascending.
    """
    inside = []
    for sign in (1, -1):
        side = sign * model.weights[:, 0] > 0
        kinks = from_network(
            TwoLayer(model.weights[side], model.biases[side], model.outputs[side]), tolerance=tolerance
        )
        inside.append(_per_gap(kinks.nodes[kinks.slopes.diff() != 0], points, tolerance))
    counts = torch.cat(inside)
    return Count(int((counts > 0).sum()), int((counts > 1).sum()))


def kinks_between(function: PiecewiseLinear, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE) -> Tensor:
    """(c - 1,): how many kinks lie strictly between each two neighbours of the ascending `points`."""
    return _per_gap(function.nodes, points, tolerance)


def crossings(function: PiecewiseLinear, margin: float, *, tolerance: float = TOLERANCE) -> int:
    """How often the function is ±m on pieces that are not flat; a kink on the margin counts once.

    Source: Lemma F.2 bounds it by 6n where no piece is constant. As n marginal points leave room for at most 2n - 1
    kinks, and so for 2n pieces, 4n is a bound too.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    found = met.points(~met.flat).sort().values
    return len(found) - int((found.diff() <= tolerance).sum())


def free_runs(
    function: PiecewiseLinear, margin: float, points: Float[Tensor, " c"], *, tolerance: float = TOLERANCE
) -> list[FreeRun]:
    """Maximal runs of two or more bounded pieces off the margin.

    With T marginal points a run has at most 2T + 1 pieces; if it has 2T + 1, the function is convex or concave on it.
    Either way it has at most 4T crossings. `points` are the marginal ones.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    free = (~met.flat[1:-1]).tolist()
    runs, start = [], 0
    for piece, is_free in enumerate([*free, False]):
        if is_free:
            continue
        if piece - start >= 2:
            low, high = function.nodes[start] - tolerance, function.nodes[piece] + tolerance
            own = torch.zeros_like(met.flat)
            own[start + 1 : piece + 1] = True
            found = met.points(own).sort().values
            crossed = len(found) - int((found.diff() <= tolerance).sum())
            runs.append(FreeRun(piece - start, int(((points >= low) & (points <= high)).sum()), crossed))
        start = piece + 1
    return runs


def active_everywhere(model: TwoLayer, points: Float[Tensor, " n"]) -> bool:
    """Whether some neuron is active on all points, as Theorems 4.3 and 4.4 assume."""
    return bool((model.preactivations(points[:, None]) > 0).all(0).any())


def kink_of_sum(
    first: Float[Tensor, "*b 2"], second: Float[Tensor, "*b 2"]
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b"], Float[Tensor, "*b"]]:
    """The kinks -b/w of two neurons (w, b) and of their sum.

    For unit vectors whose w have one sign the third lies strictly between the others. A neuron that is active on all
    points is the sum of the neurons that are active on either side of a ramp between two flat pieces with both ends off
    the training points. Its kink would be inside the ramp, so there is no such ramp.
    """
    return _kink(first), _kink(second), _kink(first + second)


def _kink(neuron: Tensor) -> Tensor:
    return -neuron[..., 1] / neuron[..., 0]


def _holds(low: Tensor, high: Tensor, points: Tensor, tolerance: float) -> Bool[Tensor, " intervals"]:
    """Which of the closed intervals hold a point."""
    return ((points >= low[:, None] - tolerance) & (points <= high[:, None] + tolerance)).any(-1)


def _per_gap(kinks: Tensor, points: Tensor, tolerance: float) -> Tensor:
    """(c - 1,): how many kinks lie strictly between each two neighbours."""
    at_points = ((kinks[:, None] - points).abs() <= tolerance).any(-1)
    gap = torch.searchsorted(points, kinks)
    inner = ~at_points & (gap > 0) & (gap < len(points))
    return torch.bincount(gap[inner] - 1, minlength=max(len(points) - 1, 0))
