"""ReLU batches are found from activation patterns: exactly, with weights of any law, and never by chance."""

import pytest
import torch

from leakage.attacks.gradient_inversion.observation import Observation
from leakage.attacks.gradient_inversion.relu_decoding import decode
from leakage.data.gaussians import gaussian, sphere
from leakage.metrics.reconstruction import match_error
from leakage.precision import DTYPE
from leakage.trainers.federated import Client, batch_gradient
from reproduced.runtime import stream

EXACT = 1e-12  # rounding, times conditions of at most 1e3


def problem(name="relu", *, batch=3, d=20, m=100, bias=0.0, seed=0, norm=1.0):
    inputs = norm * sphere(batch, d, generator=stream(seed, "inputs"))
    labels = torch.ones(batch, dtype=DTYPE)
    labels[1::2] = -1
    module = Client(gaussian((m, d), generator=stream(seed, "weights")), activation=name, bias=bias)
    gradient = batch_gradient(module, inputs, labels, loss="half_sum")
    return Observation.from_module(module, gradient, batch=batch, loss="half_sum", activation=name), inputs, labels


def decoded(observation, batch, **options):
    return decode(observation, batch=batch, generator=stream(0, "decode"), **{"norm": 1.0, **options})


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
@pytest.mark.parametrize(("batch", "m"), [(1, 4), (2, 20), (4, 60), (8, 200)])
@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_a_batch_is_found_exactly(name, batch, m, bias):
    observation, inputs, labels = problem(name, batch=batch, m=m, bias=bias)
    found = decoded(observation, batch)
    assert found.misfit < EXACT
    assert match_error(found.inputs, inputs) < EXACT
    assert found.labels is not None
    torch.testing.assert_close(found.labels.sort().values, labels.sort().values, rtol=0, atol=100 * EXACT)


def test_lengths_are_what_the_caller_says():
    observation, inputs, labels = problem(norm=2.5)
    assert match_error(decoded(observation, 3, norm=2.5).inputs, inputs) < EXACT
    halved = decoded(observation, 3, norm=1.25)  # consistent with the gradient all the same
    assert halved.misfit < EXACT
    assert match_error(halved.inputs, inputs / 2) < EXACT
    assert halved.labels is not None
    assert float((halved.labels.sort().values - labels.sort().values).abs().max()) > 0.01


def test_weights_of_another_law_will_do():
    weights = torch.rand((100, 20), generator=stream(0, "uniform"), dtype=DTYPE) - 0.5
    inputs, labels = sphere(3, 20, generator=stream(0, "inputs")), torch.ones(3, dtype=DTYPE)
    module = Client(weights, activation="relu")
    gradient = batch_gradient(module, inputs, labels, loss="mse_loss")
    observation = Observation.from_module(module, gradient, batch=3, loss="mse_loss", activation="relu")
    assert match_error(decoded(observation, 3).inputs, inputs) < EXACT


def test_neither_noise_nor_chance_is_decoded():
    observation, *_ = problem()
    assert observation.hidden is not None
    noise = gaussian(observation.weights.shape, generator=stream(0, "noise")) * observation.hidden.std()
    for hidden in (noise, observation.hidden + 1e-4 * noise):
        seen = Observation(observation.weights, observation.activation, hidden=hidden)
        with pytest.raises(ValueError, match="0 of 3 activation patterns found"):
            decoded(seen, 3)


def test_too_few_neurons_are_noticed():
    observation, *_ = problem(batch=8, m=20)
    with pytest.raises(ValueError, match="of 8 activation patterns found"):
        decoded(observation, 8)
