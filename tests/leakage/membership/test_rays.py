"""Two exact methods find the same crossings and label changes."""

import itertools
import math

import pytest
import torch

from leakage.membership import polytopes, rays
from leakage.models.mlp import Mlp
from planted import directions, half_space, network, one_layer, points
from reproduced.papers.polytopes import other_algorithms
from reproduced.runtime import stream

WIDTHS = [(6, 15, 3), (2, 8, 8, 8, 2), (10, 7, 9, 4)]
ROUNDING = 1e-11  # lengths up to 10 whose slopes may be as small as 1e-3


@pytest.mark.parametrize("widths", WIDTHS)
def test_walking_and_cutting_find_the_same_crossings(widths):
    model, given, along = network(widths, 0), points(60, widths[0]), directions(60, widths[0])
    cut = other_algorithms.cut_rays(model, given, along, until=5.0)
    walked = rays.ray_crossings(model, given, along, crossings=cut.lengths.shape[1] + 1)
    found = cut.lengths.isfinite()
    assert found.any()
    assert (walked.lengths[:, :-1] - cut.lengths)[found].abs().max() < ROUNDING
    torch.testing.assert_close(walked.neurons[:, :-1][found], cut.neurons[found])
    assert (walked.lengths[:, :-1][~found] > 5).all()
    assert (walked.lengths[:, -1] > 5).all()


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_carried_pattern_is_that_of_the_network_between_crossings(widths):
    model, given, along = network(widths, 1), points(60, widths[0]), directions(60, widths[0])
    found = rays.ray_crossings(model, given, along, crossings=4)
    ahead = rays.ray_crossings(model, given, along, crossings=5).lengths
    inside = ahead[:, 4].isfinite() & (ahead[:, 4] - ahead[:, 3] > 1e-9)
    middle = given + ((ahead[:, 3] + ahead[:, 4]) / 2).unsqueeze(-1) * along
    actual = polytopes.join_layers(polytopes.activation_pattern(model, middle[inside]))
    assert inside.sum() > 10
    torch.testing.assert_close(polytopes.join_layers(found.gates)[inside], actual)


def test_crossings_of_one_layer_are_those_of_its_lines():
    model = one_layer([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], [-1.0, 1.0, -6.0])
    start, along = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = rays.ray_crossings(model, start, along, crossings=3)
    assert found.lengths[0].tolist() == pytest.approx([1.0, 3.0, math.inf])
    assert found.neurons.tolist() == [[0, 2, -1]]
    assert other_algorithms.cut_rays(model, start, along, until=2.0).lengths[0].tolist() == pytest.approx([1.0])


@pytest.mark.parametrize("widths", WIDTHS)
def test_two_exact_methods_find_the_same_label_change_and_the_label_changes_there(widths):
    model, given, along = network(widths, 2), 3 * points(200, widths[0]), directions(200, widths[0])
    walked = rays.ray_label_change(model, given, along, until=20.0)
    cut = other_algorithms.cut_rays_by_label(model, given, along, until=20.0)
    found = walked.isfinite()
    torch.testing.assert_close(found, cut.isfinite())
    assert found.sum() > 10
    assert (walked - cut)[found].abs().max() < ROUNDING
    labels = [
        model(given + (walked * share).unsqueeze(-1) * along)[found].argmax(-1) for share in (0.0, 1 - 1e-7, 1 + 1e-7)
    ]
    torch.testing.assert_close(labels[0], labels[1])
    assert (labels[0] != labels[2]).all()


def test_no_label_changes_where_one_class_always_wins():
    model = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.2], outputs=[[1.0, 1.0], [-1.0, -1.0]])
    given, along = points(20, 2).abs(), directions(20, 2).abs()
    assert rays.ray_label_change(model, given, along, until=9.0).isinf().all()
    assert other_algorithms.cut_rays_by_label(model, given, along, until=9.0).isinf().all()
    assert other_algorithms.search_rays(model, given, along, steps=9, event="label").isinf().all()


def a_network(outputs):
    """One neuron relu(x) and outputs that are linear in it: rows of (weight, bias)."""
    table = torch.tensor(outputs, dtype=torch.float64)
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    return Mlp((first[0], table[:, :1]), (first[1], table[:, 1]))


@pytest.mark.parametrize("change", [rays.ray_label_change, other_algorithms.cut_rays_by_label])
@pytest.mark.parametrize(
    ("outputs", "start", "way", "expected"),
    [
        ([(1, 0), (0, 0)], 1.0, -1.0, math.inf),  # equal behind 0, where the lower class keeps the label
        ([(0, 0), (1, 0)], 1.0, -1.0, 1.0),  # and where it takes it
        ([(1, 0), (0, 0)], -1.0, 1.0, math.inf),
        ([(0, 0), (1, 0)], -1.0, 1.0, 1.0),
        ([(1, 0), (0, 1)], 3.0, -1.0, 2.0),
        ([(0, 1), (0, 1)], 1.0, -1.0, math.inf),
    ],
)
def test_where_outputs_are_equal_the_lowest_class_has_the_label(change, outputs, start, way, expected):
    point, direction = (torch.tensor([[value, 0.0]], dtype=torch.float64) for value in (start, way))
    assert float(change(a_network(outputs), point, direction, until=5.0)) == pytest.approx(expected)


def test_both_methods_agree_on_networks_full_of_ties():
    """Whole weights, points and diagonal ways: ties, dead zones and crossings at one place are everywhere."""
    draws = stream(3, "whole networks")

    def whole(*shape):
        return torch.randint(-2, 3, shape, generator=draws).double()

    for trial in range(40):
        widths = (2, 3, 3) if trial % 2 else (2, 3, 3, 3)
        pairs = list(itertools.pairwise(widths))
        network = Mlp(tuple(whole(o, i) for i, o in pairs), tuple(whole(o) for _, o in pairs))
        points = whole(25, 2)
        angle = torch.randint(0, 8, (25,), generator=draws).double() * torch.pi / 4
        ways = torch.stack([angle.cos(), angle.sin()], -1)
        walked, cut = (
            change(network, points, ways, until=8.0)
            for change in (rays.ray_label_change, other_algorithms.cut_rays_by_label)
        )
        torch.testing.assert_close(walked, cut, rtol=0, atol=1e-9)
        # The label on a grid of places that no tie of these networks falls on.
        places = torch.arange(0.0137, 8, 0.05, dtype=torch.float64)
        outputs = network(points[:, None] + places[:, None] * ways[:, None])
        label = torch.where((outputs.amax(-1, keepdim=True) - outputs) < 1e-9, 0.0, -1.0).argmax(-1)
        differs = label != network(points).argmax(-1, keepdim=True)
        seen = torch.where(differs.any(1), places[differs.to(torch.int8).argmax(1)], torch.inf)
        short = walked < seen - 0.05  # the grid may step over a short change only
        assert bool(((walked <= seen + 1e-9) | short).all())
        assert float(short.double().mean()) < 0.1


def test_a_far_end_hides_no_change_of_label():
    """The second class leads between 1/2 and 3/2 past the start, however far the ray is followed."""
    weights = (torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[1.0, -2.0, 1.0], [0.0, 0.0, 0.0]]))
    biases = (torch.tensor([0.0, -2.0, -4.0]), torch.tensor([-1.0, 0.0]))
    hat = Mlp(tuple(one.double() for one in weights), tuple(one.double() for one in biases))
    start, way = torch.tensor([[0.5]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    for until in (1.0, 10.0, 1e10, 1e13, 1e200):
        assert float(rays.ray_label_change(hat, start, way, until=until)) == pytest.approx(0.5, abs=1e-12)


def test_the_label_change_on_a_segment_is_where_it_is():
    points = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    ends = torch.tensor([[4.0, 0.0], [0.9, 0.0], [-1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    found = rays.segment_label_change(half_space(at=1.0), points, ends)
    assert torch.allclose(found, torch.tensor([1.0, torch.inf, 2.0, torch.inf], dtype=torch.float64), atol=1e-14)
