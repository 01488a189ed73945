"""Models with any covariance follow the limit with their spectrum, and (5) is read in two ways."""

import pytest
import torch

from planted import doubles
from reproduced.papers.blessing.limit import Setting, solve
from reproduced.papers.blessing.spectra import SPECTRA, Covariance, covariance, printed_bilevel, simulate_constants
from reproduced.runtime import stream


@pytest.mark.parametrize("weak_signal", [False, True])
@pytest.mark.parametrize("name", SPECTRA)
def test_a_covariance_has_the_mean_and_the_signal_asked_for(name, weak_signal):
    one = covariance(name, features=60, rows=30, kappa=5.0, weak_signal=weak_signal)
    assert float(one.eigenvalues.mean()) == pytest.approx(1.0)
    assert one.kappa == pytest.approx(5.0)
    assert bool((one.eigenvalues.diff() < 0).all())
    assert int((one.teacher > 0).sum()) == (30 if weak_signal else 60)


def test_two_levels_of_a_covariance_are_the_bilevel_ensemble():
    levels = torch.where(torch.arange(60) < 20, 3.0, 1.5).double()  # φ = 3, η = 1
    one = Covariance(levels, torch.where(levels > 2, 10.0, 0.0), rows=100)
    assert one.kappa == pytest.approx(10.0)
    ours, theirs = solve(one.setting(0.1)), solve(Setting.bilevel(penalty=0.1, delta=5 / 3, phi=3.0))
    for found, wanted in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=0)


def test_trained_models_have_the_constants_of_their_spectrum_and_not_of_its_mean():
    one = covariance("power law 1/k", features=150, rows=120, kappa=5.0)
    found = simulate_constants(one, penalty=0.1, trials=60, generator=stream(0, "spectra"))
    whole, flat = solve(one.setting(0.1)), solve(one.flat_setting(0.1))
    for name in ("alpha", "sigma", "gamma"):
        measured = getattr(found, name)
        error = float(measured.std()) / len(measured) ** 0.5
        predicted = float(getattr(whole, name))
        assert abs(float(measured.mean()) - predicted) < 4 * error + 0.04 * predicted  # few rows: some bias
    assert float(found.gamma.mean()) < 0.8 * float(flat.gamma)


def test_the_influence_is_the_trace_that_it_is_defined_as():
    one = covariance("four decades", features=12, rows=8, kappa=2.0)
    found = simulate_constants(one, penalty=0.5, trials=1, generator=stream(1, "trace"))
    # The same draws, and the p x p matrices of the definition.
    from leakage.draws import gaussian, uniform
    from reproduced.papers.blessing.logistic_regression import fit
    from reproduced.papers.blessing.proximal_operator import curvature

    draws = stream(1, "trace")
    rows = gaussian((1, 8, 12), generator=draws)[0] * (one.eigenvalues / 12).sqrt()
    labels = (uniform((1, 8), generator=draws)[0] < torch.sigmoid(rows @ one.teacher)).double()
    model = fit(rows @ rows.mT, labels, ridge=0.5 * one.delta)
    hessian = rows.mT @ torch.diag(curvature(model.logits)) @ rows + model.ridge * torch.eye(12, dtype=rows.dtype)
    gamma = torch.trace(torch.diag(one.eigenvalues) @ hessian.inverse()) / 12
    torch.testing.assert_close(found.gamma[0], gamma, rtol=1e-8, atol=0)
    b = rows.mT @ model.dual
    alpha = (one.teacher * one.eigenvalues) @ b / (one.teacher.square() @ one.eigenvalues)
    torch.testing.assert_close(found.alpha[0], alpha, rtol=1e-8, atol=0)


def test_the_squares_of_the_eigenvalues_are_the_numbers_that_are_printed():
    phi = doubles(2.0, 16.0, 1e6)
    setting = printed_bilevel(penalty=0.1, samples=5.0, phi=phi)
    squares = setting.spectrum.values.square()
    torch.testing.assert_close(squares, torch.stack([phi, phi / (phi - 1)], -1))  # p/d and ηp/(p - d), with η = 1
    # β*ᵀΣβ*/p: a share 1/φ of the features, each with the variance σ_β² and the eigenvalue √φ.
    torch.testing.assert_close(setting.kappa, (100 * phi.sqrt() / phi).sqrt())
    torch.testing.assert_close(setting.delta * phi, torch.full_like(phi, 5.0))
