"""Slower methods find the polytopes and crossings that they can find, and the printed ones fail in known ways."""

import pytest
import torch

from leakage.membership import rays
from planted import SQUARE, directions, network, one_layer, points
from reproduced.papers.polytopes import other_algorithms
from reproduced.papers.polytopes.other_algorithms import search_rays
from reproduced.papers.polytopes.subdivision import subdivide

TRIANGLE = one_layer([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]], [1.0, 0.2, 0.2])
WEDGE = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])  # x > 0, y > 0
ORIGIN = torch.zeros(2, dtype=torch.float64)
MODEL = network((2, 8, 6, 2), 0)
CELLS = subdivide(MODEL, 3 * SQUARE)

# ── polytopes by linear programs and by half-spaces ──────────────────────────────────────────────────────────────────


def test_programs_find_the_ends_of_the_edges_of_a_triangle():
    found = other_algorithms.solve_programs(TRIANGLE, ORIGIN)
    assert found.status.tolist() == [[other_algorithms.SOLVED] * 2] * 3
    upper = torch.tensor([[-0.2, 1.2], [1.2, -0.2]], dtype=torch.float64)
    assert torch.allclose(found.ends[1:, 0], upper, atol=1e-12)
    assert torch.allclose(found.ends[1:, 1], torch.full((2, 2), -0.2, dtype=torch.float64), atol=1e-12)


def test_linear_programs_find_the_same_edges_and_ends_as_cutting():
    found = other_algorithms.compare_programs(CELLS, range(0, len(CELLS), len(CELLS) // 5))
    assert found.same_edges.all()
    assert found.vertex_error.max() < 1e-8  # the solver's own tolerance is 1e-7 on constraints; measured 1e-15
    assert (found.seconds >= 0).all()


def test_half_space_intersection_finds_the_same_polygons_as_cutting():
    found = other_algorithms.compare_half_spaces(CELLS, torch.arange(len(CELLS)))
    assert found.same_edges.all()
    assert found.vertex_error.max() < 1e-9
    assert found.area_error.max() < 1e-12


def test_both_defects_of_the_printed_programs():
    found = other_algorithms.algorithm_4_failures(MODEL, torch.tensor([40.0, -70.0], dtype=torch.float64))
    assert abs(found.optimum_gap) < 1e-12
    assert found.edge_length == pytest.approx(1.4 * 2**0.5)
    assert 2 <= found.unbounded <= found.edges  # an unbounded polygon has two edges without end


# ── pixels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pixels_see_the_cells_that_hold_their_middles():
    picture = other_algorithms.number_pixels(WEDGE, SQUARE, side=4)
    assert len(picture.unique()) == 4
    assert (picture[:2, :2] == picture[0, 0]).all()
    assert (picture[2:, :2] == picture[3, 0]).all()
    assert picture[0, 0] != picture[3, 0] != picture[0, 3]


def test_work_is_counted():
    found = other_algorithms.multiplications(CELLS, sides=(10, 20))
    assert found.pixels.tolist() == [100 * (2 * 8 + 8 * 6), 400 * (2 * 8 + 8 * 6)]
    first, second = CELLS.layer_counts
    assert found.cutting == 28 * int(CELLS.counts.sum()) + 3 * (first * 8 * 6 + second * 6 * 2) + 4 * len(CELLS)
    ratios = other_algorithms.program_pixel_ratios(torch.tensor([5, 1]), widths=MODEL.widths, sides=(10, 20))
    assert ratios[:, 0].tolist() == pytest.approx([5 * 2 * 14**2 / float(pixels) for pixels in found.pixels])
    assert ratios[:, 1] * 5 == pytest.approx(ratios[:, 0])


# ── rays ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def start_and_way(*start: float):
    return torch.tensor([start], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)


def test_the_search_is_right_where_a_unit_step_hides_one_event_only():
    found = search_rays(one_layer([[1.0, 0.0]], [-2.3]), *start_and_way(0.0, 0.0), steps=60, event="pattern")
    # Each halving leaves the point last seen on the other side within one more step of the event.
    assert abs(float(found) - 2.3) < 1e-12


def test_the_search_for_the_label_is_right_where_it_changes_once():
    # Two classes, level at x = 2.3 only.
    model = one_layer([[1.0, 0.0]], [0.0], outputs=[[1.0], [0.0]])
    model = type(model)(model.weights, (model.biases[0], torch.tensor([0.0, 2.3], dtype=torch.float64)))
    found = search_rays(model, *start_and_way(0.5, 0.0), steps=60, event="label")
    assert abs(float(found) - 1.8) < 1e-12
    assert abs(float(rays.ray_label_change(model, *start_and_way(0.5, 0.0), until=60.0)) - 1.8) < 1e-12


@pytest.mark.parametrize("event", ["label", "pattern"])
def test_exact_methods_agree_on_rays(event):
    model, given = network((2, 12, 12, 3), 1), points(100, 2)
    found = other_algorithms.compare_rays(model, given, directions(100, 2), steps=8, event=event)
    assert found.disagreement < 1e-11
    assert found.walked.isfinite().any()
    assert not (found.wrong & found.missed).any()
    assert not (found.overlooked & ~found.missed).any()


def test_the_search_is_wrong_where_two_crossings_share_a_unit_step():
    model = one_layer([[1.0, 0.0], [1.0, 0.0]], [-0.2, -0.6])
    found = other_algorithms.compare_rays(model, *start_and_way(0.0, 0.0), steps=60, event="pattern")
    assert (float(found.walked), float(found.cut)) == pytest.approx((0.2, 0.2))
    assert found.wrong.tolist() == [True]
