"""Slopes and rank correlations of paired numbers; curves are read off where they cross."""

import math

import pytest
import torch

from leakage.metrics.trends import rank_correlation, slope, value_at_crossing
from reproduced.runtime import stream

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


def test_values_that_differ_by_rounding_share_their_rank():
    x = torch.arange(4.0)
    exact = rank_correlation(x, torch.tensor([0.3, 0.1, 0.3, 0.5]))
    for y in ([0.1 + 0.2, 0.1, 0.3, 0.5], [0.3, 0.1, 0.1 + 0.2, 0.5]):
        assert rank_correlation(x, torch.tensor(y).double()) == pytest.approx(exact, abs=1e-12)
    assert rank_correlation(x, torch.tensor([0.3, 0.1 + 0.2, 0.3, 0.3]).double()) == 0


def test_a_curve_is_read_off_between_epochs():
    error = torch.tensor([0.8, 0.6, 0.4, 0.45, 0.3])
    advantage = torch.tensor([0.0, 0.1, 0.3, 0.4, 0.5])
    assert float(value_at_crossing(error, advantage, target=0.5)) == pytest.approx(0.2)
    assert float(value_at_crossing(error, advantage, target=0.42)) == pytest.approx(0.28), "the first crossing counts"
    assert float(value_at_crossing(advantage, error, target=0.3)) == pytest.approx(0.4)
    both = value_at_crossing(torch.stack([error, error]), torch.stack([advantage, -advantage]), target=0.5)
    assert both.tolist() == pytest.approx([0.2, -0.2])


def test_what_is_not_crossed_is_not_made_up():
    error, advantage = torch.tensor([0.8, 0.6, 0.4]), torch.tensor([0.1, 0.2, 0.3])
    assert math.isnan(float(value_at_crossing(error, advantage, target=0.39)))
    assert math.isnan(float(value_at_crossing(error, advantage, target=0.9)))
    assert float(value_at_crossing(error, advantage, target=0.4)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("level", "target", "expected"),
    [
        ((0.5, 0.2, 0.6), 0.3, 2 / 3),  # falls through the target before it rises
        ((0.25, 0.35, 0.2), 0.3, 0.5),  # rises through it before it falls
        ((0.2, 0.6, 0.4), 0.5, 0.75),
        ((0.3, 0.2, 0.3), 0.3, math.nan),  # starts on it
        ((0.2, 0.25, 0.28), 0.3, math.nan),
    ],
)
def test_the_first_epoch_says_whether_a_curve_must_rise_or_fall(level, target, expected):
    level, epochs = torch.tensor(level), torch.arange(3.0)
    assert float(value_at_crossing(level, epochs, target=target)) == pytest.approx(expected, nan_ok=True)
    assert float(value_at_crossing(-level, epochs, target=-target)) == pytest.approx(expected, nan_ok=True)
