"""The paper's six equations, integrated without the solver's substitutions, hold at its solutions and only there."""

import pytest
import torch

from leakage.theory.logistic.fixed_point import solve
from leakage.theory.logistic.problem import Setting
from logistic_points import of
from reproduced.studies.blessing.printed_system import EQUATIONS, residuals

SETTING = Setting.bilevel(
    penalty=of(0.1, 1e-3, 3.0), delta=of(1 / 6, 5 / 3, 20.0), phi=3.0, eta=of(1.0, 2.0, 0.3), kappa=of(20.0, 10.0, 1.0)
)


def test_all_six_equations_hold():
    found = residuals(SETTING, solve(SETTING))
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
    assert float(residuals(SETTING, wrong)[equation].abs().min()) > 1e-5


def test_a_batch_keeps_its_shape():
    grid = Setting.panel(lambda_delta=of(0.1, 1.0), phi=of(2.0)[:, None], kappa=1.0)
    assert {part.shape for part in residuals(grid, solve(grid)).values()} == {torch.Size([1, 2])}
