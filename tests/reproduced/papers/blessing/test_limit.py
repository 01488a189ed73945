"""The system of ridge logistic regression is solved, and tends to the limits that are known by hand."""

import pytest
import torch

from leakage.precision import DTYPE
from planted import doubles, random_settings
from reproduced.papers.blessing.limit import (
    TOLERANCE,
    Setting,
    Spectrum,
    gamma_lower_bound,
    infinite_ridge,
    max_margin,
    solve,
)
from reproduced.papers.blessing.output_law import average_advantage, generalisation_error, loss_threshold_rates

GOOD = dict(penalty=0.1, delta=0.5, phi=3.0, eta=2.0, kappa=10.0)


def test_the_two_levels_have_the_variances_one_and_eta():
    values, features, signal = Setting.bilevel(**GOOD).spectrum
    torch.testing.assert_close(features.sum(), torch.ones_like(features.sum()))
    # Variance of a level: its eigenvalue times its share of the features.
    torch.testing.assert_close(values * features, doubles(1.0, 2.0))
    assert signal.tolist() == [1.0, 0.0]


def test_the_panel_fixes_rows_per_signal_feature():
    setting = Setting.from_lambda_delta(lambda_delta=0.3, phi=doubles(2.0, 10.0), samples=5.0)
    torch.testing.assert_close(setting.delta * doubles(2.0, 10.0), doubles(5.0, 5.0))
    torch.testing.assert_close(setting.delta * setting.penalty, doubles(0.3, 0.3))


# λ, δ, φ, η, κ; α, σ, γ to ten decimals or so, from an independent solver with 800 nodes.
REFERENCE = torch.tensor(
    [
        [0.1, 1 / 6, 3, 1, 50, 0.0130464944, 1.3744459539, 103.85306018],
        [0.1, 5 / 3, 3, 1, 10, 0.1980210561, 1.1504564582, 5.1979240218],
        [0.001, 5 / 3, 3, 1, 10, 0.7026942985, 4.4651753848, 331.85524425],
        [10, 5 / 3, 3, 1, 10, 0.0106788787, 0.0723203238, 0.1138502602],
        [1e-6, 1 / 6, 30, 1, 10, 1.1461153628, 5.1164702568, 6992526.1636],
    ],
    dtype=DTYPE,
)


def reference():
    penalty, delta, phi, eta, kappa = REFERENCE[:, :5].T
    return Setting.bilevel(penalty=penalty, delta=delta, phi=phi, eta=eta, kappa=kappa)


def test_the_reference_values_are_met():
    found = solve(reference())
    for ours, theirs in zip(found[:3], REFERENCE[:, 5:].T, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=5e-9, atol=0)  # the printed digits


def test_random_settings_over_many_decades_all_converge():
    found = solve(random_settings(200))
    assert bool(found.converged.all())
    assert float(found.residual.max()) < TOLERANCE
    assert int(found.iterations.max()) < 40


def test_more_nodes_change_nothing():
    setting = random_settings(40)
    for few, many in zip(solve(setting)[:3], solve(setting, nodes=400)[:3], strict=True):
        torch.testing.assert_close(few, many, rtol=1e-10, atol=0)


def test_points_do_not_depend_on_their_neighbours():
    setting = random_settings(6)
    alone = solve(setting.take(torch.tensor([4])))
    torch.testing.assert_close(solve(setting).gamma[4:5], alone.gamma, rtol=1e-9, atol=0)


def test_the_plain_iteration_agrees_where_it_converges():
    setting = reference().take(torch.tensor([0, 1, 3]))
    plain, newton = solve(setting, method="fixed point", iterations=400), solve(setting)
    torch.testing.assert_close(plain.alpha, newton.alpha, rtol=1e-8, atol=0)
    assert int(plain.iterations.max()) > int(newton.iterations.max())


def test_a_general_spectrum_with_the_same_two_levels_gives_the_same():
    ours = solve(Setting.bilevel(penalty=0.1, delta=1.0, phi=4.0, eta=2.0, kappa=5.0))
    spectrum = Spectrum(doubles(4.0, 8 / 3, 4.0), features=doubles(0.125, 0.75, 0.125), signal=doubles(0.3, 0.0, 0.7))
    split = Setting(doubles(0.1), doubles(1.0), doubles(5.0), spectrum)
    torch.testing.assert_close(solve(split).sigma.squeeze(), ours.sigma, rtol=1e-10, atol=0)


def test_signal_spread_over_unequal_eigenvalues_adds_to_the_noise():
    values, features = doubles(3.0, 0.5), doubles(0.5, 0.5)
    mixed, pure = (
        solve(Setting(doubles(5.0), doubles(1e4), doubles(2.0), Spectrum(values, features, signal)))
        for signal in (doubles(0.5, 0.5), doubles(1.0, 0.0))
    )
    # With so much data nothing else makes noise: what is left is the unequal shrinkage.
    assert float(mixed.sigma) > 10 * float(pure.sigma)


def test_without_a_signal_the_labels_are_coins_and_the_limit_is_smooth():
    common = dict(penalty=0.1, delta=1.0, phi=3.0)
    none, little = (solve(Setting.bilevel(**common, kappa=kappa)) for kappa in (0.0, 1e-4))
    torch.testing.assert_close(none.theta, little.theta, rtol=1e-6, atol=0)
    torch.testing.assert_close(none.gamma, little.gamma, rtol=1e-6, atol=0)


def test_the_output_of_much_data_and_little_ridge_is_the_teachers():
    found = solve(Setting.bilevel(penalty=1e-8, delta=3000.0, phi=2.0, kappa=2.0))
    assert float(found.alpha) == pytest.approx(1, abs=3e-3)  # bias of order p/n
    assert float(found.sigma) < 0.1


def test_an_unconverged_point_raises_or_is_marked():
    with pytest.raises(ArithmeticError, match=r"did not converge at \d of 5 points.*`iterations`"):
        solve(reference(), iterations=1)
    marked = solve(reference(), iterations=1, strict=False)
    assert not bool(marked.converged[-1])
    torch.testing.assert_close(torch.isnan(torch.stack(marked[:6])), ~marked.converged.expand(6, -1))


SHAPES = dict(phi=doubles(100.0, 3.0, 8.0, 1.5), eta=doubles(1.0, 1.0, 0.5, 0.3), samples=doubles(5.0, 5.0, 2.0, 5.0))


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


def test_many_weak_features_make_the_maximum_margin_classifier():
    limit = max_margin(samples=doubles(5.0, 5.0, 2.0), eta=doubles(1.0, 10.0, 1.0))
    assert limit.support.tolist() == pytest.approx([0.783438, 0.999698, 0.914675], abs=1e-6)
    assert limit.error.tolist() == pytest.approx([0.123373, 0.150360, 0.197993], abs=1e-6)


def test_the_best_attack_tends_to_the_share_of_support_vectors_and_a_fixed_one_to_the_error():
    phi = 10 ** doubles(1.0, 3.0, 6.0, 12.0)
    law = solve(Setting.from_lambda_delta(lambda_delta=0.5 / phi, phi=phi)).law
    limit, best = max_margin(samples=5.0), average_advantage(law)
    assert bool((best.diff() > 0).all())
    assert float(limit.support) - 0.03 < float(best[-1]) < float(limit.support)  # outputs grow like a logarithm of φ
    assert 0 < float(generalisation_error(law)[-1] - limit.error) < 0.002
    fixed = loss_threshold_rates(law, doubles(0.5)).advantage
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
