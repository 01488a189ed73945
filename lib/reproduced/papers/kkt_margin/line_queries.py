r"""The network on the line, rebuilt from its answers alone, and what the attack on its weights then finds.

A network on the line is piecewise linear, so answers at well chosen points determine it: `rebuild` looks for its kinks
by bisection and draws the lines between them. The attacker chooses a window and knows the margin, as in
`kkt_margin.line_reconstruction`, but sees no weight. Answers may be rounded (`PRECISIONS`). With known kinks
`interpolate` needs two answers more than there are kinks: footnote 6 of Smorodinsky et al. The search for unknown kinks
is not in the paper.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.line_problems import draw_problem
from reproduced.papers.kkt_margin.line_reconstruction import candidates_from_function
from reproduced.papers.kkt_margin.max_margin import optimum_on_line
from reproduced.papers.kkt_margin.piecewise_linear import PiecewiseLinear, from_network
from reproduced.papers.kkt_margin.two_layer import TwoLayer

_PARTS = 16  # of the window, at the start
_MIDDLE, _BESIDE = 0.5, 0.2928  # where a part is asked; at two places, since kinks that balance hide from one
_CLOSE = 1e-2  # points closer than this are not drawn: they test the solver
_HIT = 1e-2  # a candidate is a training point if it is this close
_REACH = 5  # spans of the data on either side: the window


class Precision(NamedTuple):
    """How answers are rounded, and with what care the attacker then looks.

    Attributes:
        answer: rounds an answer, in units of the margin.
        tolerance: how far from a chord an answer may lie on a straight part, given the largest answer.
        narrowest: a part that bends is halved until it is narrower than this.
        simplification: share of the margin to which the rebuilt function is simplified, at least ten times its error.
    """

    answer: Callable[[Tensor], Tensor]
    tolerance: Callable[[float], float]
    narrowest: float
    simplification: float


PRECISIONS: Mapping[str, Precision] = {
    "double": Precision(lambda answer: answer, lambda largest: 4e-14 * largest, 1e-7, 1e-5),
    "single": Precision(lambda answer: answer.float().to(DTYPE), lambda largest: 2.5e-7 * largest, 1e-3, 1e-4),
    "4 digits": Precision(lambda answer: answer.round(decimals=4), lambda largest: 1.01e-4, 5e-3, 1e-3),
    "2 digits": Precision(lambda answer: answer.round(decimals=2), lambda largest: 1.01e-2, 3e-2, 1e-1),
}
"""Answers in double and single precision, and with so many digits after the point in units of the margin."""


class Rebuilt(NamedTuple):
    """A function rebuilt from answers, and the places that were asked, ascending."""

    function: PiecewiseLinear
    asked: Float[Tensor, " queries"]


class Comparison(NamedTuple):
    """One network attacked through answers and through weights.

    Attributes:
        queries: how many answers were asked for.
        kinks: how many kinks the network has in the window, at this precision.
        found: training points in the list from answers.
        found_by_weights: training points in the list from weights, with the same simplification.
        wrong: candidates from answers that are no training point.
        apart: largest distance of a candidate of one list from the other list; infinite if one list is empty only.
    """

    queries: int
    kinks: int
    found: int
    found_by_weights: int
    wrong: int
    apart: float


def rebuild(
    ask: Callable[[Float[Tensor, " q"]], Float[Tensor, " q"]],
    *,
    low: float,
    high: float,
    precision: Precision = PRECISIONS["double"],
) -> Rebuilt:
    """The function between `low` and `high` from its answers.

    A part of the window is straight if two answers inside it lie on its chord; one that is not is halved. Straight
    parts on one line are joined, a line is fitted to all answers on each stretch, and neighbours are intersected, so
    that a kink is known far better than the last part that held it. Kinks closer than four of the narrowest parts are
    merged.
    """
    ends = torch.linspace(low, high, _PARTS + 1, dtype=DTYPE)
    values = precision.answer(ask(ends))
    tolerance = precision.tolerance(float(values.abs().max()))
    places, answers, straight = [ends], [values], []
    a, b, at_a, at_b = ends[:-1], ends[1:], values[:-1], values[1:]
    while len(a):
        bends = torch.zeros_like(a, dtype=torch.bool)
        for share in (_MIDDLE, _BESIDE):  # at the second place only where the first shows no bend
            open_yet = (~bends).nonzero()[:, 0]
            inner = a[open_yet] + share * (b - a)[open_yet]
            found = precision.answer(ask(inner))
            places, answers = [*places, inner], [*answers, found]
            chord = at_a[open_yet] + share * (at_b - at_a)[open_yet]
            bends[open_yet] = (found - chord).abs() > tolerance
            if share == _MIDDLE:
                middle, at_middle = inner, found
        straight += [(float(left), float(right)) for left, right in zip(a[~bends], b[~bends], strict=True)]
        halved = bends & (b - a > precision.narrowest)
        middle, at_middle = middle[halved], at_middle[halved]
        a, b = torch.cat([a[halved], middle]), torch.cat([middle, b[halved]])
        at_a, at_b = torch.cat([at_a[halved], at_middle]), torch.cat([at_middle, at_b[halved]])
    asked, order = torch.cat(places).sort()
    lines = _lines(sorted(straight), asked, torch.cat(answers)[order], tolerance, 4 * precision.narrowest)
    return Rebuilt(_function_of_lines(lines), asked)


def interpolate(
    ask: Callable[[Float[Tensor, " q"]], Float[Tensor, " q"]], kinks: Float[Tensor, " B"]
) -> PiecewiseLinear:
    """The function from its ascending kinks and B + 2 answers: at each kink, and one outside on either side.

    Source: Smorodinsky et al., footnote 6.
    """
    values = ask(torch.cat([kinks[:1] - 1, kinks, kinks[-1:] + 1]))
    return PiecewiseLinear(kinks, values[1:-1], values[1] - values[0], values[-1] - values[-2])


def compare_with_weights(
    law: str, count: int, *, problems: int, generator: torch.Generator
) -> dict[str, list[Comparison]]:
    """Attack exact optima of random problems (`line_problems`) through answers of each precision, and through weights.

    The list is the complete one, all crossings of the margin in the window.
    """
    found: dict[str, list[Comparison]] = {name: [] for name in PRECISIONS}
    while len(found["double"]) < problems:
        points, labels = draw_problem(law, count=count, generator=generator)
        if float(points.diff().min()) >= _CLOSE:
            model = optimum_on_line(points, labels).model
            for name, precision in PRECISIONS.items():
                found[name].append(compare_attacks(model, points, precision))
    return found


def compare_attacks(model: TwoLayer, points: Float[Tensor, " n"], precision: Precision) -> Comparison:
    """Both attacks on one network of margin 1 with these training points."""
    reach = _REACH * float(points[-1] - points[0])
    window: dict[str, Any] = dict(low=float(points[0]) - reach, high=float(points[-1]) + reach)
    rebuilt = rebuild(lambda places: model(places[:, None]), precision=precision, **window)
    care: dict[str, Any] = dict(
        margin=1.0, simplification=precision.simplification, merge_distance=precision.simplification
    )
    answers, weights = (
        candidates_from_function(function, **care, **window) for function in (rebuilt.function, from_network(model))
    )
    distances = (answers[:, None] - weights).abs()
    apart = float("inf") if min(distances.shape) == 0 else max(float(distances.amin(k).max()) for k in (0, 1))
    found = _count_hits(answers, weights, points, _HIT)
    apart = 0.0 if max(distances.shape) == 0 else apart
    return Comparison(len(rebuilt.asked), len(rebuilt.function.nodes), *found, apart)


def _count_hits(answers: Tensor, weights: Tensor, points: Tensor, tolerance: float) -> tuple[int, int, int]:
    """Training points in the list from answers and in that from weights, and wrong candidates from answers."""
    hits, hits_by_weights = ((found[:, None] - points).abs() <= tolerance for found in (answers, weights))
    return int(hits.any(0).sum()), int(hits_by_weights.any(0).sum()), int((~hits.any(1)).sum())


def join_answers(
    ask: Callable[[Float[Tensor, " q"]], Float[Tensor, " q"]], *, low: float, high: float, count: int
) -> PiecewiseLinear:
    """The polygon through answers at `count` even places: for trained networks, which have hundreds of kinks."""
    nodes = torch.linspace(low, high, count, dtype=DTYPE)
    values = ask(nodes)
    slopes = values.diff() / nodes.diff()
    return PiecewiseLinear(nodes, values, slopes[0], slopes[-1])


class TrainedComparison(NamedTuple):
    """Training points found at a trained network through answers and through weights, and wrong candidates."""

    found: int
    found_by_weights: int
    wrong: int


def compare_trained(
    model: TwoLayer, margin: float, points: Float[Tensor, " n"], *, queries: int, tolerance: float
) -> TrainedComparison:
    """Both attacks on a trained network, with the complete list; a hit is within `tolerance` of a training point."""
    reach = _REACH * float(points[-1] - points[0])
    window: dict[str, Any] = dict(low=float(points[0]) - reach, high=float(points[-1]) + reach)
    joined = join_answers(lambda places: model(places[:, None]), count=queries, **window)
    answers, weights = (candidates_from_function(one, margin, **window) for one in (joined, from_network(model)))
    return TrainedComparison(*_count_hits(answers, weights, points, tolerance))


class _Line(NamedTuple):
    start: float
    end: float
    slope: float
    value: float  # at 0


def _lines(
    parts: list[tuple[float, float]], asked: Tensor, answers: Tensor, tolerance: float, shortest: float
) -> list[_Line]:
    """The lines of the stretches: maximal runs of straight parts whose ends lie on one chord."""
    value = dict(zip(asked.tolist(), answers.tolist(), strict=True))
    stretches: list[tuple[float, float]] = []
    for low, high in parts:
        if stretches and stretches[-1][1] == low:
            start = stretches[-1][0]
            chord = value[start] + (value[high] - value[start]) * (low - start) / (high - start)
            if abs(value[low] - chord) <= tolerance:
                stretches[-1] = (start, high)
                continue
        stretches.append((low, high))
    lines = []
    for start, end in stretches:
        if end - start < shortest:
            continue
        own = (asked >= start) & (asked <= end)
        x, y = asked[own], answers[own]
        middle, slope = x.mean(), float((x - x.mean()) @ (y - y.mean()) / (x - x.mean()).square().sum())
        lines.append(_Line(start, end, slope, float(y.mean() - slope * middle)))
    return lines


def _function_of_lines(lines: list[_Line]) -> PiecewiseLinear:
    """The function that follows each line up to its crossing with the next, which lies between their stretches."""
    kinks, values = [], []
    for left, right in pairwise(lines):
        place = (right.value - left.value) / (left.slope - right.slope) if left.slope != right.slope else left.end
        place = min(max(place, left.end), right.start)
        kinks.append(place)
        values.append(left.value + left.slope * place)
    if not kinks:
        kinks, values = [lines[0].start], [lines[0].value + lines[0].slope * lines[0].start]
    nodes, heights, ends = (
        torch.tensor(part, dtype=DTYPE) for part in (kinks, values, [lines[0].slope, lines[-1].slope])
    )
    return PiecewiseLinear(nodes, heights, ends[0], ends[1])
