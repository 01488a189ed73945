"""The exact laws at finite n against separately trained models, known numbers, and a law with a name."""

import math
from functools import cache

import pytest
import torch
from scipy import stats

from leakage.data.gaussians import gaussian
from leakage.runtime import DTYPE, stream
from leakage.theory import least_squares, two_gaussians
from leakage.theory.gaussian_mixtures import power, threshold_advantage, thresholds, total_variation
from leakage.theory.least_squares import (
    Design,
    Query,
    member_mixture,
    outsider_mixture,
    sample_member,
    sample_outsider,
    sample_unused_direction,
    total_variations,
)

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
BRUTE, EXACT = 4000, 40_000
FIGURE = Design(100, 3000)  # Figure 2(b) of Tan et al. (2022)
# n, p, D, σ: p below n, n - 1, n, n + 1, n + 2 and beyond; all features in use on either side; no noise.
CONFIGURATIONS = [
    (10, 4, 14, 0.7),
    (10, 9, 14, 0.7),
    (10, 10, 14, 0.7),
    (10, 11, 14, 0.7),
    (10, 12, 14, 0.7),
    (10, 20, 21, 0.7),
    (10, 20, 20, 0.7),
    (10, 6, 6, 0.7),
    (10, 20, 20, 0.0),
    (10, 6, 9, 0.0),
    (1, 1, 3, 0.7),
]


def trained(design, p, point, generator, *, member):
    """The definition: separate data sets, the point's row and own label in or out, each solved by itself."""
    rows = gaussian((BRUTE, design.n, design.D), generator=generator)
    if member:
        rows[:, 0] = point
    beta = gaussian((BRUTE, design.D, 1), generator=generator) / math.sqrt(design.D)
    labels = rows @ beta + design.sigma * gaussian((BRUTE, design.n, 1), generator=generator)
    fits = torch.linalg.lstsq(rows[..., :p], labels, driver="gelsy").solution
    return (point[:p] @ fits).squeeze(-1)


@cache
def typical_laws(design, p):
    query = Query.typical(design, p)
    return least_squares.laws(design, p, query)


@pytest.mark.parametrize(("n", "p", "D", "sigma"), CONFIGURATIONS)
@pytest.mark.parametrize("member", [False, True])
def test_exact_draws_have_the_law_of_trained_models(n, p, D, sigma, member):
    generator, design = stream(0, f"law {n} {p} {D} {sigma}"), Design(n, D, sigma)
    point = 1.5 * gaussian((D,), generator=generator)  # not a typical point: its own norms must enter
    sample = sample_member if member else sample_outsider
    ours = sample(design, p, Query.from_point(point, design, p), trials=EXACT, generator=generator)
    brute = trained(design, p, point, generator, member=member)
    for view in (torch.clone, torch.abs):
        assert stats.ks_2samp(view(ours), view(brute)).pvalue > P_VALUE


@pytest.mark.parametrize(("n", "p"), [(2, 1), (3, 2), (5, 3)])
def test_a_member_with_small_features_pulls_the_fit_by_its_exact_leverage(n, p):
    """Odds r²/χ²ₙ₋ₚ of about one show their degrees of freedom; a typical point has larger ones."""
    generator, design = stream(0, f"leverage {n}"), Design(n, p + 1, 2.0)
    point = torch.cat([torch.full((p,), 0.5), torch.tensor([1.0])]).to(DTYPE)
    ours = sample_member(design, p, Query.from_point(point, design, p), trials=EXACT, generator=generator)
    brute = trained(design, p, point, generator, member=True)
    assert stats.ks_2samp(ours.abs(), brute.abs()).pvalue > P_VALUE


def test_a_typical_query_does_not_stand_for_an_actual_point():
    generator, design = stream(0, "actual"), Design(10, 20)
    point = torch.full((20,), 2.0, dtype=DTYPE)
    brute = trained(design, 15, point, generator, member=False)
    ours = sample_outsider(design, 15, Query.typical(design, 15), trials=EXACT, generator=generator)
    assert stats.ks_2samp(ours, brute).pvalue < 1e-12


@pytest.mark.parametrize(("n", "p", "D", "sigma"), CONFIGURATIONS)
def test_the_quadrature_is_the_law_of_the_draws(n, p, D, sigma):
    generator, design = stream(0, f"quadrature {n} {p} {D} {sigma}"), Design(n, D, sigma)
    query = Query(torch.tensor(0.7 * p, dtype=DTYPE), torch.tensor(1.3 * (D - p), dtype=DTYPE))
    pairs = [(outsider_mixture(design, p, query), sample_outsider)]
    if p >= n:
        pairs.append((member_mixture(design, p, query), sample_member))
    for law, sample in pairs:
        sizes = sample(design, p, query, trials=EXACT, generator=generator).abs().sort().values
        places = torch.arange(500, EXACT, 1000)
        # Dvoretzky, Kiefer and Wolfowitz: an empirical distribution function is farther off once in a thousand times.
        band = math.sqrt(math.log(2 / P_VALUE) / (2 * EXACT))
        assert float((law.cdf(sizes[places]) - (places + 0.5) / EXACT).abs().max()) < band


@pytest.mark.parametrize(("n", "p"), [(5, 5), (5, 4), (6, 3), (9, 1)])
def test_far_below_all_features_the_law_of_strangers_is_students(n, p):
    """For p ≤ n and D → ∞ all of the label is noise to the fit: √(r²(1 + σ²)/k) times Student's t, k = n - p + 1."""
    design, query = Design(n, 10**9, 0.5), Query(torch.tensor(2.0), torch.tensor(1e9))
    dof = n - p + 1
    y = torch.logspace(-2, 3, 50, dtype=DTYPE)
    reference = 2 * stats.t(dof).cdf(y / math.sqrt(2 * 1.25 / dof)) - 1
    # 64 quantiles of K resolve its law to about 1e-4 where it is least smooth, one degree of freedom.
    assert outsider_mixture(design, p, query).cdf(y).tolist() == pytest.approx(reference.tolist(), abs=5e-4)


def test_without_noise_or_unused_features_only_the_kept_share_of_the_signal_is_left():
    """σ = 0, p = D: the law is √(r² B/D) N, and for p ≤ n the fit is exact and B = 1."""
    query = Query(torch.tensor(3.0, dtype=DTYPE), torch.tensor(0.0, dtype=DTYPE))
    exact = outsider_mixture(Design(10, 7, 0.0), 7, query)
    torch.testing.assert_close(exact.variances, torch.full_like(exact.variances, 3 / 7))
    wide = outsider_mixture(Design(10, 40, 0.0), 40, query)
    kept = stats.beta(5, 15)
    assert float(wide.mean_variance) == pytest.approx(3 / 40 * kept.mean(), rel=1e-4)
    y = torch.tensor(0.1, dtype=DTYPE).reshape(1)
    reference = kept.expect(lambda b: 2 * stats.norm.cdf(0.1 / math.sqrt(3 * b / 40)) - 1)
    assert float(wide.cdf(y)) == pytest.approx(reference, abs=1e-4)


@pytest.mark.parametrize(("n", "p", "D"), [(10, 4, 40), (10, 16, 40), (20, 60, 60), (100, 300, 3000)])
def test_the_mean_variance_of_the_law_is_the_closed_form(n, p, D):
    design, query = Design(n, D, 0.6), Query(torch.tensor(5.0, dtype=DTYPE), torch.tensor(2.0, dtype=DTYPE))
    formula = least_squares.outsider_variance(design, torch.tensor(p), query)
    # With |p - n| + 1 = 7 the last of 64 quantiles still misses some of the tail of 1/K.
    torch.testing.assert_close(outsider_mixture(design, p, query).mean_variance, formula, rtol=2e-3, atol=0)


def test_from_n_features_on_the_member_draws_its_label():
    query = Query(torch.tensor([4.0, 9.0], dtype=DTYPE), torch.tensor([2.0, 0.5], dtype=DTYPE))
    for p in (10, 11, 40):
        law = member_mixture(Design(10, 40, 0.3), p, query)
        assert law.variances.flatten().tolist() == pytest.approx([6 / 40 + 0.09, 9.5 / 40 + 0.09])


def test_the_unused_direction_has_the_law_of_its_two_dependent_parts():
    design, size = Design(5, 8, 0.5), (40_000,)
    along, tau2 = sample_unused_direction(design, 6, size, generator=stream(0, "along"))
    assert stats.kstest(along * math.sqrt(8), stats.norm.cdf).pvalue > P_VALUE
    assert stats.kstest(8 * (tau2 - 0.25 - along.square()), stats.chi2(1).cdf).pvalue > P_VALUE
    for p, rest in ((7, 0), (8, None)):  # one unused feature: the direction is all there is; none: nothing
        along, tau2 = sample_unused_direction(design, p, size, generator=stream(0, "along"))
        torch.testing.assert_close(tau2, 0.25 + along.square())
        assert bool((along == 0).all()) == (rest is None)


@pytest.mark.parametrize(
    ("p", "distance", "digits"), [(102, 0.70468, 5e-6), (105, 0.600471, 5e-7), (199, 0.00465, 5e-6), (300, 0.171, 5e-5)]
)
def test_known_distances_at_finite_n_are_met(p, distance, digits):
    assert float(total_variation(**typical_laws(FIGURE, p))) == pytest.approx(distance, abs=digits)


def test_halving_the_nodes_moves_the_distance_by_less_than_a_ten_thousandth():
    query = Query.typical(FIGURE, [105, 200, 1000])
    fine = total_variations(FIGURE, [105, 200, 1000], query)
    coarse = total_variations(FIGURE, [105, 200, 1000], query, nodes=(12, 32, 4))
    assert float((fine - coarse).abs().max()) < 1e-4


def test_twice_as_many_features_as_rows_have_two_thresholds():
    laws = typical_laws(FIGURE, 200)
    assert thresholds(**laws).tolist() == pytest.approx([1.107, 3.564], abs=5e-4)
    small = typical_laws(Design(20, 60), 26)
    assert float(total_variation(**small)) == pytest.approx(0.2326430, abs=1e-6)


@pytest.mark.parametrize(("p", "one_threshold"), [(105, 0.59986), (199, 0.00279), (3000, None)])
def test_the_rule_with_one_threshold_is_nearly_as_good_and_never_better(p, one_threshold):
    laws, query = typical_laws(FIGURE, p), Query.typical(FIGURE, p)
    outsider, member = least_squares.outsider_variance(FIGURE, torch.tensor(p), query), torch.tensor(2.0, dtype=DTYPE)
    rule = float(
        threshold_advantage(two_gaussians.threshold(outsider=outsider, member=member).reshape(1), **laws).abs()
    )
    best = float(total_variation(**laws))
    assert best - 0.003 < rule <= best + 1e-9
    if one_threshold is not None:
        assert rule == pytest.approx(one_threshold, abs=1e-5)


@pytest.mark.parametrize(("gamma", "gaps"), [(1.2, (-0.0757, -0.0286, -0.0141)), (3, (0.0109, 0.0043, 0.0022))])
def test_the_limit_is_approached_at_the_rate_of_one_over_n(gamma, gaps):
    for n, gap in zip((20, 50, 100), gaps, strict=True):
        design, p = Design(n, 30 * n), round(gamma * n)
        query = Query.typical(design, [p])
        limit = least_squares.advantage(design, design.widths([p]), query)
        assert float(total_variations(design, [p], query) - limit) == pytest.approx(gap, abs=6e-5)


@pytest.mark.parametrize(("p", "powers"), [(500, (0.197, 0.096)), (3000, (0.632, 0.537))])
def test_known_true_positive_rates_at_low_false_positive_rates_are_met(p, powers):
    laws = typical_laws(FIGURE, p)
    for fpr, reference in zip((0.01, 0.001), powers, strict=True):
        assert float(power(**laws, fpr=fpr)) == pytest.approx(reference, abs=5e-4)


@pytest.mark.parametrize("p", [99, 100, 101])
def test_where_the_theorem_is_void_there_is_a_law_and_it_leaks(p):
    law = outsider_mixture(FIGURE, p, Query.typical(FIGURE, p))
    assert bool(torch.isfinite(law.variances).all())
    if p >= 100:
        assert (
            0.7 < float(total_variation(outsider=law, member=member_mixture(FIGURE, p, Query.typical(FIGURE, p)))) < 1
        )


def test_points_of_a_batch_are_answered_one_by_one():
    points = Query.draw(FIGURE, [105, 400], count=3, generator=stream(0, "batch"))
    table = total_variations(FIGURE, [105, 400], points, nodes=(6, 16, 2))
    assert table.shape == (3, 2)
    for row in range(3):
        single = Query(points.used[row], points.unused[row])
        torch.testing.assert_close(total_variations(FIGURE, [105, 400], single, nodes=(6, 16, 2)), table[row])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_gives_the_same_distances_and_draws_from_the_same_laws():
    points = Query.draw(FIGURE, [105, 400], count=3, generator=stream(0, "gpu"))
    there = Query(points.used.cuda(), points.unused.cuda())
    near, far = (total_variations(FIGURE, [105, 400], q, nodes=(6, 16, 2)) for q in (points, there))
    torch.testing.assert_close(far.cpu(), near, rtol=0, atol=1e-9)
    for sample, p in ((sample_outsider, 100), (sample_member, 60)):
        draws = [
            sample(FIGURE, p, q.at(0), trials=EXACT, generator=stream(0, "gpu", q.used.device))[0].cpu()
            for q in (points, there)
        ]
        assert stats.ks_2samp(*draws).pvalue > P_VALUE
