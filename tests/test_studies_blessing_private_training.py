"""One call trains every private network of a point, reproducibly, on the same halves at every width."""

import itertools

import pytest
import torch

from leakage.runtime import stream
from leakage.studies.blessing.private_training import private_targets
from leakage.trainers.dp_sgd import Recipe

POINTS, POOL, MODELS, CLASSES = 60, 40, 4, 3
NOISE, RATES = (0.5, 2.0), (0.2, 0.5, 1.0)


def a_point(width=8, split=0, *, seed=0, pool=POOL, noise=NOISE, steps=30):
    draws = stream(7, "data")
    labels = torch.randint(CLASSES, (POINTS,), generator=draws)
    features = 2 * torch.eye(CLASSES)[labels] + 0.3 * torch.randn(POINTS, CLASSES, generator=draws)
    return private_targets(
        (width, split),
        features=features,
        labels=labels,
        pool=pool,
        models=MODELS,
        noise=noise,
        learning_rates=RATES,
        recipe=Recipe(steps, 8.0),
        seed=seed,
    )


def test_settings_are_every_rate_with_every_noise():
    found = a_point()
    expected = torch.tensor(list(itertools.product(RATES, NOISE)))
    assert torch.equal(torch.stack([found["learning_rate"], found["noise"]], dim=-1), expected)
    assert found["losses"].shape == (6, MODELS, POOL)
    assert found["error"].shape == (6, MODELS)
    assert bool((found["losses"] >= 0).all())


def test_little_noise_learns_what_much_noise_does_not():
    error = a_point(noise=(0.1, 100.0), steps=60)["error"].mean(-1)
    assert float(error[0::2].min()) < 0.1  # three well separated classes
    assert float(error[1::2].min()) > 0.3


def test_the_same_seed_gives_the_same_networks_and_another_one_others():
    first, again, other = a_point(), a_point(), a_point(seed=1)
    assert torch.equal(first["losses"], again["losses"])
    assert not torch.equal(first["losses"], other["losses"])


def test_widths_share_their_halves_and_splits_do_not():
    narrow, wide, next_split = a_point(4), a_point(16), a_point(4, 1)
    assert torch.equal(narrow["member"], wide["member"])
    assert not torch.equal(narrow["member"], next_split["member"])


def test_a_pool_without_a_rest_is_refused():
    with pytest.raises(ValueError, match="`pool` must leave points"):
        a_point(pool=POINTS)
