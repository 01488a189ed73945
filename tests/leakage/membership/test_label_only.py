"""Attacks that see labels only."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership.boundary_distance import deepfool
from leakage.membership.label_only import HopSkipJumpSettings, hop_skip_jump, noise_robustness
from leakage.models import mlp
from planted import half_space
from reproduced.runtime import stream


def test_hop_skip_jump_finds_the_distance_to_a_plane():
    points = gaussian((10, 12), generator=stream(0, "points"))
    pool = gaussian((50, 12), generator=stream(0, "pool"))
    found = hop_skip_jump(
        half_space(12),
        points,
        pool,
        settings=HopSkipJumpSettings(iterations=8, directions=200),
        generator=stream(0, "jumps"),
    )
    exact = points[:, 0].abs()
    assert bool((found >= exact * (1 - 1e-9)).all())
    # Directions by the hundreds leave an angle of some 0.1 between the estimated normal and the true one.
    assert bool((found <= 1.1 * exact + 1e-3).all())


def test_it_is_an_upper_bound_that_falls_with_more_queries():
    network = mlp.initial((), (20, 16, 4), generator=stream(1, "network"))
    points, pool = (2 * gaussian((n, 20), generator=stream(1, name)) for n, name in ((30, "points"), (60, "pool")))
    few, many = (
        hop_skip_jump(
            network,
            points,
            pool,
            settings=HopSkipJumpSettings(iterations=i, directions=100),
            generator=stream(1, "jumps"),
        )
        for i in (0, 6)
    )
    assert float(many.mean()) < 0.8 * float(few.mean())
    # DeepFool is no lower bound; but with labels alone nothing comes far below it.
    assert bool((many >= 0.8 * deepfool(network, points)).all())


def test_without_another_label_in_the_pool_nothing_is_reached():
    points = torch.ones(3, 4, dtype=torch.float64)
    found = hop_skip_jump(half_space(4), points, points, settings=HopSkipJumpSettings(), generator=stream(0, "jumps"))
    assert found.isinf().all()


def test_the_queries_are_counted():
    assert HopSkipJumpSettings(iterations=0, bisections=9).queries == 9
    assert HopSkipJumpSettings(iterations=2, directions=100, bisections=10, halvings=5).queries == 10 + (100 + 15) + (
        141 + 15
    )


def test_the_share_that_survives_flips_is_binomial():
    points = torch.zeros(2, 3, dtype=torch.float64)
    labels = torch.zeros(2, dtype=torch.int64)
    network = half_space(3, at=0.5)
    found = noise_robustness(network, points, labels, amount=0.2, copies=20_000, generator=stream(0, "flips"))
    # The label survives unless the first bit flips: 0.8, with 20,000 draws.
    assert abs(float(found.mean()) - 0.8) < 4 * math.sqrt(0.16 / 20_000)
    gaussian_noise = noise_robustness(
        network, points, labels, amount=0.5, copies=20_000, noise="gaussian", generator=stream(0, "normal")
    )
    level = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    assert abs(float(gaussian_noise.mean()) - level) < 4 * math.sqrt(level * (1 - level) / 20_000)


@pytest.mark.parametrize("noise", ["flip", "gaussian"])
def test_points_are_compared_under_the_same_noise_in_any_order(noise):
    points = (torch.rand(60, 5, generator=stream(0, "bits"), dtype=torch.float64) < 0.5).double()
    network, order = half_space(5, at=0.5), torch.arange(59, -1, -1)
    labels = network(points).argmax(-1)

    def found(order):
        some = {"amount": 0.3, "copies": 400, "noise": noise, "generator": stream(0, "noise")}
        shares = noise_robustness(network, points[order], labels[order], **some)
        walks = hop_skip_jump(
            network, points[order], points, settings=HopSkipJumpSettings(2, 9), generator=stream(0, "walk")
        )
        return torch.stack([shares, walks])

    torch.testing.assert_close(found(order), found(torch.arange(60))[:, order])


def test_the_wrong_label_does_not_survive():
    points, labels = torch.zeros(5, 3, dtype=torch.float64), torch.ones(5, dtype=torch.int64)
    network = half_space(3, at=0.5)
    found = noise_robustness(network, points, labels, amount=1e-9, copies=3, generator=stream(0, "flips"))
    assert found.tolist() == [0.0] * 5


def test_flips_of_other_numbers_than_bits_are_refused():
    points, labels = torch.full((2, 3), 0.5).double(), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="bits"):
        noise_robustness(half_space(3), points, labels, amount=0.1, copies=2, generator=stream(0, "noise"))


def test_a_network_is_asked_on_lines_as_any_classifier_is_at_points():
    network = mlp.initial((), (12, 16, 5), generator=stream(3, "network"))
    points, pool = (2 * gaussian((n, 12), generator=stream(3, name)) for n, name in ((20, "points"), (40, "pool")))
    known, unknown = (
        hop_skip_jump(one, points, pool, settings=HopSkipJumpSettings(), generator=stream(3, "jumps"))
        for one in (network, lambda asked: network(asked))
    )
    assert torch.allclose(known, unknown, rtol=1e-9)
