"""Cells and edges near data, where the answer is known."""

import math

import pytest
import torch

from geometry_networks import network, one_layer
from leakage.geometry.subdivision import subdivide
from reproduced.studies.polytopes import densities
from reproduced.studies.polytopes.windows import corners, lattice


def lines(normals: list[list[float]], offsets: list[float]):
    return subdivide(one_layer(normals, offsets), corners())


def test_every_cell_and_all_area_is_in_one_bin():
    fine = subdivide(network((2, 30, 30, 2), 0), corners())
    data = lattice(2)
    found = densities.by_distance(fine, data, edges=(0, 0.1, 0.2), lattice=lattice(100))
    assert int(found.counts.sum()) == len(fine)
    assert abs(float(found.areas.sum()) - 1) < 1e-12
    # Four discs of radius 0.1, measured by points 1/100 apart.
    assert abs(float(found.areas[0]) - 4 * math.pi * 0.01) < 0.005
    away = densities.nearest(fine.middles, data)
    assert int(found.counts[0]) == int((away < 0.1).sum())
    assert float(found.per_area(0, 3)) == pytest.approx(len(fine))


def test_distances_are_to_the_nearest_point():
    found = densities.nearest(torch.tensor([[0.0, 0.0], [3.0, 4.0]]).double(), torch.tensor([[0.0, 0.0]]).double())
    assert found.tolist() == pytest.approx([0, 5])


def test_a_line_through_a_disc_is_clipped_to_its_chord():
    fine = lines([[1.0, 0.0]], [-0.5])
    centres = torch.tensor([[0.5, 0.5], [0.56, 0.5], [0.9, 0.5], [0.5, 0.0]]).double()
    found = densities.in_discs(fine, centres, radius=0.1)
    area = math.pi * 0.01
    assert torch.allclose(found.lengths, torch.tensor([0.2, 0.16, 0.0, 0.1]).double() / area)
    assert torch.allclose(found.order[:2], torch.ones(2).double())
    assert found.order[2].isnan()
    up, right = torch.tensor([[0.0, 1.0]]).double(), torch.tensor([[-2.0, 0.0]]).double()
    assert float(found.alignment(up)[0]) == pytest.approx(1)
    assert float(found.alignment(right)[0]) == pytest.approx(-1)
    # One neuron is no pair.
    assert found.parallelism.isnan().all()


@pytest.mark.parametrize(("angle", "expected"), [(0.0, 1.0), (math.pi / 4, 0.0), (math.pi / 2, -1.0)])
def test_parallelism_of_two_lines_is_the_cosine_of_twice_their_angle(angle, expected):
    normal = [math.cos(angle), math.sin(angle)]
    middle = 0.5 * sum(normal)
    fine = lines([[1.0, 0.0], normal], [-0.5 if angle else -0.50001, -middle])
    found = densities.in_discs(fine, torch.tensor([[0.5, 0.5]]).double(), radius=0.1)
    assert float(found.parallelism) == pytest.approx(expected, abs=1e-12)


def test_few_independent_directions_have_order_by_chance_but_no_parallelism():
    fine = subdivide(network((2, 60, 2), 4), 2 * corners() - 1)
    # Normals of this initialisation fill a square, and the mean of e^(2iθ) over a square is 0.
    found = densities.in_discs(fine, 1.6 * lattice(20) - 0.8, radius=0.1)
    seen = ~found.parallelism.isnan()
    assert float(found.order[seen].mean()) > 0.4
    assert abs(float(found.parallelism[seen].mean())) < 0.15  # 60 neurons' directions: 1/60 and the discs' sharing
