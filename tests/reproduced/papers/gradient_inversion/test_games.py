"""Rounds are fair: the attack sees no example, and the batch is drawn apart from the weights."""

import dataclasses
import math
from functools import partial

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.inversion.observation import Observation, Reconstruction
from leakage.metrics.estimates import mean_interval
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.games import (
    Game,
    attack_errors,
    draw_round,
    fitted_exponent,
    geometric_mean_ratio,
    wrong_labels,
)
from reproduced.runtime import Run, stream

GAME = Game(60, 300, batch=3, activation="tanh", inputs="sphere")
RUN = Run("smoke", 8, torch.device("cpu"))


def test_another_seed_or_index_is_another_round():
    one = draw_round(GAME, seed=1)
    for other in (draw_round(GAME, seed=2), draw_round(GAME, seed=1, index=1)):
        assert not torch.allclose(one.inputs, other.inputs)
        assert not torch.allclose(one.observation.weights, other.observation.weights)


def test_an_observation_holds_no_example():
    secret = draw_round(GAME, seed=5)
    for field in dataclasses.fields(Observation):
        value = getattr(secret.observation, field.name)
        if isinstance(value, torch.Tensor):
            rows = [row for row in secret.inputs if value.shape[-1:] == row.shape]
            assert not any(bool(torch.isclose(value, row).all(-1).any()) for row in rows)


def test_neighbours_in_a_chain_overlap_as_told_and_labels_take_turns():
    played = draw_round(dataclasses.replace(GAME, inputs="chain", overlap=0.7), seed=6)
    gram = played.inputs @ played.inputs.mT
    torch.testing.assert_close(gram.diagonal(), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(gram.diagonal(1), torch.full((2,), 0.7, dtype=torch.float64))
    assert played.labels.tolist() == [1, -1, 1]


@pytest.mark.parametrize("calibration", ["entry", "norm"])
def test_noise_has_the_size_that_its_calibration_says(calibration):
    game = Game(40, 2000, noise=0.5, calibration=calibration)
    clean, noisy = (draw_round(dataclasses.replace(game, noise=z), seed=7).observation for z in (0.0, 0.5))
    outputs, shaken, hidden = clean.outputs, noisy.outputs, clean.hidden
    assert outputs is not None
    assert shaken is not None
    assert hidden is not None
    scale = outputs.std() if calibration == "entry" else torch.stack([outputs.norm(), hidden.norm()]).norm()
    # 2,000 entries: their standard deviation is known to 1.6 %
    assert float((shaken - outputs).std() / (0.5 * scale)) == pytest.approx(1, abs=0.08)


def test_an_attack_that_is_told_the_batch_has_no_error_and_a_blind_one_has_that_of_strangers():
    def told(observation, *, batch, generator):
        index = told.calls
        told.calls += 1
        return Reconstruction(draw_round(GAME, seed=8, index=index).inputs, torch.zeros(batch, dtype=torch.float64))

    def blind(observation, *, batch, generator):
        return Reconstruction(sphere(batch, 60, generator=generator), torch.zeros(batch, dtype=torch.float64))

    told.calls = 0
    assert attack_errors(GAME, told, rounds=3, run=RUN).tolist() == pytest.approx([0, 0, 0])
    # unit vectors of independent direction are sqrt(2) apart, a little less after the best permutation of three
    assert bool((attack_errors(GAME, blind, rounds=3, run=RUN) > 1).all())


def test_labels_are_compared_input_by_input_by_their_signs():
    def tell(observation, *, batch, generator, wrong):
        index = tell.calls
        tell.calls += 1
        secret = draw_round(GAME, seed=8, index=index)
        labels = 0.1 * secret.labels * torch.tensor([1.0, 1.0, -1.0 if wrong and index == 1 else 1.0]).double()
        order = [2, 0, 1]  # nobody knows the order, nor the sign of an input
        return Reconstruction(-secret.inputs[order], torch.zeros(batch, dtype=torch.float64), labels[order])

    for wrong in (False, True):
        tell.calls = 0
        found = wrong_labels(GAME, partial(tell, wrong=wrong), rounds=3, run=RUN)
        assert found.tolist() == [False, wrong, False]


def drawn(*shape):
    return torch.randn(shape, generator=stream(0, "values"), dtype=DTYPE)


def test_a_ratio_is_that_of_geometric_means_and_paired():
    second = drawn(9).exp()
    found = geometric_mean_ratio(3 * second, second)
    assert (found.estimate, found.low, found.high) == pytest.approx((3, 3, 3))
    first = second * torch.linspace(1, 2, 9, dtype=DTYPE)
    found, by_hand = geometric_mean_ratio(first, second), mean_interval((first / second).log())
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((by_hand.low, by_hand.high))


def test_a_power_law_gives_its_power():
    x = (1.0, 3.0, 10.0)
    values = torch.tensor(x, dtype=DTYPE)[:, None] ** -0.5 * drawn(5).exp()
    found = fitted_exponent(x, values)
    assert (found.estimate, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert found.n == 5
    noisy = fitted_exponent(x, values * drawn(3, 5).mul(0.1).exp())
    assert -0.7 < noisy.low < noisy.estimate < noisy.high < -0.3
