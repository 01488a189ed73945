"""Roots are found to many digits, wherever they fall, and the distance follows from the gaps there."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakage.runtime import DTYPE
from leakage.theory.gaussian_mixtures import distance_from_gaps, sign_changes

GRID = torch.linspace(0, 5, 51, dtype=DTYPE)
# A grid step of 0.1 is divided by 8 five times; the middle of the last bracket is reported.
PRECISION = 0.1 / 8**5 / 2 + 1e-12


def polynomial(*roots):
    return lambda y: math.prod((y - root for root in roots), start=torch.ones((), dtype=DTYPE))


@pytest.mark.parametrize("roots", [(1.234,), (0.55, 2.71828, 4.99), (0.05, 0.15), (3.0001, 3.4999)])
def test_roots_between_grid_points_are_found(roots):
    found = sign_changes(polynomial(*roots), GRID)
    torch.testing.assert_close(found, torch.tensor(roots, dtype=DTYPE), rtol=0, atol=PRECISION)


@pytest.mark.parametrize("roots", [(2,), (1, 3), (1, 2.45, 4)])
def test_a_root_on_a_grid_point_counts_once(roots):
    whole = torch.linspace(0, 5, 6, dtype=DTYPE)
    found = sign_changes(polynomial(*roots), whole)
    torch.testing.assert_close(found, torch.tensor(roots, dtype=DTYPE), rtol=0, atol=10 * PRECISION)


def test_a_root_that_is_only_touched_is_no_change():
    whole = torch.linspace(0, 5, 6, dtype=DTYPE)
    torch.testing.assert_close(
        sign_changes(polynomial(2, 2, 3.5), whole), torch.tensor([3.5], dtype=DTYPE), rtol=0, atol=10 * PRECISION
    )
    assert sign_changes(polynomial(2, 2), whole).tolist() == [math.inf]


def test_a_stretch_of_zeros_between_signs_is_one_change():
    found = sign_changes(lambda y: (y - 3).clamp(min=0) - (1 - y).clamp(min=0), GRID)
    assert found.shape == (1,)
    assert 1 - PRECISION <= float(found) <= 3 + PRECISION  # anywhere in it: nothing has mass there


@pytest.mark.parametrize("difference", [torch.ones_like, torch.zeros_like, lambda y: -torch.ones_like(y)])
def test_without_a_change_there_is_only_padding(difference):
    assert sign_changes(difference, GRID).tolist() == [math.inf]


def test_rows_with_fewer_roots_are_padded_with_infinity():
    level = torch.tensor([[-2.0], [0.0], [0.5]], dtype=DTYPE)
    found = sign_changes(lambda y: torch.sin(math.pi * y) - level, GRID[:-1])
    assert found.shape == (3, 6)
    assert bool(torch.isinf(found[0]).all())
    # The grid starts on the root 0: no sign comes before it, so that nothing changes there.
    assert found[1].tolist() == pytest.approx([1, 2, 3, 4, math.inf, math.inf], abs=PRECISION)
    assert found[2].tolist() == pytest.approx([1 / 6, 5 / 6, 13 / 6, 17 / 6, 25 / 6, 29 / 6], abs=PRECISION)


def test_a_batch_may_have_its_own_grid():
    grid = torch.stack([GRID, 10 * GRID])
    found = sign_changes(lambda y: y - torch.tensor([[1.0], [20.03]], dtype=DTYPE), grid)
    torch.testing.assert_close(found, torch.tensor([[1.0], [20.03]], dtype=DTYPE), rtol=0, atol=10 * PRECISION)


@pytest.mark.parametrize(
    ("gaps", "distance"), [([0.3], 0.3), ([-0.3], 0.3), ([0.3, -0.2], 0.5), ([0.2, 0.1, 0.4], 0.5), ([0.0], 0.0)]
)
def test_the_distance_is_half_of_all_ups_and_downs(gaps, distance):
    assert float(distance_from_gaps(torch.tensor(gaps, dtype=DTYPE))) == pytest.approx(distance)


@settings(max_examples=100)
@given(gaps=st.lists(st.floats(-1, 1), min_size=1, max_size=8), padding=st.integers(0, 3))
def test_padding_and_orientation_do_not_matter(gaps, padding):
    values = torch.tensor(gaps, dtype=DTYPE)
    padded = torch.cat([values, torch.zeros(padding, dtype=DTYPE)])
    reference = sum(abs(b - a) for a, b in zip([0, *gaps], [*gaps, 0], strict=True)) / 2
    for variant in (values, -values, values.flip(0), padded):
        assert float(distance_from_gaps(variant)) == pytest.approx(reference, abs=1e-14)
    assert float(distance_from_gaps(values)) >= max(map(abs, gaps)) - 1e-14
