"""The printed equations and integral hold, and the likelihood ratio crosses 1 once; unequal Gaussians cross twice."""

import pytest
import torch

from leakage.precision import DTYPE
from leakage.theory.logistic.limit import Setting, solve
from leakage.theory.logistic.output_law import OutputLaw, best_attack_on_point
from logistic_points import log_uniform, of
from reproduced.runtime import stream
from reproduced.studies.blessing import theory_checks
from reproduced.studies.blessing.theory_checks import (
    EQUATIONS,
    check_single_crossing,
    integrated_advantage,
    output_grid,
    system_residuals,
    variation_excess,
)

SETTING = Setting.bilevel(
    penalty=of(0.1, 1e-3, 3.0), delta=of(1 / 6, 5 / 3, 20.0), phi=3.0, eta=of(1.0, 2.0, 0.3), kappa=of(20.0, 10.0, 1.0)
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


def test_a_batch_of_settings_keeps_its_shape():
    grid = Setting.from_lambda_delta(lambda_delta=of(0.1, 1.0), phi=of(2.0)[:, None], kappa=1.0)
    assert {part.shape for part in system_residuals(grid, solve(grid)).values()} == {torch.Size([1, 2])}


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


def test_points_are_judged_alike_alone_and_together(monkeypatch):
    law, teacher, label = random_laws(12)
    together = check_single_crossing(law, teacher=teacher, label=label, nodes=101)
    monkeypatch.setattr(theory_checks, "_NUMBERS", 1)
    alone = check_single_crossing(law, teacher=teacher, label=label, nodes=101)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


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


def test_the_grid_covers_both_laws_in_order():
    law = OutputLaw(of(0.3), of(1.0), of(1e6), of(1.0))
    grid = output_grid(law, teacher=of(1.0), label=of(1.0), nodes=101)
    assert bool((grid.diff(dim=-1) >= 0).all())
    torch.testing.assert_close(grid[..., 0], of(0.3 - 9.0))
    assert 10 < float(grid[..., -1]) < 15  # log γ is 13.8
