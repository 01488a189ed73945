"""What is drawn is what is there."""

import pytest
import torch

from geometry_networks import SQUARE, network, points
from leakage.geometry.boundary import decision_boundary
from leakage.geometry.polygons import fans
from leakage.geometry.subdivision import Plane, subdivide
from leakage.models.mlp import Mlp
from reproduced.studies.polytopes import pictures


@pytest.fixture(scope="module")
def model():
    drawn = network((2, 12, 12, 2), 2)
    # Both classes are equal at the middle, so that the boundary is in the window.
    middle = drawn(torch.zeros(1, 2).double()).squeeze(0)
    return Mlp(drawn.weights, (*drawn.biases[:-1], drawn.biases[-1] - middle))


def test_a_picture_shows_the_subdivision(model):
    found, fine = pictures.picture(model, SQUARE, side=4), subdivide(model, SQUARE)
    assert len(found) == len(fine)
    torch.testing.assert_close(found.weight_norms, fine.weight_norms)
    torch.testing.assert_close(found.bias_norms, fine.bias_norms)
    drawn = [line.shape[1] // 3 for line in found.hyperedges]
    assert sum(drawn) == len(fine.hyperedges()[1])
    assert drawn[0] == int((fine.hyperedges()[1] < 12).sum())
    assert found.boundary.shape[1] == 3 * len(decision_boundary(fine))


def test_outputs_are_those_at_the_middles_of_pixels(model):
    window = torch.tensor([[0, 0], [2, 0], [2, 1], [0, 1]]).double()
    found = pictures.picture(model, window, side=2)
    assert found.extent == (0, 2, 0, 1)
    expected = model(torch.tensor([[0.5, 0.25], [1.5, 0.25], [0.5, 0.75], [1.5, 0.75]]).double()).norm(dim=-1)
    assert torch.allclose(found.outputs.flatten(), expected)


def test_regions_tile_the_window_and_have_the_predicted_class(model):
    vertices, counts, classes = pictures.picture(model, SQUARE, side=1).regions
    assert float(fans(vertices)[1].sum()) == pytest.approx(4)
    used = (torch.arange(vertices.shape[1]) < counts.unsqueeze(-1)).unsqueeze(-1)
    middles = (vertices * used).sum(1) / counts.unsqueeze(-1)
    torch.testing.assert_close(model(middles).argmax(-1), classes)
    assert classes.unique().tolist() == [0, 1]


def test_a_plane_is_shown_with_all_its_classes():
    model = network((5, 9, 3), 0)
    plane = Plane(torch.zeros(5).double(), torch.linalg.qr(points(5, 2)).Q.T.contiguous())
    found = pictures.picture(model, SQUARE, plane=plane, side=2)
    assert found.regions[2].max() <= 2
    assert len(found.regions[1]) == len(found)
    expected = model(torch.tensor([[-0.5, -0.5]]).double() @ plane.basis).norm()
    assert float(found.outputs[0, 0]) == pytest.approx(float(expected))


def test_a_path_has_a_gap_behind_each_segment():
    found = pictures.path(torch.tensor([[[0, 1], [2, 3]], [[4, 5], [6, 7]]]).double())
    assert found[:, [0, 1, 3, 4]].tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert found[:, [2, 5]].isnan().all()
