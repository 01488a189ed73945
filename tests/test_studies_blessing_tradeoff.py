"""Trade-off curves of the figures' panel: their best points, and readings that are marked where there are none."""

from functools import cache

import pytest
import torch

from leakage.theory.logistic.limit import Setting, solve
from leakage.theory.logistic.output_law import average_advantage, generalisation_error
from logistic_points import of
from reproduced.studies.blessing.tradeoff import (
    CurveSettings,
    extrapolate_width,
    read_at_advantage,
    read_at_error,
    trade_off,
)

PHI = of(1.1, 3.0, 5.0, 10.0, 100.0)


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


def test_a_wide_ensemble_leaks_more_with_less_ridge_and_a_narrow_one_does_not():
    steps = curves().advantage.diff(dim=-1)
    assert bool((steps[1:] > 0).all())
    assert float(steps[0].min()) < -1e-4


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


def test_the_curves_begin_at_the_infinite_ridge():
    torch.testing.assert_close(curves().advantage[:, 0], curves().infinite.advantage, rtol=1e-3, atol=0)
    torch.testing.assert_close(curves().error[:, 0], curves().infinite.error, rtol=1e-3, atol=0)


def test_a_curve_is_what_the_solver_says_at_its_penalties():
    law = solve(Setting.from_lambda_delta(lambda_delta=curves().lambda_delta[7], phi=PHI)).law
    torch.testing.assert_close(curves().advantage[:, 7], average_advantage(law), rtol=1e-6, atol=0)


def test_more_data_turn_the_advantage_around():
    rich = trade_off(of(3.0), settings=CurveSettings(samples=20.0), strongest=1e2, weakest=1e-2, per_decade=2)
    assert float(rich.advantage.min()) < float(rich.infinite.advantage)


def test_a_best_penalty_outside_the_search_is_marked():
    assert not bool(trade_off(of(3.0), strongest=1e4, weakest=1e2, per_decade=2).best.attained.any())


def test_what_is_a_cubic_in_the_inverse_logarithm_is_read_off_extrapolate_width():
    phi = torch.logspace(1, 12, 23, dtype=torch.float64)
    u = 1 / phi.log()
    value, change = extrapolate_width(phi, 0.7 - u + 0.3 * u**3)
    assert value == pytest.approx(0.7, abs=1e-12)
    assert 0 < change < 1e-3  # the parabola is not exact
