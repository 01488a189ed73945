"""Targets of all kinds share their halves, stacks are held out, and the ladder's laws are those of trained models."""

import functools
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from leakage.data import tabular
from leakage.data.tabular import LabelledData
from leakage.membership.evaluation import evaluate
from leakage.metrics import gaussian_mechanism
from leakage.metrics.estimates import Estimate
from planted import RANDOM_LABELS
from reproduced.papers.blessing.output_law import average_advantage
from reproduced.papers.side_by_side import comparisons, epsilons, logistic_ladder, ridge_ladder, targets
from reproduced.runtime import Run, stream

RUN = Run("smoke", 0, torch.device("cpu"))
IMAGES = LabelledData(RANDOM_LABELS.features[:, :36].contiguous(), RANDOM_LABELS.labels)


def panel(kind, data=RANDOM_LABELS, **changed):
    return targets.train_models(kind, data, **(dict(points=80, models=6, name="noise", run=RUN) | changed))


@functools.cache
def kept(kind, *, images=False):
    """A panel that several tests look at, of noise or of its images."""
    return panel(kind, IMAGES if images else RANDOM_LABELS)


@pytest.mark.parametrize("kind", targets.KINDS)
def test_targets_of_every_kind_fit_the_halves_that_they_share(kind):
    found, other = kept(kind, images=True), kept("linear", images=True)
    torch.testing.assert_close(found.member, other.member)
    right = found.logits.argmax(-1) == found.true_labels
    assert float(right[found.member].double().mean()) > float(right[~found.member].double().mean()) + 0.2
    torch.testing.assert_close(panel(kind, IMAGES).logits, found.logits)
    assert bool((panel(kind, IMAGES, run=replace(RUN, seed=1)).member != found.member).any())


def test_a_stack_finds_what_one_signal_finds_and_noise_adds_nothing():
    target = kept("MLP")
    noise = torch.rand(target.member.shape, generator=stream(0, "noise"), dtype=torch.float64)
    attacks = {"gap": lambda _: noise, "noise": lambda one: one.margins, "LiRA": lambda _: noise.flip(0)}
    found = comparisons.combine_signals_by_step(evaluate(target, attacks, generator=stream(0, "attacks")), seed=0)
    assert [*found.results] == ["right or wrong", "+ labels of one's choice", "+ shadow models"]
    assert found.interval("+ labels of one's choice").estimate > 0.8
    gains = comparisons.gain_per_step(found)
    assert gains["+ labels of one's choice"].low > 0.2
    assert abs(gains["+ shadow models"].estimate) < 0.05


def test_a_stack_does_not_see_the_membership_that_it_guesses():
    target = kept("MLP")
    drawn = torch.rand(target.member.shape, generator=stream(0, "drawn"), dtype=torch.float64)
    other = target.member.clone()
    other[[0, 1]] = ~other[[0, 1]]
    stacks = [
        comparisons.combine_signals_by_step(evaluate(one, {"gap": lambda _: drawn}, generator=stream(0, "a")), seed=0)
        for one in (target, targets.TrainedModels(target.networks, target.points, target.labels, other, target.partner))
    ]
    scores = [stack.results["right or wrong"].scores for stack in stacks]
    torch.testing.assert_close(scores[0][0], scores[1][0])


SMALL = ridge_ladder.draw_rows(penalty=2.0, seed=0, n=12, p=3, asked=4)


def test_the_rungs_rise_and_trained_models_follow_their_law():
    found = ridge_ladder.exact_rungs(SMALL, seed=0, nodes=32)
    areas = [found[name].auc for name in ("label", "loss", "prediction", "2 predictions", "weights")]
    assert all(more > less - 0.005 for less, more in pairwise(areas))  # 32 cells along an axis
    assert all(bool((rung.curve.diff() >= 0).all()) for rung in found.values())
    for others in (None, 0, 1):
        found = ridge_ladder.compare_with_law(SMALL, trainings=400, seed=0, others=others)
        assert min(test.p_value for test in found) > 1e-4


def test_no_attack_is_above_its_rung():
    exact = ridge_ladder.exact_rungs(SMALL, seed=0, nodes=32)
    for one in ridge_ladder.measure_attacks(SMALL, models=24, ensembles=3, seed=0).values():
        assert isinstance(one.auc, Estimate)
        assert one.auc.low < exact[one.rung].auc


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_the_limit_of_logistic_regression_is_the_sum_of_its_parts(penalty):
    found = logistic_ladder.solve_limit(penalty)
    assert float(found.gamma_parts.sum()) == pytest.approx(float(found.law.gamma))
    assert float(found.variances.sum()) == pytest.approx(float(found.law.sigma) ** 2)
    parts = found.gamma_parts.square() / found.variances  # of the strong features and of the others, as their numbers
    assert float(parts[1] / parts[0]) == pytest.approx(logistic_ladder.PHI - 1)


def test_the_rungs_of_logistic_regression_are_those_of_its_densities():
    found, rungs = logistic_ladder.solve_limit(1.0), logistic_ladder.exact_rungs(1.0, nodes=32)
    areas = [rungs[name].auc for name in ("label", "loss", "prediction", "weights")]
    assert all(more > less for less, more in pairwise(areas))
    # Two Gaussians that are √2 apart.
    assert rungs["first gradient"].auc == pytest.approx(0.8413, abs=1e-3)
    teacher = logistic_ladder.teacher_quantiles(64)
    ratios = logistic_ladder.ratios(found, teacher, found.evidence_strength["prediction"], nodes=32)
    best = ((ratios.member > 0).double() - (ratios.outsider > 0).double()).mean()
    assert float(best) == pytest.approx(float(average_advantage(found.law)), abs=5e-3)


def test_trained_logistic_regressions_follow_the_law_of_the_limit():
    found = logistic_ladder.compare_with_law(1.0, points=2, trainings=60, n=60, seed=0, nodes=32)
    assert [*found] == ["prediction", "weights"]
    assert min(test.p_value for tests in found.values() for test in tests) > 1e-4


def test_attacks_on_logistic_regressions_stay_near_their_rungs():
    exact = logistic_ladder.exact_rungs(1.0, nodes=16)
    for one in logistic_ladder.measure_attacks(1.0, n=40, points=20, models=24, ensembles=2, run=RUN).values():
        assert one.auc.low < exact[one.rung].auc


def test_a_bound_from_noisy_coins_is_below_the_truth_and_falls_with_the_noise():
    few = [epsilons.bound_noisy_coins(0, noise=noise, points=2000, seed=3) for noise in (0.3, 1.0, 30.0)]
    assert few[0] > few[1] > 0.0
    assert few[2] == pytest.approx(0.0)
    assert few[1] < gaussian_mechanism.epsilon(1.0, epsilons.DELTA)


def test_noise_lowers_what_one_private_training_shows_and_fits():
    data = tabular.load("digits")
    settings = dict(data=data, points=1200, noises=(0.0, 4.0), steps=40, sampling_rate=0.1, learning_rate=4.0)
    settings |= dict(run=replace(RUN, seed=3))
    found = epsilons.bound_private_run(0, **settings)
    assert float(found.member_accuracy[0]) > 0.8 > float(found.member_accuracy[1])
    assert bool((found.bounds >= 0).all())
    torch.testing.assert_close(epsilons.bound_private_run(0, **settings).bounds, found.bounds)
