"""Intervals have their closed forms and cover as often as they say; a degenerate sample is an error, not a number."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage.metrics.estimates import (
    Estimate,
    as_sample,
    clopper_pearson,
    difference_of_means,
    mean_interval,
    mean_of_groups,
    median_interval,
    newcombe_interval,
    wilson_interval,
)

repeatable = settings(max_examples=60)


def test_an_estimate_prints_its_interval():
    measured = Estimate(0.1234, 0.1, 0.14, n=50)
    assert f"{measured}" == str(measured) == "0.123 [0.100, 0.140]"
    assert f"{measured:+.1%}" == "+12.3% [+10.0%, +14.0%]"
    assert float(measured) == pytest.approx(0.1234)


def test_an_estimate_agrees_with_its_closed_interval():
    measured = Estimate(0.5, 0.25, 0.75, n=4)
    assert all(measured.agrees_with(value) for value in (0.25, 0.5, 0.75))
    assert not any(measured.agrees_with(value) for value in (0.2499, 0.7501, math.inf))
    assert measured.agrees_with(np.float64(0.5)) is True
    assert not measured.agrees_with(math.nan)


def test_an_estimate_holds_plain_numbers_and_cannot_change():
    measured = Estimate(np.float32(0.5), np.float64(0.25), 1, n=np.int64(4))  # pyright: ignore[reportArgumentType]
    assert [type(value) for value in dataclasses.astuple(measured)] == [float, float, float, int, float]
    with pytest.raises(dataclasses.FrozenInstanceError):
        measured.low = 0.0  # pyright: ignore[reportAttributeAccessIssue]


def test_few_values_leave_a_median_open():
    found = median_interval(torch.tensor([3.0, 1.0, 2.0]))
    assert (found.estimate, found.low, found.high) == (2, -math.inf, math.inf)
    assert median_interval(torch.arange(8.0)).low == 0
    assert median_interval(torch.arange(12.0)).low == 2
    assert median_interval(torch.arange(12.0), level=0.5).low == 4


@pytest.mark.parametrize("numbers", [(math.nan, 0, 1), (0.5, math.nan, 1), (0.5, 0.6, 0.4)])
def test_an_estimate_refuses_numbers_that_are_no_measurement(numbers):
    with pytest.raises(ValueError, match="low <= high"):
        Estimate(*numbers, n=5)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    "measure",
    [
        lambda: mean_interval(torch.tensor([1.0])),
        lambda: mean_interval(torch.tensor([1.0, math.nan])),
        lambda: median_interval(torch.tensor([1.0, math.inf])),
        lambda: mean_interval(torch.tensor([])),
        lambda: mean_interval(torch.arange(3.0), level=95),
        lambda: clopper_pearson(5, 4),
        lambda: clopper_pearson(-1, 4),
        lambda: clopper_pearson(2, 4, level=95),
    ],
)
def test_what_has_no_interval_is_an_error(measure):
    with pytest.raises(ValueError, match=r"low <= high|must be finite"):
        measure()


def test_no_success_at_all_has_a_known_exact_bound():
    never = clopper_pearson(0, 30)
    assert never.low == 0
    assert never.high == pytest.approx(1 - 0.025 ** (1 / 30), abs=1e-12)
    assert clopper_pearson(30, 30).low == pytest.approx(1 - never.high, abs=1e-12)


@repeatable
@given(trials=st.integers(1, 25), chance=st.floats(0.001, 0.999), level=st.sampled_from([0.8, 0.95, 0.99]))
def test_exact_intervals_cover_at_least_as_often_as_they_say(trials, chance, level):
    covered = [clopper_pearson(k, trials, level=level).agrees_with(chance) for k in range(trials + 1)]
    # 1e-9: rounding where the chance sits on the end of an interval.
    assert stats.binom.pmf(np.arange(trials + 1), trials, chance) @ covered >= level - 1e-9


def test_the_errors_of_two_proportions_are_squared_and_added():
    measured, one, other = newcombe_interval((56, 70), (48, 80)), clopper_pearson(56, 70), clopper_pearson(48, 80)
    assert measured.n == 150
    assert measured.estimate == pytest.approx(0.2)
    assert 0.2 - measured.low == pytest.approx(math.hypot(0.8 - one.low, other.high - 0.6))
    assert measured.high - 0.2 == pytest.approx(math.hypot(one.high - 0.8, 0.6 - other.low))
    # R. G. Newcombe (1998), table II, method 10: the same with Wilson's intervals is [0.0524, 0.3339], a little inside.
    assert (measured.low, measured.high) == pytest.approx((0.0524, 0.3339), abs=0.02)
    assert measured.low < 0.0524 < 0.3339 < measured.high


def test_a_proportion_known_almost_exactly_leaves_the_interval_of_the_other():
    measured, alone = newcombe_interval((7, 10), (0, 10**9)), clopper_pearson(7, 10)
    assert (measured.low, measured.high) == pytest.approx((alone.low, alone.high), abs=1e-7)


@pytest.mark.parametrize("size", [10, 10.0, 250])
def test_wilsons_ends_are_the_shares_at_a_quantile_from_what_was_found(size):
    for end in wilson_interval(0.3, size=size, quantile=1.96):
        assert size * (0.3 - end) ** 2 == pytest.approx(1.96**2 * end * (1 - end))


@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3, 1.0])
def test_a_share_lies_within_wilsons_ends_to_the_last_bit(share):
    ends = [wilson_interval(share, size=1.7**k, quantile=1 + k / 7) for k in range(40)]
    assert all(0 <= low <= share <= high <= 1 for low, high in ends)


def test_a_difference_of_means_squares_and_adds_the_halves():
    found = difference_of_means(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0, 6.0]))
    halves = [(e.high - e.low) / 2 for e in map(mean_interval, (torch.tensor([1.0, 3]), torch.tensor([2.0, 4, 6])))]
    assert found.estimate == -2
    assert (found.high - found.low) / 2 == pytest.approx(math.hypot(*halves))
    assert found.n == 5


@repeatable
@given(st.data())
def test_the_difference_of_proportions_turns_its_sign_with_its_arguments(data):
    first, second = ((data.draw(st.integers(0, n)), n) for n in data.draw(st.tuples(*[st.integers(1, 200)] * 2)))
    there, back = newcombe_interval(first, second), newcombe_interval(second, first)
    assert (there.low, there.estimate, there.high) == pytest.approx((-back.high, -back.estimate, -back.low), abs=1e-12)
    assert -1 <= there.low <= there.estimate <= there.high <= 1


def test_the_mean_has_students_interval():
    values = torch.tensor([1, 2, 4, 7])
    measured = mean_interval(values, level=0.9)
    expected = stats.t.interval(0.9, 3, loc=3.5, scale=stats.sem([1.0, 2.0, 4.0, 7.0]))
    assert (measured.low, measured.high) == pytest.approx(expected, abs=1e-12)
    assert (measured.estimate, measured.n, measured.level) == (3.5, 4, 0.9)


def test_a_group_counts_once_however_many_members_it_has():
    values = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    by_hand, once, thrice = (
        mean_interval(values.double().mean(-1)),
        mean_of_groups(values),
        mean_of_groups(values.repeat(1, 3)),
    )
    assert (float(once), once.high) == pytest.approx((float(by_hand), by_hand.high))
    assert thrice.high == pytest.approx(by_hand.high)


def test_where_a_group_has_no_value_nothing_is_known():
    found = mean_of_groups(torch.tensor([0.1, math.nan, 0.3]))
    assert (float(found), found.low, found.high) == (pytest.approx(0.2), -math.inf, math.inf)
    nowhere = mean_of_groups(torch.tensor([math.nan, math.nan]))
    assert (nowhere.low, nowhere.high) == (-math.inf, math.inf)


def test_a_sample_becomes_float64_and_forgets_its_gradient():
    sample = as_sample(torch.ones(3, dtype=torch.float32, requires_grad=True), "x")
    assert sample.dtype is torch.float64
    assert not sample.requires_grad


@pytest.mark.parametrize(("values", "expected"), [([1, 2], 1.5), ([3, 1, 2], 2.0)])
def test_a_median_is_the_middle_of_the_values(values, expected):
    assert median_interval(torch.tensor(values)).estimate == expected
