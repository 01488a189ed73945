"""What the server sees: the normalised gradient of any two-layer module, and nothing of the batch."""

import dataclasses

import pytest
import torch
from torch import nn

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.activations import ACTIVATIONS, activation
from leakage.inversion.federated import LOSSES, Client, DeepStack, batch_gradient
from leakage.inversion.nonlinear_least_squares import HiddenEquations, OutputEquations
from leakage.inversion.observation import Observation
from leakage.precision import DTYPE
from reproduced.runtime import stream

X = sphere(3, 6, generator=stream(0, "inputs"))
Y = torch.tensor([1.0, 0.0, 1.0], dtype=DTYPE)
W = gaussian((9, 6), generator=stream(0, "weights"))


def seen(module, *, loss="mse_loss", **options):
    return Observation.from_module(module, batch_gradient(module, X, Y, loss=loss), batch=3, loss=loss, **options)


def sequential(activate=nn.Tanh, **options):
    """A user's module, at PyTorch's own initialisation."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 9, **{"bias": False, **options}), activate(), nn.Linear(9, 1), nn.Flatten(0)
    ).double()


def residuals(module, observation):
    outputs = module(X).detach()
    return (torch.sigmoid(outputs) if observation.logistic else outputs) - Y


def check(module, observation):
    """The definitions of g, G, f and y, with what only the client knows."""
    r = residuals(module, observation)
    values, slopes = observation.activation.derivatives(X @ observation.weights.mT, order=1)
    hidden = (slopes * r.unsqueeze(1)).mT @ X / len(observation.weights)
    torch.testing.assert_close(observation.outputs, r @ values, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(observation.hidden, hidden, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(observation.predictions(X), module(X).detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(observation.labels(X, r), Y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_loss_and_activation_comes_out_normalised(name, loss):
    module = Client(W, activation=name, bias=3.0)
    observation = seen(module, loss=loss)
    assert observation.activation is activation(name)
    assert observation.bias == pytest.approx(3.0, abs=1e-12)
    check(module, observation)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_module_of_ones_own_is_understood(loss):
    module = sequential()
    observation = seen(module, loss=loss)
    assert observation.activation.name == "tanh"
    assert observation.bias == pytest.approx(float(module[2].bias.detach()), abs=1e-15)
    check(module, observation)


def test_one_layer_of_the_gradient_is_enough():
    module = Client(W, activation="tanh")
    full = batch_gradient(module, X, Y, loss="sum")
    for kept, lost in (("hidden", "outputs"), ("outputs", "hidden")):
        observation = Observation.from_module(module, {kept: full[kept]}, batch=3, loss="sum")
        assert getattr(observation, kept) is not None
        assert getattr(observation, lost) is None


def test_an_observation_has_no_room_for_the_batch():
    assert [field.name for field in dataclasses.fields(Observation)] == [
        "weights",
        "activation",
        "bias",
        "outputs",
        "hidden",
        "logistic",
        "readout",
    ]
    observation = seen(Client(W, activation="tanh"))
    shapes = {tuple(value.shape) for value in vars(observation).values() if isinstance(value, torch.Tensor)}
    assert shapes == {(9, 6), (9,)}  # of the network, never (3, …) of the batch


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: seen(sequential(bias=True)), "A hidden bias"),
        (lambda: seen(sequential(nn.Hardtanh)), "with a known activation"),
        (lambda: seen(sequential(), hidden="1.weight"), r"no parameter '1\.weight'; it has 0\.weight"),
        (lambda: seen(nn.Linear(6, 1).double()), "must name two layers that fit"),
        (lambda: seen(DeepStack(W, activation="tanh", depth=3)), "inputs of dimension 12"),
        (lambda: seen(Client(torch.cat([W, -W]), activation="tanh")), "the outputs fit tanh, sigmoid, sin, linear"),
        (lambda: seen(Client(0 * W, activation="tanh", bias=1.0)), "other than 0"),
    ],
)
def test_a_module_that_is_something_else_is_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_a_neuron_that_is_cut_off_is_refused():
    module = sequential()
    with torch.no_grad():
        module[2].weight[0, 4] = 0
    with pytest.raises(ValueError, match=r"no zero in '2\.weight'"):
        seen(module)


@pytest.mark.parametrize("equations", [HiddenEquations, OutputEquations])
@pytest.mark.parametrize("loss", ["half_sum", "mse_loss", "logistic"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_misfit_of_the_true_batch_is_rounding(name, loss, equations):
    module = Client(W, activation=name, bias=0.5)
    observation = seen(module, loss=loss)
    r = residuals(module, observation)
    layer = equations.from_observation(observation)
    assert layer.misfit(X, r) < 1e-13
    assert layer.misfit(X, 1.1 * r) == pytest.approx(0.1, rel=1e-9)
