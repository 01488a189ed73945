"""Automatic differentiation of a two-layer module is the oracle for the closed-form trainer, and the reverse."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import softplus

from leakage.data.gaussians import gaussian
from leakage.models import convolutional, two_layer
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.trainers import margin_flow, module_flow
from leakage.trainers.margin_flow import Descent
from leakage.trainers.module_flow import outputs, train

RUNS, WIDTH, DIMENSION, ROWS = 2, 20, 15, 8
PLAIN = Descent(steps=1000, learning_rate=0.05)
NORMALISED = Descent(steps=150, stability=0.3, growth=0.02)


class TwoLayerModule(nn.Module):
    def __init__(self, width=WIDTH, dimension=DIMENSION):
        super().__init__()
        with torch.device("meta"):
            self.hidden = nn.Linear(dimension, width)
            self.outer = nn.Linear(width, 1, bias=False)

    def forward(self, points):
        return self.outer(self.hidden(points).relu()).squeeze(-1)


MODULE = TwoLayerModule()


def problem(*, runs=RUNS, hidden_scale=0.1):
    """Initial networks with their points and labels."""
    generator = stream(0, "module flow")
    model = two_layer.initial((runs,), WIDTH, DIMENSION, generator=generator, hidden_scale=hidden_scale)
    points = gaussian((runs, ROWS, DIMENSION), generator=generator)
    labels = gaussian((runs, ROWS), generator=generator).sign()
    return model, points, labels


def as_parameters(model):
    return {
        "hidden.weight": model.weights,
        "hidden.bias": model.biases,
        "outer.weight": model.outputs.unsqueeze(-2),
    }


def as_model(parameters):
    return TwoLayer(parameters["hidden.weight"], parameters["hidden.bias"], parameters["outer.weight"].squeeze(-2))


def assert_equal_networks(ours, theirs, *, rtol):
    for name in ("weights", "biases", "outputs"):
        first, second = getattr(ours, name), getattr(theirs, name)
        assert float((first - second).norm() / second.norm()) < rtol


@pytest.fixture(scope="module")
def plain():
    """Networks after 1,000 plain steps by automatic differentiation."""
    model, points, labels = problem()
    return train(MODULE, as_parameters(model), points, labels, PLAIN)


@pytest.mark.parametrize("route", ["dual", "primal"])
def test_the_closed_form_takes_the_plain_steps_of_automatic_differentiation(plain, route):
    model, points, labels = problem()
    ours = margin_flow.train(model, points, labels, PLAIN, route=route)
    # Rounding of 1e-16 a step, over 1,000 steps that contract near the margin.
    assert_equal_networks(ours.model, as_model(plain.model), rtol=1e-12)
    torch.testing.assert_close(ours.margins, plain.margins, rtol=1e-12, atol=0)
    fresh = gaussian((RUNS, 30, DIMENSION), generator=stream(0, "fresh"))
    found = outputs(MODULE, plain.model, fresh)
    torch.testing.assert_close(ours.model(fresh), found, rtol=1e-12, atol=1e-12 * float(found.abs().max()))


@pytest.fixture(scope="module")
def normalised():
    """A network after 1,000 loss-normalised steps of `margin_flow`'s rule, by automatic differentiation."""
    model, points, labels = problem(runs=1)
    parameters = {name: tensor[0].clone().requires_grad_() for name, tensor in as_parameters(model).items()}
    for _ in range(1000):
        closed_form_step(parameters, points[0], labels[0], Descent(steps=1000))
    return as_model({name: tensor.detach().unsqueeze(0) for name, tensor in parameters.items()})


@pytest.mark.parametrize("route", ["dual", "primal"])
def test_the_closed_form_takes_the_normalised_steps_of_automatic_differentiation(normalised, route):
    ours = margin_flow.train(*problem(runs=1), Descent(steps=1000), route=route)
    assert_equal_networks(ours.model, normalised, rtol=1e-12)
    assert float(ours.margin) > 20  # far into the tail of the loss, where its plain form has lost all digits


def closed_form_step(parameters, points, labels, descent):
    """One loss-normalised step by `margin_flow`'s rule, with the gradient of every output for itself."""
    found = functional_call(MODULE, parameters, (points,))
    shares = margin_flow.loss_shares((labels * found).detach())
    own = torch.eye(len(points), dtype=DTYPE)
    gradients = torch.autograd.grad(found, list(parameters.values()), own, is_grads_batched=True)
    slopes = sum(gradient.flatten(1).square().sum(-1) for gradient in gradients)
    lengths = (points.square().sum(-1) + 1).sqrt()
    step = min(descent.stability / (shares @ slopes), descent.growth / (shares @ lengths))
    with torch.no_grad():
        for tensor, gradient in zip(parameters.values(), gradients, strict=True):
            tensor += step * torch.tensordot(shares * labels, gradient, dims=1)


@pytest.mark.parametrize("descent", [replace(PLAIN, steps=100), NORMALISED], ids=["plain", "normalised"])
def test_both_routes_and_single_runs_give_the_same_networks(descent):
    model, points, labels = problem(runs=3)
    together, apart = (
        train(MODULE, as_parameters(model), points, labels, descent, route=route) for route in ("vmap", "loop")
    )
    alone = train(MODULE, as_parameters(model[1:2]), points[1:2], labels[1:2], descent)
    for name, tensor in together.model.items():
        torch.testing.assert_close(tensor, apart.model[name], rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(apart.model[name][1:2], alone.model[name])
    torch.testing.assert_close(together.steps, apart.steps)


def test_a_normalised_step_follows_the_gradient_of_the_log_loss():
    model, points, labels = problem(runs=1)
    start = as_parameters(model)
    leaves = {name: tensor[0].clone().requires_grad_() for name, tensor in start.items()}
    loss = softplus(-labels[0] * functional_call(MODULE, leaves, (points[0],))).mean().log()
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    steepness = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    size = math.sqrt(sum(float(tensor.square().sum()) for tensor in start.values()))
    for descent, length in (
        (Descent(steps=1, stability=1e-3, growth=1e3), 1e-3 / steepness**2),
        (Descent(steps=1, stability=1e3, growth=1e-3), 1e-3 * size / steepness),
    ):
        moved = train(MODULE, start, points, labels, descent).model
        for name, gradient in gradients.items():
            torch.testing.assert_close(moved[name][0] - start[name][0], -length * gradient, rtol=1e-9, atol=1e-15)


def test_two_halves_are_the_whole():
    model, points, labels = problem()
    half = replace(NORMALISED, steps=75)
    first = train(MODULE, as_parameters(model), points, labels, half)
    second = train(MODULE, first.model, points, labels, half)
    whole = train(MODULE, as_parameters(model), points, labels, NORMALISED)
    torch.testing.assert_close(dict(second.model), dict(whole.model))


@pytest.mark.parametrize("route", ["loop", "vmap"])
def test_every_network_stops_when_its_own_margin_is_reached(route):
    model, points, labels = problem(runs=3)
    descent = replace(NORMALISED, steps=2000, margin=5.0)
    trained = train(MODULE, as_parameters(model), points, labels, descent, route=route)
    assert bool((trained.margin >= 5).all())
    assert len(trained.steps.unique()) == 3
    assert int(trained.steps.max()) < 2000
    for run, taken in enumerate(trained.steps.tolist()):
        own = slice(run, run + 1)
        late, there = (
            train(MODULE, as_parameters(model[own]), points[own], labels[own], replace(descent, steps=steps))
            for steps in (taken - 1, taken)
        )
        assert float(late.margin) < 5
        # And there it waits for the others.
        assert_equal_networks(as_model(trained.model)[own], as_model(there.model), rtol=1e-11)


def test_no_step_changes_nothing_and_the_initial_parameters_are_never_changed():
    model, points, labels = problem()
    start = as_parameters(model)
    copies = {name: tensor.clone() for name, tensor in start.items()}
    still = train(MODULE, start, points, labels, Descent(steps=0))
    train(MODULE, start, points, labels, replace(PLAIN, steps=3))
    for name, tensor in start.items():
        torch.testing.assert_close(tensor, copies[name])
        torch.testing.assert_close(still.model[name], tensor)
    torch.testing.assert_close(still.margins, labels * model(points), rtol=1e-12, atol=1e-15)


def test_a_dead_network_stays_where_it_is_without_a_nan():
    model, points, labels = problem()
    start = as_parameters(model)
    start["hidden.weight"], start["hidden.bias"] = torch.zeros_like(model.weights), -torch.ones_like(model.biases)
    for descent in (replace(NORMALISED, steps=5), replace(PLAIN, steps=5)):
        trained = train(MODULE, start, points, labels, descent)
        torch.testing.assert_close(dict(trained.model), dict(start))
        assert trained.margin.tolist() == [0.0, 0.0]


def test_a_convolutional_network_learns_its_labels():
    generator = stream(0, "images")
    module = convolutional.Convolutional(4, width=4)
    points = torch.rand((2, 6, 16), generator=generator, dtype=DTYPE)
    labels = torch.tensor([[1.0, -1.0] * 3] * 2, dtype=DTYPE)
    descent = Descent(steps=2000, margin=3.0, stability=0.1, growth=0.02)
    trained = train(module, convolutional.initial(module, 2, generator=generator), points, labels, descent)
    assert bool((trained.margin >= 3).all())
    torch.testing.assert_close(labels * outputs(module, trained.model, points), trained.margins)


def test_outputs_do_not_depend_on_the_chunks(monkeypatch):
    model, _, _ = problem()
    points = gaussian((RUNS, 33, DIMENSION), generator=stream(0, "chunks"))
    whole = outputs(MODULE, as_parameters(model), points)
    assert not whole.requires_grad
    monkeypatch.setattr(module_flow, "_CHUNK", 7)
    torch.testing.assert_close(outputs(MODULE, as_parameters(model), points), whole, rtol=1e-12, atol=1e-15)
    assert outputs(MODULE, as_parameters(model), points[:, :0]).shape == (RUNS, 0)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"hidden.bias": torch.zeros(RUNS, WIDTH + 1)}, "hidden.bias"),
        ({"outer.bias": torch.zeros(RUNS, 1)}, "outer.bias"),
        ({"hidden.weight": torch.zeros(RUNS + 1, WIDTH, DIMENSION)}, "hidden.weight"),
    ],
)
def test_parameters_that_are_not_the_modules_are_named(change, names):
    model, points, labels = problem()
    with pytest.raises(ValueError, match=f"wrong shapes of {names}"):
        train(MODULE, as_parameters(model) | change, points, labels, PLAIN)
    with pytest.raises(ValueError, match=f"wrong shapes of {names}"):
        outputs(MODULE, as_parameters(model) | change, points)


def test_a_module_must_give_one_output_a_point():
    _, points, labels = problem()
    column = nn.Sequential()
    column.forward = lambda points: points[..., :1]
    with pytest.raises(ValueError, match=r"`module` must give outputs \(t,\) for points \(t, d\); got \(8, 1\)"):
        train(column, {}, points, labels, PLAIN)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_gives_the_same_networks():
    model, points, labels = problem()
    start = {name: tensor.cuda() for name, tensor in as_parameters(model).items()}
    descent = replace(NORMALISED, steps=100)
    ours = train(MODULE, start, points.cuda(), labels.cuda(), descent)
    assert ours.margins.is_cuda
    expected = train(MODULE, as_parameters(model), points, labels, descent)
    torch.testing.assert_close(ours.margins.cpu(), expected.margins, rtol=1e-9, atol=1e-12)
