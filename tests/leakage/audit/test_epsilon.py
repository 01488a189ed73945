"""Lower bounds on ε from `leakage.audit`: the same in any form, as large as a design allows; bad inputs are refused."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch

from leakage import audit
from leakage.metrics import epsilon_bounds
from reproduced.runtime import stream

COINS = torch.rand(400, generator=stream(0, "coins")) < 0.5
GUESSED = torch.rand(400, generator=stream(0, "told")) < 1 / (1 + math.exp(-2.0))
SCORES = torch.where(GUESSED, COINS, ~COINS).double()
GUESSES = [(100, 100), (20, 20)]
FORMS = {
    "torch": lambda values: values,
    "numpy": lambda values: values.numpy(),
    "lists": lambda values: values.tolist(),
    "numbers for truth": lambda values: values.long(),
    "one row": lambda values: values[None],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_has_the_bound_of_the_metrics(form):
    expected = epsilon_bounds.one_run(SCORES, COINS, guesses=GUESSES, delta=1e-5, level=0.9)
    assert audit.one_run(form(SCORES), form(COINS), guesses=GUESSES, delta=1e-5, level=0.9) == expected
    assert audit.one_run(form(SCORES), form(COINS), guesses=np.array(GUESSES), delta=1e-5, level=0.9) == expected
    assert expected.epsilon > 1
    noisy = epsilon_bounds.one_run(SCORES, COINS, guesses=GUESSES, delta=1e-5, gaussian=True)
    assert audit.one_run(form(SCORES), form(COINS), guesses=GUESSES, delta=1e-5, gaussian=True) == noisy


def one_run(scores=SCORES, member=COINS, **named):
    return audit.one_run(scores, member, **{"guesses": GUESSES, "delta": 1e-5} | named)


def canaries_for(epsilon, **named):
    return audit.canaries_for(epsilon, **{"delta": 1e-5} | named)


def of_trials(hits=(9, 10), alarms=(1, 10), **named):
    return audit.of_trials(hits, alarms, **{"delta": 0.0} | named)


def test_many_trainings_bound_epsilon_in_every_form():
    found = of_trials((880, 1000), (120, 1000))
    assert of_trials([880, 1000], np.array([120, 1000])) == found
    assert 1.5 < found.epsilon < 2  # log(0.88 / 0.12) is 1.99
    bounds = [of_trials((90, 100), (10, 100), delta=delta).epsilon for delta in (0, 1e-3, 0.1)]
    assert bounds[0] > bounds[1] > bounds[2]
    assert of_trials((40, 100), (30, 100)).most == pytest.approx(of_trials((100, 100), (0, 100)).epsilon)


def test_that_nobody_is_missed_tells_as_much_as_that_nobody_is_accused():
    missed, accused = of_trials((100, 100), (50, 100)), of_trials((50, 100), (0, 100))
    assert missed.epsilon == pytest.approx(accused.epsilon)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_so_many_canaries_show_an_epsilon_and_one_fewer_does_not(epsilon, delta):
    needed = canaries_for(epsilon, delta=delta)
    for canaries, shows in ((needed, True), (needed - 1, False)):
        member = torch.arange(canaries) % 2 == 0
        halves = (int(member.sum()), canaries - int(member.sum()))
        bound = epsilon_bounds.one_run(member.double(), member, guesses=[halves], delta=delta)
        assert (bound.epsilon > epsilon) == shows
    assert canaries_for(epsilon, delta=delta, share=0.2) > 4 * needed
    assert not delta or canaries_for(epsilon, delta=delta, gaussian=True) < needed


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: one_run(SCORES * math.nan), ValueError, "`scores` must be finite"),
        (lambda: one_run(SCORES.view(2, 200)), ValueError, "`scores` must be one number for each canary"),
        (lambda: one_run(member=COINS[1:]), ValueError, "one for each of the 400 scores, got 399"),
        (lambda: one_run(COINS, SCORES + 0.5), TypeError, "swapped"),
        (lambda: one_run(guesses=[(400, 1)]), ValueError, "`guesses` must be 1 to 400"),
        (lambda: one_run(guesses=50), ValueError, "`guesses` must be pairs"),
        (lambda: one_run(guesses=(50, 50)), ValueError, r"`guesses` must be pairs .* such as \[\(50, 50\)\]"),
        (lambda: one_run(guesses=[(-1, 5)]), ValueError, "`guesses` must be a whole number at least 0"),
        (lambda: one_run(delta=1.0), ValueError, "`delta` must be a number"),
        (lambda: one_run(level=0.0), ValueError, "`level` must be a number"),
        (lambda: one_run(gaussian=True, delta=0.0), ValueError, "`delta` must be above 0 where `gaussian`"),
        (lambda: canaries_for(0.0), ValueError, "`epsilon` must be a number"),
        (lambda: canaries_for(1.0, share=0.0), ValueError, "`share` must be a number"),
        (lambda: canaries_for(30.0), ValueError, "that a million canaries can show, got 30"),
        (lambda: of_trials(hits=(9,)), ValueError, "`hits` must be a pair"),
        (lambda: of_trials(hits=(10, 9)), ValueError, "10 of 9; swapped"),
        (lambda: of_trials(hits=(1, 10**30)), ValueError, "`hits` must be a whole number"),
        (lambda: of_trials(hits=torch.tensor(3)), ValueError, "`hits` must be a pair"),
        (lambda: one_run(guesses=np.array(3)), ValueError, "`guesses` must be pairs"),
        (lambda: canaries_for(710.0), ValueError, "`epsilon` must be a number .* at most 64"),
        (lambda: canaries_for(1e-300, delta=0.9), ValueError, "take a smaller ε or δ"),
        (lambda: canaries_for(1.0, share=1e-9), ValueError, "or a larger `share`"),
    ],
)
def test_bad_inputs_are_refused_with_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("level", [1e-9, 0.95, 1 - 1e-16])
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5, 1 - 1e-12])
def test_the_far_ends_have_an_answer_or_a_refusal(delta, level, gaussian):
    for epsilon in (1e-300, 1e-9, 1.0, 64.0, 65.0, 710.0, 1e300):
        with suppress(ValueError):
            assert canaries_for(epsilon, delta=delta, level=level, gaussian=gaussian) >= 1
    assert one_run(delta=delta, level=level, gaussian=gaussian).epsilon >= 0
    for trials in (1, 100, 10**15):
        assert of_trials((trials, trials), (0, trials), delta=delta, level=level).epsilon >= 0
        assert of_trials((0, trials), (0, trials), delta=delta, level=level).epsilon >= 0


@pytest.mark.parametrize("share", [0.7, 0.9, 1.0])
def test_coins_that_are_not_fair_are_refused(share):
    """An attacker who guesses "member" of all is right more often than a fair coin allows, and nothing leaks."""
    draws = np.random.default_rng(0)
    member = draws.random(500) < share
    with pytest.raises(ValueError, match="fair coins"):
        audit.one_run(draws.random(500), member, guesses=[(200, 0)], delta=1e-5)
