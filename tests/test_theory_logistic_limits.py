"""Both ends of the trade-off in closed form, and the bounds that hold everywhere."""

import pytest
import torch

from leakage.theory.logistic.limit import Setting, gamma_lower_bound, infinite_ridge, max_margin, solve
from leakage.theory.logistic.output_law import average_advantage, generalisation_error, loss_threshold_rates
from logistic_points import of, random_settings

SHAPES = dict(phi=of(100.0, 3.0, 8.0, 1.5), eta=of(1.0, 1.0, 0.5, 0.3), samples=of(5.0, 5.0, 2.0, 5.0))


def test_a_huge_ridge_is_at_the_limit():
    product = 1e7 * SHAPES["samples"] / SHAPES["phi"]
    found, limit = solve(Setting.from_lambda_delta(lambda_delta=product, **SHAPES)), infinite_ridge(**SHAPES)
    # What is left is of order 1/λ.
    close = dict(rtol=1e-5, atol=0)
    torch.testing.assert_close(found.alpha * 1e7, limit.alpha, **close)
    torch.testing.assert_close(found.sigma * 1e7, limit.sigma, **close)
    torch.testing.assert_close(found.gamma * product, limit.gamma, **close)
    torch.testing.assert_close((found.alpha / found.sigma).square(), limit.ratio, **close)
    torch.testing.assert_close(average_advantage(found.law), limit.advantage, **close)
    torch.testing.assert_close(generalisation_error(found.law), limit.error, **close)


def test_both_ways_to_give_the_rows_agree():
    one, other = infinite_ridge(phi=4.0, delta=0.5), infinite_ridge(phi=4.0, samples=2.0)
    torch.testing.assert_close(one.advantage, other.advantage)


def test_the_error_at_an_infinite_ridge_falls_with_width_and_the_advantage_rises():
    limit = infinite_ridge(phi=of(1.1, 2.0, 5.0, 20.0, 100.0), samples=5.0)
    assert bool((limit.error.diff() < 0).all())
    assert bool((limit.advantage.diff() > 0).all())


def test_an_infinite_ridge_is_not_the_most_private():
    weak = solve(Setting.from_lambda_delta(lambda_delta=0.01, phi=3.0, samples=50.0))
    assert float(average_advantage(weak.law)) < 0.6 * float(infinite_ridge(phi=3.0, samples=50.0).advantage)


def test_many_weak_features_make_the_maximum_margin_classifier():
    limit = max_margin(samples=of(5.0, 5.0, 2.0), eta=of(1.0, 10.0, 1.0))
    assert limit.support.tolist() == pytest.approx([0.783438, 0.999698, 0.914675], abs=1e-6)
    assert limit.error.tolist() == pytest.approx([0.123373, 0.150360, 0.197993], abs=1e-6)


def test_the_best_attack_tends_to_the_share_of_support_vectors_and_a_fixed_one_to_the_error():
    phi = 10 ** of(1.0, 3.0, 6.0, 12.0)
    law = solve(Setting.from_lambda_delta(lambda_delta=0.5 / phi, phi=phi)).law
    limit, best = max_margin(samples=5.0), average_advantage(law)
    assert bool((best.diff() > 0).all())
    assert float(limit.support) - 0.03 < float(best[-1]) < float(limit.support)  # outputs grow like a logarithm of φ
    assert 0 < float(generalisation_error(law)[-1] - limit.error) < 0.002
    fixed = loss_threshold_rates(law, of(0.5)).advantage
    assert bool((fixed[1:].diff() < 0).all())
    assert float(fixed[-1] - limit.error) == pytest.approx(0, abs=0.01)


def test_the_bounds_hold_everywhere():
    setting = random_settings(300, seed=3)
    found = solve(setting)
    assert float(found.theta.max()) <= 0.25
    assert float(found.r_squared.max()) <= 0.25
    assert bool((found.gamma > gamma_lower_bound(setting)).all())


def test_no_smaller_bounds_would_do():
    found = solve(Setting.bilevel(penalty=1e5, delta=1.0, phi=2.0, kappa=0.01))
    assert float(found.theta) == pytest.approx(0.25, rel=1e-4)
    assert float(found.r_squared) == pytest.approx(0.25, rel=1e-4)
