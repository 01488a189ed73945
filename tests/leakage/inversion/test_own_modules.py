"""Every route of `invert` is exact on random modules, and no wrong batch is certified."""

import random
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from checking import refused
from leakage.draws import gaussian
from leakage.inversion.federated import Client, batch_gradient
from leakage.inversion.own_modules.invert import invert
from leakage.inversion.reconstruction import match_error, match_inputs
from reproduced.runtime import stream

EXACT = {torch.float64: 1e-10, torch.float32: 2e-4}  # of inputs of length √d; rounding, and what conditions make of it


def perceptron(*sizes, activation=nn.Tanh, bias=True, dtype=torch.float64, seed=0, scale=1.0):
    """Linear layers with PyTorch's law of initial weights, from a stream of its own."""
    draws = stream(seed, "weights")
    layers = []
    for fan, width in pairwise(sizes):
        layer = nn.Linear(fan, width, bias=bias, dtype=dtype)
        for part in layer.parameters():
            part.data = scale * fan**-0.5 * (2 * torch.rand(part.shape, generator=draws, dtype=dtype) - 1)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def batch_of(module, count, *, dtype=torch.float64, seed=0, spread=1.0, shift=0.0):
    """Inputs, labels and the gradient by autograd: of the cross-entropy, or of squared errors of one output."""
    first = next(part for part in module.modules() if isinstance(part, nn.Linear))
    inputs = shift + spread * torch.randn((count, first.in_features), generator=stream(seed, "x"), dtype=dtype)
    outputs = module(inputs)
    if outputs.shape[1] > 1:
        labels = torch.randint(outputs.shape[1], (count,), generator=stream(seed, "y"))
        loss = cross_entropy(outputs, labels)
    else:
        labels = torch.randn(count, generator=stream(seed, "y"), dtype=dtype)
        loss = (outputs.squeeze(1) - labels).square().mean()
    parts = torch.autograd.grad(loss, list(module.parameters()))
    return inputs, labels, dict(zip(dict(module.named_parameters()), parts, strict=True))


def found_by(module, gradient, count, **options):
    return invert(module, gradient, batch=count, generator=stream(0, "attack"), **options)


# ── the routes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.LeakyReLU])
@pytest.mark.parametrize("sizes", [(20, 40, 1), (20, 40, 10), (20, 30, 20, 15, 5), (20, 4)])
def test_one_input_of_a_biased_layer_is_a_ratio_below_any_network(sizes, activation, dtype):
    module = perceptron(*sizes, activation=activation, dtype=dtype)
    inputs, labels, gradient = batch_of(module, 1, dtype=dtype)
    loss = "mse_loss" if sizes[-1] == 1 else "cross_entropy"
    found = found_by(module, gradient, 1, loss=loss)
    assert found.route == "ratio"
    assert found.certified
    error = float((found.inputs - inputs).norm())
    assert error <= found.bound < EXACT[dtype]
    torch.testing.assert_close(found.labels.to(labels), labels, rtol=1e-4, atol=1e-4)


def test_one_input_of_a_layer_with_dead_neurons_and_dropout_above_is_found():
    module = nn.Sequential(*perceptron(6, 30, activation=nn.ReLU), nn.ReLU(), nn.Dropout(), nn.Linear(30, 3).double())
    inputs, _, gradient = batch_of(module, 1)
    state = torch.get_rng_state()
    found = found_by(module, gradient, 1, loss="cross_entropy")
    torch.testing.assert_close(state, torch.get_rng_state())
    assert found.certified
    assert bool(found.residuals.isnan().all())
    assert found.labels is None
    torch.testing.assert_close(found.inputs, inputs)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("sizes", "count"), [((20, 60, 10), 4), ((20, 60, 30, 1), 3), ((12, 80, 40, 5), 6)])
def test_dead_neurons_tell_the_inputs_of_a_rectified_layer_apart(sizes, count, bias, dtype):
    module = perceptron(*sizes, activation=nn.ReLU, bias=bias, dtype=dtype)
    inputs, labels, gradient = batch_of(module, count, dtype=dtype)
    found = found_by(module, gradient, count, loss="cross_entropy" if sizes[-1] > 1 else "mse_loss")
    assert found.route == "dead_neurons"
    if bias:
        assert found.certified
        assert found.ambiguities == ()
        assert float((match_inputs(found.inputs, inputs.double()) - inputs).norm(dim=1).max()) <= found.bound
        torch.testing.assert_close(found.labels.sort().values.to(labels), labels.sort().values, rtol=1e-3, atol=1e-3)
    else:
        assert not found.certified
        assert any("s·x" in word for word in found.ambiguities)
        inputs = normalize(inputs, dim=1)
    assert match_error(found.inputs, inputs.double()) < EXACT[dtype]


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus])
@pytest.mark.parametrize("sizes", [(20, 60, 10), (20, 50, 20, 3), (20, 60, 1)])
def test_the_span_of_a_smooth_layer_leads_to_its_inputs(sizes, activation, dtype):
    module = perceptron(*sizes, activation=activation, dtype=dtype)
    inputs, labels, gradient = batch_of(module, 2, dtype=dtype)
    found = found_by(module, [*gradient.values()], 2, loss="cross_entropy" if sizes[-1] > 1 else "mse_loss")
    assert found.route == "span"
    assert found.certified
    error = match_inputs(found.inputs, inputs.double()) - inputs
    assert float(error.norm(dim=1).max()) <= found.bound
    assert float(error.norm()) < EXACT[dtype]
    torch.testing.assert_close(found.labels.sort().values.to(labels), labels.sort().values, rtol=1e-3, atol=1e-3)


def test_raw_inputs_need_no_norm():
    module = perceptron(12, 60, 10, scale=0.3)
    inputs, _, gradient = batch_of(module, 3, spread=4.0, shift=7.0)
    found = found_by(module, gradient, 3)
    assert found.certified
    assert match_error(found.inputs, inputs) <= found.bound < 1e-6


@pytest.mark.parametrize(("norm", "certified"), [(None, False), (2.0, True)])
def test_two_layers_without_a_hidden_bias_go_the_way_of_the_paper(norm, certified):
    module = nn.Sequential(nn.Linear(8, 60, bias=False), nn.ReLU(), nn.Linear(60, 1)).double()
    module[0].weight.data = gaussian((60, 8), generator=stream(0, "weights"))
    nn.init.constant_(module[2].weight, 1 / 60)
    nn.init.constant_(module[2].bias, 3.0)
    inputs = 2 * normalize(torch.randn((2, 8), generator=stream(1, "x"), dtype=torch.float64), dim=1)
    labels = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = found_by(module, batch_gradient(module, inputs, labels, loss="half_sum"), 2, loss="half_sum", norm=norm)
    assert (found.route, found.certified) == ("recover", certified)
    assert match_error(normalize(found.inputs, dim=1), normalize(inputs, dim=1)) < 1e-12
    if certified:
        assert match_error(found.inputs, inputs) <= found.bound < 1e-10
        torch.testing.assert_close(found.labels.sort().values, labels.sort().values)


def test_the_residuals_of_a_cross_entropy_tell_an_input_from_its_mirror_image():
    module = perceptron(8, 40, 5, bias=False)
    inputs, labels, gradient = batch_of(module, 2)
    found = found_by(module, gradient, 2, loss="cross_entropy")
    assert found.certified
    assert match_error(found.inputs, inputs) <= found.bound
    assert sorted(found.labels.tolist()) == sorted(labels.tolist())
    blind = found_by(module, gradient, 2)
    assert not blind.certified
    assert blind.ambiguities == ("an input may be (-x, -r)",)


def test_layers_above_may_be_unknown_and_images_have_shapes():
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron(36, 50, 10, activation=nn.ReLU)

        def forward(self, images):
            count, _, height, width = images.shape
            return self.body(images.reshape(count, height * width))

    module = Images()
    images = torch.rand((3, 1, 6, 6), generator=stream(0, "x"), dtype=torch.float64)
    loss = cross_entropy(module(images), torch.tensor([0, 1, 2]))
    gradient = [*torch.autograd.grad(loss, list(module.parameters()))[:2], None, None]
    before = {name: part.clone() for name, part in module.state_dict().items()}
    found = found_by(module, gradient, 3, shape=(1, 6, 6))
    assert found.certified
    assert match_error(found.inputs, images.flatten(1)) <= found.bound < 1e-9
    torch.testing.assert_close(dict(module.state_dict()), before)
    refused(lambda: found_by(module, gradient, 3), "`shape` must be that of one input")


# ── the certificate ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_certified_is_within_its_bound():
    """Over 120 random modules, inputs and precisions; modules too small for a route are refused, and counted."""
    certified = refusals = 0
    for seed in range(120):
        dice = random.Random(seed)
        dtype, activation = dice.choice([*EXACT]), dice.choice([nn.ReLU, nn.ReLU, nn.Tanh, nn.GELU, nn.Identity])
        sizes = [
            dice.randint(1, 8),
            *(dice.randint(1, 24) for _ in range(dice.randint(0, 2))),
            dice.choice([1, 2, 3, 5]),
        ]
        count = 1 if activation is nn.Identity or (activation is not nn.ReLU and seed % 8) else dice.randint(1, 3)
        bias = count == 1 or dice.random() < 0.7
        module = perceptron(*sizes, activation=activation, bias=bias, dtype=dtype, seed=seed, scale=dice.choice([1, 3]))
        options = dict(spread=dice.choice([0.1, 1.0, 5.0]), shift=dice.choice([0.0, 3.0]))
        inputs, _, gradient = batch_of(module, count, dtype=dtype, seed=seed, **options)
        try:
            found = found_by(module, gradient, count, tries=1)
        except ValueError:
            refusals += 1
            continue
        if found.certified:
            certified += 1
            assert float((match_inputs(found.inputs, inputs.double()) - inputs).norm(dim=1).max()) <= found.bound
    assert certified >= 50
    assert refusals <= 60


@pytest.mark.parametrize("noise", [1e-4, 1e-2])
@pytest.mark.parametrize("count", [1, 2])
def test_a_gradient_with_noise_is_not_certified(count, noise):
    module = perceptron(10, 40, 5)
    _, _, gradient = batch_of(module, count)
    draws = stream(0, "noise")
    noisy = {
        name: part + noise * part.norm() * torch.randn(part.shape, generator=draws, dtype=part.dtype)
        for name, part in gradient.items()
    }
    assert not found_by(module, noisy, count, tries=1).certified


def test_two_inputs_that_are_taken_for_one_are_not_certified():
    for sizes in ((10, 40, 5), (10, 40, 1)):
        module = perceptron(*sizes)
        assert not found_by(module, batch_of(module, 2)[2], 1).certified


# ── what has no route ───────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_of_another_loss_get_a_warning_and_inputs_are_certified():
    module = perceptron(10, 40, 5)
    inputs = torch.randn((1, 10), generator=stream(0, "x"), dtype=torch.float64)
    loss = (module(inputs) - 1).square().sum()
    gradient = torch.autograd.grad(loss, list(module.parameters()))
    found = found_by(module, gradient, 1, loss="cross_entropy")
    assert found.certified
    assert found.ambiguities == ("labels: the residuals are not those of a plain cross-entropy",)


class Turned(nn.Module):
    """A layer that does not see the inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8).double()

    def forward(self, inputs):
        return self.layer(2 * inputs)


def spoilt(name, value):
    gradient = batch_of(perceptron(4, 12, 3), 1)[2]
    return {**gradient, name: value(gradient[name])}


def without(name):
    gradient = batch_of(perceptron(4, 12, 3), 1)[2]
    return {key: part for key, part in gradient.items() if key != name}


@pytest.mark.parametrize(
    ("module", "count", "complaint"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), 1, "got Conv2d at '0'.*no route"),
        (Client(torch.ones(5, 3).double(), activation="tanh"), 1, "got Client at ''.*there is `recover`"),
        (Turned(), 1, "pass its inputs to 'layer' once and unchanged"),
        (nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2)).double(), 2, r"one by one.*\.eval\(\)"),
        (nn.Linear(4, 3).double(), 2, "only the span of the inputs is determined.*span.from_rows"),
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 9)).double(), 2, "neurons in '0'.*9 outputs"),
        (nn.Sequential(nn.Tanh()), 1, "must have parameters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_error_says_which_route_is_missing(module, count, complaint):
    draws = stream(0, "gradient")
    gradient = [torch.randn(part.shape, generator=draws, dtype=part.dtype) for part in module.parameters()]
    refused(lambda: found_by(module, gradient, count), complaint)


@pytest.mark.parametrize("loss", [None, "cross_entropy"])
def test_a_batch_normalisation_has_a_route_as_used_after_training_only(loss):
    layers = nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Linear(40, 3)
    module = nn.Sequential(*layers).double()
    for part in module.parameters():
        part.data = torch.randn(part.shape, generator=stream(0, f"weights/{part.shape}"), dtype=part.dtype)
    _, _, gradient = batch_of(module, 3)
    complaint = r"one by one.*\.eval\(\).*batch normalisation.*BatchNorm1d"
    refused(lambda: found_by(module, gradient, 3, loss=loss), complaint)
    inputs, _, gradient = batch_of(module.eval(), 3)
    found = found_by(module, gradient, 3, loss=loss)
    assert found.certified
    assert match_error(found.inputs, inputs) <= found.bound


@pytest.mark.parametrize(
    ("gradient", "options", "complaint"),
    [
        (without("0.bias"), {}, "must have '0.bias', the first layer's"),
        ([torch.ones(12, 4)], {}, "must have 4 parts"),
        ({"head": torch.ones(2)}, {}, "must name parameters"),
        (spoilt("0.weight", lambda part: part.mT), {}, r"must be \(12, 4\)"),
        (spoilt("2.bias", lambda part: part * float("nan")), {}, "finite"),
        (spoilt("0.weight", lambda part: part.half()), {}, "float32 or float64"),
        ({name: 0 * part for name, part in without("none").items()}, {}, "must not be zero throughout"),
        (spoilt("0.weight", lambda part: 0 * part) | {"0.bias": torch.zeros(12).double()}, {}, "neurons are dead"),
        (without("none"), {"count": 2}, "rank 1, too low for `batch` = 2"),
        (without("none"), {"norm": 1.0}, "`norm` must be None"),
        (without("none"), {"loss": "mse_loss"}, "`loss` must be one of several outputs"),
        (without("none"), {"shape": (5,)}, "`shape` must have 4 entries"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused(gradient, options, complaint):
    options = {"count": 1, **options}
    refused(lambda: found_by(perceptron(4, 12, 3), gradient, **options), complaint)
