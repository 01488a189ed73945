"""Intervals over networks cover, and do not vanish where every network gives the same."""

import math

import pytest
import torch

from leakage.metrics.estimates import clopper_pearson
from leakage.precision import DTYPE
from reproduced.studies.kkt_margin import network_intervals


def of(*values):
    return torch.tensor(values, dtype=DTYPE)


def test_a_rate_of_zero_is_known_as_well_as_its_points_are_many():
    none = network_intervals.share_interval(torch.zeros(10, dtype=DTYPE), points=100)
    assert (none.estimate, none.low) == (0, 0)
    assert none.high == clopper_pearson(0, 1000).high


def test_networks_that_differ_widen_the_interval():
    like, unlike = (
        network_intervals.share_interval(values, points=1000) for values in (of(0.5, 0.5, 0.5), of(0.3, 0.5, 0.7))
    )
    assert unlike.low < 0.1 < 0.45 < like.low
    assert unlike.high <= 1


def test_answers_above_a_level_count_by_size():
    found = network_intervals.share_above_interval(of([0.5, -2.0, 3.0, 1.0], [0.0, 0.0, 0.0, -1.5]), 1.0)
    assert found.estimate == pytest.approx((0.5 + 0.25) / 2)
    assert found.n == 8


def test_a_variation_without_an_upper_end_says_so():
    assert network_intervals.variation_coefficient(of(1.0, 2.0, 30.0)).high == math.inf


def test_rank_correlations_are_taken_within_sequences():
    start = of(0.1, 0.9)
    found = network_intervals.rank_correlation([1, 10, 100], [of(0.1, 0.9), of(0.2, 0.8), of(0.3, 0.7)])
    assert found.estimate == 0  # one sequence rises, one falls
    for change in (0.1, -0.1):
        found = network_intervals.rank_correlation([1, 2], [start, start + change])
        assert found.estimate == pytest.approx(math.copysign(1, change))
        assert -1 <= found.low < found.high <= 1  # two sequences alike are no proof of all


def test_many_sequences_that_rise_leave_little_room():
    found = network_intervals.rank_correlation([1, 2, 3], [place + torch.zeros(100, dtype=DTYPE) for place in range(3)])
    assert 0.9 < found.low < found.high == 1
