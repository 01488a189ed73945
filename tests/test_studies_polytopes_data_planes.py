"""Planes go through their points, and training shows on them only where it took place."""

import math

import pytest
import torch

import noise_labels
from geometry_networks import one_layer, points
from leakage.geometry.subdivision import subdivide
from leakage.models.mlp import Mlp
from reproduced.runtime import stream
from reproduced.studies.polytopes import data_planes
from reproduced.studies.polytopes.shadow_attacks import AttackedNetwork
from reproduced.studies.polytopes.windows import unit_square


def test_a_plane_goes_through_its_points():
    three = points(3, 7)
    found = data_planes.plane_through(three, frame=0.5)
    back = found.plane.origin + found.points @ found.plane.basis
    assert torch.allclose(back, three)
    assert torch.allclose(torch.pdist(found.points), torch.pdist(three))
    assert torch.allclose(found.plane.basis @ found.plane.basis.T, torch.eye(2).double())
    assert float(found.window.max() - found.points.abs().max()) == pytest.approx(0.5)


def test_rings_count_what_is_in_them():
    # One line at the distance 0.05 from the first point, and far from the two others.
    cells = subdivide(one_layer([[1.0, 0.0]], [-0.45]), unit_square())
    spots = torch.tensor([[0.5, 0.5], [0.9, 0.2], [0.9, 0.8]]).double()
    found = data_planes.ring_densities(cells, spots, radii=(0.04, 0.1))
    chord = 2 * math.sqrt(0.1**2 - 0.05**2) / 3
    assert found.lengths.tolist() == pytest.approx([0, chord / (math.pi * (0.1**2 - 0.04**2))])
    # The middles of the two cells are at x = 0.225 and 0.725.
    assert found.cells.tolist() == [0, 0]
    wide = data_planes.ring_densities(cells, spots[:1].expand(3, 2), radii=(0.3,))
    assert float(wide.cells[0]) == pytest.approx(2 / (math.pi * 0.09))


def side(labels: list[int], member: list[bool]) -> AttackedNetwork:
    model = Mlp((torch.eye(2).double(),), (torch.zeros(2).double(),))
    return AttackedNetwork(model, points(len(labels), 2), torch.tensor(labels), torch.tensor(member))


def test_triples_share_their_classes_and_differ_in_membership():
    given = side(
        [0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4], [True, False, False, True, False, True, True, False, True, True, False]
    )
    found = data_planes.draw_triples(given, 200, generator=stream(0, "planes"))
    members, outsiders = found.unbind(1)
    torch.testing.assert_close(given.labels[members], given.labels[outsiders])
    assert given.member[members].all()
    assert not given.member[outsiders].any()
    # Class 3 has no outsider; the other four are each in three of four triples.
    kinds = given.labels[members]
    assert all(len(set(row)) == 3 for row in kinds.tolist())
    shares = torch.bincount(kinds.flatten(), minlength=5) / 200
    assert float(shares[3]) == pytest.approx(0)
    assert float((shares[[0, 1, 2, 4]] - 0.75).abs().max()) < 4 * (0.75 * 0.25 / 200) ** 0.5
    # Each of a class is equally likely.
    assert abs(float((outsiders == 1).sum() / ((outsiders == 1) | (outsiders == 2)).sum()) - 0.5) < 0.2


def test_members_are_among_more_seams_and_a_network_that_saw_neither_knows_nothing():
    task = noise_labels.task()
    found = data_planes.measure_planes(0, task=task, planes=25, seed=0, radii=(0.5, 1.0))
    assert found.member.lengths.shape == (25, 2)
    gain = found.member.lengths - found.outsider.lengths
    chance = found.null_member.lengths - found.null_outsider.lengths
    error = (gain.std(0) / 5)[0], (chance.std(0) / 5)[0]
    assert float(gain.mean(0)[0] / error[0]) > 2
    assert abs(float(chance.mean(0)[0] / error[1])) < 4


def test_a_wall_keeps_its_distance_from_each_record():
    # One wall at x = 0.45, and three records at 0.05 and 0.35 from it, and too far away.
    network = one_layer([[1.0, 0.0, 0.0]], [-0.45])
    records = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.2, 0.0], [3.0, 0.8, 0.0]]).double()
    found = data_planes.overlay_records(network, records, torch.tensor([[0, 1, 2]]), half=0.5)
    ends = found.T[~found.isnan().any(0)].unflatten(0, (-1, 2))
    # The plane's basis turns the wall, but no distance: that of a line from the origin.
    along = ends[:, 1] - ends[:, 0]
    distances = (ends[:, 0, 0] * along[:, 1] - ends[:, 0, 1] * along[:, 0]).abs() / along.norm(dim=-1)
    assert sorted(distances.tolist()) == pytest.approx([0.05, 0.35])
    assert float(ends.abs().max()) == pytest.approx(0.5)
