"""The experiments say what theory says, and what is false is seen to be false."""

from dataclasses import replace

import pytest
import torch

from geometry_networks import SQUARE, directions, network, one_layer, points
from leakage.geometry.subdivision import subdivide
from reproduced.studies.polytopes import theorem_checks


def test_identities_hold_and_the_printed_biases_do_not():
    found = theorem_checks.identities(network((2, 25, 25, 25, 2), 0), points(100, 2))
    assert found.height_error < 1e-13
    assert found.jacobian_error < 1e-13
    assert found.elsewhere_error < 1e-13
    assert found.printed_misses[0] == 0
    assert found.printed_misses[1:].min() > 0.5


def test_printed_biases_hold_where_the_first_layer_has_none():
    model = network((2, 9, 9, 2), 0)
    bare = type(model)(model.weights, (torch.zeros_like(model.biases[0]), *model.biases[1:]))
    assert theorem_checks.identities(bare, points(50, 2)).printed_misses.tolist() == [0, 0]


def test_layers_refine():
    model = network((2, 7, 7, 7, 2), 0)
    found = theorem_checks.refinement(model, subdivide(model, 3 * SQUARE))
    assert found.counts.diff().min() >= 0
    assert found.error.max() < 1e-12


def test_cells_of_another_network_are_not_refined():
    fine = subdivide(network((2, 7, 7, 2), 0), 3 * SQUARE)
    assert theorem_checks.refinement(network((2, 7, 7, 2), 1), fine).error.max() == torch.inf


@pytest.mark.parametrize("experiment", [theorem_checks.first_label_changes, theorem_checks.first_crossings])
def test_exact_methods_agree_on_rays(experiment):
    model, given = network((2, 12, 12, 3), 1), points(100, 2)
    found = experiment(model, given, directions(100, 2), steps=8)
    assert found.disagreement < 1e-11
    assert found.walked.isfinite().any()
    assert not (found.wrong & found.missed).any()
    assert not (found.overlooked & ~found.missed).any()


def test_the_search_is_wrong_where_two_crossings_share_a_unit_step():
    model = one_layer([[1.0, 0.0], [1.0, 0.0]], [-0.2, -0.6])
    start, along = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = theorem_checks.first_crossings(model, start, along, steps=60)
    assert (float(found.walked), float(found.cut)) == pytest.approx((0.2, 0.2))
    assert found.wrong.tolist() == [True]


def test_one_method_alone_is_a_disagreement():
    lengths = torch.tensor([1.0, torch.inf])
    assert theorem_checks.RayReadings(lengths, torch.tensor([1.0, 2.0]), lengths).disagreement == torch.inf


def test_every_point_lies_in_the_polygon_of_its_pattern():
    fine = subdivide(network((2, 7, 7, 2), 0), SQUARE)
    inside = torch.rand(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert theorem_checks.strays(fine, inside) == 0
    moved = replace(fine, vertices=fine.vertices + 0.2)
    assert theorem_checks.strays(moved, inside) > 20
