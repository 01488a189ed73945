"""The decision boundary is where the largest output changes: complete, exact and connected as it should be."""

import math

import pytest
import torch

from leakage.membership.rays import ray_label_change
from planted import SQUARE, network, one_layer
from reproduced.papers.polytopes.decision_boundary import decision_boundary
from reproduced.papers.polytopes.subdivision import subdivide

# Outputs max(x, 0) + max(-x, 0) - 1/2 and 0: the boundary is the two lines x = ±1/2.
TWO_LINES = one_layer([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], outputs=[[1.0, 1.0], [0.0, 0.0]])
TWO_LINES = type(TWO_LINES)(TWO_LINES.weights, (TWO_LINES.biases[0], torch.tensor([-0.5, 0.0]).double()))


def test_two_parallel_lines():
    found = decision_boundary(subdivide(TWO_LINES, SQUARE))
    assert sorted(found.segments[..., 0].flatten().tolist()) == pytest.approx([-0.5, -0.5, 0.5, 0.5])
    assert found.lengths.tolist() == pytest.approx([2.0, 2.0])
    assert found.components == 2
    assert found.distance(
        torch.tensor([[0.0, 0.0], [0.5, 0.3], [0.8, 0.0]], dtype=torch.float64)
    ).tolist() == pytest.approx([0.5, 0.0, 0.3], abs=1e-15)


@pytest.mark.parametrize(("classes", "seed"), [(c, s) for c in (2, 3, 5) for s in range(4)])
def test_two_classes_are_level_and_first_all_along_each_segment(classes, seed):
    model = network((2, 12, 12, classes), seed)
    model = type(model)(model.weights, (*model.biases[:-1], model.biases[-1] - model(SQUARE * 0.7).mean(0)))
    found = decision_boundary(subdivide(model, 2 * SQUARE))
    assert len(found) > 0
    for share in (1e-3, 0.5, 1 - 1e-3):
        places = found.segments[:, 0] + share * (found.segments[:, 1] - found.segments[:, 0])
        outputs = model(places)
        level = outputs.gather(1, found.classes)
        assert (level[:, 0] - level[:, 1]).abs().max() < 1e-13
        assert (level[:, 0] - outputs.amax(-1)).abs().max() < 1e-13


@pytest.mark.parametrize("classes", [2, 4])
def test_labels_change_along_a_line_exactly_where_it_crosses_the_boundary(classes):
    model = network((2, 15, 15, classes), 5)
    model = type(model)(model.weights, (*model.biases[:-1], model.biases[-1] - model(SQUARE * 0.7).mean(0)))
    found = decision_boundary(subdivide(model, 2 * SQUARE))
    for height in (-0.913, 0.107, 0.561):
        x = torch.linspace(-2, 2, 20_001, dtype=torch.float64)
        labels = model(torch.stack([x, torch.full_like(x, height)], -1)).argmax(-1)
        below = found.segments[..., 1] < height
        assert int((labels.diff() != 0).sum()) == int((below[:, 0] != below[:, 1]).sum())


def test_segments_of_one_curve_are_one_component():
    # max(|x|, |y|) level 1/2, from four neurons: a closed square.
    model = one_layer([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]], [0.0] * 4, outputs=[[1.0] * 4, [0.0] * 4])
    model = type(model)(model.weights, (model.biases[0], torch.tensor([-1.0, 0.0]).double()))
    found = decision_boundary(subdivide(model, SQUARE))
    assert len(found) == 4
    assert found.components == 1
    assert float(found.lengths.sum()) == pytest.approx(4, abs=1e-14)


def test_without_a_change_of_label_there_is_no_boundary():
    found = decision_boundary(subdivide(one_layer([[1.0, 0.0]], [0.1]), 0.01 * SQUARE))
    assert len(found) == 0
    assert found.components == 0
    assert found.distance(SQUARE).tolist() == [math.inf] * 4


def two_ramps(outputs):
    """Neurons max(x, 0) and max(-x, 0), which share their hyperedge, and outputs that are linear in them."""
    return one_layer([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], outputs=outputs)


@pytest.mark.parametrize(
    ("outputs", "components"),
    [
        ([[0.0, 0.0], [1.0, -1.0]], 1),  # o₁ - o₀ = x changes its sign on the hyperedge
        ([[0.0, 0.0], [1.0, 0.0]], 1),  # equal for x < 0, where the lower class has the label
        ([[0.0, 0.0], [-1.0, 0.0]], 0),  # and keeps it
        ([[0.0, 0.0], [-1.0, -1.0]], 0),  # only touches
        ([[0.0, 0.0], [1.0, -1.0], [2.0, -2.0]], 1),
    ],
)
def test_a_boundary_may_run_along_a_hyperedge(outputs, components):
    model = two_ramps(outputs)
    found = decision_boundary(subdivide(model, SQUARE))
    assert found.components == components
    points = torch.tensor([[0.5, 0.0], [-0.25, 0.7]], dtype=torch.float64)
    expected = [0.5, 0.25] if components else [math.inf] * 2
    assert found.distance(points).tolist() == pytest.approx(expected)
    ways = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert ray_label_change(model, points, ways, until=0.9).tolist() == pytest.approx(expected)
    assert float(found.lengths.sum()) == pytest.approx(2.0 * components)
