"""Clusters2D is as its definition says; networks learn their own data; what is measured agrees with one network."""

import pytest
import torch

from leakage.trainers.ensembles import Recipe
from reproduced.papers.polytopes import clusters_2d
from reproduced.papers.polytopes.clusters_2d import ClusterTask, Layout, MeasurementPlan
from reproduced.papers.polytopes.decision_boundary import decision_boundary
from reproduced.papers.polytopes.subdivision import subdivide
from reproduced.papers.polytopes.windows import unit_square
from reproduced.runtime import Run, stream
from reproduced.statistics import geometric_mean

# ── the data ─────────────────────────────────────────────────────────────────────────────────────────────────────────

LAYOUTS = (Layout(), Layout(pairs=2, points=30, radius=0.1, gap=0.05), Layout(pairs=1, points=1, gap=0.0))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_definition_holds(layout, seed):
    data = clusters_2d.draw_clusters(layout, generator=stream(seed, "clusters"))
    found = clusters_2d.check_layout(data, layout)
    assert found.spread_error < 1e-12  # a few roundings of numbers below 1
    assert found.opposite_gap >= layout.gap
    assert found.imbalance == 0
    assert found.outside == 0
    assert data.points.shape == (2 * layout.pairs * layout.points, 2)


def test_points_are_uniform_on_their_discs():
    layout = Layout(pairs=1, points=4000)
    data = clusters_2d.draw_clusters(layout, generator=stream(0, "clusters"))
    offsets = (data.points.view(2, -1, 2) - data.centres[0].unsqueeze(1)) / layout.radius
    shares = offsets.norm(dim=-1).square().sort(-1).values
    # Squared radii are uniform: Kolmogorov's distance, at a level of 1e-4.
    expected = (torch.arange(4000).double() + 0.5) / 4000
    assert float((shares - expected).abs().max()) < 2.23 / 4000**0.5
    assert float(offsets.mean(1).norm(dim=-1).max()) < 4 * (0.25 / 4000 * 2) ** 0.5
    assert float(offsets.norm(dim=-1).max()) <= 1


def test_walls_are_orthogonal_to_axes():
    data = clusters_2d.draw_clusters(generator=stream(0, "clusters"))
    assert torch.allclose(data.walls.norm(dim=-1), torch.ones(6).double())
    assert float((data.walls * data.axes).sum(-1).abs().max()) < 1e-15
    assert torch.allclose(data.middles + 0.05 * data.axes, data.centres[:, 1])


# ── the networks ──────────────────────────────────────────────────────────────────────────────────────────────────────

RUN = Run("smoke", 0, torch.device("cpu"))
EASY = ClusterTask(
    Layout(pairs=1, points=40, radius=0.1, gap=0.2), (10, 10), Recipe(epochs=30, batch=20, learning_rate=5e-3)
)


def test_a_network_learns_its_own_data():
    found = clusters_2d.train_networks(EASY, models=2, run=RUN)
    assert found.fitted.all()
    assert sorted(found.snapshots) == list(range(31))
    for model, data in enumerate(found.data):
        right = found.network(model)(data.points).argmax(-1) == data.labels
        torch.testing.assert_close(found.accuracy[model], right.double().mean())
    assert found.network(0).weights[0].dtype == torch.float64
    assert not torch.allclose(found.data[0].points, found.data[1].points)


# ── what their pictures show ──────────────────────────────────────────────────────────────────────────────────────────

TASK = ClusterTask(Layout(pairs=2, points=30, radius=0.1), (12, 12), Recipe(epochs=40, batch=20, learning_rate=5e-3))
PLAN = MeasurementPlan(epochs=tuple(range(7)), early=(0, 3), late=(5, 7), side=40, movement_side=20)


@pytest.fixture(scope="module")
def measured():
    return clusters_2d.measure_group(0, models=3, run=RUN, task=TASK, plan=PLAN)


def test_the_networks_are_those_of_the_trainer(measured):
    targets = clusters_2d.train_networks(TASK, models=3, run=RUN)
    torch.testing.assert_close(measured.fitted, targets.fitted)
    assert measured.epochs.tolist() == [*range(7), 40]
    cells = subdivide(targets.network(1, epoch=40), unit_square())
    assert int(measured.history.cells[-1, 1]) == len(cells)
    assert int(measured.history.components[-1, 1]) == decision_boundary(cells).components
    assert int(measured.final.own.counts[1].sum()) == len(cells)
    # The null has the data of two other networks.
    assert int(measured.final.other.counts[1].sum()) == 2 * len(cells)
    lengths = (cells.hyperedges()[0][:, 1] - cells.hyperedges()[0][:, 0]).norm(dim=-1)
    assert float(measured.history.edge_lengths[-1, 1].sum()) == pytest.approx(float(lengths.sum()))


def test_outputs_are_small_on_the_boundary_and_not_on_those_of_other_networks(measured):
    kept = measured.fitted
    assert bool(kept.any())
    assert float(measured.final.ridge.window.output[kept].max()) < 0.1
    assert float(measured.final.other_ridge.output[kept].min()) > 0.1


def test_a_geometric_mean_is_that_of_the_ratios():
    ratios = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    found = geometric_mean(ratios.log())
    assert float(found) == pytest.approx(2)
    assert found.low * found.high == pytest.approx(4)  # the interval is symmetric in logarithms
