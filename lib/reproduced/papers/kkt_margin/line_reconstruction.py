r"""Training points of a network on the line, from its weights.

A network at a KKT point of the maximum-margin problem bends so rarely that a fixed share of the places where
$|\Phi| = m$ must be training points. The attacker knows the weights and m, and never sees a training point.
Candidates are ascending. Source: Smorodinsky et al., Section 4.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from reproduced.papers.kkt_margin.piecewise_linear import Margins, PiecewiseLinear, merge_close, simplify
from reproduced.papers.kkt_margin.two_layer import TwoLayer

_TOLERANCE = 1e-4  # relative to the margin: by so much a flat piece of a solver's exact optimum may not be flat
_MERGE_DISTANCE = 1e-4  # in units of the input: closer candidates are one


def algorithm_1(
    function: PiecewiseLinear,
    margin: float,
    *,
    tolerance: float = _TOLERANCE,
    merge_distance: float = _MERGE_DISTANCE,
    outer: bool = False,
) -> Float[Tensor, " c"]:
    r"""Candidates from any two neighbouring pieces off the margin, and from ramps between two flat pieces.

    Where two bounded pieces in a row are not constant on the margin, all their crossings of ±m are candidates; where a
    piece off the margin lies between two on it, so are its two ends. With fewer than three kinks there are none. With
    `outer` the two unbounded pieces count as well, as the paper's text has it.

    Source: Smorodinsky et al., Algorithm 1. The loops run over the kinks, with repetitions merged, and a ramp is one
    only if the piece in the middle is not flat, as Theorem 4.3 asks.

    Args:
        margin: $m = \min_i |\Phi(x_i)|$.
        tolerance: of flat pieces and of crossings, in units of the margin.
        merge_distance: closer candidates are merged; in units of the input.
        outer: whether the unbounded pieces count.
    """
    margins = Margins.from_function(function, margin, tolerance=tolerance)
    counted = slice(None) if outer else slice(1, -1)
    flat, nodes = margins.flat[counted], function.nodes[counted]
    ramp = flat[:-2] & ~flat[1:-1] & flat[2:]
    starts, ends = nodes[: len(ramp)][ramp], nodes[1 : 1 + len(ramp)][ramp]
    crossed = margins.points(margins.neighbours(outer=outer))
    return _merge(torch.cat([crossed, starts, ends]), merge_distance)


def algorithm_2(
    function: PiecewiseLinear,
    margin: float,
    *,
    tolerance: float = _TOLERANCE,
    merge_distance: float = _MERGE_DISTANCE,
    outer: bool = False,
) -> Float[Tensor, " c"]:
    """Candidates from neighbouring pieces off the margin only, which need no local optimum.

    As printed it takes bounded pieces. With `outer` it finds something wherever two pieces in a row are not flat.

    Source: Smorodinsky et al., Algorithm 2. Arguments are those of `algorithm_1`.
    """
    margins = Margins.from_function(function, margin, tolerance=tolerance)
    return _merge(margins.points(margins.neighbours(outer=outer)), merge_distance)


def all_crossings(
    function: PiecewiseLinear, margin: float, *, tolerance: float = _TOLERANCE, merge_distance: float = _MERGE_DISTANCE
) -> Float[Tensor, " c"]:
    r"""All crossings of ±m on pieces that are not flat, the two unbounded ones included.

    Every training point on the margin and off the flat pieces is among them. If no piece is flat, at least a quarter
    of them are training points: with n marginal points there are at most 2n - 1 kinks. This set is ours, not the
    paper's. Arguments are those of `algorithm_1`.
    """
    margins = Margins.from_function(function, margin, tolerance=tolerance)
    return _merge(margins.points(~margins.flat), merge_distance)


ALGORITHMS: dict[str, Callable[..., Float[Tensor, " c"]]] = {
    "Algorithm 1": algorithm_1,
    "Algorithm 2": algorithm_2,
    "Algorithm 1, all pieces": partial(algorithm_1, outer=True),
    "Algorithm 2, all pieces": partial(algorithm_2, outer=True),
    "complete": all_crossings,
}


def candidates_from_function(
    function: PiecewiseLinear,
    margin: float,
    *,
    low: float,
    high: float,
    algorithm: str = "complete",
    simplification: float = 0.01,
    merge_distance: float = 0.02,
) -> Float[Tensor, " c"]:
    r"""Candidates of a network whose kinks are not exact: a trained one, a solver's, or one rebuilt from answers.

    Training smears each kink of the limit over many neurons. So the function is simplified first
    (`piecewise_linear.simplify`, to `simplification` · m), and neurons that are dead, repeated or only nearly aligned
    do not count. A piece then is flat within twice that of the margin.

    Args:
        function: of the network, `piecewise_linear.from_network` if the weights are known.
        low: left end of the window searched; it should lie well outside of the data.
        high: its right end.
        simplification: in units of the margin; the default suits trained networks, 1e-5 exact optima.
    """
    simple = simplify(function, low=low, high=high, tolerance=simplification * margin)
    found = ALGORITHMS[algorithm](simple, margin, tolerance=2 * simplification, merge_distance=merge_distance)
    return found[(found > low) & (found < high)]


def point_from_margin(model: TwoLayer, margin: float) -> Float[Tensor, " d"]:
    r"""The only training point of a network of one neuron, from where it is on the margin.

    The point is a multiple of w, so $x = (m / |v| - b)\, w / \lVert w \rVert^2$; on the line that is
    $(m / |v| - b) / w$. NaN or infinite where w or v is 0.

    Source: Smorodinsky et al., Theorem 4.1 (on the line). Its argument needs a slope, so it does not apply to the
    training point 0, whose network is constant.
    """
    (weights,), (bias,), (output,) = model.weights, model.biases, model.outputs
    largest = weights.abs().max()
    unit = weights / largest  # whose square neither overflows nor vanishes
    return (margin / output.abs() - bias) / largest * (unit / unit.square().sum())


def point_from_ratio(model: TwoLayer) -> Float[Tensor, " d"]:
    r"""The only training point of a network of one neuron, without knowing the margin: $x = w / b$.

    At a KKT point (w, b) is a multiple of (x, 1), whatever the dimension, and b is not 0. This is ours, not the
    paper's.
    """
    (weights,), (bias,) = model.weights, model.biases
    return weights / bias


def _merge(candidates: Tensor, distance: float) -> Tensor:
    return merge_close(candidates.sort().values, torch.ones_like(candidates), distance)[0]
