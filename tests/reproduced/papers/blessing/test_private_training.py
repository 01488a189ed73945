"""Fronts hold what nothing beats; the audit of private networks finds what is planted no more than is guaranteed."""

import math

import pytest
import torch

from leakage.trainers import privacy_accounting
from leakage.trainers.dp_sgd import PrivateRecipe
from reproduced.papers.blessing import private_training
from reproduced.runtime import begin, stream

ERROR = torch.tensor([0.1, 0.2, 0.3, 0.2, 0.4])
ADVANTAGE = torch.tensor([0.5, 0.3, 0.1, 0.4, 0.1])


def test_the_front_holds_what_nothing_beats_on_both_axes():
    # (0.2, 0.4) ties with (0.2, 0.3) on one axis, (0.4, 0.1) with (0.3, 0.1): a tie is no defeat.
    assert private_training.pareto_front(ERROR, ADVANTAGE).tolist() == [True, True, True, True, True]
    beaten = private_training.pareto_front(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.3, 0.1]))
    assert beaten.tolist() == [True, False, True]


def test_the_front_does_not_depend_on_the_order_of_the_settings():
    draws = stream(0, "front")
    error, advantage = torch.rand(2, 40, generator=draws)
    order = torch.rand(40, generator=draws).argsort()
    front = private_training.pareto_front(error, advantage)
    torch.testing.assert_close(private_training.pareto_front(error[order], advantage[order]), front[order])
    assert bool(private_training.pareto_front(error[front], advantage[front]).all())


def a_front(shift=0.0):
    """Five settings, two splits of four models; all models alike but for a little noise."""
    draws = stream(2, "models")
    error, advantage = (v[:, None, None] + 0.01 * torch.randn(5, 2, 4, generator=draws) for v in (ERROR, ADVANTAGE))
    return error - shift, advantage


def test_a_front_gains_nothing_over_itself_and_what_was_planted_over_a_shifted_one():
    assert float(private_training.error_gain_at_advantage(a_front(), a_front(), at_most=0.35)) == pytest.approx(0.0)
    planted = private_training.error_gain_at_advantage(a_front(), a_front(0.05), at_most=0.35)
    assert planted.n == 2  # pools
    assert float(planted) == pytest.approx(0.05, abs=1e-6)  # float32
    assert float(private_training.error_gain_at_advantage(a_front(0.05), a_front(), at_most=0.35)) == pytest.approx(
        -0.05, abs=1e-6
    )


def test_an_advantage_that_is_not_attained_gains_nothing_known():
    found = private_training.error_gain_at_advantage(a_front(), a_front(), at_most=0.05)
    assert (found.low, found.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(("at_most", "least"), [(0.6, 0.1), (0.5, 0.1), (0.45, 0.125), (0.1, 0.3), (0.05, math.nan)])
def test_the_least_error_is_that_of_a_setting_or_of_a_lot_between_two(at_most, least):
    # At 0.45: the first setting (0.1, 0.5) in three of four cases, the second (0.2, 0.3) otherwise.
    found = float(private_training.least_error(ERROR, ADVANTAGE, at_most=at_most))
    assert found == pytest.approx(least, nan_ok=True)


def test_guarantees_are_those_of_the_accountant_for_each_setting():
    noise = torch.tensor([2.0, 1.0, 2.0])
    found = private_training.guarantees(noise, recipe=PrivateRecipe(50, 20.0), rows=200)
    case = dict(sampling_rate=0.1, steps=50)
    for place, sigma in enumerate(noise.tolist()):
        spent = privacy_accounting.epsilon(noise_multiplier=sigma, delta=1 / 200, **case)
        assert float(found.epsilon[place]) == pytest.approx(spent)
        bound = privacy_accounting.advantage_bound(noise_multiplier=sigma, **case)
        assert float(found.bound[place]) == pytest.approx(bound)


def audited(*, informative, noise=(0.4, 4.0)):
    """Networks on points with labels that follow the first features, or that are drawn by lot."""
    draws = stream(5, "audit")
    labels = torch.randint(2, (300,), generator=draws)
    features = torch.randn(300, 60, generator=draws)
    if informative:
        features = torch.stack([1.0 - 2 * labels, 2.0 * labels - 1], dim=-1)
    return private_training.audit_private_training(
        (32, 0),
        features=features,
        labels=labels,
        pool=240,
        models=8,
        noise=noise,
        learning_rates=(4.0,),
        recipe=PrivateRecipe(80, 30.0),
        run=begin(device="cpu"),
    )


def test_labels_by_lot_can_only_be_remembered_and_much_noise_forbids_it():
    found = audited(informative=False)
    little, much = found.attacks["global"].advantage.mean(-1).tolist()
    assert little > 0.4  # measured .47 to .49 at three seeds
    # Eight models of 120 members and outsiders each: a standard error of √(2 · ¼ / 120 / 8) = 0.023, four of it.
    assert abs(much) < min(float(found.guarantees.bound[1]), little) + 0.1


def test_points_that_are_all_alike_leak_nothing():
    found = audited(informative=True)
    # All points of a class have one loss, so no threshold separates members from outsiders but by their classes.
    assert float(found.attacks["global"].advantage.mean(-1).abs().max()) < 0.1  # four standard errors, as before
    assert float(found.error[0].max()) == pytest.approx(0.0)
