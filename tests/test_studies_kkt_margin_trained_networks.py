"""Networks trained in the span answer as those trained in all dimensions; digits give what an attacker sees."""

import math
from functools import cache

import pytest
import torch
from torch import nn
from torch.func import functional_call

from leakage.data import mixtures
from leakage.data.gaussians import gaussian
from leakage.data.images import load
from leakage.metrics.roc import ks_test
from leakage.models import two_layer
from leakage.precision import DTYPE
from leakage.trainers import margin_flow
from leakage.trainers.margin_flow import Descent
from reproduced.runtime import stream
from reproduced.studies.kkt_margin.trained_networks import (
    NETWORKS,
    Convolutional,
    fresh_outputs,
    initial_convolutional,
    train_on_digits,
    train_on_gaussians,
)

SMALL = dict(rows=4, width=12, fresh=30, runs=3, descent=Descent(200, margin=3.0), seed=0)
RUNS, DIMENSION, SCALE = 800, 30, 0.3
DIGITS = load("digits")


def span_answers(descent):
    """One fresh answer of each network, trained in the span, with its label."""
    generator = stream(0, "span")
    sample = mixtures.draw_sample("mixture", rows=6, fresh=1, dimension=DIMENSION, runs=RUNS, generator=generator)
    start = two_layer.initial((RUNS,), 10, sample.train.shape[-1], generator=generator, hidden_scale=SCALE)
    model = margin_flow.train(start, sample.train, sample.labels, descent).model
    answers = fresh_outputs(model, sample, generator, hidden_scale=SCALE)
    return answers.squeeze(-1), (answers * sample.fresh_labels).squeeze(-1)


def explicit_answers(descent):
    """The same in all coordinates: the definition."""
    generator = stream(0, "explicit")
    labels = 2.0 * torch.randint(2, (RUNS, 7), generator=generator).to(DTYPE) - 1
    points = gaussian((RUNS, 7, DIMENSION), generator=generator)
    points[..., 0] += labels
    start = two_layer.initial((RUNS,), 10, DIMENSION, generator=generator, hidden_scale=SCALE)
    model = margin_flow.train(start, points[:, :6], labels[:, :6], descent, route="primal").model
    answers = model(points[:, 6:])
    return answers.squeeze(-1), (answers * labels[:, 6:]).squeeze(-1)


@pytest.mark.parametrize("descent", [Descent(150, 0.05), Descent(300, margin=2.0)], ids=["plain", "normalised"])
def test_fresh_points_get_answers_of_the_same_law(descent):
    """The initial weights are large, so that those outside the span, 23 of 30 dimensions, speak up."""
    for ours, theirs in zip(span_answers(descent), explicit_answers(descent), strict=True):
        assert ks_test(ours, theirs).p_value > 1e-3  # the seeds are fixed


def test_a_point_of_the_grid_holds_what_the_figures_need():
    found = train_on_gaussians(50, **SMALL, snapshots=[0, 5])
    assert found.margins.shape == (3, 4)
    assert found.fresh.shape == found.fresh_labels.shape == (3, 30)
    assert found.steps.shape == (3,)
    assert [(tuple(then.margins.shape), tuple(then.fresh.shape)) for then in found.snapshots] == 2 * [((3, 4), (3, 30))]
    assert bool((found.margins.amin(-1) >= 3).all())
    assert train_on_gaussians(50, **SMALL).snapshots == ()


def test_the_last_snapshot_is_the_end():
    found = train_on_gaussians(50, **SMALL, snapshots=[0, 200])
    torch.testing.assert_close(found.snapshots[-1].margins, found.margins, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.snapshots[-1].fresh, found.fresh, rtol=1e-11, atol=1e-11)


def test_descents_are_compared_on_the_same_points_and_starts():
    other = {**SMALL, "descent": Descent(100, 0.1)}
    found, again = (train_on_gaussians(50, **sizes, snapshots=[0]) for sizes in (SMALL, other))
    torch.testing.assert_close(found.fresh_labels, again.fresh_labels)
    torch.testing.assert_close(found.snapshots[0].fresh, again.snapshots[0].fresh)
    assert not torch.allclose(found.fresh, again.fresh)


def test_a_seed_gives_its_networks_again():
    found, again, other = (train_on_gaussians(50, **{**SMALL, "seed": seed}) for seed in (0, 0, 1))
    torch.testing.assert_close(found.fresh, again.fresh)
    assert not torch.allclose(found.fresh, other.fresh)


def test_quiet_output_weights_start_with_quiet_answers():
    loud, quiet = (train_on_gaussians(50, **SMALL, snapshots=[0], output_scale=scale) for scale in (1.0, 0.125))
    torch.testing.assert_close(quiet.snapshots[0].fresh, loud.snapshots[0].fresh / 8, rtol=1e-12, atol=0)


def test_single_precision_changes_digits_and_nothing_that_is_drawn():
    double, single = (train_on_gaussians(50, **SMALL, dtype=dtype) for dtype in (DTYPE, torch.float32))
    assert single.fresh.dtype == single.margins.dtype == DTYPE
    torch.testing.assert_close(double.fresh_labels, single.fresh_labels)
    assert bool(((double.steps - single.steps).abs() <= 1).all())
    torch.testing.assert_close(single.fresh, double.fresh, rtol=0, atol=1e-2)  # a step at the margin of 3


def digit_targets(side=8, *, network="two-layer", **changes):
    options = dict(
        images=DIGITS.pixels,
        digits=DIGITS.labels,
        network=network,
        width=30 if network == "two-layer" else 4,
        rows_per_class=4,
        fresh=25,
        runs=2,
        descent=Descent(steps=150, stability=0.3, growth=0.02),
        centred=False,
        seed=0,
    )
    return train_on_digits(side, **(options | changes))


@cache
def usual(network="two-layer"):
    """What most tests look at."""
    return digit_targets(network=network)


def never_trained(monkeypatch):
    """Record what the trainers are given, and let them take no step."""
    seen = []
    for trainer in (margin_flow.train, margin_flow.train_module):

        def record(network, *rest, train=trainer):
            *parameters, points, labels, _ = rest
            seen.append((network, points, labels))
            return train(network, *parameters, points, labels, Descent(steps=0))

        monkeypatch.setattr(margin_flow, trainer.__name__, record)
    return seen


@pytest.mark.parametrize("network", NETWORKS)
def test_results_have_the_shapes_and_the_dtype_asked_for(network):
    found = usual(network)
    assert [tuple(part.shape) for part in found[:4]] == [(2, 8), (2, 25), (2, 25), (2,)]
    assert found.margins.dtype == found.fresh.dtype == torch.float32
    assert bool((found.fresh_labels.abs() == 1).all())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_seed_repeats_the_experiment(network):
    first, again, other = usual(network), digit_targets(network=network), digit_targets(network=network, seed=1)
    torch.testing.assert_close(first[:4], again[:4])
    assert not torch.allclose(first.margins, other.margins)


@pytest.mark.parametrize("network", NETWORKS)
def test_trained_networks_fit_their_images_and_know_parity_better_than_a_coin(network):
    descent = Descent(steps=1500, margin=2.0, stability=0.3, growth=0.02)
    found = digit_targets(network=network, rows_per_class=10, fresh=400, descent=descent)
    assert float(found.margins.min()) >= 2
    accuracy = float((found.fresh * found.fresh_labels > 0).double().mean())
    assert accuracy > 0.6  # five standard errors above a coin on 800 images; about 0.8 is usual


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_centring_removes_the_mean_of_the_training_images(monkeypatch, network, centred):
    seen = never_trained(monkeypatch)
    digit_targets(network=network, centred=centred)
    mean = seen[0][1].mean(-2)
    assert (float(mean.abs().max()) < 1e-6) is centred


def test_all_sides_and_networks_are_compared_on_the_same_splits():
    labels = [
        digit_targets(side, network=network).fresh_labels for network, side in (("two-layer", 4), ("convolutional", 8))
    ]
    for found in labels:
        torch.testing.assert_close(found, usual().fresh_labels)


def test_double_precision_agrees_with_single():
    single, double = usual(), digit_targets(images=DIGITS.pixels.double())
    assert double.fresh.dtype == torch.float64
    # Rounding of 1e-7 that 150 steps amplify: each may move a kink across a point.
    torch.testing.assert_close(single.margins.double(), double.margins, rtol=1e-3, atol=1e-3)


def test_fresh_points_may_be_none():
    assert digit_targets(fresh=0).fresh.shape == (2, 0)


# ── the convolutional network ────────────────────────────────────────────────────────────────────────────────────────


def convolutional_network(side=6, width=3):
    """A module, the parameters of one network, and some images."""
    module = Convolutional(side, width=width)
    stacked = initial_convolutional(module, 1, generator=stream(0, "network"))
    points = torch.rand((5, side**2), generator=stream(0, "points"), dtype=DTYPE)
    return module, {name: tensor[0] for name, tensor in stacked.items()}, points


def by_hand(parameters, points, side):
    """Convolutions as sums over shifted images."""

    def convolve(channels, kernels):
        padded = nn.functional.pad(channels, (1, 1, 1, 1))
        shifts = [[padded[..., i : i + side, j : j + side] for j in range(3)] for i in range(3)]
        return sum(torch.einsum("tchw,oc->tohw", shifts[i][j], kernels[:, :, i, j]) for i in range(3) for j in range(3))

    hidden = convolve(points.reshape(-1, 1, side, side), parameters["lower.weight"])
    hidden = (hidden + parameters["lower.bias"][:, None, None]).clamp_min(0)
    hidden = convolve(hidden, parameters["upper.weight"]).clamp_min(0)
    return hidden.flatten(1) @ parameters["output.weight"][0]


def test_the_outputs_are_those_of_the_formula():
    module, parameters, points = convolutional_network()
    found = functional_call(module, parameters, (points,))
    torch.testing.assert_close(found, by_hand(parameters, points, 6), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_scaling_all_parameters_scales_the_output_by_the_third_power(scale):
    module, parameters, points = convolutional_network()
    scaled = functional_call(module, {name: scale * tensor for name, tensor in parameters.items()}, (points,))
    expected = scale**3 * functional_call(module, parameters, (points,))
    assert float(expected.abs().min()) > 0
    torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=0)


def test_the_parameters_times_their_gradient_are_three_times_the_output():
    module, parameters, points = convolutional_network()
    parameters = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
    output = functional_call(module, parameters, (points[:1],)).sum()
    gradients = torch.autograd.grad(output, list(parameters.values()))
    inner = sum((tensor * g).sum() for tensor, g in zip(parameters.values(), gradients, strict=True))
    torch.testing.assert_close(inner, 3 * output, rtol=1e-12, atol=0)  # Euler's theorem


def test_the_paper_s_sizes_are_the_default():
    shapes = {name: tuple(form.shape) for name, form in Convolutional(28).named_parameters()}
    assert shapes == {
        "lower.weight": (32, 1, 3, 3),
        "lower.bias": (32,),
        "upper.weight": (64, 32, 3, 3),
        "output.weight": (1, 64 * 28 * 28),
    }


def test_the_initial_law_is_pytorchs_default_with_a_smaller_first_layer():
    module = Convolutional(8)
    stacked = initial_convolutional(module, 4, generator=stream(0, "law"))
    bounds = {
        "lower.weight": 0.1 / 3,
        "lower.bias": 0.1 / 3,
        "upper.weight": 1 / math.sqrt(288),
        "output.weight": 1 / 64,
    }
    assert stacked.keys() == bounds.keys()
    torch.manual_seed(0)
    default = nn.Conv2d(32, 64, 3, padding=1, bias=False).weight  # what PyTorch itself draws
    assert float(default.detach().abs().max()) == pytest.approx(bounds["upper.weight"], rel=1e-3)
    for name, bound in bounds.items():
        tensor = stacked[name]
        assert tensor.dtype == DTYPE
        assert float(tensor.abs().max()) <= bound
        # The variance of U(-b, b) is b²/3, that of its square 4b⁴/45.
        error = abs(float(tensor.square().mean()) / bound**2 - 1 / 3)
        assert error < 4 * math.sqrt(4 / 45 / tensor.numel())


def test_runs_start_from_different_parameters_and_a_stream_repeats_them():
    module = Convolutional(4, width=2)
    first, again = (initial_convolutional(module, 2, generator=stream(0, "runs")) for _ in range(2))
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, again[name])
        assert not torch.allclose(tensor[0], tensor[1])


def test_making_the_form_draws_nothing():
    state = torch.random.get_rng_state()
    assert all(form.is_meta for form in Convolutional(8).parameters())
    torch.testing.assert_close(torch.random.get_rng_state(), state)
