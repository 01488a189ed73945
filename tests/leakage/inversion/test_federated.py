"""Clients compute the sums they promise, and their gradient is the sum over the batch that the attacks assume."""

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.activations import ACTIVATIONS, activation
from leakage.inversion.federated import (
    Client,
    batch_gradient,
    iterate,
    stack_features,
    stack_gain,
)
from leakage.precision import DTYPE
from reproduced.runtime import stream

POINTS = sphere(5, 7, generator=stream(0, "inputs"))
HIDDEN = gaussian((11, 7), generator=stream(0, "weights"))
PAIRED = [name for name, sigma in ACTIVATIONS.items() if sigma.monotone or sigma.homogeneity == 1]


def test_one_output_by_hand():
    module = Client(torch.tensor([[1.0, 2.0], [-1.0, 0.0]], dtype=DTYPE), activation="relu", bias=3.0)
    found = module(torch.tensor([[1.0, 1.0], [-2.0, 0.0]], dtype=DTYPE))
    assert found.tolist() == pytest.approx([3 / 2 + 3, 2 / 2 + 3])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_client_averages_its_neurons_and_adds_the_bias(name):
    expected = activation(name)(POINTS @ HIDDEN.mT).mean(1) + 0.5
    torch.testing.assert_close(Client(HIDDEN, activation=name, bias=0.5)(POINTS), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in PAIRED if ACTIVATIONS[name].homogeneity == 1])
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_pairs_of_piecewise_linear_layers_hand_on_the_input(name, depth):
    torch.testing.assert_close(
        stack_features(POINTS, activation(name), depth=depth, kind="paired"), POINTS, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_leaky_pairs_grow_by_their_slope_to_the_number_of_layers(depth):
    """1.01, which the paper divides by at every depth, is right at depth 2 alone."""
    assert stack_gain(activation("leaky_relu"), depth=depth) == pytest.approx(1 + 0.01 ** (depth - 1), rel=1e-15)


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("depth", [2, 3, 6])
def test_the_gain_is_the_slope_of_a_pair_at_zero(name, depth):
    step = torch.tensor([1e-6], dtype=DTYPE)
    up, down = (iterate(activation(name), sign * step, times=depth - 1) for sign in (1, -1))
    # The quotient is off by step², at the kink of ELU by step, and by the rounding of σ over the step.
    assert float((up - down) / step) == pytest.approx(stack_gain(activation(name), depth=depth), rel=1e-5, abs=1e-9)


def test_a_pair_that_may_lose_its_input_is_refused():
    with pytest.raises(ValueError, match="`activation` must increase for a paired stack, got 'quadratic'"):
        stack_gain(activation("quadratic"), depth=3)
    with pytest.raises(ValueError, match="`depth` must be smaller: after 700 layers of sigmoid"):
        stack_gain(activation("sigmoid"), depth=700)


X = sphere(3, 6, generator=stream(0, "inputs"))
Y = torch.tensor([1.0, 0.0, 1.0], dtype=X.dtype)
W = gaussian((9, 6), generator=stream(0, "weights"))


def test_a_gradient_is_the_slope_of_the_loss():
    module, step = Client(W, activation="gelu"), 1e-6
    gradient = batch_gradient(module, X, Y, loss="mse_loss")["hidden"][2, 4]

    def loss(move):
        moved = W.clone()
        moved[2, 4] += move
        return (Client(moved, activation="gelu")(X).detach() - Y).square().mean()

    # A central difference is off by step², and by rounding over the step.
    assert float((loss(step) - loss(-step)) / (2 * step)) == pytest.approx(float(gradient), abs=1e-9)


def test_a_parameter_without_influence_has_gradient_zero():
    module = torch.nn.Sequential(torch.nn.Linear(6, 1, dtype=X.dtype))
    module.register_parameter("idle", torch.nn.Parameter(X.new_ones(2)))
    assert batch_gradient(module, X, Y, loss="sum")["idle"].tolist() == [0.0, 0.0]
