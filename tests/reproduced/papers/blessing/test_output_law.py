"""Laws of outputs, attacks on them and their quadratures agree with integrals written down."""

import math

import pytest
import torch
from scipy import integrate, special

from leakage.draws import gaussian
from leakage.metrics.roc import best_advantage
from leakage.precision import DTYPE
from planted import doubles, log_uniform, random_settings
from reproduced.papers.blessing.limit import Setting, solve
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    average_advantage,
    best_attack_on_point,
    best_loss_threshold,
    densities,
    exceedance,
    generalisation_error,
    label_moments,
    logit_quadrature,
    loss_threshold_rates,
)
from reproduced.papers.blessing.proximal_operator import loss, prox
from reproduced.runtime import stream

LAW = solve(Setting.bilevel(penalty=0.1, delta=5 / 3, phi=3.0, kappa=10.0)).law
PAPER = solve(Setting.bilevel(penalty=0.1, delta=1 / 6, phi=3.0, kappa=50.0)).law


def draws(law, count, seed=0):
    """Teacher logits, labels, and outputs of fresh and of seen points."""
    generator = stream(seed, "outputs")
    teacher = law.kappa * gaussian((count,), generator=generator)
    label = (torch.rand(count, generator=generator, dtype=DTYPE) < torch.sigmoid(teacher)).to(DTYPE)
    fresh = law.alpha * teacher + law.sigma * gaussian((count,), generator=generator)
    return teacher, label, fresh, prox(fresh, law.gamma, label)


def test_known_errors_are_met():
    assert float(generalisation_error(LAW)) == pytest.approx(0.17599, abs=6e-6)
    assert float(generalisation_error(PAPER)) == pytest.approx(0.3590, abs=6e-5)


def test_sampled_outputs_have_these_errors_and_rates():
    count = 40_000
    _, label, fresh, _ = draws(LAW, count)
    wrong, error = ((fresh > 0) != (label == 1)).to(DTYPE), float(generalisation_error(LAW))
    assert abs(float(wrong.mean()) - error) < 4 * math.sqrt(error / count)
    high = ((fresh > 1.5) & (label == 1)).to(DTYPE)
    assert abs(float(2 * high.mean() - exceedance(LAW, doubles(1.5)))) < 4 * 2 * float(high.std()) / math.sqrt(count)


def test_densities_integrate_to_one_and_their_largest_gap_is_the_advantage():
    teacher, label = doubles(-3.0, 0.0, 4.0, 4.0), doubles(1.0, 0.0, 1.0, 0.0)
    grid = torch.linspace(-20, 20, 40_001, dtype=DTYPE)
    outsider, member = densities(LAW, grid, teacher=teacher, label=label)
    for density in (outsider, member):
        torch.testing.assert_close(torch.trapezoid(density, grid), torch.ones(4, dtype=DTYPE), rtol=1e-9, atol=0)
    area = torch.trapezoid((member - outsider).clamp_min(0), grid)
    # The kink costs the square of the grid's step, 1e-6.
    torch.testing.assert_close(
        area, best_attack_on_point(LAW, teacher=teacher, label=label).advantage, rtol=0, atol=1e-6
    )


def test_the_attack_on_one_point_does_on_samples_what_it_promises():
    count, teacher = 4000, 2.0
    fresh = LAW.alpha * teacher + LAW.sigma * gaussian((count,), generator=stream(1, "one point"))
    attack = best_attack_on_point(LAW, teacher=doubles(teacher), label=doubles(0.0))
    member = loss(prox(fresh, LAW.gamma, doubles(0.0)), doubles(0.0))
    assert abs(float((member < attack.threshold).to(DTYPE).mean() - attack.tpr)) < 4 / math.sqrt(4 * count)
    assert abs(float((loss(fresh, doubles(0.0)) < attack.threshold).to(DTYPE).mean() - attack.fpr)) < 4 / math.sqrt(
        4 * count
    )
    best = best_advantage(member=-member, outsider=-loss(fresh, doubles(0.0)))
    # A threshold chosen on the sample is optimistic by about 1/√count.
    assert abs(float(getattr(best, "estimate", best)) - float(attack.advantage)) < 4 / math.sqrt(count)


def test_rates_and_advantage_agree():
    law = solve(random_settings(50)).law
    teacher = law.kappa * torch.linspace(-2, 2, 50, dtype=DTYPE)
    attack = best_attack_on_point(law, teacher=teacher, label=(torch.arange(50) % 2).to(DTYPE))
    torch.testing.assert_close(attack.tpr - attack.fpr, attack.advantage, rtol=0, atol=1e-14)
    assert bool((attack.threshold > 0).all())


def test_a_point_with_the_other_label_and_teacher_is_the_same_point():
    teacher = torch.linspace(-5, 5, 11, dtype=DTYPE)
    first, second = (best_attack_on_point(LAW, teacher=s * teacher, label=doubles(max(s, 0.0))) for s in (1.0, -1.0))
    for ours, mirrored in zip(first, second, strict=True):
        torch.testing.assert_close(ours, mirrored, rtol=1e-12, atol=0)


def test_the_mislabelled_are_the_most_exposed():
    teacher = torch.linspace(0, 30, 61, dtype=DTYPE)
    right, wrong = (best_attack_on_point(LAW, teacher=teacher, label=doubles(y)).advantage for y in (1.0, 0.0))
    assert bool((wrong[1:] > right[1:]).all())
    assert bool((right.diff() < 0).all())


def test_an_unbounded_pull_gives_everyone_away():
    planted = OutputLaw(LAW.alpha, LAW.sigma, 1e9 * LAW.gamma, LAW.kappa)
    assert float(average_advantage(planted)) > 0.999


def test_a_pull_much_smaller_than_the_noise_shifts_a_gaussian():
    # a(z) = γ/2 where outputs are much smaller than 1: two Gaussians with equal variance, D apart.
    D = 0.7
    law = OutputLaw(doubles(0.0), doubles(1e-6), doubles(2 * D * 1e-6), doubles(1.0))
    expected = math.erf(D / 2 / math.sqrt(2))
    assert float(average_advantage(law)) == pytest.approx(expected, rel=1e-5)  # outputs are 1e-6, not 0


def test_few_nodes_are_as_good_as_many():
    law = solve(random_settings(60, seed=1)).law
    torch.testing.assert_close(average_advantage(law), average_advantage(law, nodes=401), rtol=0, atol=2e-9)
    bound = log_uniform(0.01, 10.0, 60, stream(0, "bounds"))
    torch.testing.assert_close(exceedance(law, bound), exceedance(law, bound, nodes=2001), rtol=0, atol=1e-10)


def test_the_error_of_a_coin_is_one_half():
    law = OutputLaw(doubles(1.0), doubles(1.0), doubles(1.0), doubles(0.0))
    assert float(generalisation_error(law)) == pytest.approx(0.5, abs=1e-14)


COUNT = 40_000
ROOM = 4 / math.sqrt(4 * COUNT)  # four standard errors of a share, at most


@pytest.mark.parametrize("threshold", [0.02, 0.3, 1.0])
def test_samples_have_the_rates_of_the_loss_threshold(threshold):
    _, label, fresh, seen = draws(LAW, COUNT, seed=2)
    rates = loss_threshold_rates(LAW, doubles(threshold))
    assert abs(float((loss(seen, label) < threshold).to(DTYPE).mean() - rates.tpr)) < ROOM
    assert abs(float((loss(fresh, label) < threshold).to(DTYPE).mean() - rates.fpr)) < ROOM


def test_no_single_threshold_beats_the_best_attacker():
    law = solve(random_settings(50)).law
    best, optimum = best_loss_threshold(law), average_advantage(law)
    others = log_uniform(1e-4, 5.0, 20, stream(0, "thresholds"))
    assert bool((optimum >= best.advantage - 1e-9).all())
    assert bool((best.advantage[:, None] >= loss_threshold_rates(law.unsqueeze(), others).advantage - 1e-9).all())


def test_the_best_threshold_has_the_rates_it_reports():
    best = best_loss_threshold(LAW)
    torch.testing.assert_close(loss_threshold_rates(LAW, best.threshold).advantage, best.advantage, rtol=1e-9, atol=0)


def test_a_threshold_above_every_loss_calls_all_members():
    rates = loss_threshold_rates(LAW, doubles(700.0))
    assert float(rates.tpr) == pytest.approx(1, abs=1e-12)
    assert float(rates.fpr) == pytest.approx(1, abs=1e-12)


def test_without_a_pull_there_is_no_advantage():
    blind = OutputLaw(LAW.alpha, LAW.sigma, 0 * LAW.gamma, LAW.kappa)
    for rates in (loss_threshold_rates(blind, doubles(0.3)), best_loss_threshold(blind)):
        assert float(rates.advantage) == pytest.approx(0, abs=1e-12)


KAPPA = doubles(0.0, 0.2, 1.0, 10.0, 50.0, 100.0)


def test_the_rule_has_the_moments_of_the_gaussian():
    rule = logit_quadrature(KAPPA)
    torch.testing.assert_close(rule.weights.sum(-1), torch.ones_like(KAPPA), rtol=1e-14, atol=0)
    for power, moment in ((1, 0.0), (2, 1.0), (4, 3.0)):
        torch.testing.assert_close(
            (rule.weights * rule.nodes**power).sum(-1) / KAPPA.clamp_min(1e-9) ** power,
            torch.where(KAPPA > 0, moment, 0.0).to(DTYPE),
            rtol=0,
            atol=1e-9,
        )


# Spreads of 50 make the integrand a step: at a mean of 20 a Gauss-Hermite rule of 100 nodes gives 0.373, not 0.345.
@pytest.mark.parametrize(
    ("mean", "spread"), [(0.3, 0.0), (-2.0, 0.5), (1.0, 1.19), (1.0, 1.21), (-3.0, 5.0), (20.0, 50.0), (-200.0, 50.0)]
)
def test_the_label_moments_agree_with_adaptive_quadrature(mean, spread):
    found = label_moments(doubles(mean)[None], doubles(spread))
    for value, function in (
        (found.label_zero, lambda z: special.expit(-z)),
        (found.curvature, lambda z: special.expit(z) * special.expit(-z)),
    ):
        if spread == 0:
            expected = function(mean)
        else:
            expected, _ = integrate.quad(
                lambda z, f=function: f(z) * math.exp(-(((z - mean) / spread) ** 2) / 2),
                mean - 9 * spread,
                mean + 9 * spread,
                points=[min(max(0.0, mean - 8.9 * spread), mean + 8.9 * spread), mean],
                limit=500,
                epsabs=1e-14,
                epsrel=1e-13,
            )
            expected /= spread * math.sqrt(2 * math.pi)
        assert float(value) == pytest.approx(expected, abs=1e-11)
