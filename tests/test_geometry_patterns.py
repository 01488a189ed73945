"""On the polytope of its point every neuron is affine, with the adapted parameters; Algorithm 3 as printed is off."""

import pytest
import torch

from geometry_networks import network, one_layer, points
from leakage.geometry import polytopes
from reproduced.studies.polytopes import theorems

WIDTHS = [(2, 9, 2), (5, 7, 6, 3), (20, 8, 8, 8, 4)]
ROUNDING = 1e-13  # sums of at most 20 products of numbers of order 1


@pytest.mark.parametrize("widths", WIDTHS)
def test_adapted_parameters_give_the_height_of_every_neuron(widths):
    model, given = network(widths, 0), points(40, widths[0])
    weights, biases = polytopes.layer_maps(model, polytopes.activation_pattern(model, given))
    for weight, bias, height in zip(weights, biases, model.preactivations(given), strict=True):
        assert ((weight @ given.unsqueeze(-1)).squeeze(-1) + bias - height).abs().max() < ROUNDING


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_read_out_is_the_jacobian(widths):
    model, given = network(widths, 1), points(40, widths[0])
    slope, constant = polytopes.output_map(model, polytopes.activation_pattern(model, given))
    leaf = given.clone().requires_grad_()
    rows = [torch.autograd.grad(total, leaf, retain_graph=True)[0] for total in model(leaf).sum(0)]
    jacobian = torch.stack(rows, 1)
    assert (slope - jacobian).abs().max() < ROUNDING
    assert ((slope @ given.unsqueeze(-1)).squeeze(-1) + constant - model(given)).abs().max() < ROUNDING


def test_adapted_parameters_hold_on_the_whole_polytope():
    model, given = network((3, 12, 12, 2), 0), points(200, 3)
    gates = polytopes.activation_pattern(model, given)
    near = given + 1e-2 * points(200, 3, seed=1)
    same = (polytopes.join_layers(polytopes.activation_pattern(model, near)) == polytopes.join_layers(gates)).all(-1)
    slope, constant = polytopes.output_map(model, gates)
    error = ((slope @ near.unsqueeze(-1)).squeeze(-1) + constant - model(near)).abs().amax(-1)
    assert 100 < same.sum() < 200
    assert error[same].max() < ROUNDING
    assert error[~same].max() > 1e-9


def test_networks_along_a_leading_dimension_are_independent():
    models, given = network((4, 6, 5, 3), 0, models=(3,)), points(10, 4)
    together = polytopes.output_map(models, polytopes.activation_pattern(models, given.expand(3, -1, -1)))
    alone = polytopes.output_map(models[1], polytopes.activation_pattern(models[1], given))
    for both, own in zip(together, alone, strict=True):
        assert torch.allclose(both[1], own, atol=ROUNDING)


def test_a_network_without_hidden_layer_is_affine_everywhere():
    model, given = network((4, 3), 0), points(5, 4)
    weights, biases = polytopes.layer_maps(model, polytopes.activation_pattern(model, given))
    torch.testing.assert_close(weights[0][0], model.weights[0])
    torch.testing.assert_close(biases[0][0], model.biases[0])


def test_algorithm_3_as_printed_agrees_on_the_first_layer_only():
    model, given = network((2, 25, 25, 25, 2), 0), points(200, 2)
    gates = polytopes.activation_pattern(model, given)
    right, printed = polytopes.layer_maps(model, gates)[1], theorems.printed_biases(model, gates)
    off = [float(((a - b).abs() > 1e-9).double().mean()) for a, b in zip(right, printed, strict=False)]
    assert off[0] == 0
    assert min(off[1:]) > 0.95  # the bias of an inactive neuron almost never vanishes


def test_a_neuron_on_its_hyperedge_is_inactive():
    model = one_layer([[1.0, 0.0]], [0.0])
    assert polytopes.activation_pattern(model, torch.zeros(1, 2, dtype=torch.float64))[0].tolist() == [[False]]


def test_smooth_gates_sharpen_to_the_pattern_and_have_a_gradient():
    model, given = network((4, 6, 5, 3), 0), points(20, 4).requires_grad_()
    exact = polytopes.join_layers(polytopes.activation_pattern(model, given))
    sharp = polytopes.join_layers(polytopes.smooth_pattern(model, given, sharpness=1e9))
    assert (sharp - exact.double()).abs().max() < 1e-9  # the nearest of 220 heights is some 1e-4 from 0
    polytopes.output_map(model, polytopes.smooth_pattern(model, given))[1].abs().sum().backward()
    assert given.grad is not None
    assert (given.grad.norm(dim=-1) > 0).all()


def test_rows_of_all_neurons_split_into_layers_again():
    model, given = network((4, 6, 5, 3), 0), points(20, 4)
    gates = polytopes.activation_pattern(model, given)
    torch.testing.assert_close(tuple(polytopes.split_layers(model, polytopes.join_layers(gates))), tuple(gates))


def test_bad_input_is_refused():
    model = network((4, 6, 3), 0)
    with pytest.raises(ValueError, match="points"):
        polytopes.activation_pattern(model, points(5, 3))
    with pytest.raises(ValueError, match="finite"):
        polytopes.activation_pattern(model, torch.full((1, 4), torch.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="gates"):
        polytopes.layer_maps(model, (torch.ones(5, 7),))
    with pytest.raises(ValueError, match="sharpness"):
        polytopes.smooth_pattern(model, points(5, 4), sharpness=0.0)
