"""The Gaussian mechanism's ε and δ: each the other's inverse, and those of its two normal laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from leakage.metrics import gaussian_mechanism
from leakage.trainers import privacy_accounting

NOISES = st.floats(0.1, 20)


@given(NOISES, st.floats(1e-9, 0.2))
def test_epsilon_is_the_root_of_delta(noise, delta):
    found = gaussian_mechanism.epsilon(noise, delta)
    if found > 0:
        assert gaussian_mechanism.delta(noise, found) == pytest.approx(delta, rel=1e-6)
    else:
        assert gaussian_mechanism.delta(noise, 0.0) <= delta


@pytest.mark.parametrize(("noise", "epsilon"), [(0.5, 0.0), (1.0, 1.0), (2.0, 0.3)])
def test_delta_is_what_the_density_with_the_point_has_too_much(noise, epsilon):
    laws = [stats.norm(mean, noise) for mean in (1.0, 0.0)]
    found, _ = integrate.quad(lambda y: max(0.0, laws[0].pdf(y) - math.exp(epsilon) * laws[1].pdf(y)), -20, 20)
    assert gaussian_mechanism.delta(noise, epsilon) == pytest.approx(found, abs=1e-7)


def test_the_accountant_says_the_same_of_one_step_with_all_points():
    accountant = privacy_accounting.epsilon(sampling_rate=1.0, noise_multiplier=1.0, steps=1, delta=1e-5)
    assert gaussian_mechanism.epsilon(1.0, 1e-5) == pytest.approx(accountant, abs=2e-3)


def test_little_noise_does_not_overflow():
    assert gaussian_mechanism.delta(0.01, 4000.0) == pytest.approx(1.0)
    assert gaussian_mechanism.epsilon(0.01, 1e-5) > 5000


@given(st.floats(0.01, 20), st.sampled_from([1e-6, 1e-5, 1e-2]))
def test_mu_is_one_over_the_noise(epsilon, delta):
    assert gaussian_mechanism.epsilon(1 / gaussian_mechanism.mu(epsilon, delta), delta) == pytest.approx(
        epsilon, rel=1e-6
    )
