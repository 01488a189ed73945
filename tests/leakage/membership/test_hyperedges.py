"""Rays through polytopes meet what they must meet."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership import hyperedges
from leakage.membership.polytopes import activation_pattern, jacobian_norm
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.runtime import stream


def strips() -> Mlp:
    """Hyperedges at 1, 3 and 6 on the first axis of five."""
    weight = torch.zeros(3, 5, dtype=torch.float64)
    weight[:, 0] = torch.tensor([1.0, -2.0, 0.5])
    first = torch.tensor([-1.0, 6.0, -3.0], dtype=torch.float64)
    return Mlp((weight, torch.ones(2, 3).double()), (first, torch.zeros(2).double()))


def test_the_crossings_of_parallel_hyperedges_are_known():
    points = torch.zeros(1, 5, dtype=torch.float64)
    slanted = torch.tensor([[[0.6, 0.8, 0.0, 0.0, 0.0]]], dtype=torch.float64)
    crossings = hyperedges.shoot_rays(strips(), points, slanted, boundaries=4)
    # At x1 = 1 the ray is at (1, 4/3); from there on it goes along the first axis only.
    expected = [math.hypot(x, 4 / 3) for x in (1, 3, 6)]
    assert crossings.distance[0, 0, :3].tolist() == pytest.approx(expected, abs=1e-12)
    assert math.isinf(float(crossings.distance[0, 0, 3]))
    assert int(crossings.distance.isfinite().sum()) == 3
    assert crossings.cosine[0, 0].tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("widths", [(30, 8, 3), (5, 9, 3), (5, 9, 7, 3)])
def test_a_crossing_lies_between_two_polytopes(widths):
    network = mlp.initial((), widths, generator=stream(0, "network"))
    points = gaussian((20, widths[0]), generator=stream(0, "points"))
    first = hyperedges.draw_directions(points, rays=2, generator=stream(0, "rays"))
    crossings = hyperedges.shoot_rays(network, points, first, boundaries=1)
    met = crossings.distance[:, 0].isfinite().any(-1)
    assert bool(met.any())
    # With one boundary the ray is straight: just before it the pattern is the point's, just behind it is another.
    for factor, same in ((1 - 1e-6, True), (1 + 1e-6, False)):
        place = points + factor * crossings.distance[:, 0] * first[:, 0]
        rows = torch.cat(
            [
                (a == b)
                for a, b in zip(activation_pattern(network, place), activation_pattern(network, points), strict=True)
            ],
            -1,
        )
        assert bool((rows.all(-1) == same)[met].all())
        if not same:
            assert bool(((~rows).sum(-1) == 1)[met].all())
            norms = jacobian_norm(network, activation_pattern(network, place))
            assert torch.allclose(norms[met], crossings.norm[met, 0, 0], rtol=1e-10)


def test_rays_lead_away_from_the_point():
    network = mlp.initial((), (30, 20, 3), generator=stream(0, "network"))
    points = gaussian((20, 30), generator=stream(0, "points"))
    first = hyperedges.draw_directions(points, rays=3, generator=stream(0, "rays"))
    crossings = hyperedges.shoot_rays(network, points, first, boundaries=4)
    assert bool((crossings.distance.diff(dim=-1) >= 0).all())
    assert bool((crossings.cosine.abs() <= 1 + 1e-12).all())


def test_features_do_not_depend_on_the_order_of_rays():
    network = mlp.initial((), (30, 20, 3), generator=stream(0, "network"))
    points = gaussian((6, 30), generator=stream(0, "points"))
    first = hyperedges.draw_directions(points, rays=3, generator=stream(0, "rays"))
    for signal in hyperedges.SIGNALS:
        one, other = (
            hyperedges.ray_features(hyperedges.shoot_rays(network, points, rays), signal)
            for rays in (first, first.flip(1))
        )
        assert torch.allclose(one, other, atol=1e-12)
