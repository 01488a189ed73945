"""The guarantee of DP-SGD: closed forms without sampling, another accountant with it, and what must grow with what."""

import math
from typing import Any

import pytest
from scipy.stats import norm

from leakage.trainers import privacy_accounting as accounting

CASE: dict[str, Any] = dict(sampling_rate=0.1, noise_multiplier=2.0, steps=300)


def gaussian_delta(epsilon, mu):
    """δ(ε) of T steps without sampling: one Gaussian of signal μ = √T / σ (Balle and Wang 2018, Theorem 8)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 1), (10.0, 25), (2.0, 4)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_without_sampling_delta_is_that_of_one_gaussian(noise, steps, epsilon):
    ours = accounting.delta(sampling_rate=1.0, noise_multiplier=noise, steps=steps, epsilon=epsilon)
    exact = gaussian_delta(epsilon, math.sqrt(steps) / noise)
    # Rounded against us by at most half a grid step a composition on average, 5e-4 nats of privacy loss.
    assert exact - 1e-12 <= ours <= exact + 5e-4 * steps


def test_without_sampling_no_attacker_tells_two_gaussians_apart_better_than_bound():
    ours = accounting.advantage_bound(sampling_rate=1.0, noise_multiplier=2.0, steps=4)
    assert ours == pytest.approx(2 * norm.cdf(0.5) - 1, abs=2e-3)  # as for δ


@pytest.mark.parametrize(
    ("sampling_rate", "noise_multiplier", "steps", "delta", "prv", "rdp"),
    [
        (0.1, 1.0, 300, 1 / 1500, 9.388181, 10.638582),
        (0.1, 2.0, 300, 1 / 1500, 3.061935, 3.462410),
        (0.1, 4.0, 300, 1 / 1500, 1.248711, 1.416501),
        (256 / 60_000, 1.1, 14_000, 1e-5, 2.385984, 2.590377),
    ],
)
def test_epsilon_is_that_of_another_accountant(sampling_rate, noise_multiplier, steps, delta, prv, rdp):
    case = dict(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, delta=delta)
    ours = accounting.epsilon(**case)
    assert prv - 0.02 <= ours <= prv  # Opacus 1.6.0, PRV accountant: an upper bound up to 0.01 on either side
    assert ours < rdp  # its Rényi accountant, valid but looser


def test_epsilon_and_delta_invert_each_other():
    spent = accounting.epsilon(**CASE, delta=1e-4)
    assert accounting.delta(**CASE, epsilon=spent) == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (dict(steps=400), CASE),
        (dict(sampling_rate=0.2), CASE),
        (CASE, dict(noise_multiplier=3.0)),
    ],
    ids=["steps", "sampling rate", "noise"],
)
def test_more_steps_more_sampling_and_less_noise_guarantee_less(weaker, stronger):
    weak, strong = CASE | weaker, CASE | stronger
    assert accounting.epsilon(**weak, delta=1e-3) > accounting.epsilon(**strong, delta=1e-3)
    assert accounting.advantage_bound(**weak) > accounting.advantage_bound(**strong)


def test_a_smaller_delta_needs_a_larger_epsilon():
    found = [accounting.epsilon(**CASE, delta=delta) for delta in (1e-2, 1e-3, 1e-5)]
    assert found == sorted(found)


def test_much_noise_guarantees_almost_everything_and_little_almost_nothing():
    assert accounting.advantage_bound(sampling_rate=0.01, noise_multiplier=50.0, steps=10) < 1e-3
    assert accounting.advantage_bound(sampling_rate=0.5, noise_multiplier=0.5, steps=100) > 0.999
