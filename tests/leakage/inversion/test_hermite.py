"""Hermite moments are those in closed form, agree with derivatives where there are any, and choose the route."""

import math

import pytest
import torch

from leakage.inversion.activations import ACTIVATIONS, activation
from leakage.inversion.hermite import ORDERS, gaussian_mean, moment, recovery_moments
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.games import weight_ratio

ROOT_2PI = math.sqrt(2 * math.pi)
NORMS = torch.tensor([0.01, 0.5, 1.0, 2.0, 30.0], dtype=DTYPE)
PAPER_ROUTES = {
    "polynomial": (2, 3),
    "elu": (2, 3),
    "tanh": (3, 3),
    "sigmoid": (3, 3),
    "sin": (3, 3),
    "relu": (2, 4),
    "leaky_relu": (2, 4),
    "gelu": (2, 4),
    "silu": (2, 4),
    "softplus": (2, 4),
}


def moments(name, norm=1.0):
    return [float(moment(activation(name), torch.tensor(norm), order=order)) for order in ORDERS]


def test_gaussian_means_of_powers_and_kinks_are_exact():
    powers = gaussian_mean(lambda z: torch.stack([z**p for p in (0, 1, 2, 4, 8)]))
    torch.testing.assert_close(powers, torch.tensor([1.0, 0, 1, 3, 105], dtype=DTYPE), rtol=1e-13, atol=1e-13)
    kinks = gaussian_mean(lambda z: torch.stack([z.abs(), (z > 0).to(DTYPE)]))
    torch.testing.assert_close(kinks, torch.tensor([2 / ROOT_2PI, 0.5], dtype=DTYPE), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("name", "order", "law"),
    [
        ("relu", 0, lambda t: t / ROOT_2PI),
        ("relu", 2, lambda t: 1 / (t * ROOT_2PI)),
        ("relu", 4, lambda t: -1 / (t**3 * ROOT_2PI)),
        ("leaky_relu", 4, lambda t: -0.99 / (t**3 * ROOT_2PI)),
        ("gelu", 2, lambda t: (2 + t**2) / (ROOT_2PI * (1 + t**2) ** 1.5)),
        ("sin", 1, lambda t: torch.exp(-(t**2) / 2)),
        ("sin", 3, lambda t: -torch.exp(-(t**2) / 2)),
        ("polynomial", 0, lambda t: t**2),
        ("polynomial", 1, lambda t: 3 * t**2),
        ("polynomial", 2, lambda t: 2 + 0 * t),
        ("polynomial", 3, lambda t: 6 + 0 * t),
    ],
)
def test_moments_are_those_in_closed_form_at_every_length(name, order, law):
    t = NORMS[:4] if name == "sin" else NORMS  # at 30 a sine of z has more periods than a panel has nodes
    floor = 1e-14 / t**order  # rounding of a mean of terms up to 1, divided by t to the order
    found = moment(activation(name), t, order=order)
    assert bool(((found - law(t)).abs() <= 1e-12 * law(t).abs() + floor).all())


def derivative(function, x, *, order):
    """By autograd."""
    value = function(x.requires_grad_())
    for _ in range(order):
        if not value.requires_grad:
            return torch.zeros_like(x)
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    return value.detach()


@pytest.mark.parametrize("name", [name for name, entry in ACTIVATIONS.items() if entry.smooth])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_moments_are_means_of_the_derivatives(name, order):
    t, function = NORMS[1:4], activation(name)
    means = gaussian_mean(lambda z: derivative(function, t.unsqueeze(-1) * z, order=order))
    torch.testing.assert_close(moment(function, t, order=order), means, rtol=1e-11, atol=1e-12)


def test_moments_of_elu_at_unit_length_are_those_known():
    expected = [0.160521, 0.761578, 0.261578, -0.137364, -0.137364]
    assert moments("elu") == pytest.approx(expected, abs=1e-6)  # as many digits as were written down


@pytest.mark.parametrize("norm", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("name", PAPER_ROUTES)
def test_a_route_takes_the_lowest_orders_that_do_not_vanish(name, norm):
    found = recovery_moments(activation(name), norm=norm)
    assert (found.span_order, found.tensor_order) == PAPER_ROUTES[name]


def test_a_route_may_lack_a_matrix():
    found = recovery_moments(lambda x: x**4 - 6 * x**2)  # He4 and a constant at unit length
    assert (found.span_order, found.tensor_order) == (None, 4)


@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", ["linear", "quadratic"])
def test_a_polynomial_of_degree_two_is_not_identifiable(name, norm):
    with pytest.raises(ValueError, match="`activation` is not identifiable"):
        recovery_moments(activation(name), norm=norm)


def test_weights_of_two_labels_are_equal_only_without_a_mean():
    assert weight_ratio(activation("tanh")) == pytest.approx(1, rel=1e-12)
    assert weight_ratio(activation("sigmoid")) == pytest.approx(3, rel=1e-12)  # r* = 1/2 - y
    assert weight_ratio(activation("relu")) == pytest.approx((1 + 1 / ROOT_2PI) / (1 - 1 / ROOT_2PI))
    assert weight_ratio(activation("polynomial")) == math.inf  # s0 = 1 meets y = 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_bias_of_twice_the_largest_residual_keeps_the_weights_within_three(name):
    largest = abs(moments(name)[0]) + 1
    assert weight_ratio(activation(name), bias=2 * largest) <= 3


def test_a_ratio_counts_every_label():
    assert weight_ratio(activation("tanh"), labels=[0.5, -1.0, 4.0]) == pytest.approx(8)


@pytest.mark.parametrize("norm", [70.0, 100.0, 1e4])
def test_a_norm_at_which_an_activation_is_not_resolved_is_refused(norm):
    with pytest.raises(ValueError, match="`norm` must be smaller"):
        recovery_moments(activation("sin"), norm=norm)


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "softplus"])
def test_activations_of_one_bend_are_resolved_at_any_norm_in_use(name):
    assert all(math.isfinite(value) for value in moments(name, norm=1000.0))
