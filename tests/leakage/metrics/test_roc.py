"""Scores of known laws give the known numbers; nothing leaks where nothing can; what leaks is found."""

import math
from fractions import Fraction
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from leakage.metrics.estimates import clopper_pearson
from leakage.metrics.roc import (
    auc,
    best_advantage,
    calibrate_threshold,
    ks_test,
    membership_advantage,
    roc_curve,
    tpr_at_fpr,
    tpr_bounds,
)
from leakage.metrics.scores import Scores
from reproduced.runtime import stream

repeatable = settings(max_examples=80)
# Few distinct values, so that ties within and across the samples are the rule.
tied_scores = st.lists(st.integers(-4, 4), min_size=2, max_size=25).map(
    lambda xs: torch.tensor(xs, dtype=torch.float64)
)
any_scores = st.lists(st.floats(-1e300, 1e300, allow_nan=False, allow_infinity=False), min_size=1, max_size=25).map(
    lambda xs: torch.tensor(xs, dtype=torch.float64)
)
several_scores = any_scores.filter(lambda scores: len(scores) > 1)


def gaussian(members, outsiders, *, shift=0.0, seed=0):
    """Scores of members, shifted, and outsiders."""
    counts = {"member": members, "outsider": outsiders}
    drawn = {who: torch.randn(n, generator=stream(seed, who), dtype=torch.float64) for who, n in counts.items()}
    return drawn | {"member": drawn["member"] + shift}


def test_nothing_is_found_when_nothing_leaks():
    member, outsider = gaussian(4000, 4000).values()
    half = 4 * math.sqrt((2 * 4000 + 1) / (12 * 4000**2))  # Mann and Whitney's standard error, no ties
    assert abs(auc(member=member, outsider=outsider).estimate - 0.5) < half
    assert membership_advantage(member=member, outsider=outsider, threshold=0.0).agrees_with(0)
    assert best_advantage(member=member, outsider=outsider).agrees_with(0)
    assert (
        tpr_at_fpr(member=member, outsider=outsider, fpr=0.01).estimate < 0.02
    )  # 4 standard errors of two shares of 1 %


def test_a_planted_leak_is_found():
    member, outsider = gaussian(500, 500, shift=20).values()
    assert auc(member=member, outsider=outsider).estimate == pytest.approx(1)
    assert best_advantage(member=member, outsider=outsider).estimate == pytest.approx(1)
    assert tpr_at_fpr(member=member, outsider=outsider, fpr=0.01).estimate == pytest.approx(1)
    assert membership_advantage(member=member, outsider=outsider, threshold=10.0).estimate == pytest.approx(1)


def test_shifted_gaussians_give_their_closed_forms():
    shift, n = 1.5, 20000
    member, outsider = gaussian(n, n, shift=shift).values()
    law = stats.norm
    sampling = 4 * math.sqrt(0.5 / n)  # 4 standard errors of a difference of two shares, at most
    assert abs(auc(member=member, outsider=outsider).estimate - law.cdf(shift / math.sqrt(2))) < sampling
    assert abs(best_advantage(member=member, outsider=outsider).estimate - (2 * law.cdf(shift / 2) - 1)) < sampling
    result = membership_advantage(member=member, outsider=outsider, threshold=shift / 2)
    assert abs(result.estimate - (2 * law.cdf(shift / 2) - 1)) < sampling
    # The threshold moves too: 4 standard errors of the outsiders' share, times the slope of the curve there (6).
    found = tpr_at_fpr(member=member, outsider=outsider, fpr=0.01).estimate
    assert abs(found - law.sf(law.isf(0.01) - shift)) < sampling + 6 * 4 * math.sqrt(0.01 / n)


def test_a_threshold_calls_a_member_what_reaches_it():
    samples = {"member": torch.tensor([1.0, 2.0, 3.0]), "outsider": torch.tensor([0.0, 2.0])}
    assert membership_advantage(**samples, threshold=2.0).estimate == pytest.approx(2 / 3 - 1 / 2)
    assert membership_advantage(**samples, threshold=math.inf).estimate == 0


@repeatable
@given(member=tied_scores, outsider=tied_scores)
def test_the_auc_counts_a_tie_as_half(member, outsider):
    pairs = (member[:, None] > outsider).double() + (member[:, None] == outsider).double() / 2
    measured = auc(member=member, outsider=outsider)
    assert measured.estimate == pytest.approx(float(pairs.mean()), abs=1e-12)
    assert 0 <= measured.low <= measured.estimate <= measured.high <= 1
    labels = [1] * len(member) + [0] * len(outsider)
    assert measured.estimate == pytest.approx(roc_auc_score(labels, torch.cat([member, outsider])), abs=1e-12)


@repeatable
@given(member=tied_scores, outsider=tied_scores)
def test_the_auc_is_the_area_under_the_roc_curve(member, outsider):
    curve = roc_curve(member=member, outsider=outsider)
    assert auc(member=member, outsider=outsider).estimate == pytest.approx(
        float(torch.trapezoid(curve.tpr, curve.fpr)), abs=1e-12
    )
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert bool((curve.fpr.diff() >= 0).all())
    assert bool((curve.thresholds[1:].diff() < 0).all())


@repeatable
@given(
    member=tied_scores | any_scores, outsider=tied_scores | any_scores, noise=st.sampled_from([0, 1e-12, 1e-10, 1.0])
)
def test_thresholds_of_a_curve_are_scores_that_were_given_and_rates_the_shares_that_reach_them(member, outsider, noise):
    pair = {"member": member * (1 + noise * torch.linspace(0, 1, len(member))), "outsider": outsider}
    curve, every = roc_curve(**pair), torch.cat([*pair.values()])
    assert {*curve.thresholds.tolist()} <= {math.inf, *every.tolist()}
    for values, rate in ((pair["member"], curve.tpr), (outsider, curve.fpr)):
        torch.testing.assert_close((values >= curve.thresholds[:, None]).double().mean(1), rate)


@repeatable
@given(member=tied_scores | several_scores, outsider=tied_scores | several_scores)
def test_turning_the_roles_round_mirrors_the_auc(member, outsider):
    there, back = auc(member=member, outsider=outsider), auc(member=outsider, outsider=member)
    assert (there.estimate, there.low) == pytest.approx((1 - back.estimate, 1 - back.high), abs=1e-9)


def test_separated_scores_have_the_interval_of_their_independent_pairs():
    member, outsider = torch.arange(10.0, 40), torch.arange(0.0, 10)
    measured = auc(member=member, outsider=outsider)
    assert (measured.estimate, measured.high) == pytest.approx((1, 1))
    assert measured.low == pytest.approx(0.025 ** (1 / 10), abs=1e-12)
    constant = auc(member=torch.ones(30), outsider=torch.ones(10))
    assert (constant.estimate, constant.high - 0.5) == pytest.approx((0.5, 0.5 - constant.low))
    assert constant.high > 0.6


@repeatable
@given(member=tied_scores, outsider=tied_scores)
def test_the_best_advantage_is_the_one_sided_distance_of_kolmogorov_and_smirnov(member, outsider):
    measured = best_advantage(member=member, outsider=outsider)
    reference, _ = stats.ks_2samp(outsider.numpy(), member.numpy(), alternative="greater", method="asymp")
    curve = roc_curve(member=member, outsider=outsider)
    assert measured.estimate == pytest.approx(max(float(reference), 0), abs=1e-12)
    assert measured.estimate == pytest.approx(float((curve.tpr - curve.fpr).max()), abs=1e-12)


def test_the_best_advantage_is_optimistic_and_a_calibrated_threshold_is_not():
    n, repeats = 100, 300
    best, honest = [], []
    for seed in range(repeats):
        member, outsider = gaussian(n, n, seed=seed).values()
        threshold = calibrate_threshold(member=member, outsider=outsider)
        best.append(best_advantage(member=member, outsider=outsider).estimate)
        honest.append(membership_advantage(**gaussian(n, n, seed=seed + 10**6), threshold=threshold).estimate)
    # The best is sqrt(2/n) times a Rayleigh variable of mean sqrt(pi/8), minus lattice effects of order 1/n.
    assert abs(sum(best) / repeats - math.sqrt(math.pi / 8 * 2 / n)) < 0.02
    # An honest advantage has standard deviation at most sqrt(.5/n); 4 standard errors of the mean.
    assert abs(sum(honest) / repeats) < 4 * math.sqrt(0.5 / n / repeats)


@repeatable
@given(member=any_scores, outsider=any_scores)
def test_a_calibrated_threshold_has_the_best_advantage_where_it_was_calibrated(member, outsider):
    threshold = calibrate_threshold(member=member, outsider=outsider)
    achieved = membership_advantage(member=member, outsider=outsider, threshold=threshold).estimate
    assert achieved == pytest.approx(best_advantage(member=member, outsider=outsider).estimate, abs=1e-12)


def test_a_threshold_lies_midway_between_the_last_score_included_and_the_next():
    assert calibrate_threshold(member=torch.tensor([4.0, 5.0]), outsider=torch.tensor([0.0, 1.0])) == pytest.approx(2.5)
    assert calibrate_threshold(member=torch.tensor([2.0, 5.0]), outsider=torch.tensor([0.0, 3.0])) == pytest.approx(4.0)
    below = torch.tensor([-1 - 2.0**-29], dtype=torch.float64)  # the next number to nine digits
    assert calibrate_threshold(member=torch.tensor([-1.0]), outsider=below) == pytest.approx(-1.0)


def test_the_threshold_of_a_useless_score_calls_nobody_a_member():
    assert calibrate_threshold(member=torch.tensor([0.0, 1.0]), outsider=torch.tensor([2.0, 3.0])) == math.inf
    assert calibrate_threshold(member=torch.ones(5), outsider=torch.ones(5)) == math.inf


@repeatable
@given(member=any_scores, outsider=any_scores.filter(lambda x: len(x) >= 4), fpr=st.floats(0.25, 0.99))
def test_no_more_outsiders_are_accused_than_allowed(member, outsider, fpr):
    ranked = Scores.from_groups(member=member, outsider=outsider)
    hits, alarms = map(int, ranked.count_flagged(float(ranked.threshold_at_fpr(fpr)), strict=True))
    assert alarms <= fpr * len(outsider) * (1 + 1e-9)
    found = tpr_at_fpr(member=member, outsider=outsider, fpr=fpr).estimate
    assert hits / len(member) == pytest.approx(found, abs=1e-12)


def test_ties_at_the_threshold_count_against_the_attacker():
    outsider = torch.tensor([0.0] * 8 + [1.0] * 2)
    # 10 % allows one accusation, but two outsiders share the top score: neither may be accused, nor their equals.
    assert tpr_at_fpr(member=torch.tensor([1.0, 1.0, 1.0, 2.0]), outsider=outsider, fpr=0.1).estimate == pytest.approx(
        0.25
    )
    assert tpr_at_fpr(member=torch.tensor([1.0, 1.0, 1.0, 2.0]), outsider=outsider, fpr=0.2).estimate == 1


@pytest.mark.parametrize(("fpr", "n"), [(Fraction(29, 100), 100), (Fraction(7, 100), 100), (Fraction(1, 1000), 3000)])
def test_a_rate_that_is_a_whole_number_of_outsiders_allows_that_many(fpr, n):
    outsider = torch.arange(float(n))
    allowed = int(fpr * n)
    assert tpr_at_fpr(member=outsider, outsider=outsider, fpr=float(fpr)).estimate == pytest.approx(allowed / n)
    assert tpr_at_fpr(member=outsider + 0.5, outsider=outsider, fpr=float(fpr)).estimate == pytest.approx(
        (allowed + 1) / n
    )


def test_a_rate_too_small_to_be_seen_is_refused():
    member, outsider = gaussian(999, 999).values()
    with pytest.raises(ValueError, match=r"n·fpr < 1.*1000"):
        tpr_at_fpr(member=member, outsider=outsider, fpr=0.001)


def everything(member, outsider):
    """All measures of one pair of samples, as plain numbers."""
    return [
        *(
            number
            for estimate in (
                auc(member=member, outsider=outsider),
                best_advantage(member=member, outsider=outsider),
                tpr_at_fpr(member=member, outsider=outsider, fpr=0.25),
                membership_advantage(
                    member=member, outsider=outsider, threshold=calibrate_threshold(member=member, outsider=outsider)
                ),
            )
            for number in (estimate.estimate, estimate.low, estimate.high)
        ),
        *ks_test(member, outsider)[:2],
    ]


@repeatable
@given(member=tied_scores, outsider=tied_scores.filter(lambda x: len(x) >= 4), seed=st.integers(0, 99))
def test_neither_order_nor_type_nor_a_monotone_map_changes_a_measure(member, outsider, seed):
    reference = everything(member, outsider)
    shuffled = (x[torch.randperm(len(x), generator=stream(seed, "order"))] for x in (member, outsider))
    assert everything(*shuffled) == pytest.approx(reference, abs=1e-12)
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        assert everything(member.to(kind), outsider.to(kind)) == pytest.approx(reference, abs=1e-12)
    assert everything(member.exp(), outsider.exp()) == pytest.approx(reference, abs=1e-12)


@pytest.mark.parametrize("measure", [auc, best_advantage, partial(tpr_at_fpr, fpr=0.5), roc_curve])
@pytest.mark.parametrize("bad", [[], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_scores_that_have_no_order_are_an_error(measure, bad):
    good = torch.tensor([0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="`outsider` must be finite"):
        measure(member=good, outsider=torch.tensor(bad))


@pytest.mark.parametrize("sizes", [(30, 50), (999, 1000), (1000, 1000), (1500, 1200)])
def test_the_two_sample_test_is_scipys(sizes):
    a, b = (torch.randn(n, generator=stream(0, str(n))) for n in sizes)
    statistic, p_value = stats.ks_2samp(a.double().numpy(), b.double().numpy(), method="asymp")
    ours = ks_test(a, b)
    assert ours.statistic == pytest.approx(float(statistic), abs=1e-12)
    assert ours.p_value == pytest.approx(float(p_value), abs=0.05)  # exact against asymptotic, at 30 and 50


def test_the_smallest_possible_distance_has_p_value_one():
    assert ks_test(torch.zeros(5), torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])).p_value == pytest.approx(1)
    assert ks_test(torch.zeros(5), torch.zeros(5)).p_value == pytest.approx(1)


def test_the_two_sample_test_tells_different_laws_apart():
    member, outsider = gaussian(1000, 1000, shift=0.5).values()
    assert ks_test(member, outsider).p_value < 1e-6
    separated = ks_test(member + 100, outsider)
    assert (separated.statistic, separated.p_value) == pytest.approx((1, 0), abs=1e-12)


# --- bounds at few false alarms


@settings(max_examples=80)
@given(member=tied_scores, outsider=tied_scores, fpr=st.floats(0.001, 0.999))
def test_what_was_found_lies_within_and_a_higher_level_is_wider(member, outsider, fpr):
    ranked = Scores.from_groups(member=member, outsider=outsider)
    (low, high), (lower, higher) = (tpr_bounds(ranked, fpr=fpr, level=level) for level in (0.9, 0.99))
    assert 0 <= lower <= low <= high <= higher <= 1
    if len(outsider) * fpr >= 1:
        assert low <= float(ranked.tpr_at_fprs([fpr])) <= high


def test_a_threshold_known_exactly_leaves_the_members_alone():
    ranked = Scores.from_groups(**gaussian(100, 1_000_000, shift=2))
    low, high = tpr_bounds(ranked, fpr=0.1)
    alone = clopper_pearson(round(100 * float(ranked.tpr_at_fprs([0.1]))), 100)
    assert low < alone.low < alone.high < high
    # The circle costs 2.35 standard errors, where one known direction would cost 1.96.
    assert high - low < 1.25 * (alone.high - alone.low)


@pytest.mark.parametrize(("m", "n", "shift"), [(1000, 1000, 0), (1000, 1000, 1), (200, 1000, 1)])
def test_the_bounds_are_narrower_than_two_intervals_crossed(m, n, shift):
    fpr, error = 0.01, 0.025 / 2
    drawn = gaussian(m, n, shift=shift)
    ranked, falling = Scores.from_groups(**drawn), drawn["outsider"].sort(descending=True).values
    few, many = int(stats.binom.ppf(error, n, fpr)), int(stats.binom.isf(error, n, fpr))
    fewest, most = (int((drawn["member"] > falling[place]).sum()) for place in (few - 1, many))
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
