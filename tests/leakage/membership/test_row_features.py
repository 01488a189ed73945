"""Attacks that look at the rows: they find what is planted, nothing where nothing leaks, and treat all rows alike."""

import math

import pytest
import torch
from scipy import special

from leakage.membership import row_features
from leakage.membership.row_features import quantile_regression, tell_members_apart
from leakage.metrics.roc import auc
from reproduced.runtime import stream

ROWS = 600


def halves(draws, rows=ROWS):
    """A target with random members."""
    return torch.rand(1, rows, generator=draws) < 0.5


def some_features(draws, rows=ROWS):
    return torch.randn(rows, 3, generator=draws, dtype=torch.float64)


def some_logits(features, member, shift, draws):
    """Logits that the first feature explains, and whose spread the second doubles; members have more by `shift`."""
    spread = torch.where(features[:, 1] > 0, 2.0, 1.0)
    noise = torch.randn(member.shape, generator=draws, dtype=torch.float64)
    return 4 * features[:, 0].sign() + spread * (noise + shift * member)


def area(scores, member):
    return auc(member=scores[0][member[0]], outsider=scores[0][~member[0]])


def test_a_leak_that_the_features_hide_is_found():
    draws = stream(0, "planted")
    member, features = halves(draws, 3000), some_features(draws, 3000)
    logits = some_logits(features, member, 2.0, draws)
    best = float(special.ndtr(2 / math.sqrt(2)))  # of an attacker who knows median and spread of each row
    found, plain = area(quantile_regression(logits, member, features), member), area(logits, member)
    assert plain.high < 0.75
    assert best - 0.04 < found.estimate < best + 0.02


def test_positive_scores_are_above_the_median_of_outsiders():
    draws = stream(0, "median")
    member, features = halves(draws, 3000), some_features(draws, 3000)
    scores = quantile_regression(some_logits(features, member, 0.0, draws), member, features)
    assert float((scores > 0).double().mean()) == pytest.approx(0.5, abs=0.04)
    assert float((scores > 1).double().mean()) == pytest.approx(1 - special.ndtr(1.0), abs=0.04)


def quantiles(logits, member, features):
    return quantile_regression(logits, member, features), member


def without_the_model(logits, member, features):
    return tell_members_apart(member, features)


each_attack = pytest.mark.parametrize("attack", [quantiles, without_the_model])


@pytest.mark.slow
@each_attack
def test_where_nothing_tells_the_area_is_one_half(attack):
    draws, found, times = stream(0, "nothing"), [], 40
    for _ in range(times):
        member, features = halves(draws, 160), some_features(draws, 160)
        found.append(area(*attack(some_logits(features, member, 0.0, draws), member, features)))
    # 40 areas of 80 scores have a mean with a standard error of 0.065 / √40 = 0.01.
    assert sum(one.estimate for one in found) / times == pytest.approx(0.5, abs=0.03)
    assert sum(one.agrees_with(0.5) for one in found) >= 34  # of 40 that cover in 95 of 100 cases: 0.006 for fewer


def test_rows_of_one_unit_are_in_one_fold():
    """Each patient has a level of its own, which three visits share: without a leak nothing may tell its members."""
    draws = stream(0, "units")
    units = torch.arange(100).repeat_interleave(3)
    member, features = halves(draws, 100)[:, units], torch.randn(100, 3, generator=draws, dtype=torch.float64)[units]
    logits = 3 * torch.randn(1, 100, generator=draws, dtype=torch.float64)[:, units]
    scores = quantile_regression(logits, member, features, units)
    torch.testing.assert_close(scores[0, ::3], scores[0, 1::3])
    other = member.clone()
    other[:, units == 7] = ~other[:, units == 7]
    after = quantile_regression(logits, other, features, units)
    torch.testing.assert_close(after[0, units == 7], scores[0, units == 7], rtol=0, atol=1e-9)


def test_nothing_is_told_where_the_features_are_the_same_for_all():
    scores, member = tell_members_apart(halves(stream(0, "same"), 300), torch.ones(300, 2))
    assert area(scores, member).estimate == pytest.approx(0.5)


def test_members_that_differ_are_told_apart():
    draws = stream(0, "differ")
    member, features = halves(draws), some_features(draws)
    features[:, 2] += 2.0 * member[0]
    features[::7, 0] = math.nan
    scores, judged = tell_members_apart(member, features)
    assert judged.shape == scores.shape == (1, ROWS // 2)
    assert area(scores, judged).low > 0.8


@each_attack
def test_a_score_does_not_depend_on_the_membership_of_its_own_row(attack):
    draws = stream(0, "own")
    member, features = halves(draws, 100), some_features(draws, 100)
    logits = some_logits(features, member, 1.0, draws)
    before, judged = attack(logits, member, features)
    for row in (0, 17, 99):
        other = member.clone()
        other[0, row] = ~other[0, row]
        after, flipped = attack(logits, other, features)
        own = flipped != judged  # none, where the row is one of those that are fitted
        torch.testing.assert_close(after[own], before[own], rtol=0, atol=1e-9)


def test_a_fit_sees_a_part_of_many_rows(monkeypatch):
    monkeypatch.setattr(row_features, "_MOST_FITTED", 100)
    draws = stream(0, "many")
    member, features = halves(draws), some_features(draws)
    features[:, 2] += 3.0 * member[0]
    assert area(*tell_members_apart(member, features)).low > 0.8
