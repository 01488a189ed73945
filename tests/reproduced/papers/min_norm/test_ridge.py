"""Ridge: limit moments and published values, and exact laws at finite n against dense matrices and trained models."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from leakage.draws import gaussian
from leakage.precision import DTYPE
from planted import doubles
from reproduced.papers.min_norm import least_squares, ridge
from reproduced.papers.min_norm.gaussian_mixtures import total_variation
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.min_norm.ridge import (
    ResolventSamples,
    crossover_ratio,
    limit_variances,
    sample_member,
    sample_outsider,
    sample_resolvent,
    shrinkage,
    variance_ratio,
    zero_advantage_penalty,
)
from reproduced.runtime import stream

WIDE = Design(1000, 10**7)  # Figure 3 of Tan et al. (2022): ψ = 10⁴
PENALTIES = torch.logspace(-6, 8, 400, dtype=DTYPE)
repeatable = settings(max_examples=60)


def limit_ratio(design, p, penalty, query=None):
    limit = limit_variances(design, torch.tensor(p), penalty, query or Query.typical(design, p))
    return limit.member / limit.outsider


def limit_advantage(design, p, penalties):
    """The limit advantage at the typical point, one for each penalty."""
    return ridge.limit_advantage(design, torch.tensor(p), doubles(*penalties), Query.typical(design, p))


@pytest.mark.parametrize("gamma", [0.3, 0.9, 1.5, 20.0])
@pytest.mark.parametrize("penalty", [0.05, 3.0])
def test_the_moments_of_the_limit_are_integrals_of_marchenko_and_pastur(gamma, penalty):
    low, high = (1 - math.sqrt(gamma)) ** 2, (1 + math.sqrt(gamma)) ** 2
    middle, radius = (high + low) / 2, (high - low) / 2

    def integral(function):
        """Over the bulk, in the angle that removes the square roots at its ends, and the atom at zero for γ > 1."""

        def integrand(angle):
            x = middle + radius * math.cos(angle)
            return function(x) * (radius * math.sin(angle)) ** 2 / (2 * math.pi * gamma * x)

        return integrate.quad(integrand, 0, math.pi, epsabs=1e-12)[0] + max(0, 1 - 1 / gamma) * function(0.0)

    m, mu_product, e, a = (float(x) for x in ridge.limit_moments(doubles(gamma), doubles(penalty)))
    assert m == pytest.approx(integral(lambda x: 1 / (x + penalty)), rel=1e-9)
    assert mu_product == pytest.approx(integral(lambda x: x / (x + penalty)), rel=1e-9)
    assert e == pytest.approx(integral(lambda x: x / (x + penalty) ** 2), rel=1e-9)
    assert a == pytest.approx(integral(lambda x: (x / (x + penalty)) ** 2), rel=1e-9)


def test_without_a_penalty_the_limit_is_that_of_least_squares():
    for p in (300, 1500, 2000, 30_000):
        query = Query.typical(WIDE, p)
        member, outsider = limit_variances(WIDE, torch.tensor(p), torch.tensor(0.0), query)
        # The finite formulas have p - n - 1 where the limit has p - n, which is at most 1 in 500 here.
        assert float(outsider) == pytest.approx(
            float(least_squares.outsider_variance(WIDE, torch.tensor(p), query)), rel=0.003
        )
        if p > WIDE.n:
            assert float(member) == pytest.approx(float(least_squares.member_variance(WIDE, query)))
        nearly = limit_variances(WIDE, torch.tensor(p), torch.tensor(1e-9), query)
        assert [float(v) for v in nearly] == pytest.approx([float(member), float(outsider)], rel=1e-6)


@pytest.mark.parametrize(("gamma", "values"), [
    (1.1, (0.5033, 0.0347, 0.0601, 0.1390)), (2, (0.0000, 0.0812, 0.1449, 0.2164)),
    (3, (0.1661, 0.1933, 0.2274, 0.2811)), (5, (0.3227, 0.3299, 0.3423, 0.3719)),
    (10, (0.4843, 0.4856, 0.4883, 0.4978)), (30, (0.6669, 0.6670, 0.6672, 0.6682)),
])  # fmt: skip
def test_figure_3_at_the_typical_point_has_known_values(gamma, values):
    ours = limit_advantage(WIDE, round(1000 * gamma), [0, 0.3, 1, 5])
    assert ours.tolist() == pytest.approx(list(values), abs=6e-5)


@pytest.mark.parametrize(("gamma", "penalties", "values"), [
    (1.5, [0, 0.1, 0.3, 1, 5], (0.1661, 0.0626, 0.0133, 0.0978, 0.1762)), (1.1, [0.1], (0.1379,)),
])  # fmt: skip
def test_below_the_crossover_the_advantage_first_falls(gamma, penalties, values):
    assert limit_advantage(WIDE, round(1000 * gamma), penalties).tolist() == pytest.approx(list(values), abs=1.5e-4)


@repeatable
@given(gamma=st.floats(0.05, 50), factor=st.floats(1, 1e4), sigma=st.floats(0, 3))
def test_the_variance_ratio_of_the_typical_point_has_a_closed_form_and_grows_with_the_penalty(gamma, factor, sigma):
    design = Design(10**6, math.ceil(10**6 * max(gamma, 1e-3) * factor) + 1, sigma)
    p = round(gamma * 10**6)
    exact, psi = doubles(p / 10**6), doubles(design.D / 10**6)
    v = shrinkage(PENALTIES, exact)
    closed = variance_ratio(v, exact, psi, sigma=sigma)
    formula = limit_ratio(design, p, PENALTIES)
    # Towards no penalty at γ = 1 the formula divides by the square root of the penalty, which costs digits.
    torch.testing.assert_close(formula, closed, rtol=1e-11, atol=0)
    assert bool((torch.diff(v) < 0).all())
    # Towards the ends the ratio is constant to rounding.
    assert bool((torch.diff(closed) / closed[1:] > -1e-14).all())
    assert bool((torch.diff(closed[100:-100:50]) > 0).all())


def test_shrinkage_solves_its_equations():
    gamma = doubles(0.2, 1.0, 7.0).unsqueeze(-1)
    v = shrinkage(PENALTIES, gamma)
    assert bool(((v > 0) & (v < gamma.clamp(max=1))).all())
    torch.testing.assert_close((gamma - v) * (1 - v) / v, PENALTIES.expand(3, -1), rtol=1e-3, atol=1e-9)
    m, *_ = ridge.limit_moments(gamma, PENALTIES)
    torch.testing.assert_close(v, gamma * m / (1 + gamma * m), rtol=1e-9, atol=0)


def test_nothing_cancels_at_a_hundred_features_a_row_or_a_penalty_of_a_million():
    """The form with derivatives of the Stieltjes transform turns the monotonicity round in both places."""
    many = limit_ratio(WIDE, 100_000, torch.logspace(-3, 6, 2000, dtype=DTYPE))
    assert bool((torch.diff(many) / many[1:] > -1e-14).all())
    assert bool((torch.diff(many[::200]) > 0).all())
    far = limit_variances(WIDE, torch.tensor(3000), doubles(1e6), Query.typical(WIDE, 3000))
    closed = variance_ratio(shrinkage(doubles(1e6), doubles(3.0)), doubles(3.0), doubles(1e4), sigma=1.0)
    assert float(far.member / far.outsider) == pytest.approx(float(closed), rel=1e-12)
    assert all(0 < float(v) < 1e-6 for v in far)


@pytest.mark.parametrize("gamma", [0.3, 1.1, 2.0, 10.0])
def test_the_ends_of_the_ratio_are_known(gamma):
    endless = doubles(1e12)
    start = variance_ratio(shrinkage(doubles(0.0), doubles(gamma)), doubles(gamma), endless, sigma=1.0)
    assert float(start) == pytest.approx(abs(gamma - 1), abs=1e-9)
    for psi, sigma in ((30.0, 1.0), (12.0, 0.3)):
        noise, end = 1 + sigma**2, variance_ratio(doubles(0.0), doubles(gamma), doubles(psi), sigma=sigma)
        assert float(end) == pytest.approx(1 + gamma * (noise + 2 / psi) / (noise + 1 / psi))


@pytest.mark.parametrize(("gamma", "penalty"), [(0.5, 0.7252), (1.1, 0.4329), (1.5, 0.2372)])
def test_the_zero_advantage_penalty_has_known_values(gamma, penalty):
    assert float(zero_advantage_penalty(doubles(gamma), doubles(30.0), sigma=1.0)) == pytest.approx(penalty, abs=5e-5)


@repeatable
@given(share=st.floats(0.02, 0.98), psi=st.floats(3, 1e4), sigma=st.floats(0, 3))
def test_at_the_zero_advantage_penalty_nothing_leaks(share, psi, sigma):
    limit = float(crossover_ratio(doubles(psi), sigma=sigma))
    design, n = Design(10**6, round(10**6 * psi), sigma), 10**6
    p = round(share * limit * n)
    penalty = zero_advantage_penalty(doubles(p / n), doubles(design.D / n), sigma=sigma)
    assert float(penalty) > 0
    assert float(limit_advantage(design, p, penalty.tolist())) < 1e-9
    around = limit_ratio(design, p, torch.cat([penalty / 2, penalty * 2]))
    assert float(around[0]) < 1 < float(around[1])


def test_from_the_crossover_on_every_penalty_leaks():
    psi = doubles(30.0)
    limit = crossover_ratio(psi, sigma=1.0)
    assert float(limit) == pytest.approx(2 - 1 / 60)
    assert bool(torch.isnan(zero_advantage_penalty(torch.cat([limit, limit + 1]), psi, sigma=1.0)).all())
    assert bool(torch.isfinite(zero_advantage_penalty(limit - 1e-6, psi, sigma=1.0)).all())


@pytest.mark.parametrize("gamma", [1.5, 3.0, 10.0])
def test_at_other_points_a_penalty_may_lower_the_ratio(gamma):
    """It is γ for every penalty where r² = p - n; it grows with the penalty beyond and falls before."""
    design = Design(1000, 30_000)
    p = round(1000 * gamma)
    unused = torch.tensor(float(design.D - p), dtype=DTYPE)
    penalties = torch.logspace(-3, 3, 50, dtype=DTYPE)
    for r2, sign in ((p - 1000.0, 0), (0.9 * (p - 1000), -1), (1.1 * (p - 1000), 1)):
        ratio = limit_ratio(design, p, penalties, Query(torch.tensor(r2, dtype=DTYPE), unused))
        if sign == 0:
            torch.testing.assert_close(ratio, torch.full_like(ratio, gamma), rtol=1e-12, atol=0)
        else:
            assert bool((sign * torch.diff(ratio) > 0).all())


@pytest.mark.parametrize(("share", "ends"), [(0.9, (32.1, 27.9)), (1.0, (28.9, 30.9))])
def test_at_finite_n_too_a_penalty_lowers_the_ratio_of_a_short_point(share, ends):
    design = Design(10, 10**6)
    query = Query(torch.tensor(share * 300.0, dtype=DTYPE), torch.tensor(10.0**6 - 300, dtype=DTYPE))
    spectra = ResolventSamples.draw(design, 300, doubles(1e-7, 1e7), trials=20_000, generator=stream(0, "short"))
    ratio = spectra.member_mixture(query).mean_variance / spectra.outsider_mixture(query).mean_variance
    # At a large penalty an outsider's variance goes with χ²₁₀: 4 standard errors of a mean of 20,000.
    assert ratio.tolist() == pytest.approx(list(ends), rel=4 * math.sqrt(2 / 10 / 20_000))


def test_points_widths_and_penalties_broadcast():
    design = Design(100, 900)
    points = Query.draw(design, [50, 150, 400], count=4, generator=stream(0, "broadcast"))
    wide = Query(points.used.unsqueeze(1), points.unused.unsqueeze(1))
    table = limit_variances(design, design.widths([50, 150, 400]), doubles(0.1, 2.0).unsqueeze(-1), wide)
    for law in range(2):
        assert table[law].shape == (4, 2, 3)
        single = limit_variances(design, torch.tensor(400), torch.tensor(2.0), Query.at_width(points, 2))[law]
        torch.testing.assert_close(table[law][:, 1, 2], single)


@pytest.mark.parametrize("penalty", [1e-300, 1e-160, 1e-40])
def test_the_limit_variances_keep_their_digits_down_to_the_least_penalty(penalty):
    design, tiny = Design(100, 400), torch.tensor(penalty, dtype=DTYPE)
    for p in (50, 200, 400):
        width, query = torch.tensor(p), Query.typical(design, p)
        plain = limit_variances(design, width, torch.zeros((), dtype=DTYPE), query)
        assert torch.stack(limit_variances(design, width, tiny, query)).allclose(torch.stack(plain), rtol=1e-14)
    member, outsider = limit_variances(design, torch.tensor(100), tiny, Query.typical(design, 100))
    # At p = n the noise grows as t / 2√λ, t = 1 + σ² - p/D, and the label is returned.
    assert float(outsider) == pytest.approx(1.75 / (2 * penalty**0.5), rel=1e-10)
    assert float(member) == pytest.approx(2, rel=1e-10)


def test_the_zero_advantage_penalty_has_its_limit_with_infinitely_many_features():
    gamma = torch.tensor([0.5, 1.5, 2.5], dtype=DTYPE)
    for psi in (1e12, 1e160, math.inf):
        found = zero_advantage_penalty(gamma, torch.tensor(psi, dtype=DTYPE), sigma=1.0)
        assert found.tolist() == pytest.approx([0.75, 0.25, math.nan], nan_ok=True)


P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
BRUTE, EXACT = 4000, 20_000
SHAPES = [(6, 4), (4, 6), (5, 5), (1, 7), (7, 1), (9, 2)]


def dense_resolvent(rows, columns, mu, generator):
    """The definition: the four scalars at e1 from the eigenvectors of each matrix."""
    matrices = gaussian((BRUTE, rows, columns), generator=generator)
    values, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    measure, values = vectors[:, 0].square(), values.clamp_min(0)
    integrands = (1 / (values + mu), (values + mu) ** -2, values / (values + mu) ** 2, (values / (values + mu)) ** 2)
    return [(measure * integrand).sum(-1) for integrand in integrands]


# In the last three, matrices of the recursion are left out.
@pytest.mark.parametrize(
    ("rows", "columns", "mu"),
    [(*shape, mu) for shape in SHAPES for mu in (0.2, 5.0)] + [(24, 30, 300.0), (30, 24, 300.0), (120, 24, 300.0)],
)
def test_the_four_scalars_have_the_law_of_dense_matrices(rows, columns, mu):
    generator = stream(0, f"scalars {rows} {columns} {mu}")
    ours = sample_resolvent(rows, columns, doubles(mu), trials=EXACT, generator=generator)
    brute = dense_resolvent(rows, columns, mu, generator)
    for name, draws, reference in zip(ours._fields, ours, brute, strict=True):
        assert stats.ks_2samp(draws[0], reference).pvalue > P_VALUE, name
    # A function of all four at once, so that their dependence is checked too.
    together = [r * e - c * s for r, s, e, c in ((x[0] for x in ours), brute)]
    assert stats.ks_2samp(*together).pvalue > P_VALUE


@pytest.mark.parametrize(("rows", "columns"), [*SHAPES, (0, 3), (60, 200), (200, 60), (100, 3000)])
def test_the_four_scalars_are_integrals_of_one_probability_measure(rows, columns):
    """∫ (l + μ)/(l + μ)² = ∫ 1/(l + μ) and ∫ (l + μ)²/(l + μ)² = 1, draw by draw."""
    mu = doubles(1e-150, 1e-8, 1e-3, 1.0, 1e3, 1e8)
    inverse, inverse_square, noise, signal = sample_resolvent(
        rows, columns, mu, trials=50, generator=stream(0, "identities")
    )
    mu = mu.unsqueeze(-1)
    # Rounding adds up over two steps a row.
    torch.testing.assert_close(noise + mu * inverse_square, inverse, rtol=1e-12, atol=0)
    torch.testing.assert_close(signal + 2 * mu * noise + mu**2 * inverse_square, torch.ones_like(mu).expand(6, 50))
    assert all(bool((scalar >= 0).all()) for scalar in (inverse, inverse_square, noise, signal))


def test_a_matrix_without_rows_has_the_resolvent_of_zero():
    assert [float(x) for x in sample_resolvent(0, 3, doubles(4.0), trials=1, generator=stream(0, "zero"))] == [
        0.25, 0.0625, 0.0, 0.0,
    ]  # fmt: skip


CONFIGURATIONS = [
    (10, 4, 14, 0.7, 0.3),
    (10, 10, 14, 0.7, 0.05),
    (10, 20, 20, 0.0, 1.0),
    (10, 13, 30, 1.0, 5.0),
    (3, 2, 6, 1.0, 0.2),
    (1, 3, 5, 0.5, 0.4),
]


def trained(design, p, penalty, point, generator, *, member):
    """The definition: dense ridge fits of separate data sets, and the variance of each prediction given its rows."""
    rows = gaussian((BRUTE, design.n, design.D), generator=generator)
    if member:
        rows[:, 0] = point
    beta = gaussian((BRUTE, design.D), generator=generator) / math.sqrt(design.D)
    noise = design.sigma * gaussian((BRUTE, design.n), generator=generator)
    features = rows[..., :p]
    moments = features.mT @ features + design.n * penalty * torch.eye(p, dtype=DTYPE)
    weights = features @ torch.linalg.solve(moments, point[:p, None].expand(BRUTE, p, 1))  # of the labels
    seen = (rows.mT @ weights).squeeze(-1)
    predictions = (seen * beta).sum(-1) + (weights.squeeze(-1) * noise).sum(-1)
    return predictions, seen.square().sum(-1) / design.D + design.sigma**2 * weights.square().sum((-2, -1))


@pytest.mark.parametrize("member", [False, True])
@pytest.mark.parametrize(("n", "p", "D", "sigma", "penalty"), CONFIGURATIONS)
def test_exact_draws_have_the_law_of_trained_models(n, p, D, sigma, penalty, member):
    generator, design = stream(0, f"ridge {n} {p} {D} {penalty}"), Design(n, D, sigma)
    point = gaussian((D,), generator=generator)
    query = Query.from_point(point, design, p)
    sample = sample_member if member else sample_outsider
    ours = sample(design, p, penalty, query, trials=EXACT, generator=generator)
    brute, variances = trained(design, p, penalty, point, generator, member=member)
    for view in (torch.clone, torch.abs):
        assert stats.ks_2samp(view(ours), view(brute)).pvalue > P_VALUE
    # Variances show what a test on 4000 predictions misses; 4 standard errors of each mean.
    spectra = ResolventSamples.draw(design, p, doubles(penalty), trials=EXACT, generator=generator)
    law = (spectra.member_mixture if member else spectra.outsider_mixture)(query)
    for squares in (ours.square(), law.variances[0]):
        spread = math.hypot(float(variances.std()) / math.sqrt(BRUTE), float(squares.std()) / math.sqrt(EXACT))
        # Of a single training row, a member, the variance is one number: rounding is all the spread there is.
        assert abs(float(squares.mean() - variances.mean())) < 4 * spread + 1e-14


@pytest.mark.parametrize("p", [6, 20])
@pytest.mark.parametrize("law", ["outsider", "member"])
def test_a_vanishing_penalty_gives_the_law_of_least_squares(p, law):
    design, generator = Design(10, 30, 0.6), stream(0, "vanishing")
    query = Query(torch.tensor(7.0, dtype=DTYPE), torch.tensor(20.0, dtype=DTYPE))
    penalised = getattr(ridge, f"sample_{law}")(design, p, 1e-9, query, trials=EXACT, generator=generator)
    plain = getattr(least_squares, f"sample_{law}")(design, p, query, trials=EXACT, generator=generator)
    assert stats.ks_2samp(penalised, plain).pvalue > P_VALUE


def test_at_many_features_mixtures_have_the_law_of_the_draws():
    design, generator = Design(12, 600, 0.8), stream(0, "mixtures")
    query = Query(torch.tensor(25.0, dtype=DTYPE), torch.tensor(570.0, dtype=DTYPE))
    spectra = ResolventSamples.draw(design, 20, doubles(0.4), trials=EXACT, generator=generator)
    laws = spectra.outsider_mixture(query), spectra.member_mixture(query)
    for law, sample in zip(laws, (sample_outsider, sample_member), strict=True):
        draws = sample(design, 20, 0.4, query, trials=EXACT, generator=generator)
        assert stats.ks_2samp(law.sample(EXACT, generator=generator)[0].abs(), draws.abs()).pvalue > P_VALUE


@pytest.mark.parametrize(
    ("p", "penalty", "reference"),
    [(105, 0.3, 0.0346), (105, 5, 0.1384), (150, 0.3, 0.0181), (150, 2, 0.1444), (400, 0.3, 0.2766), (400, 5, 0.3380)],
)
def test_figure_7_has_known_distances_at_finite_n(p, penalty, reference):
    design = Design(100, 3000)
    spectra = ResolventSamples.draw(design, p, doubles(penalty), trials=400, generator=stream(0, f"figure 7 {p}"))
    query = Query.typical(design, p)
    ours = total_variation(**spectra.laws(query))
    # 600 designs in the reference and 400 here, each with a standard deviation of at most .0035.
    assert float(ours) == pytest.approx(reference, abs=0.012)


def test_the_limit_is_near_the_finite_law_at_400_rows():
    design, query = Design(400, 1600), Query.typical(Design(400, 1600), 800)
    limits = limit_variances(design, torch.tensor(800), torch.tensor(0.5), query)
    assert (float(limits.outsider), float(limits.member)) == pytest.approx((0.6595, 1.1592), abs=5e-5)
    spectra = ResolventSamples.draw(design, 800, doubles(0.5), trials=200, generator=stream(0, "400 rows"))
    for who, law in spectra.laws(query).items():
        assert float(law.mean_variance) == pytest.approx(float(getattr(limits, who)), rel=0.03)


def test_exact_advantages_tend_to_those_without_a_penalty_and_differ_between_sets():
    design, sizes = Design(30, 300), dict(sets=6, trials=400, generator=stream(0, "exact advantages"))
    query = Query.typical(design, [150]).at_width(0)
    found = ridge.exact_advantages(design, 150, torch.tensor([1e-7, 5.0], dtype=DTYPE), query, **sizes)
    assert found.shape == (6, 2)
    assert (found.std(0) > 0).all()
    torch.testing.assert_close(
        found[:, 0].mean(),
        least_squares.total_variations(design, [150], query=Query.typical(design, [150]))[0],
        rtol=0,
        atol=0.01,  # six sets of 400 draws
    )


@pytest.mark.parametrize("penalty", [0.0, 0.3, 0.9, 2.0])
def test_at_each_penalty_the_ratio_rises_with_the_width_from_its_last_crossing_on(penalty):
    for psi, tolerance in ((30.0, 0.1), (1e6, 0.01)):
        rise = ridge.rise_with_width(penalty, psi, sigma=1.0)
        assert rise.least_step > 0
        assert rise.start == pytest.approx(max(2 - 2 * penalty, 0), abs=tolerance)
    if penalty == 0:
        crossing = ridge.crossover_ratio(torch.tensor(30.0, dtype=DTYPE), sigma=1.0)
        assert ridge.rise_with_width(0.0, 30.0, sigma=1.0).start == pytest.approx(float(crossing), abs=1e-6)
