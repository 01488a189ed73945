"""The remarks on the margin's size: what follows from their premises, beside what is printed."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from leakage.precision import DTYPE
from reproduced.studies.kkt_margin.margin_size import (
    PRINTED_PEAK,
    bounded_margin_ratio,
    gradient_exponent,
    gradient_factor,
    least_margin,
    least_margin_by_bisection,
    printed_gradient_factor,
    printed_least_margin,
)

REMARK = torch.tensor(1 / (2 * math.e), dtype=DTYPE)


def of(*values):
    return torch.tensor(values, dtype=DTYPE)


def test_the_margin_of_remark_b5_is_above_081():
    assert least_margin(REMARK) == pytest.approx(-math.log(math.exp(1 / math.e) - 1), rel=1e-12)
    assert least_margin(REMARK) == pytest.approx(0.81043, abs=5e-6)


def test_the_printed_steps_of_remark_b5_lead_to_a_negative_number():
    assert printed_least_margin(REMARK) == pytest.approx(-1 / math.e, rel=1e-12)


def test_the_least_margin_undoes_the_loss():
    margins = of(-3.0, 0.1, 1.0, 20.0)
    torch.testing.assert_close(least_margin(softplus(-margins) / 2), margins, rtol=1e-9, atol=1e-9)


def test_the_gradient_factor_is_the_slope_of_the_logistic_loss():
    q = torch.linspace(-30, 30, 61, dtype=DTYPE).requires_grad_()
    (slope,) = torch.autograd.grad(torch.log1p(torch.exp(-q)).sum(), q)
    torch.testing.assert_close(gradient_factor(q), -slope, rtol=1e-9, atol=0)


def test_the_printed_factor_is_a_bound_only_from_one_on():
    assert bool((printed_gradient_factor(of(0.1, 0.5, 0.99)) < gradient_factor(of(0.1, 0.5, 0.99))).all())
    assert bool((printed_gradient_factor(of(1.01, 2.0, 50.0)) > gradient_factor(of(1.01, 2.0, 50.0))).all())


def test_the_printed_factor_grows_up_to_its_peak_and_falls_after_it():
    grid = torch.linspace(0, 10, 100_001, dtype=DTYPE)
    values = printed_gradient_factor(grid)
    peak = grid[values.argmax()].item()
    assert peak == pytest.approx(PRINTED_PEAK, abs=1e-4)  # the grid's step
    assert pytest.approx(1.27846, abs=5e-6) == PRINTED_PEAK
    rises = values.diff() > 0
    assert bool(rises[grid[1:] < PRINTED_PEAK - 1e-3].all())
    assert not bool(rises[grid[:-1] > PRINTED_PEAK + 1e-3].any())


def test_the_gradient_at_the_squared_logarithm_is_below_every_power_of_the_dimension():
    dimensions = of(10.0, 1e3, 1e6, 1e12, 1e300)
    exponents = gradient_exponent(dimensions)
    # σ(-t) = e^-t / (1 + e^-t) with t = log² d, so the exponent is log d but for the 1 + e^-t.
    torch.testing.assert_close(exponents, dimensions.log(), rtol=1e-3, atol=0)
    assert bool((exponents.diff() > 0).all())


def test_corollary_3_5_multiplies_the_ratio_by_the_squared_logarithm():
    assert bounded_margin_ratio(of(0.1, 0.2), of(math.e**2)).tolist() == pytest.approx([0.4, 0.8])


@pytest.mark.parametrize("loss", [1e-9, 0.1, 1 / (2 * math.e), 0.34])
def test_bisection_finds_the_least_margin(loss):
    assert least_margin_by_bisection(loss) == pytest.approx(float(least_margin(of(loss))), rel=1e-9)
