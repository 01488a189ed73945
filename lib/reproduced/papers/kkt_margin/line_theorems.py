r"""What the KKT conditions say about networks on the line, counted on networks whose training points are known.

All networks have one input and margin 1. Marginal points are training points with a positive multiplier, in ascending
order. `precision_and_recall` judges an attack's candidates. A `ViolationCount` says how often the premise of one
statement occurs, and how often its conclusion fails there: at a KKT point, never. Unlike
`kkt_margin.line_reconstruction` this sees the training points.

The proof of Theorem 4.3 shifts the right end of a ramp between two flat pieces and lets a neuron that is active
everywhere make up for it; the norm then changes at the rate $-2E$. In the network of Figure 6 it falls, so that network
is feasible but no KKT point. At a KKT point E is 0, as every shift that keeps the function at the training points is
orthogonal to θ.

Source: Smorodinsky et al., Section 4 and Appendix F.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.piecewise_linear import Margins, PiecewiseLinear, from_network
from reproduced.papers.kkt_margin.two_layer import TwoLayer

SIMPLIFICATION = 1e-5
"""Share of the margin to which the function of an exact optimum is simplified (`piecewise_linear.simplify`) before its
pieces are counted. Two neurons share a kink only to the solver's accuracy; merging kinks by their distance instead
would merge those of close training points."""
TOLERANCE = 1e-4
"""Share of the margin, and distance on the line from a kink to a point."""
TRAINED_HIT = 0.05
"""Distance at which a candidate of a trained network is a training point; training smears each kink."""
_NO_SUM = 1e-3  # of S, in the units of the unit vectors u_j
_NO_MULTIPLIER = 1e-7  # share of the sum; interior points leave 1e-9 of a multiplier that is 0


class RunOffMargin(NamedTuple):
    """How many pieces a run has, how many marginal points lie in it, and how often it crosses the margin."""

    pieces: int
    inside: int
    crossings: int


class ViolationCount(NamedTuple):
    """How often a premise occurred and how often its conclusion was violated."""

    occurrences: int
    violations: int


class Recovery(NamedTuple):
    """How many candidates there are, the share of them that are training points, and the share of those found."""

    candidates: int
    precision: float
    recall: float


def precision_and_recall(candidates: Float[Tensor, " c"], points: Float[Tensor, " n"], *, tolerance: float) -> Recovery:
    """Precision and recall of candidates; a hit is within `tolerance` of a point. No candidate: precision is NaN."""
    finds = (candidates[:, None] - points).abs() <= tolerance
    precision = float(finds.any(1).double().mean()) if len(candidates) else math.nan
    return Recovery(len(candidates), precision, float(finds.any(0).double().mean()))


def marginal_points(points: Float[Tensor, " n"], multipliers: Float[Tensor, " n"]) -> Float[Tensor, " c"]:
    """The points with a positive multiplier, ascending."""
    return points[multipliers > _NO_MULTIPLIER * multipliers.sum()].sort().values


def points_off_flat_pieces(function: PiecewiseLinear, points: Float[Tensor, " c"]) -> Float[Tensor, " r"]:
    """The points that lie on no piece that is flat on the margin; on such a piece every point is a candidate."""
    beside = torch.stack([torch.searchsorted(function.nodes, points + shift) for shift in (-TOLERANCE, TOLERANCE)])
    return points[~_margins(function).flat[beside].any(0)]


def unit_lengths(
    model: TwoLayer, points: Float[Tensor, " n"], labels: Float[Tensor, " n"], multipliers: Float[Tensor, " n"]
) -> Float[Tensor, " r"]:
    r"""$\lVert u_j \rVert$ of each neuron whose kink is at no marginal point: 1 at a KKT point.

    $u_j = \sum_i \lambda_i y_i s_{ij} (x_i, 1)$. With a kink at a marginal point, $s_{ij}$ is not known from the
    network.
    """
    lifted = torch.stack([points, torch.ones_like(points)], dim=-1)
    reach = model.preactivations(points[:, None])
    size = torch.cat([model.weights, model.biases[:, None]], dim=-1).norm(dim=-1) * lifted.norm(dim=-1)[:, None]
    weighted = multipliers > _NO_MULTIPLIER * multipliers.sum()
    clear = ((reach.abs() > TOLERANCE * size) | ~weighted[:, None]).all(0)
    directions = ((reach > 0).to(lifted) * (multipliers * labels)[:, None]).mT @ lifted
    return directions[clear].norm(dim=-1)


def count_pieces(function: PiecewiseLinear) -> int:
    """How many pieces a function has; neighbours that are both flat on the margin, to the tolerance, are one."""
    flat = _margins(function).flat
    return len(flat) - int((flat[1:] & flat[:-1]).sum())


def check_theorem_4_2(function: PiecewiseLinear, points: Float[Tensor, " c"], *, outer: bool = False) -> ViolationCount:
    """Count where the premise of Theorem 4.2 occurs and where its conclusion fails.

    Premise: two bounded pieces in a row, neither constant on the margin; with `outer` the unbounded ones count, too.
    Conclusion: they hold a marginal point. Such a pair has at most 4 crossings.
    """
    flat, ends = _pieces(function, outer)
    pair = ~flat[:-1] & ~flat[1:]
    held = _holds(ends[: len(pair)], ends[2:], points)
    return ViolationCount(int(pair.sum()), int((pair & ~held).sum()))


def check_theorem_4_3(function: PiecewiseLinear, points: Float[Tensor, " c"], *, outer: bool = False) -> ViolationCount:
    """Count where the premise of Theorem 4.3 occurs and where its conclusion fails.

    Premise: a bounded piece off the margin between two flat ones on it, which are bounded, too, or with `outer` need
    not be. Conclusion: a marginal point at one of its ends. The theorem is about networks with a neuron that is active
    on all points.
    """
    flat, limits = _pieces(function, outer)
    ramp = flat[:-2] & ~flat[1:-1] & flat[2:]
    starts, ends = limits[1 : 1 + len(ramp)], limits[2 : 2 + len(ramp)]
    held = _holds(starts, starts, points) | _holds(ends, ends, points)
    return ViolationCount(int(ramp.sum()), int((ramp & ~held).sum()))


def check_lemma_f1(model: TwoLayer, points: Float[Tensor, " c"]) -> ViolationCount:
    """Count where the premise of Lemma F.1 occurs and where its conclusion fails.

    Premise: neurons with one sign of w have a kink between neighbouring marginal points. Conclusion: they have only
    one there. Gaps are counted for each sign of w. Kinks within the tolerance of a point are in no gap.
    """
    inside = []
    for sign in (1, -1):
        side = sign * model.weights[:, 0] > 0
        one_sign = TwoLayer(model.weights[side], model.biases[side], model.outputs[side])
        function = from_network(one_sign, tolerance=TOLERANCE)
        inside.append(kinks_between(function.nodes[function.slopes.diff() != 0], points))
    counts = torch.cat(inside)
    return ViolationCount(int((counts > 0).sum()), int((counts > 1).sum()))


def count_double_gaps(
    model: TwoLayer, points: Float[Tensor, " n"], labels: Float[Tensor, " n"], multipliers: Float[Tensor, " n"]
) -> int | None:
    r"""How many gaps between marginal points hold two different kinks: at most one at a KKT point.

    None where $S = \sum_i \lambda_i y_i (x_i, 1)$ is close to 0. There the two kinks of a gap are one, which the solver
    splits. Kinks closer than a ten-thousandth of the span are merged.
    """
    lifted = torch.stack([points, torch.ones_like(points)], dim=-1)
    if float(((multipliers * labels) @ lifted).norm()) < _NO_SUM:
        return None
    own = marginal_points(points, multipliers)
    span = float(points.max() - points.min())
    function = from_network(model, tolerance=TOLERANCE * max(1.0, span))
    bends = function.nodes[function.slopes.diff().abs() > TOLERANCE]
    return int((kinks_between(bends, own) > 1).sum())


def kinks_between(kinks: Float[Tensor, " k"], points: Float[Tensor, " c"]) -> Tensor:
    """(c - 1,): how many kinks lie strictly between each two neighbours of the ascending `points`."""
    at_points = ((kinks[:, None] - points).abs() <= TOLERANCE).any(-1)
    gap = torch.searchsorted(points, kinks)
    inner = ~at_points & (gap > 0) & (gap < len(points))
    return torch.bincount(gap[inner] - 1, minlength=max(len(points) - 1, 0))


def crossings(function: PiecewiseLinear, pieces: Bool[Tensor, " pieces"] | None = None) -> int:
    """How often the function is ±1 on these pieces (by default on all that are not flat there); a kink counts once.

    Lemma F.2 bounds it by 6n where no piece is constant. As n marginal points leave room for at most 2n - 1 kinks, and
    so for 2n pieces, 4n is a bound too.
    """
    met = _margins(function)
    found = met.points(~met.flat if pieces is None else pieces).sort().values
    return len(found) - int((found.diff() <= TOLERANCE).sum())


def runs_off_margin(function: PiecewiseLinear, points: Float[Tensor, " c"]) -> list[RunOffMargin]:
    """Maximal runs of two or more bounded pieces off the margin.

    With T marginal points a run has at most 2T + 1 pieces; if it has 2T + 1, the function is convex or concave on it.
    Either way it has at most 4T crossings.
    """
    flat = _margins(function).flat
    runs, start = [], 0
    for piece, is_flat in enumerate([*flat[1:-1].tolist(), True]):
        if not is_flat:
            continue
        if piece - start >= 2:
            low, high = function.nodes[start] - TOLERANCE, function.nodes[piece] + TOLERANCE
            own = torch.zeros_like(flat)
            own[start + 1 : piece + 1] = True
            inside = int(((points >= low) & (points <= high)).sum())
            runs.append(RunOffMargin(piece - start, inside, crossings(function, own)))
        start = piece + 1
    return runs


def has_active_neuron(model: TwoLayer, points: Float[Tensor, " n"]) -> bool:
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
    one, other, middle = (-neuron[..., 1] / neuron[..., 0] for neuron in (first, second, first + second))
    return one, other, middle


def _pieces(function: PiecewiseLinear, outer: bool) -> tuple[Bool[Tensor, " p"], Float[Tensor, " ends"]]:
    """Which of the bounded pieces, or of all, are flat on the margin, and the ends of these pieces in their order."""
    flat, nodes = _margins(function).flat, function.nodes
    if not outer:
        return flat[1:-1], nodes
    infinity = nodes.new_full((1,), math.inf)
    return flat, torch.cat([-infinity, nodes, infinity])


def _margins(function: PiecewiseLinear) -> Margins:
    return Margins.from_function(function, 1.0, tolerance=TOLERANCE)


def _holds(low: Tensor, high: Tensor, points: Tensor) -> Bool[Tensor, " intervals"]:
    """Which of the closed intervals hold a point."""
    return ((points >= low[:, None] - TOLERANCE) & (points <= high[:, None] + TOLERANCE)).any(-1)


# ── the shift of a kink in the proof of Theorem 4.3 ──────────────────────────────────────────────────────────────────


def figure_6() -> tuple[TwoLayer, Float[Tensor, " 4"], Float[Tensor, " 4"]]:
    r"""A network as in Figure 6, its points and labels: the output falls from 1 to -1 on $[-\tfrac12, \tfrac12]$.

    $$ \Phi(x) = [-2x + 8]_+ - [-2x - 1]_+ + [2x - 1]_+ - [8]_+ $$

    Each term is a balanced neuron, $\lVert (w, b) \rVert = |v|$. The first is active on all points, -2, -1, 1 and 2;
    labels are the signs of -x. The ends of the ramp are no training points. The formula is ours: the paper draws such a
    network without giving one.
    """
    terms = torch.tensor([[-2.0, 8], [-2, -1], [2, -1], [0, 8]], dtype=DTYPE)
    signs = torch.tensor([1.0, -1, 1, -1], dtype=DTYPE)
    size = terms.norm(dim=-1).sqrt()
    points = torch.tensor([-2.0, -1, 1, 2], dtype=DTYPE)
    return TwoLayer(terms[:, :1] / size[:, None], terms[:, 1] / size, signs * size), points, -points.sign()


def shift_kink(model: TwoLayer, *, step: float) -> TwoLayer:
    r"""The network with the kink of its third neuron moved, and the function unchanged outside of the ramp.

    With c, l, r for the first three neurons, and δ < 1 for `step`:

    $$ v_l \mathrel{-}= \delta \frac{v_r w_r}{w_l}, \quad v_r \mathrel{*}= 1 - \delta, \quad
       b_r \mathrel{-}= \frac{\delta}{1 - \delta} \Bigl(\frac{w_r b_l}{w_l} - b_r\Bigr), \quad
       w_c \mathrel{+}= \delta \frac{v_r w_r}{v_c}, \quad b_c \mathrel{+}= \delta \frac{v_r w_r b_l}{v_c w_l} $$

    The kink p of l stays; q, that of r, goes to $q + \tfrac{\delta}{1 - \delta} (q - p)$. Neuron c is active on all
    points, and stays so; l is active to the left of the ramp ($w_l < 0$) and r to the right ($w_r > 0$).
    """
    (w_c, _, v_c), (w_l, b_l, v_l), (w_r, b_r, v_r) = _neurons(model)
    weights, biases, outputs = model.weights.clone(), model.biases.clone(), model.outputs.clone()
    outputs[1] = v_l - step * v_r * w_r / w_l
    outputs[2] = (1 - step) * v_r
    biases[2] = b_r - step / (1 - step) * (w_r * b_l / w_l - b_r)
    weights[0] = w_c + step * v_r * w_r / v_c
    biases[0] += step * v_r * w_r * b_l / (v_c * w_l)
    return TwoLayer(weights, biases, outputs)


def norm_derivative(model: TwoLayer) -> Float[Tensor, ""]:
    r"""The rate $\mathrm{d} \lVert\theta\rVert^2 / \mathrm{d}\delta = -2E$ of `shift_kink` at δ = 0.

    $$ E = v_r^2 + \frac{v_r w_r v_l}{w_l} + b_r \Bigl(\frac{w_r b_l}{w_l} - b_r\Bigr)
         - \frac{w_c v_r w_r}{v_c} - \frac{b_c b_l v_r w_r}{v_c w_l} $$

    Source: Smorodinsky et al., proof of Theorem 4.3, the expression of case 1 at δ = 0.
    """
    (w_c, b_c, v_c), (w_l, b_l, v_l), (w_r, b_r, v_r) = _neurons(model)
    own = v_r.square() + v_r * w_r * v_l / w_l + b_r * (w_r * b_l / w_l - b_r)
    return -2 * (own - w_c * v_r * w_r / v_c - b_c * b_l * v_r * w_r / (v_c * w_l))


def _neurons(model: TwoLayer) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Weight, bias and output of the first three neurons."""
    return [(model.weights[j, 0], model.biases[j], model.outputs[j]) for j in range(3)]
