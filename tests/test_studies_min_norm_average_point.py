"""The quadrature over points is the mean over drawn points."""

import torch

from leakage import runtime
from leakage.metrics import estimates
from leakage.theory import least_squares
from leakage.theory.least_squares import Design, Query
from reproduced.studies.min_norm import average_point

DESIGN = Design(n=20, D=60)
WIDTHS = [24, 39, 60]


def test_the_moments_of_the_two_norms_are_those_of_chi_squares():
    points = average_point.points(DESIGN, WIDTHS, nodes=(200, 50))
    p = torch.tensor(WIDTHS, dtype=torch.float64)
    torch.testing.assert_close(points.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    # Quantiles at 200 nodes leave a relative 1e-3 of the tails.
    torch.testing.assert_close(points.mean(points.query.used), p, rtol=1e-3, atol=0)
    torch.testing.assert_close(points.mean(points.query.used.square()), p * (p + 2), rtol=1e-3, atol=0)
    torch.testing.assert_close(points.mean(points.query.unused), DESIGN.D - p, rtol=1e-2, atol=0)
    torch.testing.assert_close(points.mean(points.query.used * points.query.unused), p * (60 - p), rtol=1e-2, atol=0)


def test_the_mean_advantage_is_that_over_drawn_points():
    points = average_point.points(DESIGN, WIDTHS)
    mean = points.mean(least_squares.advantage(DESIGN, DESIGN.widths(WIDTHS), points.query))
    drawn = Query.draw(DESIGN, WIDTHS, count=20_000, generator=runtime.stream(0, "points"))
    sampled = least_squares.advantage(DESIGN, DESIGN.widths(WIDTHS), drawn)
    for value, column in zip(mean.tolist(), sampled.T, strict=True):
        assert estimates.mean_interval(column, level=0.9999).agrees_with(value)


def test_more_nodes_change_little():
    few, many = (average_point.points(DESIGN, WIDTHS, nodes=nodes) for nodes in ((64, 4), (256, 16)))
    means = [
        points.mean(least_squares.advantage(DESIGN, DESIGN.widths(WIDTHS), points.query)) for points in (few, many)
    ]
    assert float((means[0] - means[1]).abs().max()) < 1e-3
