"""The printed equations hold, one threshold wins all that a ratio can, and curves have their best points."""

from functools import cache

import pytest
import torch

from leakage.precision import DTYPE
from planted import doubles, log_uniform
from reproduced.papers.blessing.limit import Setting, Spectrum, solve
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    average_advantage,
    best_attack_on_point,
    generalisation_error,
)
from reproduced.papers.blessing.proximal_operator import prox
from reproduced.papers.blessing.theory_checks import (
    EQUATIONS,
    check_single_crossing,
    integrated_advantage,
    proximal_tail,
    system_residuals,
    variance_over_bounds,
    variation_excess,
)
from reproduced.papers.blessing.tradeoff import (
    extrapolate_width,
    read_at_advantage,
    read_at_error,
    read_within_advantage,
    trade_off,
)
from reproduced.runtime import stream

SETTING = Setting.bilevel(
    penalty=doubles(0.1, 1e-3, 3.0),
    delta=doubles(1 / 6, 5 / 3, 20.0),
    phi=3.0,
    eta=doubles(1.0, 2.0, 0.3),
    kappa=doubles(20.0, 10.0, 1.0),
)


def test_all_six_equations_hold():
    found = system_residuals(SETTING, solve(SETTING))
    assert tuple(found) == EQUATIONS
    # The plain rule itself is good to about 1e-10 at these scales.
    assert max(float(part.abs().max()) for part in found.values()) < 1e-8


@pytest.mark.parametrize(
    ("field", "equation"),
    [("alpha", "signal"), ("sigma", "spread"), ("theta", "correlation"), ("r_squared", "residual")],
)
def test_a_number_that_is_off_by_a_thousandth_is_seen(field, equation):
    found = solve(SETTING)
    wrong = found._replace(**{field: getattr(found, field) * 1.001})
    assert float(system_residuals(SETTING, wrong)[equation].abs().min()) > 1e-5


def random_laws(count):
    generator = stream(0, "laws")
    alpha, sigma, gamma = (
        log_uniform(low, high, count, generator) for low, high in ((1e-3, 10), (1e-3, 30), (1e-3, 1e6))
    )
    teacher = 20 * (torch.rand(count, generator=generator, dtype=DTYPE) - 0.5)
    label = (torch.rand(count, generator=generator, dtype=DTYPE) < 0.5).to(DTYPE)
    return OutputLaw(alpha, sigma, gamma, torch.ones_like(alpha)), teacher, label


def test_one_threshold_wins_all_that_the_ratio_can():
    law, teacher, label = random_laws(200)
    found = check_single_crossing(law, teacher=teacher, label=label, nodes=801)
    assert float(found.excess.abs().max()) < 1e-9  # rounding along 1,602 outputs
    assert float(found.least_increase.min()) > -1e-12
    attack = best_attack_on_point(law, teacher=teacher, label=label).advantage
    assert bool((found.largest_gap <= attack + 1e-12).all())  # the grid may miss the very best threshold
    torch.testing.assert_close(found.largest_gap, attack, rtol=0, atol=1e-4)


def test_the_printed_integral_is_the_advantage():
    law, teacher, label = random_laws(40)
    expected = best_attack_on_point(law, teacher=teacher, label=label).advantage
    found = integrated_advantage(law, teacher=teacher, label=label)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # the kink leaves the step squared


def test_two_gaussians_of_unequal_variance_need_two_thresholds():
    grid = torch.linspace(-20, 20, 4001, dtype=DTYPE)
    gaps = torch.special.ndtr(grid / 2) - torch.special.ndtr(grid)
    assert float(variation_excess(gaps)) > 0.1
    shifted = torch.special.ndtr(grid) - torch.special.ndtr(grid - 1)
    assert abs(float(variation_excess(shifted))) < 1e-12


def test_the_tail_of_the_proximal_operator_is_that_of_its_draws():
    delta, normal = doubles(0.1)[0], torch.linspace(-6, 6, 200_001, dtype=DTYPE)
    outputs = prox(0.5 * normal / delta.sqrt(), 2.0 / delta, torch.zeros_like(normal))
    density = torch.exp(-normal.square() / 2) / (2 * torch.pi) ** 0.5
    for power in (0.5, 1.0):
        above = outputs > torch.log(0.3 * delta**power * torch.log(1 / delta))
        share = torch.trapezoid(density * above, normal)
        found = proximal_tail(delta, a=2.0, b=0.5, c=0.3, power=power).exp()
        torch.testing.assert_close(found, share, rtol=0, atol=1e-4)  # of the grid, at the jump


def test_the_bound_of_the_variance_is_met_where_the_covariance_is_the_identity_and_the_ridge_infinite():
    one = Spectrum(*(torch.ones(3, 1, dtype=DTYPE) for _ in range(3)))
    setting = Setting(doubles(0.1, 10.0, 1e6), doubles(0.8, 0.8, 0.8), doubles(10.0, 10.0, 10.0), one)
    first, _, mended = variance_over_bounds(setting, solve(setting))
    torch.testing.assert_close(first, mended)
    assert bool((first < 1 + 1e-9).all())
    assert float(first[-1]) == pytest.approx(1.0, abs=1e-5)
    two = Setting.bilevel(penalty=1e6, delta=5 / 3, phi=3.0)
    assert float(variance_over_bounds(two, solve(two)).first) == pytest.approx(6.78, abs=0.01)


PHI = doubles(1.1, 3.0, 5.0, 10.0, 100.0)


@cache
def curves():
    return trade_off(PHI, strongest=1e4, weakest=1e-5, per_decade=4)


def test_the_best_points_are_those_of_figure_3():
    assert curves().best.error.tolist() == pytest.approx([0.1198, 0.1757, 0.1672, 0.1545, 0.1307], abs=6e-5)
    # The error is flat at its least, so that a grid of penalties gives these to two digits only.
    assert curves().best.advantage.tolist() == pytest.approx([0.1569, 0.3203, 0.3814, 0.4622, 0.7063], abs=2e-4)
    assert bool(curves().best.attained.all())


def test_the_best_point_is_a_minimum():
    for factor in (0.97, 1 / 0.97):
        beside = solve(Setting.from_lambda_delta(lambda_delta=curves().best.lambda_delta * factor, phi=PHI)).law
        assert bool((generalisation_error(beside) > curves().best.error).all())


def test_readings_hit_their_target():
    reading = read_at_error(curves(), 0.17)
    assert reading.attained.tolist() == [True, False, True, True, True]
    found = reading.error[reading.attained]
    torch.testing.assert_close(found, torch.full_like(found, 0.17), rtol=0, atol=1e-9)
    assert reading.advantage[reading.attained].tolist() == pytest.approx(
        [0.179375, 0.358728, 0.357964, 0.355717], abs=2e-6
    )


def test_what_is_never_attained_is_marked_and_not_a_number():
    reading = read_at_error(curves(), 0.16)
    assert reading.attained.tolist() == [True, False, False, True, True]
    assert bool(torch.isnan(torch.stack(reading[:3])[:, ~reading.attained]).all())
    assert not bool(read_at_error(curves(), 0.01).attained.any())


def test_a_reading_is_at_the_strongest_ridge_that_attains_it():
    reading = read_at_error(curves(), 0.17)
    stronger = curves().lambda_delta > reading.lambda_delta[:, None]
    assert bool((curves().error[reading.attained] > 0.17)[stronger[reading.attained]].all())


def test_an_advantage_is_read_beyond_the_best_point_too():
    whole = read_at_advantage(curves(), 0.5)
    assert whole.attained.tolist() == [False, False, True, True, True]
    assert whole.error[2:].tolist() == pytest.approx([0.187441, 0.156096, 0.141835], abs=2e-6)


def test_where_an_advantage_is_allowed_the_best_model_leaks_no_more():
    within, whole, best = read_within_advantage(curves(), 0.5), read_at_advantage(curves(), 0.5), curves().best
    torch.testing.assert_close(within.error[:4], best.error[:4])  # their least error leaks less than a half
    torch.testing.assert_close(within.error[4:], whole.error[4:])
    assert bool((within.advantage <= 0.5 + 1e-9).all())
    allowed = torch.where(curves().advantage <= 0.5, curves().error, torch.inf).amin(-1)
    assert bool((within.error <= allowed).all())


def test_a_curve_is_what_the_solver_says_at_its_penalties():
    law = solve(Setting.from_lambda_delta(lambda_delta=curves().lambda_delta[7], phi=PHI)).law
    torch.testing.assert_close(curves().advantage[:, 7], average_advantage(law), rtol=1e-6, atol=0)


def test_a_best_penalty_outside_the_search_is_marked():
    assert not bool(trade_off(doubles(3.0), strongest=1e4, weakest=1e2, per_decade=2).best.attained.any())


def test_what_is_a_cubic_in_the_inverse_logarithm_is_read_off_extrapolate_width():
    phi = torch.logspace(1, 12, 23, dtype=torch.float64)
    u = 1 / phi.log()
    value, change = extrapolate_width(phi, 0.7 - u + 0.3 * u**3)
    assert value == pytest.approx(0.7, abs=1e-12)
    assert 0 < change < 1e-3  # the parabola is not exact
