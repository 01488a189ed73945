"""The tails agree with closed forms and with draws where these reach, and stay finite where they do not."""

import math

import pytest
import torch
from scipy import special

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import overlap_tails as tails
from reproduced.runtime import stream


@pytest.mark.parametrize("dimension", [55, 100, 1000, 100_000])
def test_the_tail_on_the_sphere_is_the_incomplete_beta_function(dimension):
    found = tails.log_sphere_tail(dimension, math.log(dimension) / math.sqrt(dimension))
    expected = special.betaincc(0.5, (dimension - 1) / 2, math.log(dimension) ** 2 / dimension)
    assert found == pytest.approx(math.log(expected), rel=1e-10)
    assert tails.log_sphere_bound(dimension) == pytest.approx(math.log(dimension ** (1 - math.log(dimension) / 4)))


def test_in_one_dimension_a_product_is_that_of_two_normal_numbers():
    # The law of a product of two normal numbers has the density K0(|z|) / π.
    grid = torch.linspace(0.5, 40, 400_001, dtype=DTYPE)
    density = torch.as_tensor(special.k0(grid.numpy())) * 2 / math.pi
    assert tails.log_product_tail(1, 0.5) == pytest.approx(math.log(float(torch.trapezoid(density, grid))), abs=1e-4)


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_products_of_drawn_points_exceed_a_level_as_often(mean):
    draws = stream(0, f"products/{mean}")
    x, y = gaussian((2, 40_000, 50), generator=draws)
    signs = gaussian((2, 40_000), generator=draws).sign()
    x[:, 0] += mean * signs[0]
    y[:, 0] += mean * signs[1]
    share = float(((x * y).sum(-1).abs() > 15).double().mean())
    expected = math.exp(tails.log_product_tail(50, 15, mean=mean))
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 40_000))


@pytest.mark.parametrize(("dimension", "square"), [(3, 4.0), (100, 140.0), (1000, 1005.0), (10_000, 10_800.0)])
def test_lengths_follow_the_law_of_chi_square(dimension, square):
    found = tails.log_length_tail(dimension, square, above=True)
    assert found == pytest.approx(math.log(special.gammaincc(dimension / 2, square / 2)), abs=1e-4)
    shorter = dimension**2 / square
    found = tails.log_length_tail(dimension, shorter, above=False)
    assert found == pytest.approx(math.log(special.gammainc(dimension / 2, shorter / 2)), abs=1e-4)


def test_events_too_rare_for_any_draw_have_finite_logarithms():
    overlap, length = tails.log_tau(10**6, rows=20)
    # n²·√(2/π)·(4n/√d)·exp(-d/32n²), the normal tail of one overlap, to one per cent
    normal = math.log(400 * math.sqrt(2 / math.pi) * 80 / 1000) - 10**6 / (32 * 400)
    assert overlap == pytest.approx(normal, rel=0.01)
    assert -math.inf < length < -10_000
