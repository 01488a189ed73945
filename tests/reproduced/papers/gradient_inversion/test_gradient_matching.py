"""Gradient matching finds a batch where it is known to, follows the gradient alone, and fails where it is known to."""

import pytest
import torch

from leakage.inversion.reconstruction import match_error
from planted import doubles, draw_batch
from reproduced.papers.gradient_inversion import gradient_matching
from reproduced.papers.gradient_inversion.games import Game
from reproduced.runtime import Run, stream

D = 12


def problem(name="tanh", *, labels=(0.0, 1.0), bias=2.0, seed=0):
    """A secret batch, and what the server sees of it."""
    observation, inputs, labels, _ = draw_batch(name, 2, D, 120, labels=doubles(*labels), bias=bias, seed=seed)
    return inputs, labels, observation


def matched(observation, **options):
    options = {"batch": 2, "scale": D**-0.5, "restarts": 2, "generator": stream(0, "dummies"), **options}
    return gradient_matching.match_gradient(observation, **options)


@pytest.mark.parametrize(("distance", "most"), [("squared", 1e-8), ("cosine", 1e-5)])
def test_a_batch_is_found_from_dummies_of_its_own_size(distance, most):
    inputs, labels, observation = problem()
    found = matched(observation, distance=distance)
    assert match_error(found.inputs, inputs) < most
    if (
        distance == "squared"
    ):  # the cosine is 1 up to rounding from 1e-7 on, and does not see the size of the residuals, hence no labels
        assert found.misfit < 1e-9
        assert sorted(found.labels.tolist()) == pytest.approx(sorted(labels.tolist()), abs=1e-6)
        torch.testing.assert_close(observation.labels(found.inputs, found.residuals), found.labels)


def test_known_labels_tell_an_input_from_its_mirror():
    """Without a bias: the labels of the mirror are -1, and two different labels would only change places."""
    inputs, labels, observation = problem(bias=0.0, labels=(1.0, 1.0))
    found = matched(observation, labels=labels, restarts=4)
    assert found.labels.tolist() == labels.tolist()
    assert match_error(found.inputs, inputs) < 1e-6


def test_the_attack_follows_the_gradient_and_nothing_else():
    """Blind control: from the gradient of another batch, it finds the other batch."""
    inputs, _, _ = problem()
    others, _, observation = problem(seed=1)
    found = matched(observation).inputs
    assert match_error(found, others) < 1e-8
    assert match_error(found, inputs) > 0.5


def test_dummies_of_another_size_lead_astray():
    inputs, _, observation = problem("sin")
    assert match_error(matched(observation).inputs, inputs) < 1e-8
    assert match_error(matched(observation, scale=1.0).inputs, inputs) > 0.5


def test_rounds_of_matching_find_the_batch_from_short_dummies_only():
    game = Game(D, 120, activation="tanh", inputs="sphere")
    kinds = {"short": dict(scale=D**-0.5), "long": dict(scale=3.0)}
    run = Run("smoke", 0, torch.device("cpu"))
    found = gradient_matching.match_rounds(game, kinds, rounds=1, restarts=2, iterations=150, run=run)
    assert max(found["short"]) < 1e-6
    assert min(found["long"]) > 0.5
