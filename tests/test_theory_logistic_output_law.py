"""Outputs of seen and fresh points: densities, the best attack on each, and averages."""

import math

import pytest
import torch

from leakage.data.gaussians import gaussian
from leakage.metrics.roc import best_advantage
from leakage.runtime import DTYPE, stream
from leakage.theory.logistic.limit import Setting, solve
from leakage.theory.logistic.output_law import (
    OutputLaw,
    average_advantage,
    best_attack_on_point,
    densities,
    exceedance,
    generalisation_error,
)
from leakage.theory.logistic.proximal_operator import loss, prox
from logistic_points import of, random_settings, spread_out

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
    assert abs(float(2 * high.mean() - exceedance(LAW, of(1.5)))) < 4 * 2 * float(high.std()) / math.sqrt(count)


def test_densities_integrate_to_one_and_their_largest_gap_is_the_advantage():
    teacher, label = of(-3.0, 0.0, 4.0, 4.0), of(1.0, 0.0, 1.0, 0.0)
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
    attack = best_attack_on_point(LAW, teacher=of(teacher), label=of(0.0))
    member = loss(prox(fresh, LAW.gamma, of(0.0)), of(0.0))
    assert abs(float((member < attack.threshold).to(DTYPE).mean() - attack.tpr)) < 4 / math.sqrt(4 * count)
    assert abs(float((loss(fresh, of(0.0)) < attack.threshold).to(DTYPE).mean() - attack.fpr)) < 4 / math.sqrt(
        4 * count
    )
    best = best_advantage(member=-member, outsider=-loss(fresh, of(0.0)))
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
    first, second = (best_attack_on_point(LAW, teacher=s * teacher, label=of(max(s, 0.0))) for s in (1.0, -1.0))
    for ours, mirrored in zip(first, second, strict=True):
        torch.testing.assert_close(ours, mirrored, rtol=1e-12, atol=0)


def test_the_mislabelled_are_the_most_exposed():
    teacher = torch.linspace(0, 30, 61, dtype=DTYPE)
    right, wrong = (best_attack_on_point(LAW, teacher=teacher, label=of(y)).advantage for y in (1.0, 0.0))
    assert bool((wrong[1:] > right[1:]).all())
    assert bool((right.diff() < 0).all())


def test_without_a_pull_members_are_outsiders():
    blind = OutputLaw(LAW.alpha, LAW.sigma, 0 * LAW.gamma, LAW.kappa)
    assert float(average_advantage(blind)) == pytest.approx(0)


def test_an_unbounded_pull_gives_everyone_away():
    planted = OutputLaw(LAW.alpha, LAW.sigma, 1e9 * LAW.gamma, LAW.kappa)
    assert float(average_advantage(planted)) > 0.999


def test_a_pull_much_smaller_than_the_noise_shifts_a_gaussian():
    # a(z) = γ/2 where outputs are much smaller than 1: two Gaussians with equal variance, D apart.
    D = 0.7
    law = OutputLaw(of(0.0), of(1e-6), of(2 * D * 1e-6), of(1.0))
    expected = math.erf(D / 2 / math.sqrt(2))
    assert float(average_advantage(law)) == pytest.approx(expected, rel=1e-5)  # outputs are 1e-6, not 0


def test_few_nodes_are_as_good_as_many():
    law = solve(random_settings(60, seed=1)).law
    torch.testing.assert_close(average_advantage(law), average_advantage(law, nodes=401), rtol=0, atol=2e-9)
    bound = spread_out(0.01, 10.0, 60, stream(0, "bounds"))
    torch.testing.assert_close(exceedance(law, bound), exceedance(law, bound, nodes=2001), rtol=0, atol=1e-10)


def test_the_error_of_a_coin_is_one_half():
    law = OutputLaw(of(1.0), of(1.0), of(1.0), of(0.0))
    assert float(generalisation_error(law)) == pytest.approx(0.5, abs=1e-14)
