"""The logistic loss's proximal operator, at sizes of γ where careless solvers swing between two points."""

import pytest
import torch

from leakage.precision import DTYPE
from planted import doubles
from reproduced.papers.blessing.proximal_operator import curvature, inverse_prox, loss, prox

V = torch.linspace(-40, 40, 161, dtype=DTYPE)
GAMMA = torch.logspace(-3, 13, 33, dtype=DTYPE)[:, None]


@pytest.mark.parametrize("label", [0, 1])
def test_the_prox_solves_its_equation_for_every_gamma(label):
    label = torch.tensor(label)
    found = prox(V, GAMMA, label)
    # Two units of rounding of a w of size 40, against 1 + γ.
    assert float(((inverse_prox(found, GAMMA, label) - V).abs() / (1 + GAMMA)).max()) < 5e-14


def test_the_points_between_which_plain_newton_swings_are_solved():
    # w + 367 ρ'(w) = 4.8: from 4.8 Newton's step goes to -87 and from there back.
    found = prox(doubles(4.8), doubles(367.0), doubles(0.0))
    step = (found + 367 * torch.sigmoid(found) - 4.8) / (1 + 367 * curvature(found))
    assert float(step.abs()) < 1e-13
    assert -4 < float(found) < -3.5


def test_the_labels_mirror_each_other():
    torch.testing.assert_close(prox(V, GAMMA, doubles(1.0)), -prox(-V, GAMMA, doubles(0.0)), rtol=1e-12, atol=1e-12)


def test_without_pull_nothing_moves_and_a_strong_pull_fits_the_label():
    torch.testing.assert_close(prox(V, doubles(0.0), doubles(1.0)), V)
    assert bool((prox(V, doubles(1e13), doubles(1.0)) > 25).all())


def test_the_prox_minimises_loss_plus_squared_distance():
    w = prox(doubles(0.7), doubles(3.0), doubles(1.0)).requires_grad_()
    objective = 3 * loss(w, doubles(1.0)) + (w - 0.7).square() / 2
    (gradient,) = torch.autograd.grad(objective.sum(), w)
    assert float(gradient.abs()) < 1e-14


def test_the_inverse_grows_with_the_slope_one_plus_gamma_curvature():
    z = V.clone().requires_grad_()
    (slope,) = torch.autograd.grad(inverse_prox(z, doubles(5.0), doubles(1.0)).sum(), z)
    torch.testing.assert_close(slope, 1 + 5 * curvature(V), rtol=1e-12, atol=1e-12)


def test_the_loss_is_the_negative_log_likelihood():
    torch.testing.assert_close(loss(V, doubles(1.0)), -torch.nn.functional.logsigmoid(V))
    torch.testing.assert_close(loss(V, doubles(0.0)), -torch.nn.functional.logsigmoid(-V))
