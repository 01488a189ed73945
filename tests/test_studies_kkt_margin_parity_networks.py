"""The experiment on digits gives what an attacker sees: margins of the trained images, outputs on others."""

from functools import cache

import pytest
import torch

from leakage.data.images import load
from leakage.trainers import margin_flow, module_flow
from leakage.trainers.margin_flow import Descent
from reproduced.studies.kkt_margin.parity_networks import NETWORKS, parity_targets

DIGITS = load("digits")


def targets(side=8, *, network="two-layer", **changes):
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
    return parity_targets(side, **(options | changes))


@cache
def usual(network="two-layer"):
    """What most tests look at."""
    return targets(network=network)


def never_trained(monkeypatch):
    """Record what the trainers are given, and let them take no step."""
    seen = []
    for trainer in (margin_flow, module_flow):

        def record(network, *rest, trainer=trainer, train=trainer.train):
            *parameters, points, labels, _ = rest
            seen.append((network, points, labels))
            return train(network, *parameters, points, labels, Descent(steps=0))

        monkeypatch.setattr(trainer, "train", record)
    return seen


@pytest.mark.parametrize("network", NETWORKS)
def test_results_have_the_shapes_and_the_dtype_asked_for(network):
    found = usual(network)
    assert [tuple(part.shape) for part in found[:4]] == [(2, 8), (2, 25), (2, 25), (2,)]
    assert found.margins.dtype == found.fresh.dtype == torch.float32
    assert bool((found.fresh_labels.abs() == 1).all())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_seed_repeats_the_experiment(network):
    first, again, other = usual(network), targets(network=network), targets(network=network, seed=1)
    torch.testing.assert_close(first[:4], again[:4])
    assert not torch.allclose(first.margins, other.margins)


@pytest.mark.parametrize("network", NETWORKS)
def test_trained_networks_fit_their_images_and_know_parity_better_than_a_coin(network):
    descent = Descent(steps=1500, margin=2.0, stability=0.3, growth=0.02)
    found = targets(network=network, rows_per_class=10, fresh=400, descent=descent)
    assert float(found.margins.min()) >= 2
    accuracy = float((found.fresh * found.fresh_labels > 0).double().mean())
    assert accuracy > 0.6  # five standard errors above a coin on 800 images; about 0.8 is usual


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("network", NETWORKS)
def test_centring_removes_the_mean_of_the_training_images(monkeypatch, network, centred):
    seen = never_trained(monkeypatch)
    targets(network=network, centred=centred)
    mean = seen[0][1].mean(-2)
    assert (float(mean.abs().max()) < 1e-6) is centred


def test_all_sides_and_networks_are_compared_on_the_same_splits():
    labels = [targets(side, network=network).fresh_labels for network, side in (("two-layer", 4), ("convolutional", 8))]
    for found in labels:
        torch.testing.assert_close(found, usual().fresh_labels)


def test_double_precision_agrees_with_single():
    single, double = usual(), targets(images=DIGITS.pixels.double())
    assert double.fresh.dtype == torch.float64
    # Rounding of 1e-7 that 150 steps amplify: each may move a kink across a point.
    torch.testing.assert_close(single.margins.double(), double.margins, rtol=1e-3, atol=1e-3)


def test_fresh_points_may_be_none():
    assert targets(fresh=0).fresh.shape == (2, 0)
