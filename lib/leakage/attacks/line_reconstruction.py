r"""Training points of a network on the line, read off the weights.

A network at a KKT point of the maximum-margin problem bends so rarely that a fixed share of the places where
$|\Phi| = m$ must be training points. The attacker knows the weights and m, and never sees a training point.
Candidates are ascending. Source: Smorodinsky et al., Section 4.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.models.two_layer import TwoLayer
from leakage.theory.piecewise_linear import Margins, PiecewiseLinear, from_network, simplify

_TOLERANCE = 1e-4  # of the margin: what an exact optimum's solver leaves of a flat piece
_APART = 1e-4  # in units of the input: candidates closer than this are one


def algorithm_1(
    function: PiecewiseLinear, margin: float, *, tolerance: float = _TOLERANCE, apart: float = _APART
) -> Float[Tensor, " c"]:
    r"""Candidates from any two neighbouring pieces off the margin, and from ramps between two flat pieces.

    Where two bounded pieces in a row are not constant on the margin, all their crossings of ±m are candidates; where a
    piece off the margin lies between two on it, so are its two ends.

    Source: Smorodinsky et al., Algorithm 1. The loops run over the kinks, with repetitions merged, and a ramp is one
    only if the piece in the middle is not flat, as Theorem 4.3 asks.

    Args:
        function: what the network computes.
        margin: $m = \min_i |\Phi(x_i)|$.
        tolerance: in units of the margin.
        apart: candidates that are closer are merged; in units of the input.

    Returns:
        Nothing, if there are fewer than three kinks.

    Raises:
        ValueError: if the margin, a tolerance or a distance is not positive.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    flat = met.flat[1:-1]
    ramp = flat[:-2] & ~flat[1:-1] & flat[2:]
    starts = function.nodes[1 : 1 + len(ramp)][ramp]
    ends = function.nodes[2 : 2 + len(ramp)][ramp]
    return _distinct(torch.cat([met.points(met.neighbours()), starts, ends]), apart)


def algorithm_2(
    function: PiecewiseLinear, margin: float, *, tolerance: float = _TOLERANCE, apart: float = _APART
) -> Float[Tensor, " c"]:
    """Candidates from neighbouring pieces off the margin only, which need no local optimum.

    Source: Smorodinsky et al., Algorithm 2. Arguments and errors are those of `algorithm_1`.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    return _distinct(met.points(met.neighbours()), apart)


def complete(
    function: PiecewiseLinear, margin: float, *, tolerance: float = _TOLERANCE, apart: float = _APART
) -> Float[Tensor, " c"]:
    r"""All crossings of ±m on pieces that are not flat, the two without an end included.

    Every training point on the margin and off the flat pieces is among them. If no piece is flat, at least a quarter
    of them are training points: n marginal points leave room for at most 2n - 1 kinks. This set is ours, not the
    paper's; arguments and errors are those of `algorithm_1`.
    """
    met = Margins.of(function, margin, tolerance=tolerance)
    return _distinct(met.points(~met.flat), apart)


ALGORITHMS: dict[str, Callable[..., Float[Tensor, " c"]]] = {
    "Algorithm 1": algorithm_1,
    "Algorithm 2": algorithm_2,
    "complete": complete,
}


def candidates_from_weights(
    model: TwoLayer,
    margin: float,
    *,
    low: float,
    high: float,
    algorithm: str = "complete",
    simplification: float = 0.01,
    apart: float = 0.02,
) -> Float[Tensor, " c"]:
    r"""Candidates of a network whose kinks are known only so well: a trained one, or a solver's.

    Training smears each kink of the limit over many neurons. So the function is simplified first
    (`piecewise_linear.simplify`, to `simplification` · m), and neurons that are dead, repeated or only nearly aligned
    do not count. Flat then means within twice that of the margin.

    Args:
        model: one network with one input.
        margin: $m$.
        low: left end of the window searched; it should lie well outside of the data.
        high: its right end.
        algorithm: a name in `ALGORITHMS`.
        simplification: in units of the margin; the default suits trained networks, 1e-5 exact optima.
        apart: candidates that are closer are merged; in units of the input.

    Raises:
        ValueError: if the algorithm is unknown, the model has more than one input, or a size is not positive.
    """
    arguments.choice("algorithm", algorithm, ALGORITHMS)
    arguments.number("simplification", simplification, above=0)
    arguments.number("margin", margin, above=0)
    function = simplify(from_network(model), low=low, high=high, tolerance=simplification * margin)
    found = ALGORITHMS[algorithm](function, margin, tolerance=2 * simplification, apart=apart)
    return found[(found > low) & (found < high)]


def from_crossing(model: TwoLayer, margin: float) -> Float[Tensor, " d"]:
    r"""The only training point of a network of one neuron, from where it is on the margin.

    The point is a multiple of w, so $x = (m / |v| - b)\, w / \lVert w \rVert^2$; on the line that is
    $(m / |v| - b) / w$.

    Source: Smorodinsky et al., Theorem 4.1 (on the line). Its argument needs a slope, so the training point 0, whose
    network is constant, is out of its reach.

    Raises:
        ValueError: if there is not exactly one neuron, a parameter is not finite, the margin is not positive, or w or
            v is 0.
    """
    weights, bias, output = _one_neuron(model)
    arguments.number("margin", margin, above=0)
    if not bool(output):
        raise ValueError("`model` must have v ≠ 0: a network that answers 0 everywhere has no margin.")
    if not bool(weights.any()):
        raise ValueError("`model` must not be constant: with w = 0 it is on the margin everywhere; use `from_ratio`.")
    largest = weights.abs().max()
    unit = weights / largest  # whose square neither overflows nor vanishes
    return (margin / output.abs() - bias) / largest * (unit / unit.square().sum())


def from_ratio(model: TwoLayer) -> Float[Tensor, " d"]:
    r"""The only training point of a network of one neuron, without knowing the margin: $x = w / b$.

    At a KKT point (w, b) is a multiple of (x, 1), whatever the dimension. This is ours, not the paper's.

    Raises:
        ValueError: if there is not exactly one neuron, a parameter is not finite, or b is 0 (it never is at a KKT
            point).
    """
    weights, bias, _ = _one_neuron(model)
    if not bool(bias):
        raise ValueError("`model` must have b ≠ 0, as all KKT points do.")
    return weights / bias


def _one_neuron(model: TwoLayer) -> tuple[Tensor, Tensor, Tensor]:
    if model.outputs.shape != (1,):
        raise ValueError(
            f"`model` must be one network of one neuron, got outputs of shape {tuple(model.outputs.shape)}."
        )
    arguments.real("model", torch.cat([model.weights[0], model.biases, model.outputs]))
    return model.weights[0], model.biases[0], model.outputs[0]


def _distinct(candidates: Tensor, apart: float) -> Tensor:
    """Sorted candidates, with the mean of each group of neighbours that are closer than `apart`."""
    arguments.number("apart", apart, above=0)
    candidates = candidates.sort().values
    opens = torch.cat([torch.ones_like(candidates[:1], dtype=torch.bool), candidates.diff() > apart])
    group, first = opens.cumsum(0) - 1, candidates[opens]
    empty = torch.zeros_like(first)
    size = empty.index_add(0, group, torch.ones_like(candidates))
    return first + empty.index_add(0, group, candidates - first[group]) / size
