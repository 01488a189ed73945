"""A stack hands its input on: the top layers' gradient is that of two layers, and features lead back to inputs."""

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.activations import ACTIVATIONS, activation
from leakage.inversion.federated import Client, DeepStack, batch_gradient, stack_features
from leakage.inversion.observation import Observation
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import deep_networks, gradient_matching
from reproduced.runtime import stream

X = sphere(3, 10, generator=stream(0, "inputs"))
Y = torch.tensor([1.0, 0.0, 1.0], dtype=DTYPE)
W = gaussian((20, 10), generator=stream(0, "weights"))
STACKS = [("plain", name) for name, sigma in ACTIVATIONS.items() if sigma.monotone] + [
    ("paired", name) for name, sigma in ACTIVATIONS.items() if sigma.monotone or sigma.homogeneity == 1
]
EACH = pytest.mark.parametrize(("kind", "name"), STACKS)
LOSS = {"sigmoid": 1e-11, "softplus": 1e-11}  # a pair of sigmoids at depth 5 has gain 0.006, and loses as many digits


@EACH
@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("loss", ["mse_loss", "logistic"])
def test_the_top_of_a_stack_is_a_two_layer_client_of_the_features(kind, name, depth, loss):
    stack = DeepStack(W, activation=name, depth=depth, kind=kind, bias=2.0)
    found = deep_networks.effective_observation(stack, batch_gradient(stack, X, Y, loss=loss), batch=3, loss=loss)
    client = Client(W, activation=name, bias=2.0)
    features = stack_features(X, activation(name), depth=depth, kind=kind)
    expected = Observation.from_module(
        client, batch_gradient(client, features, Y, loss=loss), batch=3, loss=loss, activation=name
    )
    assert (found.activation, found.logistic) == (expected.activation, expected.logistic)
    for part in ("weights", "outputs", "hidden"):
        ours, theirs = getattr(found, part), getattr(expected, part)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11 * float(theirs.abs().max()))
    torch.testing.assert_close(found.predictions(features), stack(X).detach(), rtol=1e-11, atol=1e-11)


@EACH
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_features_lead_back_to_their_inputs(kind, name, depth):
    features = stack_features(X, activation(name), depth=depth, kind=kind)
    found = deep_networks.invert_features(features, activation(name), depth=depth, kind=kind)
    torch.testing.assert_close(found, X, rtol=0, atol=LOSS.get(name, 1e-14))


@pytest.mark.parametrize("kind", ["plain", "paired"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_a_feature_that_no_input_has_leads_nowhere(kind, name):
    """Both activations stay below 1, and a pair of them below 1/gain, at most 2."""
    u = torch.tensor([[0.1, 2.1, -2.1]], dtype=DTYPE)
    assert deep_networks.invert_features(u, activation(name), depth=2, kind=kind).isnan().tolist() == [
        [False, True, True]
    ]


@pytest.mark.parametrize(("kind", "name"), [("plain", "tanh"), ("paired", "tanh"), ("paired", "sigmoid")])
@pytest.mark.parametrize("norm", [0.5, 1.0])
def test_a_direction_and_a_norm_are_enough(kind, name, norm):
    sizes = torch.tensor([0.1, 1.0, 7.0], dtype=DTYPE).unsqueeze(1)
    features = stack_features(norm * X, activation(name), depth=3, kind=kind)
    found = deep_networks.invert_scaled_features(sizes * features, activation(name), depth=3, kind=kind, norm=norm)
    torch.testing.assert_close(found, norm * X, rtol=0, atol=1e-12)


def test_a_batch_goes_through_a_stack_and_back():
    """End to end, with the baseline that knows the labels: three layers of sigmoid pairs."""
    stack = DeepStack(gaussian((120, 10), generator=stream(1, "weights")), activation="sigmoid", depth=4, bias=3.0)
    observation = deep_networks.effective_observation(
        stack, batch_gradient(stack, X, Y, loss="sum"), batch=3, loss="sum"
    )
    found = gradient_matching.match_gradient(
        observation, batch=3, scale=0.3, labels=Y, restarts=3, generator=stream(0, "dummies")
    )
    inputs = deep_networks.invert_features(found.inputs, observation.activation, depth=4, kind="paired")
    assert found.misfit < 1e-6
    for x in X:  # labels fix the order only within a class
        assert float((inputs - x).norm(dim=1).min()) < 1e-4


@pytest.mark.parametrize(
    ("inverse", "name", "kind", "complaint"),
    [
        (deep_networks.invert_features, "relu", "plain", "'relu': it has no inverse"),
        (deep_networks.invert_scaled_features, "sigmoid", "plain", "no single scale fits"),
    ],
)
def test_stacks_that_lose_their_input_are_refused(inverse, name, kind, complaint):
    with pytest.raises(ValueError, match=complaint):
        inverse(X, activation(name), depth=3, kind=kind)
