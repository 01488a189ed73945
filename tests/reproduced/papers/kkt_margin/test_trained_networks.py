"""Networks trained in the span answer as those trained in all dimensions; digits give what an attacker sees."""

import math
from functools import cache

import pytest
import torch
from torch import nn
from torch.func import functional_call

from leakage.data.images import load
from leakage.draws import gaussian
from leakage.metrics.roc import ks_test
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin import margin_flow, mixtures, two_layer
from reproduced.papers.kkt_margin.margin_flow import Descent
from reproduced.papers.kkt_margin.trained_networks import (
    NETWORKS,
    Convolutional,
    fresh_outputs,
    initial_convolutional,
    train_on_digits,
    train_on_gaussians,
)
from reproduced.runtime import Run, stream

RUN = Run("smoke", 0, torch.device("cpu"))
SMALL = dict(rows=4, width=12, fresh=30, runs=3, descent=Descent(200, margin=3.0), run=RUN)
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


def test_descents_are_compared_on_the_same_points_and_starts():
    other = {**SMALL, "descent": Descent(100, 0.1)}
    found, again = (train_on_gaussians(50, **sizes, snapshots=[0]) for sizes in (SMALL, other))
    torch.testing.assert_close(found.fresh_labels, again.fresh_labels)
    torch.testing.assert_close(found.snapshots[0].fresh, again.snapshots[0].fresh)
    assert not torch.allclose(found.fresh, again.fresh)


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
        run=RUN,
    )
    return train_on_digits(side, **(options | changes))


@cache
def usual(network="two-layer"):
    """What most tests look at."""
    return digit_targets(network=network)


@pytest.mark.parametrize("network", NETWORKS)
def test_trained_networks_fit_their_images_and_know_parity_better_than_a_coin(network):
    descent = Descent(steps=1500, margin=2.0, stability=0.3, growth=0.02)
    found = digit_targets(network=network, rows_per_class=10, fresh=400, descent=descent)
    assert float(found.margins.min()) >= 2
    accuracy = float((found.fresh * found.fresh_labels > 0).double().mean())
    assert accuracy > 0.6  # five standard errors above a coin on 800 images; about 0.8 is usual


def test_all_sides_and_networks_are_compared_on_the_same_splits():
    labels = [
        digit_targets(side, network=network).fresh_labels for network, side in (("two-layer", 4), ("convolutional", 8))
    ]
    for found in labels:
        torch.testing.assert_close(found, usual().fresh_labels)


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


def test_the_parameters_times_their_gradient_are_three_times_the_output():
    module, parameters, points = convolutional_network()
    parameters = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
    output = functional_call(module, parameters, (points[:1],)).sum()
    gradients = torch.autograd.grad(output, list(parameters.values()))
    inner = sum((tensor * g).sum() for tensor, g in zip(parameters.values(), gradients, strict=True))
    torch.testing.assert_close(inner, 3 * output, rtol=1e-12, atol=0)  # Euler's theorem


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
