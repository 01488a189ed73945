"""Settings broadcast, and what has no solution is refused by name."""

import torch

from leakage.theory.logistic.limit import Setting
from logistic_points import of

GOOD = dict(penalty=0.1, delta=0.5, phi=3.0, eta=2.0, kappa=10.0)


def test_the_two_levels_have_the_variances_one_and_eta():
    values, features, signal = Setting.bilevel(**GOOD).spectrum
    torch.testing.assert_close(features.sum(), torch.ones_like(features.sum()))
    # Variance of a level: its eigenvalue times its share of the features.
    torch.testing.assert_close(values * features, of(1.0, 2.0))
    assert signal.tolist() == [1.0, 0.0]


def test_fields_broadcast():
    setting = Setting.bilevel(**GOOD | dict(penalty=of(0.1, 1.0), phi=of(2.0, 3.0, 4.0)[:, None]))
    assert setting.shape == (3, 2)
    assert setting.spectrum.values.shape == (3, 2, 2)


def test_the_panel_fixes_rows_per_signal_feature():
    setting = Setting.from_lambda_delta(lambda_delta=0.3, phi=of(2.0, 10.0), samples=5.0)
    torch.testing.assert_close(setting.delta * of(2.0, 10.0), of(5.0, 5.0))
    torch.testing.assert_close(setting.delta * setting.penalty, of(0.3, 0.3))
