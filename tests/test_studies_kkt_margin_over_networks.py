"""Intervals over networks cover, and do not vanish where every network gives the same."""

import math

import pytest
import torch

from leakage.metrics.estimates import clopper_pearson
from leakage.runtime import DTYPE, stream
from leakage.studies.kkt_margin import over_networks


def of(*values):
    return torch.tensor(values, dtype=DTYPE)


def test_a_rate_of_zero_is_known_as_well_as_its_points_are_many():
    none = over_networks.rate(torch.zeros(10, dtype=DTYPE), points=100)
    assert (none.estimate, none.low) == (0, 0)
    assert none.high == clopper_pearson(0, 1000).high


def test_networks_that_differ_widen_the_interval():
    like, unlike = (over_networks.rate(values, points=1000) for values in (of(0.5, 0.5, 0.5), of(0.3, 0.5, 0.7)))
    assert unlike.low < 0.1 < 0.45 < like.low
    assert unlike.high <= 1


def test_answers_above_a_level_count_by_size():
    found = over_networks.above(of([0.5, -2.0, 3.0, 1.0], [0.0, 0.0, 0.0, -1.5]), 1.0)
    assert found.estimate == (0.5 + 0.25) / 2
    assert found.n == 8


def test_the_interval_of_a_variation_covers():
    values = 10 + torch.randn((600, 8), generator=stream(0, "variation"), dtype=DTYPE)
    met = [over_networks.variation(row).agrees_with(0.1) for row in values]
    # 600 repetitions at 95 %: a standard error is 0.009
    assert abs(sum(met) / len(met) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 600)


def test_what_is_no_share_and_no_size_is_refused():
    with pytest.raises(ValueError, match="shares"):
        over_networks.rate(of(0.5, 1.5), points=10)
    with pytest.raises(ValueError, match="values"):
        over_networks.variation(of(1.0, -1.0))


def test_rank_correlations_are_taken_within_sequences():
    start = of(0.1, 0.9)
    found = over_networks.rank_correlation([1, 10, 100], [of(0.1, 0.9), of(0.2, 0.8), of(0.3, 0.7)])
    assert found.estimate == 0  # one sequence rises, one falls
    assert over_networks.rank_correlation([1, 2], [start, start + 0.1]).low == 1
    assert over_networks.rank_correlation([1, 2], [start, start - 0.1]).high == -1
