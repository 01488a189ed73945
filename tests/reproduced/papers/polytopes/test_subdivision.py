"""The cells of a subdivision tile the window, are convex, have one pattern each and the network's affine map."""

import itertools

import pytest
import torch

from leakage.membership import polytopes
from leakage.models import mlp
from planted import SHAPES, SQUARE, doubles, network, one_layer, points
from reproduced.papers.polytopes import subdivision
from reproduced.papers.polytopes.subdivision import Plane, subdivide, subdivide_networks, subdivide_planes
from reproduced.papers.polytopes.theorems import check_subdivision
from reproduced.runtime import stream


@pytest.mark.parametrize(("widths", "seed"), list(itertools.product(SHAPES, range(4))))
def test_theory_holds_for_random_networks(widths, seed):
    found = check_subdivision(subdivide(network(widths, seed), 3 * SQUARE))
    assert found.smallest_area > 0
    assert found.area_error < 1e-12  # some hundred roundings of 1e-16
    assert found.repeated_patterns == 0
    assert found.wrong_patterns == 0
    assert found.map_error < 1e-13
    assert found.sharpest_turn > -1e-12


def test_four_quadrants():
    model = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    found = subdivide(model, SQUARE)
    assert sorted(found.pattern.tolist()) == [[False, False], [False, True], [True, False], [True, True]]
    assert found.areas.tolist() == pytest.approx([1.0] * 4)
    torch.testing.assert_close(found.centres, found.pattern.double() - 0.5)
    both = found.pattern.all(-1)
    torch.testing.assert_close(found.maps[both].squeeze(0), doubles([1, 1, 0], [-1, -1, 0]))
    assert float(found.weight_norms[both]) == pytest.approx(2)
    torch.testing.assert_close(found.margin_gradients[both], doubles([-2, -2]))
    assert found.layer_counts == (4,)


def test_a_network_that_folds_is_cut_where_the_fold_is():
    # |x| - 1/2 by two neurons, then one neuron of its own: lines at 0 (twice) and at ±1/2.
    weights = (
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64),
        torch.ones(1, 2, dtype=torch.float64),
        torch.ones(2, 1, dtype=torch.float64),
    )
    biases = torch.zeros(2, dtype=torch.float64), torch.tensor([-0.5]).double(), torch.zeros(2, dtype=torch.float64)
    found = subdivide(subdivision.Mlp(weights, biases), SQUARE)
    assert found.layer_counts == (2, 4)
    assert found.areas.tolist() == pytest.approx([1.0] * 4)
    drawn = found.hyperedges()[1].tolist()
    # The second neuron's hyperedge is the first one's: whoever comes first owns it.
    assert sorted(drawn) == [2, 2] or sorted(drawn) == [0, 2, 2]


def test_every_piece_of_hyperedge_is_listed_once():
    model = network((2, 15, 2), 3)
    segments, neurons = subdivide(model, SQUARE).hyperedges()
    lengths = torch.zeros(15, dtype=torch.float64).index_add(0, neurons, (segments[:, 0] - segments[:, 1]).norm(dim=-1))
    for neuron, (normal, offset) in enumerate(zip(model.weights[0], model.biases[0], strict=True)):
        along = torch.stack([-normal[1], normal[0]]) / normal.norm()
        foot = -offset * normal / normal.square().sum()
        reach = torch.stack([(sign - foot) / along for sign in (-1, 1)])  # where the line meets each pair of sides
        chord = (reach.amax(0).amin() - reach.amin(0).amax()).clamp_min(0)
        assert abs(float(lengths[neuron] - chord)) < 1e-12
        on = (segments[neurons == neuron] @ normal + offset).abs()
        assert on.numel() == 0 or on.max() < 1e-14


def test_the_window_s_orientation_and_memory_do_not_matter():
    model, window = network((2, 8, 8, 2), 0), 3 * SQUARE
    found, turned = subdivide(model, window), subdivide(model, window.flip(0))
    torch.testing.assert_close(window, 3 * SQUARE)
    assert len(found) == len(turned)
    assert torch.allclose(found.areas.sort().values, turned.areas.sort().values, atol=1e-13)


def test_a_window_in_two_halves_has_the_same_cells():
    model = network((2, 8, 8, 2), 0)
    halves = [
        subdivide(model, 3 * SQUARE * torch.tensor([0.5, 1.0]) + shift)
        for shift in (torch.tensor([-1.5, 0.0]).double(), torch.tensor([1.5, 0.0]).double())
    ]
    whole = subdivide(model, 3 * SQUARE)
    rows = torch.cat([half.pattern for half in halves])
    distinct, place = torch.unique(rows, dim=0, return_inverse=True)
    summed = torch.zeros(len(distinct), dtype=torch.float64).index_add(0, place, torch.cat([h.areas for h in halves]))
    _, order = torch.unique(whole.pattern, dim=0, return_inverse=True)
    assert len(distinct) == len(whole)
    assert torch.allclose(summed[order], whole.areas, atol=1e-12)


def test_a_plane_through_a_larger_input_is_subdivided_as_the_network_restricted_to_it():
    model, (origin, *basis) = network((7, 10, 6, 2), 0), points(3, 7)
    plane = Plane(origin, torch.stack(basis))
    found = subdivide(model, SQUARE, plane=plane)
    assert check_subdivision(found).wrong_patterns == 0
    assert check_subdivision(found).map_error < 1e-13
    gates = polytopes.split_layers(model, found.pattern)
    slope, constant = polytopes.output_map(model, gates)
    assert torch.allclose(found.weight_norms, slope.square().sum((-2, -1)).sqrt(), rtol=1e-12)
    assert torch.allclose(found.bias_norms, constant.abs().amax(-1), rtol=1e-12)


@pytest.mark.parametrize("widths", [(9, 12, 3), (9, 8, 7, 3)])
def test_planes_cut_at_once_are_cut_as_one_by_one(widths):
    model, draws = network(widths, 2), stream(2, "planes")
    drawn = torch.randn(3, 3, 9, generator=draws, dtype=torch.float64)
    planes = [Plane(origin, torch.stack(basis)) for origin, *basis in drawn]
    windows = torch.stack([half * SQUARE for half in (1.0, 2.0, 3.0)])
    together = subdivide_planes(model, windows, planes)
    for found, window, plane in zip(together, windows, planes, strict=True):
        alone = subdivide(model, window, plane=plane)
        assert found.layer_counts == alone.layer_counts
        for name in ("counts", "owners", "pattern"):
            torch.testing.assert_close(getattr(found, name), getattr(alone, name))
        # Products with more columns are summed in another order.
        assert torch.allclose(found.vertices, alone.vertices, atol=1e-10)
        assert torch.allclose(found.maps, alone.maps, atol=1e-12)


def test_networks_cut_together_are_those_cut_alone():
    models = [network((2, 8, 6, 2), seed) for seed in range(3)]
    together = subdivide_networks(mlp.stack(models), SQUARE)
    assert len(together) == len(models)
    for model, found in zip(models, together, strict=True):
        alone = subdivide(model, SQUARE)
        assert found.layer_counts == alone.layer_counts
        order, other = (torch.unique(fine.pattern, dim=0, return_inverse=True)[1].argsort() for fine in (found, alone))
        torch.testing.assert_close(found.pattern[order], alone.pattern[other])
        assert torch.allclose(found.areas[order], alone.areas[other], rtol=0, atol=1e-14)
        assert torch.allclose(found.maps[order], alone.maps[other], rtol=0, atol=1e-14)
        torch.testing.assert_close(found.network.weights[0], model.weights[0])
