"""Walls around many records lie over each other where the records do, and nowhere else."""

import pytest
import torch

from geometry_networks import one_layer
from leakage.studies.polytopes import crowds
from refusing import refused


def test_a_wall_keeps_its_distance_from_each_record():
    # One wall at x = 0.45, and three records at 0.05 and 0.35 from it, and too far away.
    network = one_layer([[1.0, 0.0, 0.0]], [-0.45])
    records = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.2, 0.0], [3.0, 0.8, 0.0]]).double()
    found = crowds.laid_over(network, records, torch.tensor([[0, 1, 2]]), half=0.5)
    ends = found.T[~found.isnan().any(0)].unflatten(0, (-1, 2))
    # The plane's basis turns the wall, but no distance: that of a line from the origin.
    along = ends[:, 1] - ends[:, 0]
    distances = (ends[:, 0, 0] * along[:, 1] - ends[:, 0, 1] * along[:, 0]).abs() / along.norm(dim=-1)
    assert sorted(distances.tolist()) == pytest.approx([0.05, 0.35])
    assert float(ends.abs().max()) == pytest.approx(0.5)


def test_a_square_without_sides_is_refused():
    network, records = one_layer([[1.0, 0.0]], [-0.45]), torch.eye(3, 2).double()
    refused(lambda: crowds.laid_over(network, records, torch.tensor([[0, 1, 2]]), half=0.0), "half")
