"""A client's gradient is the sum over its batch that the attacks assume, times the constant of its loss."""

import pytest
import torch

from leakage.data.gaussians import gaussian, sphere
from leakage.models.activations import ACTIVATIONS, activation
from leakage.models.clients import Client
from leakage.runtime import stream
from leakage.trainers.federated import LOSSES, batch_gradient, find_loss

X = sphere(3, 6, generator=stream(0, "inputs"))
Y = torch.tensor([1.0, 0.0, 1.0], dtype=X.dtype)
W = gaussian((9, 6), generator=stream(0, "weights"))


def by_hand(module, sigma, *, logistic):
    """g and G of both layers, written out."""
    outputs = module(X).detach()
    r = (torch.sigmoid(outputs) if logistic else outputs) - Y
    values, slopes = sigma.derivatives(X @ W.mT, order=1)
    return r @ values, (slopes * r.unsqueeze(1)).mT @ X / len(W)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_the_sums_over_the_batch(name, loss):
    module = Client(W, activation=name, bias=0.7)
    gradient = batch_gradient(module, X, Y, loss=loss)
    outputs, hidden = by_hand(module, activation(name), logistic=loss == "logistic")
    scale = {"half_sum": 1.0, "sum": 2.0, "mean": 2 / 3, "logistic": 1.0}[loss]
    assert find_loss(loss).scale(3) == scale
    torch.testing.assert_close(gradient["outputs"], scale * outputs, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradient["hidden"], scale * hidden, rtol=1e-12, atol=1e-13)


def test_a_gradient_is_the_slope_of_the_loss():
    module, step = Client(W, activation="gelu"), 1e-6
    gradient = batch_gradient(module, X, Y, loss="mean")["hidden"][2, 4]

    def loss(move):
        moved = W.clone()
        moved[2, 4] += move
        return (Client(moved, activation="gelu")(X).detach() - Y).square().mean()

    # A central difference is off by step², and by rounding over the step.
    assert float((loss(step) - loss(-step)) / (2 * step)) == pytest.approx(float(gradient), abs=1e-9)


def test_the_module_and_its_gradients_stay_as_they_are():
    module = Client(W, activation="tanh")
    batch_gradient(module, X, Y, loss="sum")
    torch.testing.assert_close(module.hidden, W)
    assert module.hidden.grad is None


def test_a_parameter_without_influence_has_gradient_zero():
    module = torch.nn.Sequential(torch.nn.Linear(6, 1, dtype=X.dtype))
    module.register_parameter("idle", torch.nn.Parameter(X.new_ones(2)))
    assert batch_gradient(module, X, Y, loss="sum")["idle"].tolist() == [0.0, 0.0]


def test_a_module_with_several_outputs_is_refused():
    with pytest.raises(ValueError, match=r"one output for each input, got \(3, 2\)"):
        batch_gradient(torch.nn.Linear(6, 2, dtype=X.dtype), X, Y, loss="sum")


def test_a_client_without_gradients_gives_its_own_all_the_same():
    module = Client(W, activation="tanh")
    expected = batch_gradient(module, X, Y, loss="sum")
    with torch.no_grad():
        found = batch_gradient(module, X, Y, loss="sum")
    torch.testing.assert_close(dict(found), dict(expected))
