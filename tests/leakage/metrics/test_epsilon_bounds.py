"""Bounds of ε from below: exact where the law is known, and right as often as they say."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from leakage.metrics import gaussian_mechanism
from leakage.metrics.epsilon_bounds import (
    gaussian_wrong,
    least_total,
    one_run,
    p_value,
    private_wrong,
)

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
    assert "at δ = 1e-05 (200 of 200 guesses are right; at most ε ≥ " in str(bounds[1])
    assert bounds[-1].epsilon == 0


RUNS, CANARIES = 600, 1000
MOST_WRONG = 0.05 * RUNS + 3 * math.sqrt(0.05 * 0.95 * RUNS)  # three standard errors above the stated level


def least_too_large(epsilon, guesses, **design):
    """The least number of right guesses whose bound exceeds ε, by bisection; one more than all if there is none."""
    half, scores = guesses // 2, -torch.arange(CANARIES).double()
    guessed = torch.cat([torch.arange(half), torch.arange(CANARIES - (guesses - half), CANARIES)])

    def bound(right):
        coins = torch.arange(CANARIES) < CANARIES // 2
        coins[guessed[right:]] = ~coins[guessed[right:]]
        return one_run(scores, coins, guesses=[(half, guesses - half)], **design).epsilon

    low, high = 0, guesses + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) > epsilon else (middle, high)
    return high


def right_guesses(scores, member, guesses):
    """How many of the highest are members, and of the lowest outsiders, in each run."""
    order = member.gather(1, scores.argsort(1, descending=True))
    half = guesses // 2
    return order[:, :half].sum(1) + (~order[:, len(order[0]) - (guesses - half) :]).sum(1)


@pytest.mark.parametrize("guesses", [200, 1000])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("mechanism", ["told", "told, or all is known", "Gaussian noise"])
def test_no_bound_is_too_large_more_often_than_stated(mechanism, epsilon, guesses):
    """Of 600 runs with 1,000 canaries; each coin is released by the tightest mechanism of its kind."""
    draws = torch.Generator().manual_seed(1)
    delta = {"told": 0.0, "told, or all is known": 0.02, "Gaussian noise": 1e-5}[mechanism]
    member = torch.rand(RUNS, CANARIES, generator=draws) < 0.5
    if mechanism == "Gaussian noise":
        noise = torch.randn(RUNS, CANARIES, generator=draws, dtype=torch.float64)
        scores = noise + (gaussian_mechanism.mu(epsilon, delta) * member if epsilon else 0.0)
    else:
        told = torch.rand(RUNS, CANARIES, generator=draws) < 1 / (1 + math.exp(-epsilon))
        known = torch.rand(RUNS, CANARIES, generator=draws) < delta
        scores = torch.where(told | known, member, ~member) + 0.1 * torch.rand(RUNS, CANARIES, generator=draws)
        scores = torch.where(known, 10 * (scores - 0.5), scores)
    right = right_guesses(scores, member, guesses)
    most = least_too_large(epsilon, guesses, delta=delta, gaussian=mechanism == "Gaussian noise")
    assert int((right >= most).sum()) <= MOST_WRONG


@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("points", [1, 7, 60])
def test_the_tightest_mechanisms_are_never_refuted(leak, points):
    """All coins guessed at their best: the number of right guesses is binomial, and its total probability 1 at most."""
    laws = {
        stats.binom(points, special.ndtr(leak / 2)): gaussian_wrong(leak),
        stats.binom(points, special.expit(leak)): private_wrong(leak, 0.0),
        stats.binom(points, 0.05 + 0.95 * special.expit(leak)): private_wrong(leak, 0.05),  # or all is told
    }
    for law, least_wrong in laws.items():
        for right in range(1, points + 1):
            error = float(law.sf(right - 1))
            assert least_total(right, points, points=points, error=error, least_wrong=least_wrong) <= 1 + 1e-9
    too_many = 1.01 * special.expit(leak) ** points
    assert least_total(points, points, points=points, error=too_many, least_wrong=private_wrong(leak, 0.0)) > 1


def test_of_many_canaries_delta_costs_nothing_that_is_not_due():
    """All of 20,000 guesses right at δ = 1e-5: the tail of a binomial law alone shows 6.5, since δ enters by canary."""
    member = torch.arange(100_000) % 2 == 0
    found = one_run(member.double(), member, guesses=[(10_000, 10_000)], delta=1e-5)
    assert found.epsilon == pytest.approx(
        one_run(member.double(), member, guesses=[(10_000, 10_000)], delta=0.0).epsilon, abs=0.01
    )
    assert p_value(20_000, 20_000, points=100_000, epsilon=6.6, delta=1e-5) > 0.05


def test_the_gaussian_bound_shows_more():
    draws, delta = torch.Generator().manual_seed(2), 1e-5
    found = []
    for gaussian in (False, True):
        bounds = []
        for _ in range(10):
            member = torch.rand(CANARIES, generator=draws) < 0.5
            scores = member + 0.5 * torch.randn(CANARIES, generator=draws, dtype=torch.float64)
            design = {"guesses": [(100, 100)], "delta": delta, "gaussian": gaussian}
            bounds.append(one_run(scores, member, **design).epsilon)
        found.append(sum(bounds) / len(bounds))
    assert 1.4 * found[0] < found[1] < gaussian_mechanism.epsilon(0.5, delta)


def test_a_bound_says_what_its_design_could_have_shown():
    member = COIN.repeat_interleave(200)
    for gaussian in (False, True):
        design = {"guesses": [(20, 20), (50, 50)], "delta": 1e-5, "gaussian": gaussian}
        perfect, useless = (one_run(scores, member, **design) for scores in (member.double(), torch.zeros(400)))
        assert perfect.most == pytest.approx(perfect.epsilon)
        assert useless.most == pytest.approx(perfect.epsilon)
        assert f"at most ε ≥ {perfect.epsilon:.3g} could have been shown" in str(useless)
