"""Bounds at few false alarms hold what was found, say nothing where nothing was seen, and are no wider than need be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage.metrics.intervals import clopper_pearson
from leakage.metrics.low_rates import tpr_bounds
from leakage.metrics.scores import Scores
from leakage.runtime import DTYPE, stream

tied_scores = st.lists(st.integers(-4, 4), min_size=1, max_size=40).map(lambda xs: torch.tensor(xs, dtype=DTYPE))


def gaussian(m, n, *, shift=0.0, name="scores"):
    member, outsider = (
        torch.randn(k, generator=stream(0, f"{name}/{k}/{i}"), dtype=DTYPE) for i, k in enumerate((m, n))
    )
    return Scores.from_groups(member=member + shift, outsider=outsider)


@settings(max_examples=80)
@given(member=tied_scores, outsider=tied_scores, fpr=st.floats(0.001, 0.999))
def test_what_was_found_lies_within_and_a_higher_level_is_wider(member, outsider, fpr):
    ranked = Scores.from_groups(member=member, outsider=outsider)
    (low, high), (lower, higher) = (tpr_bounds(ranked, fpr=fpr, level=level) for level in (0.9, 0.99))
    assert 0 <= lower <= low <= high <= higher <= 1
    if len(outsider) * fpr >= 1:
        assert low <= float(ranked.tpr_at_fpr(fpr)) <= high


def test_a_threshold_known_exactly_leaves_the_members_alone():
    ranked = gaussian(100, 1_000_000, shift=2)
    low, high = tpr_bounds(ranked, fpr=0.1)
    alone = clopper_pearson(int(ranked.hits_at_fpr(0.1)), 100)
    assert low < alone.low < alone.high < high
    # The circle costs 2.35 standard errors, where one known direction would cost 1.96.
    assert high - low < 1.25 * (alone.high - alone.low)


@pytest.mark.parametrize(("m", "n", "shift"), [(1000, 1000, 0), (1000, 1000, 1), (200, 1000, 1)])
def test_the_bounds_are_narrower_than_two_intervals_crossed(m, n, shift):
    fpr, error = 0.01, 0.025 / 2
    ranked = gaussian(m, n, shift=shift)
    falling = ranked.outsider.flip(0)
    few, many = int(stats.binom.ppf(error, n, fpr)), int(stats.binom.isf(error, n, fpr))
    fewest, most = (int((ranked.member > falling[place]).sum()) for place in (few - 1, many))
    crossed = clopper_pearson(most, m, level=1 - 2 * error).high - clopper_pearson(fewest, m, level=1 - 2 * error).low
    low, high = tpr_bounds(ranked, fpr=fpr)
    assert high - low < crossed


def test_few_outsiders_bound_the_rate_from_above_alone():
    hidden = Scores.from_groups(member=torch.zeros(1000), outsider=torch.ones(10))
    low, high = tpr_bounds(hidden, fpr=0.01)
    assert low == 0
    # Nobody is above the highest of ten outsiders; the second one may be the threshold, and nobody is above it either.
    assert high < 0.01
    assert tpr_bounds(Scores.from_groups(member=torch.ones(1000), outsider=torch.zeros(10)), fpr=0.01) == (0, 1)


def test_many_outsiders_below_all_members_are_a_proof():
    low, high = tpr_bounds(Scores.from_groups(member=torch.ones(1000), outsider=torch.zeros(2000)), fpr=0.01)
    assert low > 0.99
    assert high == 1
