"""Averages over the teacher's logit, also where its labels are a step on the scale of the nodes."""

import math

import pytest
import torch
from scipy import integrate, special

from leakage.runtime import DTYPE
from leakage.theory.logistic.output_law import average_over_points, label_moments, logit_quadrature
from logistic_points import of

KAPPA = of(0.0, 0.2, 1.0, 10.0, 50.0, 100.0)


def test_the_rule_has_the_moments_of_the_gaussian():
    rule = logit_quadrature(KAPPA)
    torch.testing.assert_close(rule.weights.sum(-1), torch.ones_like(KAPPA), rtol=1e-14, atol=0)
    for power, moment in ((1, 0.0), (2, 1.0), (4, 3.0)):
        torch.testing.assert_close(
            (rule.weights * rule.nodes**power).sum(-1) / KAPPA.clamp_min(1e-9) ** power,
            torch.where(KAPPA > 0, moment, 0.0).to(DTYPE),
            rtol=0,
            atol=1e-9,
        )


def test_half_of_all_labels_are_one():
    rule = logit_quadrature(KAPPA)
    torch.testing.assert_close(average_over_points(torch.ones_like(rule.nodes), rule), torch.ones_like(KAPPA))


# Spreads of 50 make the integrand a step: at a mean of 20 a Gauss-Hermite rule of 100 nodes gives 0.373, not 0.345.
@pytest.mark.parametrize(
    ("mean", "spread"), [(0.3, 0.0), (-2.0, 0.5), (1.0, 1.19), (1.0, 1.21), (-3.0, 5.0), (20.0, 50.0), (-200.0, 50.0)]
)
def test_the_label_moments_agree_with_adaptive_quadrature(mean, spread):
    found = label_moments(of(mean)[None], of(spread))
    for value, function in (
        (found.zero, lambda z: special.expit(-z)),
        (found.slope, lambda z: special.expit(z) * special.expit(-z)),
    ):
        if spread == 0:
            expected = function(mean)
        else:
            expected, _ = integrate.quad(
                lambda z, f=function: f(z) * math.exp(-(((z - mean) / spread) ** 2) / 2),
                mean - 9 * spread,
                mean + 9 * spread,
                points=[min(max(0.0, mean - 8.9 * spread), mean + 8.9 * spread), mean],
                limit=500,
                epsabs=1e-14,
                epsrel=1e-13,
            )
            expected /= spread * math.sqrt(2 * math.pi)
        assert float(value) == pytest.approx(expected, abs=1e-11)


def test_the_slope_is_the_derivative_of_the_chance_of_label_zero():
    mean = torch.linspace(-10, 10, 9, dtype=DTYPE)[None].requires_grad_()
    for spread in (0.3, 3.0):
        found = label_moments(mean, of(spread))
        (derivative,) = torch.autograd.grad(label_moments_zero(mean, spread).sum(), mean)
        torch.testing.assert_close(found.slope.detach(), -derivative, rtol=1e-8, atol=1e-11)


def label_moments_zero(mean, spread):
    """The same integral by a brute-force rule that can be differentiated."""
    x = torch.linspace(-9, 9, 2001, dtype=DTYPE)
    weights = torch.exp(-x.square() / 2)
    return torch.sigmoid(-(mean[..., None] + spread * x)) @ (weights / weights.sum())
