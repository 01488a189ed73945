"""Pairs are of one class and of two in turn, and the answer without a tensor is what it says."""

import math

import pytest
import torch

from leakage.precision import DTYPE
from reproduced.runtime import stream
from reproduced.studies.gradient_inversion import image_pairs

CLASSES = torch.arange(40) % 4
PIXELS = torch.rand((40, 30), generator=stream(0, "pixels"), dtype=DTYPE)


def test_pairs_are_of_one_class_and_of_two_in_turn():
    found = image_pairs.draw_pairs(PIXELS, CLASSES, pairs=8, seed=0)
    unit = torch.nn.functional.normalize(PIXELS, dim=-1)
    places = (found.inputs @ unit.mT).argmax(-1)
    torch.testing.assert_close(unit[places], found.inputs)
    assert (places[:, 0] != places[:, 1]).all()
    same = CLASSES[places[:, 0]] == CLASSES[places[:, 1]]
    assert same.tolist() == [True, False] * 4
    assert found.labels.tolist() == [[1, 1], [1, -1]] * 4
    assert not torch.allclose(found.inputs, image_pairs.draw_pairs(PIXELS, CLASSES, pairs=8, seed=1).inputs)


def test_the_sum_answers_two_axes_with_its_own_error_and_the_exact_recovery_with_none():
    axes = image_pairs.Pairs(torch.eye(2, 20, dtype=DTYPE)[None], torch.tensor([[1.0, -1.0]], dtype=DTYPE))
    found = image_pairs.attack_pairs(axes, width=20_000, seed=0)
    # Each axis is at half a right angle from the sum; residuals of 29 and 31 and the width move it by some percent.
    assert float(found.errors["sum"]) == pytest.approx(math.sqrt(2 - math.sqrt(2)), rel=0.05)
    assert float(found.errors["hidden"]) < 0.1 < float(found.errors["outputs"]) < 0.6
    assert float(found.errors["exact"]) < 1e-9
    torch.testing.assert_close(found.images["exact"], axes.inputs)
    outside = found.rows[..., 2:].abs().max() / found.rows.abs().max()
    assert float(outside) < 1e-12  # every row is a combination of the inputs
