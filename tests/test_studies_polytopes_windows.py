"""Evenly spaced points are where they should be."""

import torch

from reproduced.studies.polytopes import windows


def test_lattice_points_are_the_middles_of_equal_squares():
    found = windows.lattice(2)
    torch.testing.assert_close(found, torch.tensor([[1, 1], [3, 1], [1, 3], [3, 3]]).double() / 4)
    # The midpoint rule is exact for linear functions.
    assert torch.allclose(windows.lattice(7).mean(0), torch.full((2,), 0.5).double())


def test_a_box_has_the_corners_of_the_square_stretched():
    torch.testing.assert_close(windows.box((0, 0), (1, 1)), windows.corners())
    torch.testing.assert_close(windows.box((1, 2), (4, 3)), torch.tensor([[1, 2], [4, 2], [4, 3], [1, 3]]).double())


def test_points_along_segments_are_equally_spaced():
    segments = torch.tensor([[[0, 0], [1, 0]], [[5, 5], [5, 5]], [[0, 1], [0, 4]]], dtype=torch.float64)
    found = windows.along(segments, 8)
    assert torch.allclose(found[:2], torch.tensor([[0.25, 0], [0.75, 0]]).double())
    assert torch.allclose(found[2:, 1], torch.arange(6).double() / 2 + 1.25)
