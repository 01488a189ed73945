"""Norms by the factor of the Gram matrix are those of the adapted weights, and can be differentiated."""

import pytest
import torch

from geometry_networks import network, points
from leakage.geometry import polytopes

WIDTHS = [(2, 9, 3), (30, 9, 3), (30, 9, 8, 7, 3), (2, 5, 6, 7, 3)]
ROUNDING = 1e-12  # the quadratic form of one layer squares what cancels; measured 3e-15


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("smooth", [False, True])
def test_the_frobenius_norm_is_that_of_the_read_out(widths, smooth):
    model, given = network(widths, 0), points(50, widths[0])
    gates = polytopes.smooth_pattern(model, given) if smooth else polytopes.activation_pattern(model, given)
    expected = polytopes.output_map(model, gates)[0].square().sum((-2, -1)).sqrt()
    assert torch.allclose(polytopes.jacobian_norm(model, gates), expected, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("widths", WIDTHS)
def test_factors_have_the_gram_matrix_of_the_adapted_weights(widths):
    model, given = network(widths, 0), points(50, widths[0])
    gates = polytopes.activation_pattern(model, given)
    for factor, weight in zip(
        polytopes.gram_factors(model, gates), polytopes.layer_maps(model, gates)[0][:-1], strict=True
    ):
        assert torch.allclose(factor @ factor.mT, weight @ weight.mT, atol=ROUNDING)
        assert factor.shape[-1] <= min(widths[0], widths[1])


def test_row_norms_are_exactly_zero_where_no_path_is_open():
    model = network((3, 4, 5, 2), 0)
    shut = torch.zeros(1, 4, dtype=torch.bool), torch.ones(1, 5, dtype=torch.bool)
    assert polytopes.gradient_norms(model, shut)[1].tolist() == [[0.0] * 5]
    assert float(polytopes.jacobian_norm(model, shut)) == pytest.approx(0)


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
    assert torch.allclose(slopes[0], slopes[1], atol=ROUNDING)


def test_a_norm_of_zero_has_a_finite_gradient():
    model = network((3, 4, 2), 0)
    gate = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    polytopes.jacobian_norm(model, (gate,)).sum().backward()
    assert gate.grad is not None
    assert torch.isfinite(gate.grad).all()


def test_networks_along_a_leading_dimension_are_independent():
    models, given = network((7, 6, 5, 3), 0, models=(3,)), points(10, 7)
    together = polytopes.jacobian_norm(models, polytopes.activation_pattern(models, given.expand(3, -1, -1)))
    alone = polytopes.jacobian_norm(models[2], polytopes.activation_pattern(models[2], given))
    assert torch.allclose(together[2], alone, rtol=ROUNDING)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="hidden layer"):
        polytopes.jacobian_norm(network((3, 2), 0), ())
    with pytest.raises(ValueError, match="gates"):
        polytopes.gram_factors(network((3, 4, 2), 0), (torch.ones(5, 3),))
