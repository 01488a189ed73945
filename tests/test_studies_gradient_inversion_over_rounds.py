"""Ratios and powers over rounds have the intervals that they say, and refuse what has none."""

import math

import pytest
import torch

from leakage.metrics.estimates import mean_interval
from leakage.runtime import DTYPE, stream
from leakage.studies.gradient_inversion.over_rounds import power, ratio


def drawn(*shape):
    return torch.randn(shape, generator=stream(0, "values"), dtype=DTYPE)


def test_a_ratio_is_that_of_geometric_means_and_paired():
    second = drawn(9).exp()
    found = ratio(3 * second, second)
    assert (found.estimate, found.low, found.high) == pytest.approx((3, 3, 3))
    first = second * torch.linspace(1, 2, 9, dtype=DTYPE)
    found, by_hand = ratio(first, second), mean_interval((first / second).log())
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((by_hand.low, by_hand.high))


def test_a_power_law_gives_its_power():
    x = (1.0, 3.0, 10.0)
    values = torch.tensor(x, dtype=DTYPE)[:, None] ** -0.5 * drawn(5).exp()
    found = power(x, values)
    assert (found.estimate, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert found.n == 5
    noisy = power(x, values * drawn(3, 5).mul(0.1).exp())
    assert -0.7 < noisy.low < noisy.estimate < noisy.high < -0.3


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        (lambda: ratio(torch.ones(3), torch.ones(2)), "`second` must have 3 rows, got 2"),
        (lambda: ratio(torch.ones(3), torch.zeros(3)), "`second` must be positive"),
        (lambda: power((1.0, 2.0), torch.ones(3, 2)), "`values` must have 2 rows, got 3"),
        (lambda: power((0.0, 2.0), torch.ones(2, 2)), "`x` must be a number"),
        (lambda: power((1.0, 2.0), -torch.ones(2, 2)), "`values` must be positive"),
    ],
)
def test_what_has_no_interval_is_refused(work, complaint):
    with pytest.raises(ValueError, match=complaint):
        work()
