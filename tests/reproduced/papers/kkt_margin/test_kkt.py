"""The KKT conditions hold at known KKT points and settle for trained networks; the bounds hold at KKT points."""

import math
from functools import cache
from itertools import pairwise

import pytest
import torch
from scipy.optimize import nnls

from last_bits import LastBits
from leakage.draws import gaussian
from leakage.precision import DTYPE
from planted import WIDE, Symmetric, doubles
from reproduced.papers.kkt_margin.kkt import check_kkt
from reproduced.papers.kkt_margin.line_problems import draw_problem
from reproduced.papers.kkt_margin.margin_flow import Descent, train
from reproduced.papers.kkt_margin.max_margin import optimum_on_line
from reproduced.papers.kkt_margin.mixtures import draw_sample
from reproduced.papers.kkt_margin.theorem_bounds import (
    InnerProducts,
    activation_lower_bound,
    activation_sums,
    activation_upper_bound,
    output_bound,
)
from reproduced.papers.kkt_margin.two_layer import TwoLayer, initial
from reproduced.runtime import stream

POINT = Symmetric()
# The squared residual is settled to 1e-14 at a KKT point, and to 1e-5 of itself elsewhere.
SETTLED = 2e-7


@cache
def trained(*, dimension=20, steps=300, runs=1, width=60, name="conditions"):
    generator = stream(0, name)
    sample = draw_sample("mixture", rows=10, fresh=0, dimension=dimension, runs=runs, generator=generator)
    start = initial((runs,), width, sample.train.shape[-1], generator=generator)
    return train(start, sample.train, sample.labels, Descent(steps=steps)).model, sample.train, sample.labels


def single(arguments):
    return tuple(argument[0] for argument in arguments)


def right_hand_sides(model, points, labels, found):
    """The gradient of the distance in every (λ_i, μ_ij), from its definition."""
    lifted = torch.cat([points, torch.ones_like(points[:, :1])], dim=-1)
    height = model.preactivations(points).clamp_min(0)
    signed, weights = found.multipliers * labels, found.multipliers[:, None] * found.subgradients
    hidden = model.outputs[:, None] * ((weights * labels[:, None]).T @ lifted)
    gap = hidden - torch.cat([model.weights, model.biases[:, None]], dim=-1)
    slopes = labels[:, None] * model.outputs * (lifted @ gap.T)
    return labels * (height @ (signed @ height - model.outputs)), slopes


@pytest.mark.parametrize("shares", [((1.0,), (1.0,)), ((0.5, 0.3, 0.2), (0.9, 0.1))])
@pytest.mark.parametrize("point", [POINT, Symmetric(n=2, kappa=5, rho=4, margin=0.1), Symmetric(n=12, kappa=1, rho=1)])
def test_a_kkt_point_meets_all_its_conditions(point, shares):
    found = check_kkt(point.network(shares), point.points, point.labels, kink_tolerance=1e-6)
    assert found.residual < SETTLED
    torch.testing.assert_close(
        found.multipliers, torch.full((point.n,), point.multiplier, dtype=DTYPE), rtol=1e-6, atol=0
    )
    assert found.cosine == pytest.approx(1, abs=1e-12)  # its error is the square of the residual
    assert found.margin == pytest.approx(point.margin, rel=1e-12)
    assert found.slackness == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("machine", range(4))
@pytest.mark.parametrize("count", [4, 12, 20])
def test_the_optimum_on_the_line_meets_its_conditions(count, machine):
    # Points on the line interact strongly: 2000 sweeps alone leave residuals of up to 0.85.
    with LastBits(machine):  # and where slopes are 0, rounding chooses the way
        points, labels = draw_problem("random", count=count, generator=stream(0, f"line {count}"))
        found = check_kkt(optimum_on_line(points, labels).model, points[:, None], labels, kink_tolerance=1e-5)
    assert found.residual < 1e-5  # kinks are good to that


def test_the_subgradients_at_the_kinks_are_found():
    found = check_kkt(POINT.network(), POINT.points, POINT.labels, kink_tolerance=1e-6)
    own = POINT.labels[:, None] == torch.tensor([1.0, -1.0], dtype=DTYPE)
    expected = torch.where(own, 1.0, POINT.subgradient).to(DTYPE)
    torch.testing.assert_close(found.subgradients, expected, rtol=0, atol=1e-6)


def test_subgradients_fixed_at_the_kinks_leave_a_residual_at_a_kkt_point():
    # A push off the kinks by rounding's size: s is then 0 or 1, and the closed form needs 0.04.
    model = POINT.network()
    pushed = TwoLayer(model.weights, model.biases - 1e-9, model.outputs)
    assert check_kkt(pushed, POINT.points, POINT.labels, kink_tolerance=0.0).residual > 0.02
    assert check_kkt(pushed, POINT.points, POINT.labels, kink_tolerance=1e-6).residual < SETTLED


@pytest.mark.parametrize("x", [-2.0, 0.0, 0.7])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_one_neuron_and_one_point_have_the_multiplier_of_theorem_4_1(x, label):
    length, v = math.sqrt(x * x + 1), 1.7 * label
    model = TwoLayer(
        *(torch.tensor(value, dtype=DTYPE) for value in ([[v * label * x / length]], [v * label / length], [v]))
    )
    found = check_kkt(model, torch.tensor([[x]], dtype=DTYPE), torch.tensor([label], dtype=DTYPE))
    assert found.multipliers.item() == pytest.approx(1 / length, rel=1e-12)
    assert found.residual < 1e-12


def test_with_every_kink_closed_the_multipliers_are_those_of_nonnegative_least_squares():
    model, points, labels = single(trained())
    found = check_kkt(model, points, labels, kink_tolerance=0.0)
    on = (model.preactivations(points) > 0).to(DTYPE)
    lifted = torch.cat([points, torch.ones_like(points[:, :1])], dim=-1)
    hidden = (on * model.outputs).unsqueeze(-1) * lifted.unsqueeze(1)
    gradients = torch.cat([hidden.flatten(1), model.preactivations(points).clamp_min(0)], dim=-1) * labels[:, None]
    theta = torch.cat([torch.cat([model.weights, model.biases[:, None]], dim=-1).flatten(), model.outputs])
    expected, distance = nnls(gradients.T.numpy(), theta.numpy())
    torch.testing.assert_close(found.multipliers, torch.from_numpy(expected), rtol=1e-6, atol=1e-8)
    assert found.residual == pytest.approx(distance / theta.norm().item(), rel=1e-8)


@pytest.mark.parametrize("kinks", [1e-3, 1e-2, 0.1])
def test_no_other_multipliers_and_subgradients_come_closer(kinks):
    # The problem is convex on a cone, so a point is optimal if the gradient g vanishes along it and rises along
    # every ray: for each i, g_λ plus all negative parts of g_μ at the kinks is not negative.
    model, points, labels = single(trained())
    found = check_kkt(model, points, labels, kink_tolerance=kinks)
    along_outputs, slopes = right_hand_sides(model, points, labels, found)
    reach, weights = model.preactivations(points), found.multipliers[:, None] * found.subgradients
    lengths = (
        torch.cat([model.weights, model.biases[:, None]], dim=-1).norm(dim=-1)
        * (points.square().sum(-1, keepdim=True) + 1).sqrt()
    )
    kink = reach.abs() <= kinks * lengths
    rays = along_outputs + torch.where(kink, slopes.clamp_max(0), slopes * (reach > 0)).sum(-1)
    tolerance = SETTLED * float(model.squared_norm())
    assert rays.min() > -tolerance
    assert ((found.multipliers * along_outputs).sum() + (weights * slopes).sum()).abs() < tolerance


def test_freeing_more_kinks_never_hurts():
    residuals = [
        float(check_kkt(*single(trained()), kink_tolerance=kinks).residual) for kinks in (0.0, 1e-3, 1e-2, 0.1)
    ]
    assert all(freer <= bound * (1 + 1e-5) for bound, freer in pairwise(residuals))  # to which they are settled
    assert residuals[2] < residuals[0] / 2


def test_what_no_training_point_sees_is_residual():
    # The points span six of seven directions: the last weight is 0 in every right-hand side.
    model, share = POINT.network(), 0.3
    points = torch.cat([POINT.points, torch.zeros(POINT.n, 1, dtype=DTYPE)], dim=-1)
    stray = share * model.squared_norm().sqrt() / math.sqrt(2)
    weights = torch.cat([model.weights, stray.expand(2, 1)], dim=-1)
    found = check_kkt(TwoLayer(weights, model.biases, model.outputs), points, POINT.labels, kink_tolerance=1e-2)
    assert found.residual == pytest.approx(share / math.sqrt(1 + share**2), rel=1e-9)
    assert found.cosine == pytest.approx(1 / math.sqrt(1 + share**2), rel=1e-9)


def test_the_size_of_the_network_and_all_orders_are_irrelevant():
    model, points, labels = single(trained())
    neurons = torch.randperm(60, generator=stream(0, "neurons"))
    rows = torch.randperm(10, generator=stream(0, "rows"))
    other = TwoLayer(3 * model.weights[neurons], 3 * model.biases[neurons], 3 * model.outputs[neurons])
    first, second = check_kkt(model, points, labels), check_kkt(other, points[rows], labels[rows])
    torch.testing.assert_close(second.multipliers, first.multipliers[rows], rtol=1e-5, atol=1e-8)
    for name in ("residual", "cosine", "slackness"):
        torch.testing.assert_close(getattr(second, name), getattr(first, name), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(second.margin, 9 * first.margin, rtol=1e-12, atol=0)
    surplus = labels * model(points) / first.margin - 1  # the slackness is its mean, weighted by the multipliers
    torch.testing.assert_close(first.slackness, (first.multipliers * surplus).sum() / first.multipliers.sum())


def test_a_batch_gives_what_its_networks_give_alone():
    arguments = trained(runs=3)
    together = vars(check_kkt(*arguments))
    for run in range(3):
        alone = vars(check_kkt(*(argument[run] for argument in arguments)))
        for name, value in alone.items():
            if name != "subgradients":  # free where the multiplier or the output weight is 0
                torch.testing.assert_close(together[name][run], value, rtol=1e-5, atol=1e-7)


def test_training_longer_tightens_the_slackness_in_proportion_to_the_margin():
    # q_i - m is of the order of log λ at any time, so slackness times margin is a constant.
    short, long = (check_kkt(*single(trained(dimension=200, steps=steps))) for steps in (200, 1000))
    assert long.margin > 3 * short.margin
    assert long.slackness * long.margin == pytest.approx(float(short.slackness * short.margin), rel=0.3)


def test_an_untrained_network_is_far_from_the_conditions():
    model, points, _ = single(trained())
    generator = stream(0, "untrained")
    random = TwoLayer(*(gaussian(tuple(part.shape), generator=generator) for part in vars(model).values()))
    # A random net of width 60 on 10 points: its 1300 parameters cannot be a combination of so few gradients.
    assert check_kkt(random, points, random(points).sign()).residual > 0.5


ONE = torch.tensor(1.0, dtype=DTYPE)


def test_the_geometry_is_read_off_the_inner_products():
    geometry = InnerProducts.from_points(
        doubles([3.0, 0.0], [1.0, 4.0], [-2.0, 0.0])
    )  # products 3, -6, -2; squares 9, 17, 4
    assert [float(geometry.delta), float(geometry.least), float(geometry.most)] == pytest.approx([6, 4, 17])
    assert geometry.n == 3
    assert float(geometry.denominator) == pytest.approx(4 + 1 - 2 * 7 * 2)
    assert geometry.ratio == pytest.approx(3 * 6 / 4)


def test_one_point_has_nothing_to_be_orthogonal_to():
    geometry = InnerProducts.from_points(doubles([3.0, 4.0]))
    assert [float(geometry.delta), float(geometry.denominator)] == pytest.approx([0, 26])
    assert activation_lower_bound(geometry, ONE) == pytest.approx(1 / 26)
    assert activation_upper_bound(geometry, ONE) == pytest.approx(1 / 26)


def test_the_bounds_are_those_of_the_paper():
    geometry, m = InnerProducts.from_points(WIDE.points), doubles(1.5)[0]
    den, others, n = 502 + 1 - 2 * 3 * 5, 3 * 5, 6  # δ = ρ - 1 = 2, Δ = κ + ρ - 1 = 502
    assert activation_upper_bound(geometry, m) == pytest.approx(1.5 / den, rel=1e-12)
    assert activation_lower_bound(geometry, m) == pytest.approx((1.5 - others * 1.5 / den) / 503, rel=1e-12)
    expected = doubles(2 * n * 4 * 1.5 / den, 2 * n * 6 * 1.5 / den)
    torch.testing.assert_close(output_bound(geometry, doubles(3.0, 5.0), m), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(output_bound(geometry, doubles(3.0, 5.0), m, factor=1), expected / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kappa", [50.0, 500.0, 5e4])
def test_a_kkt_point_keeps_within_the_bounds(kappa):
    point = Symmetric(kappa=kappa)
    model, geometry = point.network(), InnerProducts.from_points(point.points)
    margin, floor = doubles(point.margin)[0], activation_lower_bound(geometry, doubles(point.margin)[0])
    sums = torch.stack(activation_sums(model, check_kkt(model, point.points, point.labels, kink_tolerance=1e-6)))
    own = torch.where(point.labels > 0, sums[0], sums[1])
    assert sums.max() <= activation_upper_bound(geometry, margin)
    assert own.min() >= floor
    fresh = 3 * gaussian((2000, point.n), generator=stream(0, "fresh"))
    bound = output_bound(geometry, geometry.delta_x(fresh @ point.points.mT), margin, factor=1)
    assert bool((model(fresh).abs() <= bound).all())


def test_a_trained_network_keeps_within_the_bounds_where_they_speak():
    generator = stream(0, "trained")
    sample = draw_sample("mixture, random labels", rows=8, fresh=500, dimension=20_000, runs=2, generator=generator)
    start = initial((2,), 80, sample.train.shape[-1], generator=generator, output_scale=0.1)
    model = train(start, sample.train, sample.labels, Descent(steps=5000, margin=60.0)).model
    found, geometry = check_kkt(model, sample.train, sample.labels), InnerProducts.from_points(sample.train)
    plus, minus = activation_sums(model, found)
    own = torch.where(sample.labels > 0, plus, minus)
    assert bool((geometry.denominator > 0).all())
    slack = 1.02  # not quite a KKT point: what is left of the initial output weights
    assert bool((torch.maximum(plus, minus).amax(-1) <= slack * activation_upper_bound(geometry, found.margin)).all())
    assert bool((own.amin(-1) * slack >= activation_lower_bound(geometry, found.margin)).all())
    outputs = model(sample.fresh, generator=generator, spread=1e-4 * sample.radius)
    bound = output_bound(geometry, geometry.delta_x(sample.fresh @ sample.train.mT), found.margin, factor=1)
    assert bool((outputs.abs() <= bound).all())
