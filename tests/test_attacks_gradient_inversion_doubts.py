"""A direction that is noise is doubted as often as promised, and the doubts of a sound batch are few."""

import math

import pytest

from leakage.attacks.gradient_inversion import doubts
from leakage.attacks.gradient_inversion.span import from_rows
from leakage.data.gaussians import gaussian, sphere
from leakage.runtime import stream


@pytest.mark.parametrize("dimension", [2, 3, 10, 40])
def test_chance_is_how_often_random_directions_agree(dimension):
    draws = 40_000
    one, other = (sphere(draws, dimension, generator=stream(0, name)) for name in ("one", "other"))
    passed = float(((one * other).sum(-1).abs() > doubts.by_chance(dimension)).double().mean())
    assert abs(passed - doubts.CHANCE) < 5 * math.sqrt(doubts.CHANCE / draws)  # five standard errors


def test_in_the_plane_chance_is_an_angle():
    assert doubts.by_chance(2) == pytest.approx(math.cos(doubts.CHANCE * math.pi / 2), rel=1e-9)


@pytest.mark.parametrize(("m", "d"), [(40, 10), (100, 40), (250, 100), (1000, 40)])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_rows_of_noise_have_no_gap(m, d, batch):
    for seed in range(5):
        noise = gaussian((m, d), generator=stream(seed, "noise"))
        assert from_rows(noise, batch=batch, generator=stream(seed, "attack")).gap < doubts.LEAST_GAP
