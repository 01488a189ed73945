"""Minimum-norm least squares: closed forms and exact laws against trained models and published values."""

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm import least_squares, linear_regressions, two_gaussians
from reproduced.papers.min_norm.gaussian_mixtures import power, threshold_advantage, thresholds, total_variation
from reproduced.papers.min_norm.least_squares import (
    Design,
    Query,
    advantage,
    break_even_width,
    crossover_width,
    explained_variance,
    member_mixture,
    member_variance,
    noise_advantage,
    noise_for_error,
    outsider_mixture,
    outsider_variance,
    prediction_error,
    sample_member,
    sample_outsider,
    sample_unused_direction,
    single_threshold_advantages,
    total_variations,
    widths_within_budget,
)
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
TRIALS = 20_000
FIGURE = Design(100, 3000)  # Figure 2(b) of Tan et al. (2022)
# Figure 2(a) of Tan et al. (2022), read off the published vector graphics: γ and the advantage.
FIGURE_2A = {
    1.04: 0.6508, 1.2167: 0.3543, 1.4802: 0.1762, 1.7317: 0.0753, 1.9479: 0.0134, 2.0258: 0.0075, 2.4647: 0.0926,
    2.9987: 0.1670, 3.9461: 0.2561, 5.1928: 0.3332, 9.726: 0.4786, 22.16: 0.6239, 48.56: 0.7264, 98.38: 0.7960,
    215.6: 0.8538, 510.9: 0.8994, 1034.9: 0.9263, 2358: 0.9489, 9306: 0.9725,
}  # fmt: skip


def typical_advantage(design, widths):
    return advantage(design, design.widths(widths), Query.typical(design, widths))


def trained(design, p, points, generator, *, trials, member=False):
    """The definition: separate fits asked about `points` (one, or one each), in or out, and the true signal there."""
    rows = gaussian((trials, design.n, design.D), generator=generator)
    if member:
        rows[:, 0] = points
    beta = gaussian((trials, design.D, 1), generator=generator) / math.sqrt(design.D)
    labels = rows @ beta + design.sigma * gaussian((trials, design.n, 1), generator=generator)
    fits = torch.linalg.lstsq(rows[..., :p], labels, driver="gelsy").solution
    asked = points.unsqueeze(-2)
    return (asked[..., :p] @ fits).flatten(), (asked @ beta).flatten()


def test_the_prediction_error_is_the_outsider_variance_in_other_words():
    widths = list(range(102, 3001))
    direct = prediction_error(FIGURE, FIGURE.widths(widths))
    variance = outsider_variance(FIGURE, FIGURE.widths(widths), Query.typical(FIGURE, widths))
    torch.testing.assert_close(direct, 1 + FIGURE.sigma**2 + variance - 2 * FIGURE.n / FIGURE.D, rtol=1e-12, atol=1e-12)


def test_the_prediction_error_below_interpolation_is_that_of_trained_models():
    design, widths = Design(12, 40, 0.8), [3, 6]
    formula = prediction_error(design, design.widths(widths))
    torch.testing.assert_close(formula, torch.tensor([2.15188, 3.278], dtype=DTYPE), rtol=0, atol=1e-4)
    squared = linear_regressions.squared_errors(
        design, widths=widths, models=4000, points=4, generator=stream(0, "below")
    )
    torch.testing.assert_close(squared.mean(0), formula, rtol=0.06, atol=0)  # four standard errors at 6 features
    assert prediction_error(design, design.widths([11, 12, 13])).isinf().all()


def test_the_best_multiple_of_an_answer_explains_as_much_of_the_labels_of_trained_models():
    generator, design = stream(0, "explained"), Design(10, 40, 0.8)
    points = gaussian((TRIALS, 40), generator=generator)
    predictions, signal = trained(design, 25, points, generator, trials=TRIALS)
    labels = signal + 0.8 * gaussian((TRIALS,), generator=generator)
    products, squares = labels * predictions, predictions.square()
    share = float(products.mean() ** 2 / squares.mean()) / (1 + design.sigma**2)
    # Four standard errors; that of the mean product decides.
    bound = 8 * float(products.std() / products.mean()) / math.sqrt(TRIALS)
    assert share == pytest.approx(float(explained_variance(design, 25)), rel=bound)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.8, 1.0, 2.0])
def test_a_width_errs_less_than_answering_zero_from_the_break_even_width_on(sigma):
    design = Design(100, 3000, sigma)
    widths = torch.arange(1, 3001)
    better = prediction_error(design, widths) < 1 + sigma**2
    torch.testing.assert_close(better, widths > break_even_width(design))
    assert bool(better.any()) == (sigma < 1)


@pytest.mark.parametrize("n", [1, 2, 10])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_next_to_interpolation_the_variance_is_infinite_and_the_advantage_one(n, offset):
    """The bare formula is negative at p = n and divides by zero at p = n + 1."""
    p, design = max(n + offset, 1), Design(n, 40)
    assert float(outsider_variance(design, torch.tensor(p), Query.typical(design, p))) == math.inf
    if p >= n:
        assert float(typical_advantage(design, p)) == pytest.approx(1)


def test_no_width_has_a_variance_that_is_not_positive():
    design = Design(20, 60, 0.0)
    variances = outsider_variance(design, design.widths(range(1, 61)), Query.typical(design, range(1, 61)))
    assert bool((variances > 0).all())
    assert torch.isinf(variances).nonzero().flatten().tolist() == [18, 19, 20]  # widths 19, 20 and 21


def test_members_keep_the_variance_of_their_label_whatever_the_width():
    points = Query.draw(FIGURE, [100, 500, 3000], count=4, generator=stream(0, "labels"))
    variance = member_variance(FIGURE, points)
    torch.testing.assert_close(variance, variance[:, :1].expand(4, 3))
    torch.testing.assert_close(variance[:, 2], 1 + points.used[:, 2] / 3000)


def test_the_variances_meet_just_before_twice_as_many_features_as_rows():
    assert crossover_width(FIGURE) == pytest.approx(199.3, abs=0.05)
    sides = FIGURE.widths([199, 200])
    ratios = outsider_variance(FIGURE, sides, Query.typical(FIGURE, sides)) / 2
    assert ratios.tolist() == pytest.approx([1.0032, 0.9931], abs=5e-5)


@settings(max_examples=60)
@given(n=st.integers(2, 200), factor=st.floats(3, 100), sigma=st.floats(0, 3))
def test_from_the_crossover_on_the_advantage_grows_with_the_width(n, factor, sigma):
    design = Design(n, math.ceil(factor * n), sigma)
    start = crossover_width(design)
    assert n + 1 < start < 2 * n + 1
    widths = list(range(max(n + 2, math.ceil(start)), design.D + 1))
    values = typical_advantage(design, widths)
    rounding = 1e-14
    assert bool((torch.diff(values) > -rounding).all())
    before = typical_advantage(design, list(range(n + 1, math.floor(start) + 1)))
    assert bool((torch.diff(before) < rounding).all())


def test_figure_2a_is_reproduced():
    design = Design(1000, 10**7)
    widths = [round(1000 * gamma) for gamma in FIGURE_2A]
    points = Query.draw(design, widths, count=5000, generator=stream(0, "figure 2a"))
    ours = advantage(design, design.widths(widths), points).mean(0)
    # Published means are over 100 points and carry a standard error of up to 9e-4; ours of up to 1.3e-4.
    assert ours.tolist() == pytest.approx(list(FIGURE_2A.values()), abs=4e-3)


@pytest.mark.parametrize(("p", "everybody", "outsiders"), [
    (200, 0.163, 0.0017), (300, 0.256, 0.1689), (400, 0.319, 0.2624), (600, 0.404, 0.3729),
])  # fmt: skip
def test_noise_costs_what_fewer_features_cost_only_if_it_spares_members(p, everybody, outsiders):
    error = prediction_error(FIGURE, torch.tensor(p))
    noise, full = noise_for_error(FIGURE, error), Query.typical(FIGURE, 3000)
    spared = float(noise_advantage(FIGURE, noise, full, on_members=False))
    assert spared == pytest.approx(float(typical_advantage(FIGURE, p)), abs=1e-9)
    assert spared == pytest.approx(outsiders, abs=5e-5)
    assert float(noise_advantage(FIGURE, noise, full, on_members=True)) == pytest.approx(everybody, abs=5e-4)


def test_no_noise_is_the_full_model():
    full = Query.typical(FIGURE, 3000)
    for on_members in (True, False):
        quiet = noise_advantage(FIGURE, torch.tensor(0.0), full, on_members=on_members)
        assert float(quiet) == pytest.approx(float(typical_advantage(FIGURE, 3000)), abs=1e-14)
    assert float(noise_for_error(FIGURE, prediction_error(FIGURE, torch.tensor(3000)))) == pytest.approx(0)


@settings(max_examples=60)
@given(n=st.integers(1, 40), extra=st.integers(2, 200), sigma=st.floats(0, 2), exponent=st.floats(-5, -0.01))
def test_the_widths_within_a_budget_are_those_a_search_finds(n, extra, sigma, exponent):
    design, budget = Design(n, n + extra, sigma), 10**exponent
    widths = list(range(n + 2, design.D + 1))
    allowed = [
        p for p, value in zip(widths, typical_advantage(design, widths).tolist(), strict=True) if value <= budget
    ]
    assert widths_within_budget(design, budget) == ((allowed[0], allowed[-1]) if allowed else None)


def test_a_drawn_point_grows_with_the_width_and_keeps_its_norm():
    widths, count = [3, 10, 11, 30], 20_000
    points = Query.draw(Design(10, 30), widths, count=count, generator=stream(0, "draw"))
    assert points.used.shape == (count, 4)
    assert bool((torch.diff(points.used, dim=-1) > 0).all())
    assert bool((points.unused[:, -1] == 0).all())
    torch.testing.assert_close(points.total, points.used[:, -1:].expand(count, 4))
    for column, p in enumerate(widths):
        assert stats.kstest(points.used[:, column], stats.chi2(p).cdf).pvalue > P_VALUE
        if p < 30:
            assert stats.kstest(points.unused[:, column], stats.chi2(30 - p).cdf).pvalue > P_VALUE
    cut = points.at_width(1)
    torch.testing.assert_close(cut.used, points.used[:, 1])
    torch.testing.assert_close(cut.unused, points.unused[:, 1])


def test_the_query_of_a_point_splits_its_squared_norm():
    point = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, 4.0]])
    query = Query.from_point(point, Design(2, 3), 2)
    assert query.used.tolist() == [5.0, 0.25]
    assert query.unused.tolist() == [9.0, 16.0]
    assert Query.from_point(point, Design(2, 3), 3).unused.tolist() == [0.0, 0.0]
    assert Query.typical(Design(2, 9), [2, 9]).unused.tolist() == [7.0, 0.0]


BRUTE, EXACT = 4000, 40_000
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
    brute, _ = trained(design, p, point, generator, trials=BRUTE, member=member)
    for view in (torch.clone, torch.abs):
        assert stats.ks_2samp(view(ours), view(brute)).pvalue > P_VALUE


@pytest.mark.parametrize(("n", "p"), [(2, 1), (3, 2), (5, 3)])
def test_a_member_with_small_features_pulls_the_fit_by_its_exact_leverage(n, p):
    """Odds r²/χ²ₙ₋ₚ of about one show their degrees of freedom; a typical point has larger ones."""
    generator, design = stream(0, f"leverage {n}"), Design(n, p + 1, 2.0)
    point = torch.cat([torch.full((p,), 0.5), torch.tensor([1.0])]).to(DTYPE)
    ours = sample_member(design, p, Query.from_point(point, design, p), trials=EXACT, generator=generator)
    brute, _ = trained(design, p, point, generator, trials=BRUTE, member=True)
    assert stats.ks_2samp(ours.abs(), brute.abs()).pvalue > P_VALUE


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


def test_the_single_threshold_loses_a_little_to_the_best_attack():
    widths = [105, 200, 1000]
    query = Query.typical(FIGURE, widths)
    loss = total_variations(FIGURE, widths, query) - single_threshold_advantages(FIGURE, widths, query)
    assert (loss > 0).all()
    assert (loss < 0.005).all()
