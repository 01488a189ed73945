"""Evenly spaced points are where they should be."""

import torch

from leakage.studies.polytopes import windows
from refusing import refusals


def test_lattice_points_are_the_middles_of_equal_squares():
    found = windows.lattice(2)
    assert found.tolist() == [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    # The midpoint rule is exact for linear functions.
    assert torch.allclose(windows.lattice(7).mean(0), torch.full((2,), 0.5).double())


def test_a_box_has_the_corners_of_the_square_stretched():
    assert windows.box((0, 0), (1, 1)).tolist() == windows.corners().tolist()
    assert windows.box((1, 2), (4, 3)).tolist() == [[1, 2], [4, 2], [4, 3], [1, 3]]


def test_points_along_segments_are_equally_spaced():
    segments = torch.tensor([[[0, 0], [1, 0]], [[5, 5], [5, 5]], [[0, 1], [0, 4]]], dtype=torch.float64)
    found = windows.along(segments, 8)
    assert torch.allclose(found[:2], torch.tensor([[0.25, 0], [0.75, 0]]).double())
    assert torch.allclose(found[2:, 1], torch.arange(6).double() / 2 + 1.25)


test_bad_input_is_refused = refusals(
    (lambda: windows.lattice(0), "side"),
    (lambda: windows.box((0, 1), (1, 1)), "below"),
    (lambda: windows.along(torch.zeros(0, 2, 2).double(), 3), "segments"),
)
