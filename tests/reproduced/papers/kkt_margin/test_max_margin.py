"""Optima carry a certificate that anyone can check, and meet the KKT conditions and known answers."""

import math

import numpy as np
import pytest
import torch

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.line_problems import LABEL_LAWS, draw_problem
from reproduced.papers.kkt_margin.max_margin import (
    lengths_of_projections,
    optimum_of_independent_points,
    optimum_on_line,
    single_neuron_optimum,
)
from reproduced.runtime import stream

EXAMPLE = torch.tensor([-3.0, 1, 2, 7], dtype=DTYPE), torch.tensor([-1.0, 1, -1, 1], dtype=DTYPE)


def wide(n=5, d=40):
    points = gaussian((n, d), generator=stream(0, "optimum"))
    return points, torch.tensor([1.0, -1, 1, 1, -1, -1, 1, -1], dtype=DTYPE)[:n]


def responses(found, points, labels):
    r"""$\sum_i \lambda_i y_i [p^\top \tilde x_i]_+$ of the direction p of every neuron, times the sign of its output.

    At most 1 by the dual constraints, and 1 where the neuron is stationary, with its kink at a point or not.
    """
    model = found.model
    norms = (model.weights.square().sum(-1) + model.biases.square()).sqrt()
    return model.outputs.sign() * ((found.multipliers * labels) @ (model.preactivations(points) / norms).clamp_min(0))


def test_the_worked_example_has_its_known_value():
    found = optimum_on_line(*EXAMPLE)
    assert float(found.value) == pytest.approx(8.52884, abs=1e-5)
    assert found.gap < 1e-9
    # 1 = the margin, on all four points: every multiplier is positive.
    torch.testing.assert_close(EXAMPLE[1] * found.model(EXAMPLE[0][:, None]), torch.ones(4, dtype=DTYPE))


@pytest.mark.parametrize("law", LABEL_LAWS)
def test_optima_on_the_line_are_certified_and_stationary(law):
    points, labels = draw_problem(law, count=12, generator=stream(3, law))
    found = optimum_on_line(points, labels)
    assert -1e-12 < found.gap < 1e-6
    outputs = labels * found.model(points[:, None])
    assert float(outputs.min()) == pytest.approx(1, abs=1e-12)
    assert float(found.multipliers.min()) >= 0
    # Slackness adds up to the gap: Σλq − Σλ, of an optimum that is Σλ.
    assert float(found.multipliers @ (outputs - 1) / found.value) < 1e-6
    attained = responses(found, points[:, None], labels)
    torch.testing.assert_close(attained, torch.ones_like(attained), rtol=0, atol=1e-6)  # as the gap


def test_no_network_of_margin_one_is_shorter():
    # The dual bound: λ is feasible against every unit neuron, also those that the solver never saw.
    points, labels = draw_problem("pairs", count=8, generator=stream(0, "dual"))
    found = optimum_on_line(points, labels)
    angles = torch.linspace(0, 2 * math.pi, 20_001, dtype=DTYPE)
    neurons = angles.cos() * points[:, None] + angles.sin()
    assert float(((labels * found.multipliers) @ neurons.clamp_min(0)).abs().max()) <= 1 + 1e-12
    assert float(found.multipliers.sum()) == pytest.approx(float(found.value), rel=1e-6)


def test_orthants_find_the_same_optimum_as_half_lines():
    points = torch.tensor([-0.5, 1.5], dtype=DTYPE)
    for labels in ([1.0, -1], [1.0, 1]):
        one = optimum_on_line(points, torch.tensor(labels, dtype=DTYPE))
        other = optimum_of_independent_points(points[:, None], torch.tensor(labels, dtype=DTYPE))
        torch.testing.assert_close(one.value, other.value, rtol=1e-9, atol=0)


def test_optima_in_many_dimensions_are_certified_and_stationary():
    points, labels = wide()
    found = optimum_of_independent_points(points, labels)
    assert -1e-12 < found.gap < 1e-9
    outputs = labels * found.model(points)
    assert float(outputs.min()) == pytest.approx(1, abs=1e-12)
    attained = responses(found, points, labels)
    torch.testing.assert_close(attained, torch.ones_like(attained), rtol=0, atol=1e-9)  # as the gap


def test_orthogonal_points_far_out_share_one_neuron_for_each_label():
    points = 1e4 * torch.eye(4, dtype=DTYPE)
    found = optimum_of_independent_points(points, torch.tensor([1.0, 1, -1, -1], dtype=DTYPE))
    # p = (x_1 + x_2) / 1e8 for each label; the bias adds less than 1e-6 of it.
    assert float(found.value) == pytest.approx(2 * math.sqrt(2) / 1e4, rel=1e-6)


@pytest.mark.parametrize("draw", range(4))
def test_points_of_one_label_share_one_neuron_in_closed_form(draw):
    # SciPy's `nnls` gave a wrong projection on such a problem, so that the certificate failed.
    points = gaussian((6, 5000), generator=stream(draw, "one label"))
    found = optimum_of_independent_points(points, torch.ones(6, dtype=DTYPE))
    kernel = points @ points.mT + 1
    assert float(found.value) == pytest.approx(
        float(torch.linalg.solve(kernel, torch.ones(6, dtype=DTYPE)).sum()) ** 0.5
    )
    assert found.gap < 1e-9


@pytest.mark.parametrize("rays", [1, 2, 3, 6])
def test_a_target_is_the_sum_of_its_projections_onto_a_cone_and_its_polar_cone(rays):
    draws = stream(rays, "cones")
    cones, targets = (gaussian(shape, generator=draws).numpy() for shape in ((200, rays, rays), (200, rays)))
    polar = -np.linalg.inv(cones).transpose(0, 2, 1)
    squares = sum(lengths_of_projections(one, targets) ** 2 for one in (cones, polar))
    assert squares == pytest.approx((targets**2).sum(1), rel=1e-9)


def test_neurons_are_balanced():
    model = optimum_on_line(*EXAMPLE).model
    hidden = (model.weights.square().sum(-1) + model.biases.square()).sqrt()
    torch.testing.assert_close(hidden, model.outputs.abs())


def test_the_order_of_the_points_does_not_matter():
    order = torch.tensor([2, 0, 3, 1])
    straight, shuffled = optimum_on_line(*EXAMPLE), optimum_on_line(EXAMPLE[0][order], EXAMPLE[1][order])
    torch.testing.assert_close(shuffled.multipliers, straight.multipliers[order], rtol=0, atol=1e-10)


def test_mirrored_points_and_swapped_labels_have_the_same_value():
    points, labels = draw_problem("random", count=10, generator=stream(1, "mirror"))
    value = optimum_on_line(points, labels).value
    torch.testing.assert_close(optimum_on_line(-points, labels).value, value, rtol=1e-8, atol=0)
    torch.testing.assert_close(optimum_on_line(points, -labels).value, value, rtol=1e-8, atol=0)


def test_points_close_together_are_still_certified():
    points = torch.tensor([-1.0, 0, 1e-4, 2], dtype=DTYPE)
    assert optimum_on_line(points, EXAMPLE[1]).gap < 1e-6


@pytest.mark.parametrize("point", [[0.7], [0.0], [-3.0, 2.0, 0.5]])
@pytest.mark.parametrize("label", [-1, 1])
def test_one_point_has_one_neuron_in_closed_form(point, label):
    x = torch.tensor(point, dtype=DTYPE)
    model, multiplier = single_neuron_optimum(x, label=label, margin=3.0)
    assert float(model(x[None])) == pytest.approx(3 * label, rel=1e-14)
    assert float(model.squared_norm()) == pytest.approx(2 * 3 * float(multiplier), rel=1e-14)
    found = optimum_of_independent_points(x[None], torch.tensor([float(label)], dtype=DTYPE))
    torch.testing.assert_close(found.multipliers[0], multiplier, rtol=1e-9, atol=0)


def test_an_uncertified_answer_is_an_error():
    points = torch.tensor([0, 1e-15, 1, 2], dtype=DTYPE)
    with pytest.raises(RuntimeError, match="relative duality gap"):
        optimum_on_line(points, EXAMPLE[1])
