"""Evenly spaced points are where they should be."""

import pytest
import torch

from leakage.geometry import unit_square


def test_lattice_points_are_the_middles_of_equal_squares():
    found = unit_square.lattice(2)
    assert found.tolist() == [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    # The midpoint rule is exact for linear functions.
    assert torch.allclose(unit_square.lattice(7).mean(0), torch.full((2,), 0.5).double())


def test_a_box_has_the_corners_of_the_square_stretched():
    assert unit_square.box((0, 0), (1, 1)).tolist() == unit_square.corners().tolist()
    assert unit_square.box((1, 2), (4, 3)).tolist() == [[1, 2], [4, 2], [4, 3], [1, 3]]


def test_points_along_segments_are_equally_spaced():
    segments = torch.tensor([[[0, 0], [1, 0]], [[5, 5], [5, 5]], [[0, 1], [0, 4]]], dtype=torch.float64)
    found = unit_square.along(segments, 8)
    assert torch.allclose(found[:2], torch.tensor([[0.25, 0], [0.75, 0]]).double())
    assert torch.allclose(found[2:, 1], torch.arange(6).double() / 2 + 1.25)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="side"):
        unit_square.lattice(0)
    with pytest.raises(ValueError, match="below"):
        unit_square.box((0, 1), (1, 1))
    with pytest.raises(ValueError, match="segments"):
        unit_square.along(torch.zeros(0, 2, 2).double(), 3)
