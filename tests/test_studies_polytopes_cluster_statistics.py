"""One call trains and measures a group; what it says agrees with looking at one network."""

import pytest
import torch

from leakage.geometry.boundary import decision_boundary
from leakage.geometry.subdivision import subdivide
from leakage.trainers.ensembles import Recipe
from reproduced.studies.polytopes import cluster_contrasts, cluster_networks, cluster_statistics
from reproduced.studies.polytopes.cluster_networks import ClusterTask
from reproduced.studies.polytopes.cluster_statistics import Looks
from reproduced.studies.polytopes.clusters import Layout
from reproduced.studies.polytopes.windows import corners

TASK = ClusterTask(Layout(pairs=2, points=30, radius=0.1), (12, 12), Recipe(epochs=40, batch=20, learning_rate=5e-3))
LOOKS = Looks(epochs=tuple(range(7)), early=(0, 3), late=(5, 7), side=40, movement_side=20)


@pytest.fixture(scope="module")
def measured():
    return cluster_statistics.group(0, models=3, seed=0, task=TASK, looks=LOOKS)


def test_the_networks_are_those_of_the_trainer(measured):
    targets = cluster_networks.train(TASK, models=3, seed=0)
    torch.testing.assert_close(measured.accuracy, targets.accuracy)
    assert measured.epochs.tolist() == [*range(7), 40]
    fine = subdivide(targets.network(1, epoch=40), corners())
    assert int(measured.history.cells[-1, 1]) == len(fine)
    assert int(measured.history.components[-1, 1]) == decision_boundary(fine).components
    assert int(measured.portrait.own.counts[1].sum()) == len(fine)
    # The null has the data of two other networks.
    assert int(measured.portrait.other.counts[1].sum()) == 2 * len(fine)
    lengths = (fine.hyperedges()[0][:, 1] - fine.hyperedges()[0][:, 0]).norm(dim=-1)
    assert float(measured.history.edge_lengths[-1, 1].sum()) == pytest.approx(float(lengths.sum()))


def test_outputs_are_small_on_the_boundary_and_not_on_those_of_other_networks(measured):
    kept = measured.fitted
    assert bool(kept.any())
    assert float(measured.portrait.ridge.window.output[kept].max()) < 0.1
    assert float(measured.portrait.other_ridge.output[kept].min()) > 0.1


def test_speeds_are_areas_by_lengths(measured):
    expected = measured.early.both * 12 / measured.history.edge_lengths[:4].mean(0)
    # One of these small networks has no hyperedge of its last layer in the window: 0 by 0.
    assert torch.allclose(measured.early.speed, expected, equal_nan=True)
    torch.testing.assert_close(measured.early.own[:, 0], measured.early.both[:, 0])


def test_pooling_keeps_the_fitted_networks_only(measured):
    spoilt = measured._replace(fitted=torch.tensor([True, False, True]))
    pooled = cluster_statistics.pooled([measured, spoilt])
    kept = int(measured.fitted.sum()) + 2
    assert pooled.history.cells.shape == (8, kept)
    assert pooled.portrait.own.counts.shape[0] == len(pooled.portrait.ridge.near.weights) == len(pooled.fitted) == kept
    torch.testing.assert_close(pooled.history.cells[:, -1], measured.history.cells[:, 2])
    torch.testing.assert_close(pooled.epochs, measured.epochs)
    assert cluster_statistics.pooled([measured, spoilt], only_fitted=False).history.cells.shape == (8, 6)


def test_numbers_of_a_network_are_those_of_its_tables(measured):
    found = cluster_contrasts.contrasts(measured, LOOKS)
    assert all(values.shape == (3,) for values in found)
    (counts, areas), cells = (part[0] for part in measured.portrait.own), measured.history.cells
    near, far = counts[:2].sum() / areas[:2].sum(), counts[4:].sum() / areas[4:].sum()
    assert float(found.near_to_far[0].exp()) == pytest.approx(float(near / far))
    assert torch.allclose(found.growth.exp(), cells[-1] / cells[0])
    torch.testing.assert_close(found.final_components, measured.history.components[-1])


def test_a_beginning_is_that_of_the_whole_training(measured):
    begun = cluster_statistics.beginning(0, models=3, seed=0, task=TASK)
    torch.testing.assert_close(begun.cells, measured.history.cells[:6])
    short, whole = (cluster_contrasts.beginnings(history) for history in (begun, measured.history))
    torch.testing.assert_close(short, whole)
    cells = begun.cells.double()
    assert torch.allclose(short.first_cells.exp(), cells[1:4].mean(0) / cells[0])
    assert short.one_piece.tolist() == (begun.components[1:] == 1).all(0).tolist()


def test_a_geometric_mean_is_that_of_the_ratios():
    ratios = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    found = cluster_contrasts.geometric_mean(ratios.log())
    assert float(found) == pytest.approx(2)
    assert found.low * found.high == pytest.approx(4)  # the interval is symmetric in logarithms


def test_movement_alone_is_that_of_the_group(measured):
    alone = cluster_statistics.movement(0, models=3, seed=0, task=TASK, looks=LOOKS)
    torch.testing.assert_close(alone.early.both, measured.early.both)
    torch.testing.assert_close(alone.late.own, measured.late.own)
    pooled = cluster_statistics.moved([alone, alone._replace(fitted=torch.tensor([True, False, False]))])
    assert len(pooled.early.both) == len(pooled.fitted) == int(alone.fitted.sum()) + 1
    found = cluster_contrasts.last_to_first("both", motions={"early": alone.early})["early"]
    ratios = alone.early.both[:, -1] / alone.early.both[:, 0]
    assert float(found) == pytest.approx(float(ratios.clamp(max=1e9).quantile(0.5)))
    carried = cluster_contrasts.last_to_first("carried", motions={"late": alone.late})["late"]
    assert carried.low < float(carried) < carried.high


def test_a_layer_that_stands_still_in_one_network_does_not_decide(measured):
    area = torch.tensor([[1.0, 2.0]] * 11 + [[1.0, 0.0]], dtype=torch.float64)
    found = cluster_contrasts.last_to_first("both", motions={"late": measured.late._replace(both=area)})["late"]
    assert (found.low, float(found), found.high) == pytest.approx((2, 2, 2))


def test_what_does_not_move_is_no_faster(measured):
    still = measured.early._replace(both=torch.zeros_like(measured.early.both))
    found = cluster_contrasts.last_to_first("both", motions={"early": still})["early"]
    assert float(found) == pytest.approx(1)
