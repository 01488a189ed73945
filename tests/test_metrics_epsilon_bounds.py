"""Bounds of ε from below: exact where the law is known, and right as often as they say."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from leakage.metrics.epsilon_bounds import of_trials, one_run, p_value

COIN = torch.tensor([True, False])


def answered(epsilon: float, points: int, *, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Randomised response, the tightest of mechanisms: each coin is told as it is with probability e^ε/(1 + e^ε)."""
    member = torch.rand(points, generator=generator) < 0.5
    told = torch.rand(points, generator=generator) < 1 / (1 + math.exp(-epsilon))
    return torch.where(told, member, ~member).double(), member


@pytest.mark.parametrize("guesses", [1, 20, 300])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_when_every_guess_is_right_the_bound_is_that_of_a_coin(guesses, level):
    member = COIN.repeat_interleave(200)
    found = one_run(member.double(), member, guesses=[(guesses // 2, guesses - guesses // 2)], delta=0.0, level=level)
    chance = (1 - level) ** (1 / guesses)
    assert found.epsilon == pytest.approx(max(0.0, special.logit(chance)), abs=1e-8)
    assert (found.guesses, found.correct, found.level) == (guesses, guesses, level)


@given(st.integers(1, 60), st.data(), st.floats(0, 5), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_the_p_value_is_the_formula_of_the_theorem(guesses, data, epsilon, delta):
    correct, points = data.draw(st.integers(0, guesses)), data.draw(st.integers(guesses, 100))
    law = stats.binom(guesses, math.exp(epsilon) / (1 + math.exp(epsilon)))
    f = [float(law.sf(v - 1)) for v in range(correct + 1)]
    gain = max(((f[correct - i] - f[correct]) / i for i in range(1, correct + 1)), default=0.0)
    wanted = min(1.0, f[correct] + 2 * points * delta * gain)
    assert p_value(correct, guesses, points=points, epsilon=epsilon, delta=delta) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_a_bound_is_right_as_often_as_it_says(epsilon):
    draws = torch.Generator().manual_seed(0)
    bounds = [
        one_run(*answered(epsilon, 400, generator=draws), guesses=[(100, 100)], delta=0.0).epsilon for _ in range(600)
    ]
    # Of 600 bounds 30 may be wrong; 46 are three standard errors more.
    assert sum(bound > epsilon for bound in bounds) <= 46
    assert sorted(bounds)[300] > 0.6 * epsilon - 0.01


@pytest.mark.parametrize("order", ["members first", "outsiders first"])
def test_equal_scores_tell_nothing_in_whatever_order_the_points_come(order):
    member = torch.arange(400) < 200 if order == "members first" else torch.arange(400) >= 200
    assert one_run(torch.zeros(400), member, guesses=[(100, 100), (200, 200)], delta=0.0).epsilon == 0
    halves = (torch.arange(400) % 2).double()  # as many members as outsiders have either score
    assert one_run(halves, member, guesses=[(100, 100), (200, 200)], delta=0.0).epsilon == 0


def test_more_attempts_share_the_error_and_the_best_one_counts():
    scores, member = answered(2.0, 1000, generator=torch.Generator().manual_seed(3))
    alone = [one_run(scores, member, guesses=[pair], delta=1e-5, level=0.975) for pair in ((100, 100), (300, 0))]
    both = one_run(scores, member, guesses=[(100, 100), (300, 0)], delta=1e-5, level=0.95)
    assert both.epsilon == pytest.approx(max(one.epsilon for one in alone), rel=1e-9)


def test_a_larger_delta_bounds_less_and_the_text_says_all():
    member = COIN.repeat_interleave(200)
    bounds = [one_run(member.double(), member, guesses=[(100, 100)], delta=delta) for delta in (0, 1e-5, 1e-3, 0.1)]
    assert all(first.epsilon > second.epsilon for first, second in pairwise(bounds) if second.epsilon)
    assert str(bounds[1]).endswith("at δ = 1e-05 (200 of 200 guesses are right)")
    assert bounds[-1].epsilon == 0


def test_the_bound_from_many_trainings_is_below_the_truth_of_gaussian_noise():
    """One noisy number, with the point's 1 in it or not: its ε is known in closed form."""
    noise, delta = 0.8, 1e-3

    def spent(epsilon: float) -> float:
        above, below = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
        return special.ndtr(above) - math.exp(epsilon) * special.ndtr(below) - delta

    truth = optimize.brentq(spent, 0, 50)
    draws = torch.Generator().manual_seed(1)
    wrong, bounds = 0, []
    for _ in range(300):
        inside, outside = (shift + noise * torch.randn(2000, generator=draws) for shift in (1.0, 0.0))
        bound = of_trials((int((inside > 2).sum()), 2000), (int((outside > 2).sum()), 2000), delta=delta)
        bounds.append(bound.epsilon)
        wrong += bound.epsilon > truth
    assert wrong <= 15 + 3 * 4
    assert 0.3 * truth < sorted(bounds)[150] < truth
