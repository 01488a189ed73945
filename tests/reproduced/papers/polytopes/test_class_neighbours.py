"""Nearest neighbours by class, of points whose neighbours are known."""

import torch

from leakage.data.tabular import LabelledData
from leakage.draws import gaussian, uniform
from reproduced.papers.polytopes import class_neighbours
from reproduced.papers.polytopes.clusters_2d import draw_clusters
from reproduced.runtime import stream


def test_neighbours_of_points_on_a_line():
    found = class_neighbours.class_neighbours(
        torch.tensor([[0.0], [1.0], [1.5], [5.0]]).double(), torch.tensor([0, 0, 1, 1])
    )
    torch.testing.assert_close(found.own_class, torch.tensor(0.5).double())
    torch.testing.assert_close(found.ratio, torch.tensor(0.5).double())  # of 1/7, 1/2, 8/7 and 3/2


def test_of_several_nearest_points_each_counts_its_share():
    bits = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]).double()
    found = class_neighbours.class_neighbours(bits, torch.tensor([0, 0, 0, 1]))
    # The first has three nearest points, two of its class; the others have the first, and the last is of another class.
    torch.testing.assert_close(found.own_class, torch.tensor((2 / 3 + 1 + 1 + 0) / 4).double())


def test_clusters_are_recognised_and_labels_by_lot_are_not():
    data = draw_clusters(generator=stream(0, "clusters"))
    assert float(class_neighbours.class_neighbours(data.points, data.labels).own_class) > 0.99
    lots = (uniform((len(data.labels),), generator=stream(0, "lots")) < 0.5).long()
    share = float(class_neighbours.class_neighbours(data.points, lots).own_class)
    assert abs(share - 0.5) < 5 * 0.5 / len(lots) ** 0.5  # five standard errors of a coin


def test_shuffling_within_classes_keeps_their_means_and_nothing_else():
    draws = stream(0, "means")
    labels = torch.arange(400) % 2
    apart = gaussian((400, 5), generator=draws) + 10 * labels.unsqueeze(-1)
    found = class_neighbours.neighbours_in_quarters(LabelledData(apart, labels), generator=draws, shuffled=True)
    torch.testing.assert_close(found.own_class, torch.ones(4).double())
    # Both classes have mean 0 and differ in the sign of a product, which shuffling takes away.
    signs = 2.0 * (uniform((400, 2), generator=draws) < 0.5) - 1
    crossed = LabelledData(5 * signs + 0.1 * gaussian((400, 2), generator=draws), (signs.prod(-1) > 0).long())
    plain, shuffled = (
        class_neighbours.neighbours_in_quarters(crossed, generator=draws, shuffled=lots).own_class
        for lots in (False, True)
    )
    torch.testing.assert_close(plain, torch.ones(4).double())
    assert float(shuffled.max()) < 0.8
