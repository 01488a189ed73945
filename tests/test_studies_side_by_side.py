"""Targets of all kinds share their halves, stacks are held out, and the ladder's laws are those of trained models."""

from itertools import pairwise

import pytest
import torch

import noise_labels
from leakage.data import labelled
from leakage.metrics.estimates import Estimate
from leakage.panel import evaluate
from leakage.runtime import stream
from leakage.studies.side_by_side import epsilons, ladder, stacking, targets
from leakage.theory import gaussian_mechanism
from leakage.theory.logistic.problem import Setting
from refusing import refusals

DATA = noise_labels.NOISE
IMAGES = type(DATA)(DATA.features[:, :36].contiguous(), DATA.labels)


def panel(kind, data=DATA, **changed):
    return targets.panel(kind, data, **(dict(points=80, models=6, name="noise", seed=0) | changed))


@pytest.mark.parametrize("kind", targets.KINDS)
def test_targets_of_every_kind_fit_the_halves_that_they_share(kind):
    found, other = panel(kind, IMAGES), panel("linear", IMAGES)
    assert torch.equal(found.member, other.member)
    right = found.logits.argmax(-1) == found.truth
    assert float(right[found.member].double().mean()) > float(right[~found.member].double().mean()) + 0.2
    assert torch.equal(panel(kind, IMAGES).logits, found.logits)
    assert not torch.equal(panel(kind, IMAGES, seed=1).member, found.member)


def test_questions_are_counted():
    target = panel("MLP")
    assert targets.questions(target, "gap", seed=0) == 1
    assert targets.questions(target, "noise", seed=0) == pytest.approx(4 * 32, abs=1)


def test_a_stack_finds_what_one_signal_finds_and_noise_adds_nothing():
    target = panel("MLP")
    noise = torch.rand(target.member.shape, generator=stream(0, "noise"), dtype=torch.float64)
    attacks = {"gap": lambda _: noise, "noise": lambda one: one.margins, "LiRA": lambda _: noise.flip(0)}
    found = stacking.nested(evaluate(target, attacks, generator=stream(0, "attacks")), seed=0)
    assert [*found.rows] == ["right or wrong", "+ labels of one's choice", "+ shadow models"]
    assert found.interval("+ labels of one's choice").estimate > 0.8
    gains = stacking.gains(found)
    assert gains["+ labels of one's choice"].low > 0.2
    assert abs(gains["+ shadow models"].estimate) < 0.05


def test_a_stack_does_not_see_the_membership_that_it_guesses():
    target = panel("MLP")
    drawn = torch.rand(target.member.shape, generator=stream(0, "drawn"), dtype=torch.float64)
    other = target.member.clone()
    other[[0, 1]] = ~other[[0, 1]]
    stacks = [
        stacking.nested(evaluate(one, {"gap": lambda _: drawn}, generator=stream(0, "a")), seed=0)
        for one in (target, targets.Panel(target.networks, target.points, target.labels, other, target.partner))
    ]
    scores = [stack.rows["right or wrong"].scores for stack in stacks]
    assert torch.equal(scores[0][0], scores[1][0])


SMALL = ladder.rows(penalty=2.0, seed=0, n=12, p=3, asked=4)


def test_the_rungs_rise_and_trained_models_follow_their_law():
    found = ladder.exact(SMALL, seed=0, nodes=32)
    areas = [found[name].auc for name in ("label", "loss", "prediction", "2 predictions", "weights")]
    assert all(more > less - 0.005 for less, more in pairwise(areas))  # 32 cells along an axis
    assert all(bool((rung.curve.diff() >= 0).all()) for rung in found.values())
    for others in (None, 0, 1):
        assert float(ladder.agreement(SMALL, trainings=400, seed=0, others=others).min()) > 1e-4


def test_no_attack_is_above_its_rung():
    exact = ladder.exact(SMALL, seed=0, nodes=32)
    for one in ladder.measured(SMALL, models=24, ensembles=3, seed=0).values():
        assert isinstance(one.auc, Estimate)
        assert one.auc.low < exact[one.rung].auc


def test_own_thresholds_are_worth_most_on_logistic_regression():
    found = ladder.logistic(Setting.bilevel(penalty=torch.tensor([0.1, 1.0]).double(), delta=0.5, phi=4.0))
    assert bool((found.label < found.loss).all() and (found.loss < found.own).all())


test_what_cannot_be_trained_is_refused = refusals(
    (lambda: panel("tree"), "`kind` must be one of"),
    (lambda: panel("CNN"), "square images"),
    (lambda: panel("MLP", points=481), "`points` must be"),
    (lambda: panel("MLP", flipped=2.0), "`flipped` must be"),
    (lambda: ladder.measured(SMALL, models=8, ensembles=1, seed=0), "`ensembles` must be"),
)


def test_a_bound_from_noisy_coins_is_below_the_truth_and_falls_with_the_noise():
    few = [epsilons.noisy_coins(0, noise=noise, points=2000, seed=3) for noise in (0.3, 1.0, 30.0)]
    assert few[0] > few[1] > few[2] == 0.0
    assert few[1] < gaussian_mechanism.epsilon(1.0, epsilons.DELTA)


def test_noise_lowers_what_one_private_training_shows_and_fits():
    data = labelled.load("digits")
    settings = dict(data=data, points=1200, noises=(0.0, 4.0), steps=40, sampling_rate=0.1, learning_rate=4.0, seed=3)
    found = epsilons.private_run(0, **settings)
    assert float(found.fit[0]) > 0.8 > float(found.fit[1])
    assert bool((found.bounds >= 0).all())
    assert bool((epsilons.private_run(0, **settings).bounds == found.bounds).all())
    with pytest.raises(ValueError, match="points"):
        epsilons.private_run(0, **settings | {"points": 10**6})
