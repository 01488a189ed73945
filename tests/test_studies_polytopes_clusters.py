"""Pairs of discs lie as the definition says."""

import pytest
import torch

from leakage.runtime import stream
from reproduced.studies.polytopes import clusters
from reproduced.studies.polytopes.clusters import Layout

LAYOUTS = (Layout(), Layout(pairs=2, points=30, radius=0.1, gap=0.05), Layout(pairs=1, points=1, gap=0.0))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_definition_holds(layout, seed):
    data = clusters.draw(layout, generator=stream(seed, "clusters"))
    found = clusters.properties(data, layout)
    assert found.spread_error < 1e-12  # a few roundings of numbers below 1
    assert found.opposite_gap >= layout.gap
    assert found.imbalance == 0
    assert found.outside == 0
    assert data.points.shape == (2 * layout.pairs * layout.points, 2)


def test_discs_of_different_pairs_keep_twice_the_gap():
    layout = Layout()
    data = clusters.draw(layout, generator=stream(0, "clusters"))
    apart = torch.cdist(data.centres.flatten(0, 1), data.centres.flatten(0, 1))
    own = torch.block_diag(*[torch.ones(2, 2)] * layout.pairs).bool()
    assert float(apart[~own].min()) >= 2 * layout.radius + 2 * layout.gap


def test_points_are_uniform_on_their_discs():
    layout = Layout(pairs=1, points=4000)
    data = clusters.draw(layout, generator=stream(0, "clusters"))
    offsets = (data.points.view(2, -1, 2) - data.centres[0].unsqueeze(1)) / layout.radius
    shares = offsets.norm(dim=-1).square().sort(-1).values
    # Squared radii are uniform: Kolmogorov's distance, at a level of 1e-4.
    expected = (torch.arange(4000).double() + 0.5) / 4000
    assert float((shares - expected).abs().max()) < 2.23 / 4000**0.5
    assert float(offsets.mean(1).norm(dim=-1).max()) < 4 * (0.25 / 4000 * 2) ** 0.5
    assert float(offsets.norm(dim=-1).max()) <= 1


def test_walls_are_orthogonal_to_axes():
    data = clusters.draw(generator=stream(0, "clusters"))
    assert torch.allclose(data.walls.norm(dim=-1), torch.ones(6).double())
    assert float((data.walls * data.axes).sum(-1).abs().max()) < 1e-15
    assert torch.allclose(data.middles + 0.05 * data.axes, data.centres[:, 1])
