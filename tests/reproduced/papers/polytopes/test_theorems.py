"""The experiments say what theory says, and what is false is seen to be false."""

from dataclasses import replace

import pytest
import torch

from leakage.draws import gaussian
from planted import SQUARE, network, points
from reproduced.papers.polytopes import theorems
from reproduced.papers.polytopes.subdivision import subdivide
from reproduced.runtime import stream


@pytest.mark.parametrize("widths", [(2, 9, 2), (5, 7, 6, 3), (20, 8, 8, 8, 4), (2, 25, 25, 25, 2)])
def test_identities_hold_and_the_printed_biases_do_not(widths):
    found = theorems.adapted_parameter_errors(network(widths, 0), points(100, widths[0]))
    assert max(found.height_error, found.jacobian_error, found.elsewhere_error) < 1e-13
    assert found.printed_misses[0] == 0
    assert (found.printed_misses[1:] > 0.5).all()


def test_layers_refine_and_cells_of_another_network_do_not():
    model, other = network((2, 7, 7, 7, 2), 0), network((2, 7, 7, 7, 2), 1)
    cells = subdivide(model, 3 * SQUARE)
    found = theorems.refinement(model, cells)
    assert found.counts.diff().min() >= 0
    assert found.error.max() < 1e-12
    assert theorems.refinement(other, cells).error.max() == torch.inf


def test_every_point_lies_in_the_polygon_of_its_pattern():
    cells = subdivide(network((2, 7, 7, 2), 0), SQUARE)
    inside = torch.rand(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert theorems.count_strays(cells, inside) == 0
    assert theorems.count_strays(replace(cells, vertices=cells.vertices + 0.2), inside) > 20


def test_one_layer_has_zaslavsky_s_count_in_a_large_window():
    found = theorems.count_cells((10,), networks=3, seed=0, reach=1e6)
    assert found.cells.tolist() == [1 + 10 + 45] * 3
    assert float(found.ratio) == pytest.approx(56 / 50)


def test_paths_and_the_charitable_reading_are_the_gradient_and_one_order_is_not():
    draws = stream(0, "draws")
    found = theorems.early_gradient(*(gaussian(size, generator=draws) for size in ((200, 3, 2, 2), (200, 2), (200, 2))))
    nonzero = found.automatic != 0
    assert 20 < nonzero.sum() < 200  # some ReLU on the way is shut in most of these networks
    assert (found.paths - found.automatic).abs().max() < 1e-12
    assert (found.printed_from_2_to_l - found.automatic).abs().max() < 1e-12
    off = (found.printed_from_l_to_2 - found.automatic).abs() > 1e-10
    assert off[nonzero].double().mean() > 0.5


def test_a_network_of_ones_by_hand():
    # Heights 2, 4, 8 with all weights 1 and x = (1, 1): the error is 2 * 8 on both outputs, each reached by two paths.
    found = theorems.early_gradient(torch.ones(3, 2, 2), torch.ones(2), torch.zeros(2))
    assert [float(value) for value in found] == [64.0] * 4
