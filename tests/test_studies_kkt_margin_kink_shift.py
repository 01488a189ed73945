"""Shifting a kink keeps the function at the training points and changes the norm at the stated rate."""

import pytest
import torch

from leakage.data.gaussians import gaussian
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.theory.kkt.optimum import univariate
from leakage.theory.piecewise_linear import Margins, from_network
from reproduced.studies.kkt_margin import line_statements
from reproduced.studies.kkt_margin.kink_shift import figure_6, norm_derivative, shifted
from reproduced.studies.kkt_margin.line_problems import draw_problem


def test_the_example_is_a_ramp_between_two_flat_pieces_without_a_point_at_its_ends():
    model, points, labels = figure_6()
    torch.testing.assert_close(model(points[:, None]), labels, rtol=0, atol=1e-14)
    function = from_network(model)
    assert function.nodes.tolist() == pytest.approx([-0.5, 0.5, 4])
    assert Margins.of(function, 1.0, tolerance=1e-9).flat.tolist() == [True, False, True, False]
    assert line_statements.active_everywhere(model, points)
    hidden = (model.weights[:, 0].square() + model.biases.square()).sqrt()
    torch.testing.assert_close(hidden, model.outputs.abs())


@pytest.mark.parametrize(
    ("step", "change", "kink"),
    [(0.2, -0.833, 0.75), (0.1, -0.526, 0.611), (0.01, -0.0610, 0.510), (-0.01, 0.0627, 0.490)],
)
def test_the_shifted_example_fits_its_points_with_another_norm_and_kink(step, change, kink):
    model, points, _ = figure_6()
    moved = shifted(model, step=step)
    torch.testing.assert_close(moved(points[:, None]), model(points[:, None]), rtol=0, atol=1e-14)
    assert float(moved.squared_norm() - model.squared_norm()) == pytest.approx(change, abs=5e-4)  # as many digits
    assert float(-moved.biases[2] / moved.weights[2, 0]) == pytest.approx(kink, abs=5e-4)
    assert float(-moved.biases[1] / moved.weights[1, 0]) == pytest.approx(-0.5)


def random_ramp(seed):
    """A neuron active on [-3, 3], one active to the left of -1/2 and one to the right of 1/2, of random sizes."""
    size = gaussian((3,), generator=stream(seed, "ramp")).exp()
    weights = size * torch.tensor([0.3, -1.0, 1.0], dtype=DTYPE)
    biases = size * torch.tensor([2.0, -0.5, -0.5], dtype=DTYPE)
    outputs = gaussian((3,), generator=stream(seed, "outputs"))
    return TwoLayer(weights[:, None], biases, outputs)


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_is_the_derivative_of_the_norm(seed):
    model, step = random_ramp(seed), 1e-5
    up, down = (shifted(model, step=sign * step).squared_norm() for sign in (1, -1))
    # Central differences: an error of step², and rounding of 1e-16 / step.
    torch.testing.assert_close((up - down) / (2 * step), norm_derivative(model), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_function_does_not_change_outside_of_the_ramp(seed):
    model = random_ramp(seed)
    outside = torch.cat([torch.linspace(-3, -0.5, 20, dtype=DTYPE), torch.linspace(0.7, 3, 20, dtype=DTYPE)])[:, None]
    moved = shifted(model, step=0.05)  # the kink goes to 0.55
    torch.testing.assert_close(moved(outside), model(outside), rtol=1e-12, atol=1e-12)
    inside = torch.tensor([[0.5]], dtype=DTYPE)
    assert float((moved(inside) - model(inside)).abs()) > 1e-6


def test_at_an_exact_optimum_the_norm_does_not_change_to_first_order():
    generator, rates = stream(0, "stationary"), []
    for _ in range(100):
        points, labels = draw_problem("pairs", count=5, generator=generator)
        model = univariate(points, labels).model
        for neurons in shiftable(model, points):
            rates.append(float(norm_derivative(model, **neurons) / model.squared_norm()))
    assert len(rates) > 3
    # Certified to a gap of about 1e-10, so directions of the neurons are good to about 1e-5.
    assert max(map(abs, rates)) < 1e-4


def shiftable(model, points):
    """Triples of neurons: active everywhere, and two of opposite signs with their kinks in one gap, apart."""
    weights, kinks = model.weights[:, 0], -model.biases / model.weights[:, 0]
    everywhere = (model.preactivations(points[:, None]) > 1e-3).all(0).nonzero().flatten().tolist()
    gaps = torch.searchsorted(points, kinks)
    clear = ((kinks[:, None] - points).abs() > 1e-3).all(1)
    for c in everywhere:
        for left in ((weights < 0) & clear).nonzero().flatten().tolist():
            for right in ((weights > 0) & clear).nonzero().flatten().tolist():
                if len({c, left, right}) == 3 and gaps[left] == gaps[right] and 0 < gaps[left] < len(points):
                    yield dict(everywhere=c, left=left, right=right)
