"""Lists of scattered optima hold training points only, and at most one gap has two kinks."""

import pytest
import torch

from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.line_lists import ListFound, list_of_optimum, lists_of_scattered_optima
from reproduced.papers.kkt_margin.line_theorems import count_double_gaps
from reproduced.papers.kkt_margin.max_margin import optimum_on_line
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import stream


def test_lists_are_right_and_gaps_have_one_kink_but_for_one():
    found = lists_of_scattered_optima(24, generator=stream(0, "scattered"))
    assert len(found) == 24
    listed = [one for one in found if one.candidates]
    assert listed
    assert all(one.right == one.candidates for one in listed)
    assert all(one.share_in_units_of_bound >= 1 for one in listed)
    assert all(one.double_gaps is None or one.double_gaps <= 1 for one in found)


def test_a_list_in_units_of_the_bound():
    assert ListFound(10, 3, 0).share_in_units_of_bound == pytest.approx(1)


def test_moving_and_mirroring_the_points_keeps_the_list_right():
    points = torch.tensor([-1.0, -0.4, 0.3, 1.1, 1.7], dtype=DTYPE)
    labels = torch.tensor([1.0, -1, 1, -1, 1], dtype=DTYPE)
    for own, signs in ((points, labels), (-points.flip(0), labels.flip(0)), (points + 2, labels)):
        found = list_of_optimum(optimum_on_line(own, signs), own, signs)
        assert found.right == found.candidates > 0


def test_two_kinks_in_two_gaps_are_counted():
    # Not a KKT point: kinks at ±1/4 and ±3/4 between the points -1, 0 and 1.
    places = torch.tensor([-0.75, -0.25, 0.25, 0.75], dtype=DTYPE)
    ones = torch.ones(4, dtype=DTYPE)
    model = TwoLayer(ones[:, None], -places, ones)
    points = torch.tensor([-1.0, 0, 1], dtype=DTYPE)
    labels = torch.tensor([1.0, 1, -1], dtype=DTYPE)
    assert count_double_gaps(model, points, labels, torch.ones(3, dtype=DTYPE)) == 2
    balanced = torch.tensor([1.0, -1, 0], dtype=DTYPE)
    assert count_double_gaps(model, points * 0, balanced, torch.ones(3, dtype=DTYPE)) is None
