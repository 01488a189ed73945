"""Least squares on the gradient: closed-form derivatives, exact solutions as fixed points, and known lengths."""

import pytest
import torch

from leakage.draws import gaussian
from leakage.inversion.nonlinear_least_squares import (
    HiddenEquations,
    OutputEquations,
    solve,
)
from leakage.inversion.observation import Observation
from leakage.precision import DTYPE
from planted import draw_batch
from reproduced.runtime import stream

SMOOTH = ["tanh", "sigmoid", "gelu", "silu", "softplus", "elu", "sin", "polynomial"]


def basis_of(inputs):
    return torch.linalg.qr(inputs.mT).Q


def both(observation, inputs):
    """The equations of either layer, and the inputs in their coordinates."""
    basis = basis_of(inputs)
    return [
        (HiddenEquations.from_observation(observation, basis), (inputs @ basis).unsqueeze(0)),
        (OutputEquations.from_observation(observation), inputs.unsqueeze(0)),
    ]


def near(points, residuals, *, by, seed=1):
    """Starts at a relative distance from a solution."""
    noise = gaussian(points.shape, generator=stream(seed, "noise"))
    return points + by * noise / noise.norm(dim=-1, keepdim=True), residuals.unsqueeze(0) * (1 + by)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_normal_equations_are_those_of_the_jacobian_by_autograd(name):
    observation, inputs, _, residuals = draw_batch(name, 2, 4, 9)
    for equations, points in both(observation, inputs):
        start = near(points, residuals, by=0.3)
        jacobians = torch.autograd.functional.jacobian(lambda u, r, e=equations: e.error(u, r).flatten(), start)
        columns = torch.cat([jacobian.flatten(1) for jacobian in jacobians], dim=1)
        matrix, gradient = equations.normal_equations(*start)
        rounding = 1e-11 * float(matrix.abs().max())  # sums of tens of rounded products
        expected = columns.mT @ columns, columns.mT @ equations.error(*start).flatten()
        torch.testing.assert_close((matrix[0], gradient[0]), expected, rtol=1e-11, atol=rounding)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu", "softplus", "polynomial"])
def test_from_near_the_batch_it_is_reached_to_rounding(name):
    observation, inputs, _, residuals = draw_batch(name, 3, 12, 80)
    for equations, points in both(observation, inputs):
        found = solve(equations, *near(points, residuals, by=0.05))
        # Conditions of 10 to 1e3 separate the misfit, 1e-15, from the error.
        torch.testing.assert_close(found.points, points, rtol=0, atol=1e-11)
        torch.testing.assert_close(found.residuals[0], residuals, rtol=1e-11, atol=0)
        assert bool((found.misfits < 1e-12).all())


def test_lengths_that_differ_are_found_where_they_are_free():
    observation, inputs, _, residuals = draw_batch("tanh", 3, 12, 80)
    stretched = inputs * torch.tensor([0.5, 1.0, 2.0], dtype=DTYPE).unsqueeze(-1)
    slopes = observation.activation.derivatives(observation.weights @ stretched.mT, order=1)[1]
    hidden = (slopes * residuals) @ stretched / len(observation.weights)
    seen = Observation(observation.weights, observation.activation, observation.bias, hidden=hidden)
    equations = HiddenEquations.from_observation(seen, basis_of(inputs))
    start = (inputs @ basis_of(inputs)).unsqueeze(0)
    assert float(solve(equations, start).misfits[0]) < 1e-12
    assert float(solve(equations, start, norm=1.0).misfits[0]) > 1e-3  # a wrong length certifies nothing


def test_starts_do_not_see_each_other():
    observation, inputs, _, residuals = draw_batch("tanh", 3, 12, 80)
    equations, points = both(observation, inputs)[0]
    one, other = near(points, residuals, by=0.1), near(points, residuals, by=0.1, seed=2)
    together = solve(equations, torch.cat([one[0], other[0]]), torch.cat([one[1], other[1]]), steps=3)
    for index, start in enumerate((one, other)):
        alone = solve(equations, *start, steps=3)
        # The equations of one start are summed in another order.
        torch.testing.assert_close(together.points[index], alone.points[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gelu", "softplus", "polynomial"])
def test_signs_are_found_by_one_linear_fit(name):
    observation, inputs, *_ = draw_batch(name, 3, 12, 80)
    for equations, points in both(observation, inputs):
        flipped = points * torch.tensor([-1.0, 1.0, -1.0], dtype=DTYPE).unsqueeze(-1)
        torch.testing.assert_close(equations.choose_signs(flipped), points)
