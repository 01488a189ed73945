"""The CIFAR-10 experiment runs in miniature, on records in the real form."""

from typing import Any

import numpy as np
import pytest
import torch

from leakage.data import cifar10
from leakage.studies.blessing import residual_networks
from leakage.trainers.ensembles import Recipe


def images(count, seed):
    """Records of noise whose brightness is the class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    pixels = generator.integers(0, 60, (count, 3072)) + 60 * labels[:, None]
    records = np.concatenate((labels[:, None], pixels), axis=1).astype(np.uint8)
    return cifar10.parse(records.tobytes())


def record(point=(1, 0), **changes):
    settings: dict[str, Any] = {"training": images(24, 0), "validation": images(8, 1), "pool": 16, "models": 2}
    settings |= {"recipe": Recipe(1, 4, 0.003), "epochs": (0, 1), "seed": 0}
    return residual_networks.watched(point, **(settings | changes))


@pytest.mark.parametrize("route", ["loop", "vmap"])
def test_a_miniature_is_recorded_and_learns(route):
    found = record(recipe=Recipe(8, 4, 0.003), epochs=(0, 8), route=route)
    assert found.seen.losses.shape == (2, 2, 16)
    assert found.seen.error.shape == (2, 2)
    assert bool(torch.isfinite(found.seen.losses).all())
    own = [losses[found.member].mean() for losses in found.seen.losses]
    assert own[1] < own[0]


def test_widths_share_their_pool_and_pairs():
    narrow, wide = record((1, 0)), record((2, 0))
    assert torch.equal(narrow.member, wide.member)
    assert not torch.equal(narrow.seen.losses, wide.seen.losses)


def test_the_papers_recipe_has_its_number_of_steps():
    steps = residual_networks.PAPER.epochs * -(-25_000 // residual_networks.PAPER.batch)
    assert 50_000 <= steps < 50_000 + 196


def test_a_pool_larger_than_the_set_is_refused():
    with pytest.raises(ValueError, match="`pool` must be a whole number at least 1 and at most 24, got 26"):
        record(pool=26)
