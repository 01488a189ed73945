"""Networks on Clusters2D learn their own data, and only these."""

import torch

from leakage.trainers.ensembles import Recipe
from reproduced.studies.polytopes import cluster_networks
from reproduced.studies.polytopes.cluster_networks import ClusterTask
from reproduced.studies.polytopes.clusters import Layout

EASY = ClusterTask(
    Layout(pairs=1, points=40, radius=0.1, gap=0.2), (10, 10), Recipe(epochs=30, batch=20, learning_rate=5e-3)
)


def test_a_network_learns_its_own_data():
    found = cluster_networks.train(EASY, models=2, seed=0)
    assert found.fitted.all()
    assert sorted(found.snapshots) == list(range(31))
    for model, data in enumerate(found.data):
        right = found.network(model)(data.points).argmax(-1) == data.labels
        torch.testing.assert_close(found.accuracy[model], right.double().mean())
    assert found.network(0).weights[0].dtype == torch.float64


def test_an_untrained_network_is_unfitted():
    task = ClusterTask(EASY.layout, EASY.hidden, Recipe(epochs=0, batch=20))
    assert not cluster_networks.train(task, models=2, seed=0).fitted.any()


def test_seed_and_group_fix_everything():
    task = ClusterTask(EASY.layout, EASY.hidden, Recipe(epochs=1, batch=20))
    first, again, other = (cluster_networks.train(task, models=2, seed=3, group=group) for group in (1, 1, 2))
    torch.testing.assert_close(first.network(0).weights[0], again.network(0).weights[0])
    assert not torch.allclose(first.data[0].points, first.data[1].points)
    assert not torch.allclose(first.data[0].points, other.data[0].points)
    drawn = cluster_networks.draw_data(task.layout, models=2, seed=3, group=1)
    torch.testing.assert_close(drawn[1].points, first.data[1].points)


def test_only_the_wanted_epochs_are_kept():
    found = cluster_networks.train(EASY, models=1, seed=0, epochs=(0, 5))
    assert sorted(found.snapshots) == [0, 5, 30]
    assert not torch.allclose(found.network(0, epoch=0).weights[0], found.network(0, epoch=5).weights[0])
