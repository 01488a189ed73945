"""Other batches have exactly the same gradient: autograd sees no difference, the data differ a lot."""

import dataclasses
from functools import partial

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.activations import ACTIVATIONS, activation
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.symmetries import symmetries
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import gradient_symmetries as twins
from reproduced.papers.gradient_inversion.games import Game
from reproduced.runtime import stream

D, B = 8, 3
X = sphere(B, D, generator=stream(0, "inputs"))
Y = torch.tensor([1.0, -1.0, 1.0], dtype=DTYPE)
W = gaussian((40, D), generator=stream(0, "weights"))
FLIPS = torch.tensor([True, False, True])
CENTRED = [name for name, sigma in ACTIVATIONS.items() if sigma.centre is not None]
HOMOGENEOUS = [name for name, sigma in ACTIVATIONS.items() if sigma.homogeneity is not None]


def client(name, *, bias=0.0):
    module = Client(W, activation=name, bias=bias)
    return module, module(X).detach() - Y


def gradients(module, inputs, residuals):
    """Both layers' gradients of the batch that has these residuals."""
    return batch_gradient(module, inputs, module(inputs).detach() - residuals, loss="half_sum")


def assert_same(module, ours, theirs, *, layers=("outputs", "hidden")):
    one, other = gradients(module, *ours), gradients(module, *theirs)
    for layer in layers:
        torch.testing.assert_close(one[layer], other[layer], rtol=0, atol=1e-13 * float(other[layer].abs().max()))


@pytest.mark.parametrize("bias", [0.0, 30.0])
@pytest.mark.parametrize("name", CENTRED)
def test_a_mirrored_batch_has_the_same_gradient_up_to_a_constant(name, bias):
    module, r = client(name, bias=bias)
    sigma = activation(name)
    mirror = twins.mirror(X, r, flips=FLIPS)
    assert_same(module, mirror, (X, r), layers=("hidden",))
    shift = gradients(module, *mirror)["outputs"] - gradients(module, X, r)["outputs"]
    expected = torch.full_like(shift, -2 * sigma.centre * float(r[FLIPS].sum()))
    # Rounding of sums of residuals near the bias.
    torch.testing.assert_close(shift, expected, rtol=0, atol=1e-13 * (1 + bias))


@pytest.mark.parametrize("bias", [0.0, 30.0])
@pytest.mark.parametrize("name", CENTRED)
def test_the_labels_of_a_mirror_are_reflected_at_twice_the_centre(name, bias):
    module, r = client(name, bias=bias)
    inputs, residuals = twins.mirror(X, r)
    expected = 2 * (activation(name).centre + bias) - Y
    torch.testing.assert_close(module(inputs).detach() - residuals, expected, rtol=0, atol=1e-12)


def test_without_a_bias_tanh_labels_change_sign_and_nothing_else_does():
    """Norms, labels of ±1 and the sizes of residuals all stay: no attack can tell which batch it was."""
    module = Client(W, activation="tanh")
    one = batch_gradient(module, X, Y, loss="mse_loss")
    other = batch_gradient(module, -X, -Y, loss="mse_loss")
    torch.testing.assert_close(one, other)
    assert float((2 * X).norm(dim=1).min()) == pytest.approx(2.0)


def test_for_logistic_labels_the_mirror_swaps_the_classes():
    module, labels = Client(W, activation="tanh"), (Y + 1) / 2
    one, other = (batch_gradient(module, s * X, y, loss="logistic") for s, y in ((1, labels), (-1, 1 - labels)))
    for layer in one:
        torch.testing.assert_close(one[layer], other[layer], rtol=0, atol=1e-15)


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, 1), (1, -1, -1)])
def test_a_rotated_batch_of_a_quadratic_network_has_the_same_gradient(signs):
    module = Client(W, activation="quadratic")
    r = torch.tensor([2.0, 0.7, 1.1], dtype=DTYPE) * torch.tensor(signs)
    other = twins.rotate(X, r, angle=0.6)
    assert_same(module, other, (X, r))
    assert float((other[0] - X).norm()) > 0.5
    torch.testing.assert_close(other[0][2:], X[2:])


def test_a_displaced_batch_of_a_linear_network_has_the_same_gradient():
    module, r = client("linear")
    other = twins.displace(X, r, shift=torch.ones(D, dtype=DTYPE))
    assert_same(module, other, (X, r))
    assert float((other[0] - X).norm()) > 0.5


@pytest.mark.parametrize("name", sorted({*ACTIVATIONS} - {*CENTRED, *HOMOGENEOUS}))
def test_where_no_symmetry_is_claimed_the_obvious_ones_change_the_gradient(name):
    """Planted: the same moves, on activations that they do not belong to."""
    module, r = client(name, bias=0.3)
    before = gradients(module, X, r)["hidden"]
    for inputs, residuals in ((-X, -r), (2 * X, r / 2), (-X, r)):
        change = gradients(module, inputs, residuals)["hidden"] - before
        assert float(change.norm() / before.norm()) > 1e-3
    assert symmetries(activation(name), outputs_seen=True) == ()


def test_a_twin_of_a_round_has_its_weights_and_its_gradient():
    game = Game(8, 40, activation="tanh", inputs="sphere", bias=0.0)
    first, mirrored, gap = twins.play_twin(game, twins.mirror, seed=0)
    torch.testing.assert_close(mirrored.observation.weights, first.observation.weights)
    torch.testing.assert_close(mirrored.labels, -first.labels)
    assert gap < 1e-13
    biased = dataclasses.replace(game, bias=3.0)
    assert twins.play_twin(biased, lambda x, r: (-x, r), seed=0).gap > 0.1  # no symmetry of its own


def test_twins_of_a_quadratic_network_share_their_span_and_their_gradient():
    game = Game(8, 40, activation="quadratic", inputs="sphere", bias=3.0)
    found = twins.measure_twins(game, partial(twins.rotate, angle=0.7), rounds=2, seed=0)
    assert float(found.apart.min()) > 0.3
    assert float(torch.cat([found.gap, found.outside]).max()) < 1e-12


@pytest.mark.parametrize(
    ("name", "free"),
    # A linear network shows a sum of d numbers, a quadratic one a symmetric matrix of rank B up to rotations.
    [("tanh", 0), ("softplus", 0), ("relu", B), ("linear", B * (D + 1) - D), ("quadratic", B * (B + 1) // 2)],
)
def test_what_a_gradient_leaves_free_is_counted(name, free):
    game = Game(D, 2 * B * (D + 1) + 1, batch=B, activation=name, inputs="sphere", bias=3.0)
    assert twins.count_free_directions(game, seed=0) == free


def test_fewer_neurons_than_unknowns_leave_the_rest_free():
    game = Game(D, 20, batch=B, activation="tanh", inputs="sphere", bias=3.0)
    assert twins.count_free_directions(game, seed=0) == B * (D + 1) - 20


def test_the_mirror_of_a_sigmoid_is_told_apart_by_the_output_layer_alone():
    assert symmetries(activation("sigmoid"), outputs_seen=True) == ()
    assert symmetries(activation("sigmoid"), outputs_seen=False) == symmetries(activation("tanh"), outputs_seen=True)
