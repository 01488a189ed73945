"""ReLU batches are found from activation patterns: exactly, with weights of any law, and never by chance."""

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.observation import Observation
from leakage.inversion.reconstruction import match_error
from leakage.inversion.relu_decoding import decode
from leakage.precision import DTYPE
from planted import draw_batch, observe
from reproduced.runtime import stream

EXACT = 1e-12  # rounding, times conditions of at most 1e3


def decoded(observation, batch, **options):
    return decode(observation, batch=batch, generator=stream(0, "decode"), **{"norm": 1.0, **options})


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
@pytest.mark.parametrize(("batch", "m"), [(1, 4), (2, 20), (4, 60), (8, 200)])
@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_a_batch_is_found_exactly(name, batch, m, bias):
    observation, inputs, labels, _ = draw_batch(name, batch, 20, m, bias=bias)
    found = decoded(observation, batch)
    assert found.misfit < EXACT
    assert match_error(found.inputs, inputs) < EXACT
    assert found.labels is not None
    torch.testing.assert_close(found.labels.sort().values, labels.sort().values, rtol=0, atol=100 * EXACT)


def test_lengths_are_what_the_caller_says():
    observation, inputs, labels, _ = draw_batch("relu", 3, 20, 100, bias=0.0, norm=2.5)
    assert match_error(decoded(observation, 3, norm=2.5).inputs, inputs) < EXACT
    halved = decoded(observation, 3, norm=1.25)  # consistent with the gradient all the same
    assert halved.misfit < EXACT
    assert match_error(halved.inputs, inputs / 2) < EXACT
    assert halved.labels is not None
    assert float((halved.labels.sort().values - labels.sort().values).abs().max()) > 0.01


def test_weights_of_another_law_will_do():
    weights = torch.rand((100, 20), generator=stream(0, "uniform"), dtype=DTYPE) - 0.5
    inputs = sphere(3, 20, generator=stream(0, "inputs"))
    observation = observe("relu", inputs, weights, labels=torch.ones(3, dtype=DTYPE), bias=0.0).observation
    assert match_error(decoded(observation, 3).inputs, inputs) < EXACT


def test_neither_noise_nor_chance_is_decoded():
    observation = draw_batch("relu", 3, 20, 100, bias=0.0).observation
    assert observation.hidden is not None
    noise = gaussian(observation.weights.shape, generator=stream(0, "noise")) * observation.hidden.std()
    for hidden in (noise, observation.hidden + 1e-4 * noise):
        seen = Observation(observation.weights, observation.activation, hidden=hidden)
        with pytest.raises(ValueError, match="0 of 3 activation patterns found"):
            decoded(seen, 3)


def test_too_few_neurons_are_noticed():
    observation = draw_batch("relu", 8, 20, 20, bias=0.0).observation
    with pytest.raises(ValueError, match="of 8 activation patterns found"):
        decoded(observation, 8)
