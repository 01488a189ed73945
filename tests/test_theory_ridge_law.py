"""Ridge at finite n: the continued fraction against dense matrices, the laws against trained models."""

import math

import pytest
import torch
from scipy import stats

from leakage.data.gaussians import gaussian
from leakage.runtime import DTYPE, stream
from leakage.theory import least_squares, ridge
from leakage.theory.gaussian_mixtures import total_variation
from leakage.theory.least_squares import Design, Query
from leakage.theory.ridge import ResolventSamples, limit_variances, sample_member, sample_outsider, sample_resolvent

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
BRUTE, EXACT = 4000, 20_000
SHAPES = [(6, 4), (4, 6), (5, 5), (1, 7), (7, 1), (9, 2)]


def tensor(*values):
    return torch.tensor(values, dtype=DTYPE)


def dense_resolvent(rows, columns, mu, generator):
    """The definition: the four scalars at e1 from the eigenvectors of each matrix."""
    matrices = gaussian((BRUTE, rows, columns), generator=generator)
    values, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    measure, values = vectors[:, 0].square(), values.clamp_min(0)
    integrands = (1 / (values + mu), (values + mu) ** -2, values / (values + mu) ** 2, (values / (values + mu)) ** 2)
    return [(measure * integrand).sum(-1) for integrand in integrands]


@pytest.mark.parametrize("mu", [0.2, 5.0])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_four_scalars_have_the_law_of_dense_matrices(rows, columns, mu):
    generator = stream(0, f"scalars {rows} {columns} {mu}")
    ours = sample_resolvent(rows, columns, tensor(mu), trials=EXACT, generator=generator)
    brute = dense_resolvent(rows, columns, mu, generator)
    for name, draws, reference in zip(ours._fields, ours, brute, strict=True):
        assert stats.ks_2samp(draws[0], reference).pvalue > P_VALUE, name
    # A function of all four at once, so that their dependence is checked too.
    together = [r * e - c * s for r, s, e, c in ((x[0] for x in ours), brute)]
    assert stats.ks_2samp(*together).pvalue > P_VALUE


@pytest.mark.parametrize(("rows", "columns"), [*SHAPES, (0, 3), (60, 200), (200, 60), (100, 3000)])
def test_the_four_scalars_are_integrals_of_one_probability_measure(rows, columns):
    """∫ (l + μ)/(l + μ)² = ∫ 1/(l + μ) and ∫ (l + μ)²/(l + μ)² = 1, draw by draw."""
    mu = tensor(1e-8, 1e-3, 1.0, 1e3, 1e8)
    inverse, inverse_square, noise, signal = sample_resolvent(
        rows, columns, mu, trials=50, generator=stream(0, "identities")
    )
    mu = mu.unsqueeze(-1)
    # Rounding adds up over two steps a row.
    torch.testing.assert_close(noise + mu * inverse_square, inverse, rtol=1e-12, atol=0)
    torch.testing.assert_close(signal + 2 * mu * noise + mu**2 * inverse_square, torch.ones_like(mu).expand(5, 50))
    assert all(bool((scalar >= 0).all()) for scalar in (inverse, inverse_square, noise, signal))


def test_a_matrix_without_rows_has_the_resolvent_of_zero():
    assert [float(x) for x in sample_resolvent(0, 3, tensor(4.0), trials=1, generator=stream(0, "zero"))] == [
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
    spectra = ResolventSamples.draw(design, p, tensor(penalty), trials=EXACT, generator=generator)
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
    spectra = ResolventSamples.draw(design, 20, tensor(0.4), trials=EXACT, generator=generator)
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
    spectra = ResolventSamples.draw(design, p, tensor(penalty), trials=400, generator=stream(0, f"figure 7 {p}"))
    query = Query.typical(design, p)
    ours = total_variation(**spectra.laws(query))
    # 600 designs in the reference and 400 here, each with a standard deviation of at most .0035.
    assert float(ours) == pytest.approx(reference, abs=0.012)


def test_the_limit_is_near_the_finite_law_at_400_rows():
    design, query = Design(400, 1600), Query.typical(Design(400, 1600), 800)
    limits = limit_variances(design, torch.tensor(800), torch.tensor(0.5), query)
    assert (float(limits.outsider), float(limits.member)) == pytest.approx((0.6595, 1.1592), abs=5e-5)
    spectra = ResolventSamples.draw(design, 800, tensor(0.5), trials=200, generator=stream(0, "400 rows"))
    for who, law in spectra.laws(query).items():
        assert float(law.mean_variance) == pytest.approx(float(getattr(limits, who)), rel=0.03)


def test_points_and_penalties_of_a_batch_are_answered_one_by_one():
    design, penalties = Design(8, 20), tensor(0.1, 2.0)
    spectra = ResolventSamples.draw(design, 12, penalties, trials=5, generator=stream(0, "batch"))
    points = Query(tensor(9.0, 12.0, 15.0), tensor(8.0, 3.0, 11.0))
    for law in (spectra.outsider_mixture, spectra.member_mixture):
        table = law(points).variances
        assert table.shape == (3, 2, 5)
        torch.testing.assert_close(torch.stack([law(points.at(i)).variances for i in range(3)]), table)
    for index in range(2):  # the same draws serve every penalty
        single = ResolventSamples.draw(design, 12, penalties[index : index + 1], trials=5, generator=stream(0, "batch"))
        torch.testing.assert_close(
            single.member_mixture(points).variances[:, 0], spectra.member_mixture(points).variances[:, index]
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_draws_from_the_same_laws():
    design = Design(10, 30)
    for law, sample in (("outsider", sample_outsider), ("member", sample_member)):
        draws = []
        for device in ("cpu", "cuda"):
            query = Query(
                torch.tensor(15.0, dtype=DTYPE, device=device), torch.tensor(14.0, dtype=DTYPE, device=device)
            )
            generator = stream(0, f"gpu {law}", device)
            draws.append(sample(design, 16, 0.5, query, trials=EXACT, generator=generator).cpu())
        assert stats.ks_2samp(*draws).pvalue > P_VALUE
