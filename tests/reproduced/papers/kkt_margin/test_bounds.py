"""Bounds on margins, overlaps and KKT points are as in closed form; intervals over networks cover."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import softplus

from leakage.metrics.estimates import clopper_pearson
from leakage.precision import DTYPE
from planted import CLOSE, WIDE, doubles
from reproduced.papers.kkt_margin import network_intervals, overlap_tails
from reproduced.papers.kkt_margin.margin_size import (
    gradient_factor,
    least_margin,
    least_margin_by_bisection,
    printed_gradient_factor,
)
from reproduced.papers.kkt_margin.mixtures import LAWS, draw_sample
from reproduced.papers.kkt_margin.theorem_bounds import (
    InnerProducts,
    activation_lower_bound,
    activation_upper_bound,
    failures_of_assumption,
    first_dimension,
    measure_stages,
    measure_tightness,
    output_bound,
    stage_flags,
    stage_probability,
    tightness_of_all_labels,
)
from reproduced.runtime import stream

# ── stages of the proof, and its bounds ──────────────────────────────────────────────────────────────────────────────


def stairs(dimensions, *, law="mixture", rows=20, runs=40, fresh=20):
    return measure_stages(law, rows=rows, dimensions=dimensions, runs=runs, fresh=fresh, generator=stream(0, "stairs"))


@pytest.mark.parametrize("law", LAWS)
def test_each_stage_implies_the_one_before(law):
    for dimension in (300, 30_000, 60_000, 150_000):
        generator = stream(0, f"stages {dimension}")
        reached = list(
            stage_flags(draw_sample(law, rows=20, fresh=20, dimension=dimension, runs=20, generator=generator)).values()
        )
        for earlier, later in pairwise(reached):
            assert bool((earlier | ~later).all())


def test_the_ratio_at_400_dimensions_is_seven_times_too_large_for_the_proof():
    # den > 0 needs nδ/Δ < n / (2 (n - 1)) = 0.53, up to the ones; 3.40 ± 0.004 was measured on 20 000 training sets,
    # of which 40 have a mean that varies by 0.08.
    ratios = stairs([400], fresh=1).ratios
    assert ratios.mean().item() == pytest.approx(3.40, abs=0.35)
    assert ratios.min() > 1


def test_the_first_dimension_is_interpolated_on_a_logarithmic_scale():
    assert first_dimension([100, 10_000], doubles(0.8, 1.0)) == pytest.approx(1000)
    assert first_dimension([10, 100, 1000], doubles(0.95, 0.5, 0.9), level=0.7) == pytest.approx(100 * 10**0.5)
    assert first_dimension([10, 100], doubles(0.95, 1.0)) == pytest.approx(10)
    assert first_dimension([10, 100], doubles(0.95, 0.7)) == math.inf


def overlap_tail(d):
    """How likely independent points on the sphere overlap by more than √d log d."""
    return math.exp(overlap_tails.log_sphere_tail(d, math.log(d) / math.sqrt(d)))


def test_the_tail_in_two_and_three_dimensions_is_as_in_school():
    threshold = [math.log(d) / math.sqrt(d) for d in (2, 3)]
    assert overlap_tail(2) == pytest.approx(2 / math.pi * math.acos(threshold[0]), rel=1e-12)
    assert overlap_tail(3) == pytest.approx(1 - threshold[1], rel=1e-12)  # Archimedes


def test_the_tail_is_that_of_points_drawn_on_the_sphere():
    runs, d = 100_000, 10
    sample = draw_sample("sphere", rows=2, fresh=0, dimension=d, runs=runs, generator=stream(0, "sphere"))
    share = float((InnerProducts.from_points(sample.train).delta > math.sqrt(d) * math.log(d)).double().mean())
    expected = overlap_tail(d)
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / runs)


def test_the_bound_on_the_tail_holds_in_every_dimension():
    for d in [*range(2, 300), 10**3, 10**4, 10**6]:
        assert overlap_tail(d) <= math.exp(overlap_tails.log_sphere_bound(d))


def test_a_stage_has_the_probability_of_the_staircase():
    asked = dict(rows=20, runs=400, generator=stream(0, "one stage"))
    alone = stage_probability("mixture", "den > 0", dimension=15_000, **asked)
    beside = stairs([15_000], runs=400).probability("den > 0")
    # two samples of 400
    assert abs(alone.estimate - float(beside)) < 4 * math.sqrt(2 * 0.25 / 400)


def held_against(point, *, fresh=None, kinks=1e-6):
    """The tightness of a symmetric KKT point, asked about `fresh` points."""
    fresh = point.points if fresh is None else fresh
    asked = dict(products=fresh @ point.points.mT, answers=point.network()(fresh), margin=doubles(point.margin)[0])
    return measure_tightness(point.network(), point.points, point.labels, kinks=kinks, **asked)


def test_the_tightness_of_a_kkt_point_is_as_in_closed_form():
    found, geometry, margin = held_against(WIDE), InnerProducts.from_points(WIDE.points), doubles(WIDE.margin)[0]
    own = WIDE.margin / WIDE.height * WIDE.multiplier
    torch.testing.assert_close(found.ceiling, own / activation_upper_bound(geometry, margin), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.floor, own / activation_lower_bound(geometry, margin), rtol=1e-6, atol=0)
    # Asked about the training points themselves, whose answers are m and whose largest product is Δ.
    bound = output_bound(geometry, geometry.most[None], margin, factor=1)
    torch.testing.assert_close(found.fresh, margin / bound[0], rtol=1e-9, atol=0)
    assert abs(float(found.member)) < 1e-9


def test_bounds_that_say_nothing_are_kept_by_everyone():
    found = held_against(CLOSE)
    assert [float(getattr(found, name)) for name in ("ceiling", "floor", "fresh", "member")] == [0, math.inf, 0, 0]


# ── the size of the margin ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_least_margin_undoes_the_loss():
    margins = doubles(-3.0, 0.1, 1.0, 20.0)
    torch.testing.assert_close(least_margin(softplus(-margins) / 2), margins, rtol=1e-9, atol=1e-9)


def test_the_gradient_factor_is_the_slope_of_the_logistic_loss():
    q = torch.linspace(-30, 30, 61, dtype=DTYPE).requires_grad_()
    (slope,) = torch.autograd.grad(torch.log1p(torch.exp(-q)).sum(), q)
    torch.testing.assert_close(gradient_factor(q), -slope, rtol=1e-9, atol=0)


def test_the_printed_factor_is_a_bound_only_from_one_on():
    assert bool((printed_gradient_factor(doubles(0.1, 0.5, 0.99)) < gradient_factor(doubles(0.1, 0.5, 0.99))).all())
    assert bool((printed_gradient_factor(doubles(1.01, 2.0, 50.0)) > gradient_factor(doubles(1.01, 2.0, 50.0))).all())


@pytest.mark.parametrize("loss", [1e-9, 0.1, 1 / (2 * math.e), 0.34])
def test_bisection_finds_the_least_margin(loss):
    assert least_margin_by_bisection(loss) == pytest.approx(float(least_margin(doubles(loss))), rel=1e-9)


# ── intervals over networks ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_rate_of_zero_is_known_as_well_as_its_points_are_many():
    none = network_intervals.share_interval(torch.zeros(10, dtype=DTYPE), points=100)
    assert (none.estimate, none.low) == (0, 0)
    assert none.high == pytest.approx(clopper_pearson(0, 1000).high)


def test_networks_that_differ_widen_the_interval():
    like, unlike = (
        network_intervals.share_interval(values, points=1000)
        for values in (doubles(0.5, 0.5, 0.5), doubles(0.3, 0.5, 0.7))
    )
    assert unlike.low < 0.1 < 0.45 < like.low
    assert unlike.high <= 1


def test_answers_above_a_level_count_by_size():
    found = network_intervals.share_above_interval(doubles([0.5, -2.0, 3.0, 1.0], [0.0, 0.0, 0.0, -1.5]), 1.0)
    assert found.estimate == pytest.approx((0.5 + 0.25) / 2)
    assert found.n == 8


def test_rank_correlations_are_taken_within_sequences():
    start = doubles(0.1, 0.9)
    found = network_intervals.rank_correlation([1, 10, 100], [doubles(0.1, 0.9), doubles(0.2, 0.8), doubles(0.3, 0.7)])
    assert found.estimate == pytest.approx(0)  # one sequence rises, one falls
    for change in (0.1, -0.1):
        found = network_intervals.rank_correlation([1, 2], [start, start + change])
        assert found.estimate == pytest.approx(math.copysign(1, change))
        assert -1 <= found.low < found.high <= 1  # two sequences alike are no proof of all


def test_many_sequences_that_rise_leave_little_room():
    found = network_intervals.rank_correlation([1, 2, 3], [place + torch.zeros(100, dtype=DTYPE) for place in range(3)])
    assert 0.9 < found.low < found.high == pytest.approx(1)


def test_no_labelling_breaks_the_bound():
    found = tightness_of_all_labels(3, 5000, runs=1, fresh=200, generator=stream(0, "labels"))
    assert float(found.fresh) < 1
    assert float(found.member) < 1e-6
    assert float(found.ceiling) <= 1 + 1e-6
    assert float(found.floor) >= 1 - 1e-6


def test_the_assumption_fails_as_often_as_its_exact_tails_say():
    failed, failed_with_fresh = failures_of_assumption(3000, rows=5, runs=4000, generator=stream(0, "failures"))
    (first, second) = (math.exp(tail) for tail in overlap_tails.log_tau(3000, rows=5, mean=1.0))
    # The union over the pairs counts a set with two long overlaps twice, which is rare here; no point is short.
    assert second < 1e-20
    assert failed.low <= first / 25 * 10 <= 1.1 * failed.high
    assert failed_with_fresh.low <= first / 25 * 15 <= 1.1 * failed_with_fresh.high
