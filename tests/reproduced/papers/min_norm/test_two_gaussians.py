"""Two centred Gaussians: the closed forms equal the integrals they stand for, also where the variances meet."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from leakage.precision import DTYPE
from reproduced.papers.min_norm.two_gaussians import advantage, power, threshold

repeatable = settings(max_examples=150)
variances = st.floats(-8, 8).map(lambda exponent: 10**exponent)
RATIOS = [1e-6, 0.01, 0.5, 0.999, 1.0, 1.0 + 1e-7, 1.3, 40.0, 1e6]


def scalar(value):
    return torch.tensor(value, dtype=DTYPE)


def adv(outsider, member):
    return float(advantage(outsider=scalar(outsider), member=scalar(member)))


@pytest.mark.parametrize("ratio", RATIOS)
def test_the_advantage_is_the_total_variation_integral(ratio):
    outsider, member = stats.norm(scale=math.sqrt(ratio)), stats.norm()
    breaks = [0.0, *sorted({math.sqrt(ratio), float(threshold(outsider=scalar(ratio), member=scalar(1.0))), 1.0})]
    pieces = zip(breaks, [*breaks[1:], 40 * max(1.0, math.sqrt(ratio))], strict=True)
    integral = sum(
        integrate.quad(lambda y: abs(outsider.pdf(y) - member.pdf(y)), low, high, epsabs=1e-13, limit=200)[0]
        for low, high in pieces
    )  # over y > 0 of both densities, symmetric: half of twice that
    assert adv(ratio, 1.0) == pytest.approx(integral, abs=1e-10)


@pytest.mark.parametrize("difference", [1e-3, 1e-6, 1e-9, 1e-11])
def test_where_the_variances_meet_the_advantage_keeps_its_digits(difference):
    """To first order it is |L| φ(1), L the logarithm of the ratio; the formula with σ0² − σ1² below has lost them."""
    slope = math.exp(-0.5) / math.sqrt(2 * math.pi)
    # The digits of the ratio itself: 1 + d is rounded at 1e-16. The next order is L² relative.
    assert adv(1 + difference, 1.0) == pytest.approx(slope * math.log1p(difference), rel=1e-5, abs=3e-16)


def test_equal_variances_leave_nothing_to_find():
    for variance in (1e-300, 1.0, 0.1, 1e300):
        assert adv(variance, variance) == pytest.approx(0)
        assert float(threshold(outsider=scalar(variance), member=scalar(variance))) == pytest.approx(
            math.sqrt(variance)
        )


def test_an_infinite_variance_gives_everything_away():
    for pair in ((math.inf, 2.0), (2.0, math.inf)):
        outsider, member = (scalar(value) for value in pair)
        assert float(advantage(member=member, outsider=outsider)) == pytest.approx(1)
        assert float(threshold(member=member, outsider=outsider)) == math.inf
        assert float(power(member=member, outsider=outsider, fpr=0.001)) == pytest.approx(1)


@repeatable
@given(outsider=variances, member=variances, rule=st.floats(-8, 8))
def test_the_advantage_is_the_best_of_all_thresholds(outsider, member, rule):
    best, at = adv(outsider, member), float(threshold(outsider=scalar(outsider), member=scalar(member)))

    def rule_advantage(t):
        return abs(2 * stats.norm.sf(t / math.sqrt(member)) - 2 * stats.norm.sf(t / math.sqrt(outsider)))

    assert 0 <= best <= 1
    assert best == pytest.approx(rule_advantage(at), abs=1e-12)
    assert best >= rule_advantage(10**rule) - 1e-12


@repeatable
@given(outsider=variances, member=variances, scale=st.floats(1e-3, 1e3))
def test_the_advantage_is_symmetric_and_blind_to_units(outsider, member, scale):
    assert adv(outsider, member) == pytest.approx(adv(member, outsider), abs=1e-14)
    # The logarithms of the variances are rounded, to 1e-15 at most here.
    assert adv(scale * outsider, scale * member) == pytest.approx(adv(outsider, member), abs=1e-14)


def test_the_advantage_grows_with_the_distance_of_the_variances():
    ratios = torch.logspace(0, 12, 25, dtype=DTYPE)
    for pair in ((ratios, torch.ones(1, dtype=DTYPE)), (1 / ratios, torch.ones(1, dtype=DTYPE))):
        assert bool((torch.diff(advantage(outsider=pair[0], member=pair[1])) > 0).all())


@repeatable
@given(outsider=variances, member=variances)
def test_the_densities_cross_at_the_threshold(outsider, member):
    at = float(threshold(outsider=scalar(outsider), member=scalar(member)))
    gap = stats.norm.logpdf(at, scale=math.sqrt(outsider)) - stats.norm.logpdf(at, scale=math.sqrt(member))
    # The exponents are at most log(ratio) times the ratio: the rounding of the threshold is multiplied by that.
    assert abs(gap) < 1e-14 * (10 + max(outsider / member, member / outsider) * 40)


@pytest.mark.parametrize("fpr", [1e-4, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("ratio", [0.05, 0.9, 1.0, 1.2, 30.0])
def test_power_is_that_of_the_one_sided_test_on_the_size_of_the_answer(ratio, fpr):
    outsider, member = stats.norm(scale=math.sqrt(ratio)), stats.norm()
    inner, outer = outsider.ppf((1 + fpr) / 2), outsider.isf(fpr / 2)
    reference = 2 * member.sf(outer) if ratio <= 1 else 2 * member.cdf(inner) - 1
    assert float(power(outsider=scalar(ratio), member=scalar(1.0), fpr=fpr)) == pytest.approx(reference, abs=1e-12)


def test_the_gap_of_power_and_false_positives_peaks_at_the_advantage():
    outsider, member = scalar(2.5), scalar(1.0)
    gaps = [
        float(power(member=member, outsider=outsider, fpr=fpr)) - fpr
        for fpr in torch.linspace(1e-3, 0.999, 2000).tolist()
    ]
    # The grid misses the top by at most 2.5e-4, where the gap is flat: its square times a curvature near 1.
    assert max(gaps) == pytest.approx(float(advantage(member=member, outsider=outsider)), abs=1e-6)
