"""The bounds are the paper's formulas, hold at KKT points known in closed form, and say nothing where they cannot."""

import math

import pytest
import torch

from kkt_points import Symmetric
from leakage.data.gaussians import gaussian
from leakage.data.mixtures import draw_sample
from leakage.models.two_layer import initial
from leakage.runtime import DTYPE, stream
from leakage.theory.kkt import (
    InnerProducts,
    activation_lower_bound,
    activation_sums,
    activation_upper_bound,
    check_kkt,
    output_bound,
)
from leakage.trainers.margin_flow import Descent, train

WIDE = Symmetric(n=6, kappa=500.0, rho=3.0)  # den = 500 + 3 - 2 · 3 · 5 = 473
CLOSE = Symmetric(n=6, kappa=20.0, rho=3.0)  # den = 20 + 3 - 30 = -7
ONE = torch.tensor(1.0, dtype=DTYPE)


def of(*values):
    return torch.tensor(values, dtype=DTYPE)


def test_the_geometry_is_read_off_the_inner_products():
    geometry = InnerProducts.from_points(
        of([3.0, 0.0], [1.0, 4.0], [-2.0, 0.0])
    )  # products 3, -6, -2; squares 9, 17, 4
    assert [float(geometry.delta), float(geometry.least), float(geometry.most), geometry.n] == [6, 4, 17, 3]
    assert geometry.den == 4 + 1 - 2 * 7 * 2
    assert geometry.ratio == pytest.approx(3 * 6 / 4)


def test_delta_x_is_never_below_delta():
    geometry = InnerProducts.from_points(of([3.0, 0.0], [1.0, 4.0]))
    assert geometry.delta_x(of([1.0, -2.0], [1.0, -9.0])).tolist() == [3, 9]


def test_one_point_has_nothing_to_be_orthogonal_to():
    geometry = InnerProducts.from_points(of([3.0, 4.0]))
    assert [float(geometry.delta), float(geometry.den)] == [0, 26]
    assert activation_lower_bound(geometry, ONE) == pytest.approx(1 / 26)
    assert activation_upper_bound(geometry, ONE) == pytest.approx(1 / 26)


def test_the_bounds_are_those_of_the_paper():
    geometry, m = InnerProducts.from_points(WIDE.points), of(1.5)[0]
    den, others, n = 502 + 1 - 2 * 3 * 5, 3 * 5, 6  # δ = ρ - 1 = 2, Δ = κ + ρ - 1 = 502
    assert activation_upper_bound(geometry, m) == pytest.approx(1.5 / den, rel=1e-12)
    assert activation_lower_bound(geometry, m) == pytest.approx((1.5 - others * 1.5 / den) / 503, rel=1e-12)
    expected = of(2 * n * 4 * 1.5 / den, 2 * n * 6 * 1.5 / den)
    torch.testing.assert_close(output_bound(geometry, of(3.0, 5.0), m), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(output_bound(geometry, of(3.0, 5.0), m, factor=1), expected / 2, rtol=1e-12, atol=0)


def test_bounds_without_a_positive_denominator_say_nothing():
    geometry = InnerProducts.from_points(CLOSE.points)
    assert geometry.den < 0
    assert activation_upper_bound(geometry, ONE) == math.inf
    assert activation_lower_bound(geometry, ONE) == 0
    assert output_bound(geometry, of(2.0), ONE).tolist() == [math.inf]


@pytest.mark.parametrize(("least", "informative"), [(298.0, False), (300.0, True)])
def test_the_floor_is_positive_where_the_norms_exceed_three_times_the_overlaps(least, informative):
    delta, square = of(19.0, least)  # 3 (δ + 1)(n - 1) = 300, against Δ + 1
    assert bool(activation_lower_bound(InnerProducts(delta, square, square, n=6), ONE) > 0) is informative


@pytest.mark.parametrize("shares", [((1.0,), (1.0,)), ((0.6, 0.4), (0.2, 0.3, 0.5))])
def test_the_activation_sums_of_a_kkt_point_are_as_in_closed_form(shares):
    model = WIDE.network(shares)
    plus, minus = activation_sums(model, check_kkt(model, WIDE.points, WIDE.labels, kinks=1e-6))
    own = WIDE.margin / WIDE.height * WIDE.multiplier
    # Multipliers are settled to 1e-9, those at the kinks to about a hundred times that.
    torch.testing.assert_close(torch.where(WIDE.labels > 0, plus, minus), of(own).expand(6), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        torch.where(WIDE.labels > 0, minus, plus), of(own * WIDE.subgradient).expand(6), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("kappa", [50.0, 500.0, 5e4])
def test_a_kkt_point_keeps_within_the_bounds(kappa):
    point = Symmetric(kappa=kappa)
    model, geometry = point.network(), InnerProducts.from_points(point.points)
    margin, floor = of(point.margin)[0], activation_lower_bound(geometry, of(point.margin)[0])
    sums = torch.stack(activation_sums(model, check_kkt(model, point.points, point.labels, kinks=1e-6)))
    own = torch.where(point.labels > 0, sums[0], sums[1])
    assert sums.max() <= activation_upper_bound(geometry, margin)
    assert own.min() >= floor
    fresh = 3 * gaussian((2000, point.n), generator=stream(0, "fresh"))
    bound = output_bound(geometry, geometry.delta_x(fresh @ point.points.mT), margin, factor=1)
    assert bool((model(fresh).abs() <= bound).all())


def test_ceiling_and_floor_meet_when_the_points_are_orthogonal():
    geometry = InnerProducts.from_points(
        Symmetric(kappa=1e6, rho=1.0).points
    )  # δ = 0, so both are m / (Δ + 1) up to n / Δ
    torch.testing.assert_close(
        activation_upper_bound(geometry, ONE), activation_lower_bound(geometry, ONE), rtol=2e-5, atol=0
    )


def test_a_trained_network_keeps_within_the_bounds_where_they_speak():
    generator = stream(0, "trained")
    sample = draw_sample("mixture, random labels", rows=8, fresh=500, dimension=20_000, runs=2, generator=generator)
    start = initial((2,), 80, sample.train.shape[-1], generator=generator, output_scale=0.1)
    model = train(start, sample.train, sample.labels, Descent(steps=5000, margin=60.0)).model
    found, geometry = check_kkt(model, sample.train, sample.labels), InnerProducts.from_points(sample.train)
    plus, minus = activation_sums(model, found)
    own = torch.where(sample.labels > 0, plus, minus)
    assert bool((geometry.den > 0).all())
    slack = 1.02  # not quite a KKT point: what is left of the initial output weights
    assert bool((torch.maximum(plus, minus).amax(-1) <= slack * activation_upper_bound(geometry, found.margin)).all())
    assert bool((own.amin(-1) * slack >= activation_lower_bound(geometry, found.margin)).all())
    outputs = model(sample.fresh, generator=generator, spread=1e-4 * sample.radius)
    bound = output_bound(geometry, geometry.delta_x(sample.fresh @ sample.train.mT), found.margin, factor=1)
    assert bool((outputs.abs() <= bound).all())


def test_training_sets_are_independent_of_their_neighbours():
    points = gaussian((2, 3, 5, 400), generator=stream(0, "batch"))
    together, fresh = InnerProducts.from_points(points), of(*range(12)).reshape(2, 3, 2)
    bounds = output_bound(together, fresh, torch.ones(2, 3, dtype=DTYPE))
    for i, j in [(0, 0), (1, 2)]:
        torch.testing.assert_close(
            bounds[i, j], output_bound(InnerProducts.from_points(points[i, j]), fresh[i, j], ONE)
        )
