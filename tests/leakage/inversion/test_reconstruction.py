"""The error of a reconstruction does not see the order of its rows, and sees everything else."""

import math

import pytest
import torch

from leakage.data.gaussians import sphere
from leakage.draws import gaussian
from leakage.inversion.reconstruction import match_error, match_inputs
from leakage.precision import DTYPE
from reproduced.runtime import stream

TRUTH = sphere(6, 9, generator=stream(0, "truth"))
ORDER = torch.tensor([3, 5, 0, 1, 4, 2])


def test_the_order_of_the_rows_does_not_count():
    assert match_error(TRUTH[ORDER], TRUTH) == pytest.approx(0.0)
    torch.testing.assert_close(match_inputs(TRUTH[ORDER], TRUTH), TRUTH)


def test_signs_count_unless_they_are_waived():
    signs = torch.tensor([1, -1, 1, -1, -1, 1], dtype=DTYPE).unsqueeze(1)
    found = (signs * TRUTH)[ORDER]
    assert match_error(found, TRUTH, signs=False) == pytest.approx(0.0)
    torch.testing.assert_close(match_inputs(found, TRUTH, signs=False), TRUTH)
    assert match_error(found, TRUTH) > 0.5


@pytest.mark.parametrize("signs", [True, False])
def test_no_permutation_does_better(signs):
    found = TRUTH[:4] + gaussian((4, 9), generator=stream(0, "noise"))
    costs = []
    for order in torch.cartesian_prod(*[torch.arange(4)] * 4):
        if len(set(order.tolist())) == 4:
            rows = found[order]
            far = [(sign * rows - TRUTH[:4]).square().sum(1) for sign in ((1, -1) if not signs else (1,))]
            costs.append(float(torch.stack(far).amin(0).mean().sqrt()))
    assert match_error(found, TRUTH[:4], signs=signs) == pytest.approx(min(costs), rel=1e-14)


def test_a_failed_input_is_a_failed_reconstruction():
    found = TRUTH[ORDER].clone()
    found[2] = math.nan
    assert math.isnan(match_error(found, TRUTH))
    rest = match_inputs(found, TRUTH)
    torch.testing.assert_close(rest[1:], TRUTH[1:])  # row 2 stood for input 0, and the others are still in their places


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 100.0), (torch.float64, 1e8)])
def test_inputs_that_are_long_and_alike_are_told_apart(dtype, size):
    inputs = torch.full((4, 5), size, dtype=dtype)
    inputs[:, 0] += torch.arange(4) * 0.01
    assert match_error(inputs.flip(0), inputs) < 1e-3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_error_is_in_the_units_of_the_inputs(scale):
    truth = gaussian((5, 4), generator=stream(0, "units"))
    order = torch.tensor([1, 0, 2, 4, 3])
    assert match_error(scale * truth[order], scale * truth) == pytest.approx(0, abs=1e-12 * scale)
    off = truth[order] * (1 + 1e-3)
    assert match_error(scale * off, scale * truth) == pytest.approx(scale * match_error(off, truth), rel=1e-12)
