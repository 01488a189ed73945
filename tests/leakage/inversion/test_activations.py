"""Closed-form derivatives are those of autograd, and the symmetries that an activation claims are exact."""

import math

import pytest
import torch
from torch.nn import functional

from leakage.inversion.activations import ACTIVATIONS, LEAKY_SLOPE, activation
from leakage.precision import DTYPE

GRID = torch.linspace(-6, 6, 120, dtype=DTYPE)  # an even count: 0, where the kinks are, is not on it
EACH = pytest.mark.parametrize("sigma", ACTIVATIONS.values(), ids=list(ACTIVATIONS))


def by_autograd(sigma, x, *, order):
    value = sigma(x.requires_grad_())
    yield value.detach()
    for _ in range(order):
        if not value.requires_grad:
            yield torch.zeros_like(x)
            continue
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True)
        yield value.detach()


@EACH
def test_derivatives_are_those_of_autograd(sigma):
    found = sigma.derivatives(GRID, order=2)
    for value, expected in zip(found, by_autograd(sigma, GRID.clone(), order=2), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-11, atol=3e-14)  # rounding of terms up to 3


@EACH
def test_as_many_derivatives_come_as_were_asked_for(sigma):
    assert [len(sigma.derivatives(GRID, order=order)) for order in range(3)] == [1, 2, 3]
    torch.testing.assert_close(sigma.derivatives(GRID, order=0)[0], sigma(GRID), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu"])
def test_the_slope_at_a_kink_is_that_of_pytorch(name):
    zero = torch.zeros(1, dtype=DTYPE, requires_grad=True)
    (slope,) = torch.autograd.grad(activation(name)(zero), zero)
    torch.testing.assert_close(activation(name).derivatives(zero.detach(), order=1)[1], slope)


@EACH
def test_the_centre_is_a_point_of_symmetry_and_named_where_there_is_one(sigma):
    both = sigma(GRID) + sigma(-GRID)
    assert (sigma.centre is not None) == bool(both.std() < 1e-12)
    if sigma.centre is not None:
        torch.testing.assert_close(both, torch.full_like(both, 2 * sigma.centre), rtol=0, atol=1e-12)


@EACH
def test_the_degree_is_that_of_a_homogeneous_function_and_named_where_there_is_one(sigma):
    for degree in (1, 2):
        scales = bool(((sigma(3 * GRID) - 3**degree * sigma(GRID)).abs() < 1e-12).all())
        assert scales == (sigma.homogeneity == degree)


@EACH
def test_an_activation_is_called_monotone_if_it_increases_strictly(sigma):
    assert sigma.monotone == bool((sigma(GRID).diff() > 0).all())


@EACH
def test_an_activation_is_called_smooth_if_its_derivatives_are_continuous(sigma):
    around = torch.tensor([-1e-9, 1e-9], dtype=DTYPE)
    jumps = [float(value.diff().abs()) for value in sigma.derivatives(around, order=2)]
    assert sigma.smooth == (max(jumps) < 1e-6)


def test_the_names_mean_what_pytorch_means():
    x = GRID
    torch.testing.assert_close(activation("leaky_relu")(x), functional.leaky_relu(x, LEAKY_SLOPE))
    torch.testing.assert_close(activation("softplus")(x), torch.log1p(x.exp()), rtol=1e-14, atol=1e-16)
    torch.testing.assert_close(activation("polynomial")(x), x**2 + x**3, rtol=1e-14, atol=0)
    assert [activation(name)(torch.tensor(2.0)).item() for name in ("linear", "quadratic")] == [2.0, 4.0]


def test_a_softplus_is_exact_where_it_is_almost_linear():
    """PyTorch's default gives 25 at 25, without the 1.4e-11."""
    assert float(activation("softplus")(torch.tensor(25.0, dtype=DTYPE))) == pytest.approx(
        25 + math.exp(-25), rel=0, abs=4e-15
    )
