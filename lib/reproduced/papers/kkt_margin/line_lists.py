"""How often the lists of Algorithm 1 are right, on many optima with scattered points."""

from typing import NamedTuple

import torch

from reproduced.papers.kkt_margin.line_problems import draw_scattered_problem
from reproduced.papers.kkt_margin.line_reconstruction import candidates_from_function
from reproduced.papers.kkt_margin.line_theorems import count_double_gaps, precision_and_recall
from reproduced.papers.kkt_margin.max_margin import Optimum, optimum_on_line
from reproduced.papers.kkt_margin.piecewise_linear import from_network

_CLOSE = 1e-3  # of the span: closer points are not drawn, and closer candidates are one
_WIDEST_GAP = 1e-7
_SIMPLIFICATION = 1e-4  # of the margin
_REACH = 300  # spans, and as many units: kinks of neurons that are active everywhere lie that far outside


class ListFound(NamedTuple):
    """What Algorithm 1 listed at one optimum: candidates, how many are training points, and gaps with two kinks.

    `double_gaps` is None where the kinks of a gap cannot be told apart (`line_theorems.count_double_gaps`).
    """

    candidates: int
    right: int
    double_gaps: int | None

    @property
    def share_in_units_of_bound(self) -> float:
        r"""The share of training points over $T/(3T + 1)$, T being their number: at least 1 by the sharper count."""
        return (3 * self.right + 1) / self.candidates


def lists_of_scattered_optima(problems: int, *, generator: torch.Generator) -> list[ListFound]:
    """`problems` optima of 3 to 10 points each (`line_problems.draw_scattered_problem`), and their lists.

    The window is very wide. One of a few spans would cut off kinks far outside, and the crossings of a simplified
    function there would be wrong.
    """
    found: list[ListFound] = []
    while len(found) < problems:
        points, labels = draw_scattered_problem(3 + len(found) % 8, generator=generator)
        if float(points.diff().min()) < _CLOSE * float(points[-1] - points[0]):
            continue
        best = optimum_on_line(points, labels)
        if best.gap < _WIDEST_GAP:
            found.append(list_of_optimum(best, points, labels))
    return found


def list_of_optimum(best: Optimum, points: torch.Tensor, labels: torch.Tensor) -> ListFound:
    """The list of Algorithm 1 at one optimum with margin 1."""
    span = float(points[-1] - points[0])
    reach = _REACH * (span + 1)
    window = dict(low=float(points[0]) - reach, high=float(points[-1]) + reach)
    care = dict(simplification=_SIMPLIFICATION, merge_distance=_CLOSE * span)
    listed = candidates_from_function(from_network(best.model), 1.0, algorithm="Algorithm 1", **care, **window)
    recovery = precision_and_recall(listed, points, tolerance=_CLOSE * span)
    right = round(recovery.precision * len(listed)) if len(listed) else 0
    return ListFound(len(listed), right, count_double_gaps(best.model, points, labels, best.multipliers))
