"""Slower methods give the polytopes of the subdivision, and the printed linear programs fail in two ways."""

import pytest
import torch

from geometry_networks import SQUARE, network
from leakage.geometry.subdivision import subdivide
from reproduced.studies.polytopes import other_algorithms

MODEL = network((2, 8, 6, 2), 0)
FINE = subdivide(MODEL, 3 * SQUARE)


def test_linear_programs_find_the_same_edges_and_ends():
    found = other_algorithms.with_programs(FINE, range(0, len(FINE), len(FINE) // 5))
    assert found.same_edges.all()
    assert found.vertex_error.max() < 1e-8  # the solver's own tolerance is 1e-7 on constraints; measured 1e-15
    assert (found.seconds > 0).all()


def test_half_space_intersection_finds_the_same_polygons():
    found = other_algorithms.with_intersections(FINE, torch.arange(len(FINE)))
    assert found.same_edges.all()
    assert found.vertex_error.max() < 1e-9
    assert found.area_error.max() < 1e-12


def test_pixels_are_never_complete_at_low_resolution():
    found = other_algorithms.with_pixels(MODEL, 3 * SQUARE, sides=(5, 20), repeats=1)
    assert found.cells == len(FINE)
    assert found.seen[0] < found.seen[1] < found.cells


def test_both_defects_of_the_printed_programs():
    found = other_algorithms.program_defects(MODEL, torch.tensor([40.0, -70.0], dtype=torch.float64))
    assert abs(found.optimum_gap) < 1e-12
    assert found.edge_length == pytest.approx(1.4 * 2**0.5)
    assert 2 <= found.unbounded <= found.edges  # an unbounded polygon has two edges without end


def test_work_is_counted():
    found = other_algorithms.multiplications(FINE, sides=(10, 20))
    assert found.pixels.tolist() == [100 * (2 * 8 + 8 * 6), 400 * (2 * 8 + 8 * 6)]
    assert found.programs == 2 * len(FINE) * 14**2
    first, second = FINE.layer_counts
    cells = torch.tensor([len(FINE), 1])
    ratios = other_algorithms.programs_over_pixels(cells, widths=FINE.network.widths, sides=(10, 20))
    assert ratios[:, 0].tolist() == pytest.approx([found.programs / float(pixels) for pixels in found.pixels])
    assert ratios[:, 1] * len(FINE) == pytest.approx(ratios[:, 0])
    assert found.cutting == 28 * int(FINE.counts.sum()) + 3 * (first * 8 * 6 + second * 6 * 2) + 4 * len(FINE)
