"""Slopes and rank correlations of paired numbers."""

import pytest
import torch

from leakage.metrics.trends import rank_correlation, slope
from leakage.runtime import stream

X = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)


def test_the_slope_of_a_line_is_its_slope():
    assert slope(X, 3 - 2 * X) == pytest.approx(-2, rel=1e-14)


def test_the_slope_is_that_of_least_squares():
    y = torch.randn(4, generator=stream(0, "y"), dtype=torch.float64)
    design = torch.stack([X, torch.ones_like(X)], dim=1)
    assert slope(X, y) == pytest.approx(float(torch.linalg.lstsq(design, y[:, None]).solution[0]), rel=1e-12)


def test_rank_correlation_sees_order_only():
    assert rank_correlation(X, X**3) == pytest.approx(1)
    assert rank_correlation(X, 1 / X) == pytest.approx(-1)


def test_rank_correlation_shares_ranks_between_equal_values():
    # ranks 1, 2, 3.5, 3.5 against 1 … 4: the correlation is 4.5 / sqrt(5 · 4.5)
    assert rank_correlation(X, torch.tensor([0, 1, 2, 2])) == pytest.approx(4.5 / (5 * 4.5) ** 0.5)


def test_rank_correlation_of_a_constant_is_zero():
    assert rank_correlation(X, torch.ones(4)) == 0


@pytest.mark.parametrize("function", [slope, rank_correlation])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, X[:3], "`y`"),
        (X[:1], X[:1], "`x`"),
        (torch.ones(3), X[:3], "constant"),
        (X, X * float("nan"), "`y`"),
    ],
)
def test_what_is_no_pair_of_samples_is_refused(function, x, y, message):
    with pytest.raises(ValueError, match=message):
        function(x, y)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_a_slope_follows_the_unit_of_x(unit):
    assert slope(X * unit, 3 - 2 * X) == pytest.approx(-2 / unit, rel=1e-14)


def test_values_that_differ_by_rounding_share_their_rank():
    x = torch.arange(4.0)
    exact = rank_correlation(x, torch.tensor([0.3, 0.1, 0.3, 0.5]))
    for y in ([0.1 + 0.2, 0.1, 0.3, 0.5], [0.3, 0.1, 0.1 + 0.2, 0.5]):
        assert rank_correlation(x, torch.tensor(y).double()) == pytest.approx(exact, abs=1e-12)
    assert rank_correlation(x, torch.tensor([0.3, 0.1 + 0.2, 0.3, 0.3]).double()) == 0
