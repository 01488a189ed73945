"""Patterns, affine maps, norms and distances of activation polytopes agree with autograd, each other and rays."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership import polytopes, rays
from leakage.membership.polytopes import activation_pattern, jacobian_norm, output_jacobian, output_map, row_space
from leakage.models import mlp
from planted import directions, network, one_layer, points
from reproduced.runtime import stream


def test_smooth_gates_sharpen_to_the_pattern_and_have_a_gradient():
    model, given = network((4, 6, 5, 3), 0), points(20, 4).requires_grad_()
    exact = polytopes.join_layers(polytopes.activation_pattern(model, given))
    sharp = polytopes.join_layers(polytopes.smooth_pattern(model, given, sharpness=1e9))
    assert (sharp - exact.double()).abs().max() < 1e-9  # the nearest of 220 heights is some 1e-4 from 0
    polytopes.output_map(model, polytopes.smooth_pattern(model, given))[1].abs().sum().backward()
    assert given.grad is not None
    assert (given.grad.norm(dim=-1) > 0).all()


NORM_WIDTHS = [(2, 9, 3), (30, 9, 3), (30, 9, 8, 7, 3), (2, 5, 6, 7, 3)]
NORM_ROUNDING = 1e-12  # the quadratic form of one layer squares what cancels; measured 3e-15


@pytest.mark.parametrize("widths", NORM_WIDTHS)
@pytest.mark.parametrize("smooth", [False, True])
def test_the_jacobian_norm_is_that_of_the_output_map(widths, smooth):
    model, given = network(widths, 0), points(50, widths[0])
    gates = polytopes.smooth_pattern(model, given) if smooth else polytopes.activation_pattern(model, given)
    expected = polytopes.output_map(model, gates)[0].square().sum((-2, -1)).sqrt()
    assert torch.allclose(polytopes.jacobian_norm(model, gates), expected, rtol=NORM_ROUNDING, atol=NORM_ROUNDING)


@pytest.mark.parametrize("widths", [(4, 6, 3), (4, 6, 5, 3)])
def test_the_gradient_in_the_point_is_that_of_the_norm_formed_directly(widths):
    model = network(widths, 0)
    slopes = []
    for norm in (
        lambda gates: polytopes.jacobian_norm(model, gates),
        lambda gates: polytopes.output_map(model, gates)[0].square().sum((-2, -1)).sqrt(),
    ):
        given = points(20, 4).requires_grad_()
        norm(polytopes.smooth_pattern(model, given)).sum().backward()
        slopes.append(given.grad)
    assert torch.allclose(slopes[0], slopes[1], atol=NORM_ROUNDING)


@pytest.mark.parametrize("widths", [(40, 6, 3), (40, 6, 5, 3), (4, 6, 3)])
def test_predictions_distances_and_polytope_functions_are_kept(widths):
    network = mlp.initial((), widths, generator=stream(0, "network"))
    points = gaussian((20, widths[0]), generator=stream(0, "points"))
    reduced, basis = row_space(network)
    inside = points @ basis
    assert reduced.widths[0] == min(widths[:2])
    assert torch.allclose(reduced(inside), network(points), atol=1e-13)
    gates = activation_pattern(network, points)
    assert torch.allclose(jacobian_norm(reduced, gates), jacobian_norm(network, gates), rtol=1e-12)
    assert torch.allclose(output_map(reduced, gates)[1], output_map(network, gates)[1], atol=1e-13)
    moved = points + gaussian((20, widths[1]), generator=stream(0, "moves")) @ network.weights[0]
    assert torch.allclose((moved @ basis - inside).norm(dim=-1), (moved - points).norm(dim=-1), rtol=1e-12)


@pytest.mark.parametrize("widths", [(7, 5, 3), (4, 6, 5, 3)])
def test_the_output_jacobian_is_that_of_the_polytope(widths):
    network = mlp.initial((), widths, generator=stream(1, "network"))
    points = gaussian((11, widths[0]), generator=stream(1, "points"))
    gates = activation_pattern(network, points)
    found = output_jacobian(network, gates).expand(11, -1, -1)
    assert torch.allclose(found, output_map(network, gates)[0], atol=1e-13)
    # On its polytope the network is affine, so its outputs move by A_P times the step.
    step = 1e-7 * gaussian((11, widths[0]), generator=stream(1, "steps"))
    moved = network(points + step) - network(points)
    # Rounding of outputs of size 1 over a step of size 1e-7.
    assert torch.allclose(moved, (found @ step.unsqueeze(-1)).squeeze(-1), atol=1e-14)


def test_one_neuron_is_as_far_as_its_line():
    model = one_layer([[3.0, 4.0], [0.0, 2.0]], [5.0, -6.0])
    found = polytopes.nearest_hyperedges(model, torch.zeros(1, 2, dtype=torch.float64), count=2)
    assert found.distances[0].tolist() == pytest.approx([1.0, 3.0])
    assert found.neurons.tolist() == [[0, 1]]


@pytest.mark.parametrize("widths", [(3, 12, 2), (3, 8, 8, 2)])
def test_no_ray_meets_the_boundary_before_the_inscribed_radius_and_some_ray_meets_it_there(widths):
    model, centre = network(widths, 0), points(1, 3)
    radius = float(polytopes.inscribed_radius(model, centre))
    count = 20_000
    found = rays.ray_crossings(model, centre.expand(count, -1), directions(count, 3), crossings=1).lengths[:, 0]
    assert found.min() >= radius * (1 - 1e-12)
    # The best of n directions misses the normal by an angle a with (1 - cos a) / 2 about 1 / n.
    assert found.min() <= radius * (1 + 20 / count)


def test_within_the_radius_the_pattern_stays_and_the_closest_neuron_flips_behind_it():
    model, given = network((5, 10, 10, 3), 0), points(100, 5)
    found = polytopes.nearest_hyperedges(model, given)
    gates = polytopes.activation_pattern(model, given)
    rows = polytopes.join_layers(gates)
    normals = torch.cat([w.expand(100, -1, -1) for w in polytopes.layer_maps(model, gates)[0][:-1]], 1)
    normal = normals[torch.arange(100), found.neurons[:, 0]]
    away = -normal / normal.norm(dim=-1, keepdim=True) * (2 * rows.gather(1, found.neurons).double() - 1)
    for share, flips in ((1 - 1e-6, 0), (1 + 1e-6, 1)):
        moved = polytopes.join_layers(polytopes.activation_pattern(model, given + share * found.distances * away))
        changed = moved != rows
        # Another hyperedge within a millionth of the first would flip too: none of these 100 points has one.
        assert changed.sum(-1).tolist() == [flips] * 100


def test_a_neuron_without_open_path_is_never_reached():
    model = one_layer([[1.0, 0.0]], [0.0])
    deep = type(model)(
        (model.weights[0], torch.ones(1, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)),
        (model.biases[0], torch.zeros(1, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)),
    )
    found = polytopes.hyperedge_distances(deep, torch.tensor([[-2.0, 0.0]], dtype=torch.float64))
    assert found[0].tolist() == pytest.approx([2.0, math.inf])
