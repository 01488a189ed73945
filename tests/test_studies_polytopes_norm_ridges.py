"""Ridges and valleys are found where they were put, and nowhere else."""

import math

import pytest
import torch

from geometry_networks import network, one_layer
from last_bits import LastBits
from leakage.geometry.boundary import decision_boundary
from leakage.geometry.subdivision import subdivide
from leakage.models.mlp import Mlp
from reproduced.studies.polytopes import norm_ridges
from reproduced.studies.polytopes.windows import corners, lattice


def ramp() -> Mlp:
    """Flat outputs but for a steep ramp between x = 0.4 and 0.6, with the decision boundary at its middle."""
    kind = torch.float64
    return Mlp(
        (torch.tensor([[1, 0], [1, 0]], dtype=kind), torch.tensor([[-10, 10], [10, -10]], dtype=kind)),
        (torch.tensor([-0.4, -0.6], dtype=kind), torch.tensor([1, -1], dtype=kind)),
    )


def test_weighted_values_are_compared_exactly():
    one, two = torch.tensor([1.0, 3.0]).double(), torch.tensor([2.0, 3.0, 0.0]).double()
    # Pairs won: 1 > 0, 3 > 2, 3 > 0; tied: 3 = 3.
    assert float(norm_ridges.exceeds(one, two)) == pytest.approx(3.5 / 6)
    weights = torch.tensor([3.0, 1.0]).double(), torch.tensor([1.0, 2.0, 5.0]).double()
    found = norm_ridges.exceeds(one, two, first_weights=weights[0], second_weights=weights[1])
    assert float(found) == pytest.approx((3 * 5 + 1 * (1 + 5 + 1)) / 32)
    assert float(norm_ridges.exceeds(one, one)) == pytest.approx(0.5)
    assert float(norm_ridges.exceeds(one, two) + norm_ridges.exceeds(two, one)) == pytest.approx(1)


def test_values_that_differ_by_rounding_are_equal():
    one, two = torch.tensor([0.1 + 0.2, 1e-17]).double(), torch.tensor([0.3, 0.0]).double()
    both = float(norm_ridges.exceeds(one, two)), float(norm_ridges.exceeds(two, one))
    assert both == pytest.approx((0.5, 0.5))
    endless = torch.tensor([torch.inf, 0.0]).double()
    assert float(norm_ridges.exceeds(endless, two)) == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert float(norm_ridges.exceeds(endless, endless)) == pytest.approx(0.5)


def test_a_ramp_is_a_ridge_of_weights_and_a_valley_of_outputs():
    view = norm_ridges.survey(subdivide(ramp(), corners()), side=50)
    found = norm_ridges.ridge(view, torch.tensor([[0.5, 0.5]]).double(), within=0.3)
    # The ramp has a fifth of the window: there the norm ties, elsewhere it is 0.
    assert float(found.window.weights) == pytest.approx(0.8 + 0.1)
    # On the boundary both outputs are 0; no point of the window has the like.
    assert float(found.window.output) == pytest.approx(0)
    close = lattice(50)[_from_middle(lattice(50)) < 0.3]
    inside = ((close[:, 0] > 0.4) & (close[:, 0] < 0.6)).double().mean()
    assert float(found.near.weights) == pytest.approx(float(1 - inside / 2))


def _from_middle(points):
    return (points - 0.5).norm(dim=-1)


@pytest.mark.parametrize("machine", range(4))
def test_a_curve_across_the_ramp_sees_the_window_as_it_is(machine):
    with LastBits(machine):  # what ties is rounded otherwise in every cell, and at every point
        found = _across_the_ramp()
    # A horizontal line meets each value with the share that it has of the window.
    assert torch.allclose(torch.stack(found), torch.tensor(0.5).double(), atol=0.01)


def _across_the_ramp():
    view = norm_ridges.survey(subdivide(ramp(), corners()), side=50)
    flat = Mlp(
        (torch.tensor([[0, 1.0]]).double(), torch.tensor([[1.0], [-1.0]]).double()),
        (torch.tensor([0.0]).double(), torch.tensor([-0.5, 0.5]).double()),
    )
    level = decision_boundary(subdivide(flat, corners()))
    return norm_ridges.elsewhere(view, [level])


def test_a_window_of_one_class_has_no_ridge():
    model = one_layer([[1.0, 0.0]], [1.0], [[1.0], [-1.0]])
    view = norm_ridges.survey(subdivide(model, corners()), side=5)
    assert torch.stack(norm_ridges.ridge(view, lattice(2), within=0.5).window).isnan().all()
    assert torch.stack(norm_ridges.elsewhere(view, [view.boundary])).isnan().all()
    assert [len(part) for part in norm_ridges.elsewhere(view, [])] == [0, 0, 0]


def test_norms_at_points_are_those_of_the_network():
    model = network((2, 9, 8, 2), 1)
    view = norm_ridges.survey(subdivide(model, corners()), side=9)
    found = view.norms(view.points)
    for point, weight, bias, output in zip(view.points, *found, strict=True):
        jacobian = torch.func.jacrev(model)(point.unsqueeze(0)).squeeze()
        assert float(weight) == pytest.approx(float(jacobian.norm()))
        offset = model(point.unsqueeze(0)).squeeze() - jacobian @ point
        assert float(bias) == pytest.approx(float(offset.abs().max()))
        assert float(output) == pytest.approx(float(model(point.unsqueeze(0)).norm()))


def test_gradients_along_one_line_have_order_one():
    assert float(norm_ridges.gradient_order(subdivide(ramp(), corners()))) == pytest.approx(1)


def test_two_ramps_across_each_other_have_order_zero():
    # o_1 - o_0 = [x - 1/2]_+ + [y - 1/2]_+: half of the window has each gradient, and a quarter both at once.
    model = one_layer([[1.0, 0.0], [0.0, 1.0]], [-0.5, -0.5], [[0.0, 0.0], [1.0, 1.0]])
    # The matrix is [[1/2, 1/4], [1/4, 1/2]].
    assert float(norm_ridges.gradient_order(subdivide(model, corners()))) == pytest.approx(0.5)
    opposed = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.0, -10.0], [[0.0, 0.0], [1.0, 1.0]])
    assert float(norm_ridges.gradient_order(subdivide(opposed, corners()))) == pytest.approx(1)
    assert math.isclose(float(norm_ridges.gradient_order(subdivide(model, 0.5 + corners() / 2))), 1)
