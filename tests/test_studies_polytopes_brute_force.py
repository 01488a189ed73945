"""Linear programs, half-space intersection and pixels find the polytopes they can find."""

import pytest
import torch

from geometry_networks import SQUARE, network, one_layer
from leakage.geometry.subdivision import subdivide
from reproduced.studies.polytopes import brute_force

TRIANGLE = one_layer([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]], [1.0, 0.2, 0.2])
ORIGIN = torch.zeros(2, dtype=torch.float64)


def test_programs_find_the_ends_of_the_edges_of_a_triangle():
    found = brute_force.by_programs(TRIANGLE, ORIGIN)
    assert found.status.tolist() == [[brute_force.SOLVED] * 2] * 3
    upper = torch.tensor([[-0.2, 1.2], [1.2, -0.2]], dtype=torch.float64)
    lower = torch.full((2, 2), -0.2, dtype=torch.float64)
    assert torch.allclose(found.ends[1:, 0], upper, atol=1e-12)
    assert torch.allclose(found.ends[1:, 1], lower, atol=1e-12)


def test_the_two_programs_of_an_edge_orthogonal_to_their_objective_have_one_optimum():
    found = brute_force.by_programs(TRIANGLE, ORIGIN)
    assert (found.ends[0].sum(-1) - 1).abs().max() < 1e-12
    assert brute_force.by_intersection(TRIANGLE, ORIGIN.unsqueeze(0), window=4 * SQUARE)[1].tolist() == pytest.approx(
        [0.98]
    )


def test_an_edge_without_end_has_no_program_solution():
    # The wedge x > 0, y > 0: one end of each edge is at infinity.
    wedge = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    found = brute_force.by_programs(wedge, torch.ones(2, dtype=torch.float64))
    assert found.status.tolist() == [[brute_force.UNBOUNDED, brute_force.SOLVED]] * 2
    assert not found.edges.any()


def test_a_neuron_without_edge_has_no_program_solution():
    found = brute_force.by_programs(one_layer([[1.0, 0.0], [1.0, 0.0]], [0.0, 1.0]), torch.ones(2, dtype=torch.float64))
    assert found.status[1].tolist() == [brute_force.INFEASIBLE] * 2


def test_a_window_gives_edges_an_end():
    wedge = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    found = brute_force.by_programs(wedge, 0.5 * torch.ones(2, dtype=torch.float64), window=SQUARE)
    assert found.owners[found.edges].tolist() == [0, 1, -2, -3]


def test_half_space_intersection_gives_corners_in_order_and_the_area():
    corners, areas = brute_force.by_intersection(TRIANGLE, ORIGIN.unsqueeze(0), window=4 * SQUARE)
    edges = corners[0].roll(-1, 0) - corners[0]
    ahead = edges.roll(-1, 0)
    assert (edges[:, 0] * ahead[:, 1] - edges[:, 1] * ahead[:, 0] > 0).all()
    assert areas.tolist() == pytest.approx([0.98], abs=1e-12)


def test_pixels_see_the_cells_that_hold_their_middles():
    wedge = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    picture = brute_force.by_pixels(wedge, SQUARE, side=4)
    assert picture.shape == (4, 4)
    assert len(picture.unique()) == 4
    assert (picture[:2, :2] == picture[0, 0]).all()
    assert (picture[2:, :2] == picture[3, 0]).all()
    assert picture[0, 0] != picture[3, 0] != picture[0, 3]


def test_pixels_never_see_more_cells_than_there_are():
    model = network((2, 10, 10, 2), 0)
    cells = len(subdivide(model, 3 * SQUARE))
    seen = [len(brute_force.by_pixels(model, 3 * SQUARE, side=side).unique()) for side in (10, 40, 160)]
    assert seen == sorted(seen)
    assert seen[-1] <= cells
