"""Trained regressions are the textbook fits with the laws of the theory; quadrature is the mean over drawn points."""

import pytest
import torch
from scipy import stats

from leakage.draws import gaussian
from leakage.metrics import estimates
from leakage.precision import DTYPE
from reproduced.papers.min_norm import least_squares, linear_regressions, ridge
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.min_norm.linear_regressions import point_quadrature, ridge_predictions, trained_predictions
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
PENALTIES = [1e-6, 0.1, 3.0, 1e6]
MEDIUM = Design(n=20, D=60)
WIDTHS = [24, 39, 60]


def dense(features, labels, query, penalty):
    """The definition, with a p × p matrix."""
    moments = features.mT @ features + features.shape[-2] * penalty * torch.eye(features.shape[-1], dtype=DTYPE)
    coefficients = torch.linalg.solve(moments, features.mT @ labels.unsqueeze(-1)).squeeze(-1)
    return (query * coefficients).sum(-1)


@pytest.mark.parametrize(("n", "p"), [(8, 3), (8, 8), (8, 30), (1, 4)])
@pytest.mark.parametrize("batch", [(), (5,)])
def test_ridge_predictions_are_those_of_the_dense_solution(n, p, batch):
    generator = stream(0, f"dense {n} {p}")
    features, labels, query = (gaussian((*batch, *size), generator=generator) for size in ((n, p), (n,), (p,)))
    ours = ridge_predictions(features, labels, query, penalties=PENALTIES)
    assert ours.shape == (*batch, 4)
    for column, penalty in enumerate(PENALTIES):
        # At the smallest penalty the p × p matrix has a condition number of 1e7 or more, unless there are more rows.
        tolerance = dict(rtol=1e-7, atol=1e-12) if p >= n else dict(rtol=1e-11, atol=1e-14)
        reference = dense(features, labels, query, penalty)
        torch.testing.assert_close(ours[..., column], reference, **tolerance)


@pytest.mark.parametrize("member", [False, True])
@pytest.mark.parametrize("p", [5, 8, 20, 24])
def test_trained_least_squares_has_the_exact_law(p, member):
    design, generator = Design(8, 24, 0.6), stream(0, f"trained {p}")
    point = 1.4 * gaussian((24,), generator=generator)
    trained = trained_predictions(design, point, widths=[p], trials=4000, member=member, generator=generator)
    sample = least_squares.sample_member if member else least_squares.sample_outsider
    exact = sample(design, p, Query.from_point(point, design, p), trials=40_000, generator=generator)
    assert trained.shape == (4000, 1)
    assert stats.ks_2samp(trained[:, 0], exact).pvalue > P_VALUE


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_errors_are_those_of_the_formula_and_output_noise_adds_its_variance(noise):
    design, generator = Design(6, 30, 0.5), stream(0, f"errors {noise}")
    widths = [20, 30]
    errors = linear_regressions.squared_errors(
        design, widths=widths, models=20_000, points=4, generator=generator, noise=noise
    )
    assert errors.shape == (20_000, 2)
    bound = 4 * errors.std(0) / len(errors) ** 0.5  # standard errors
    assert (
        (errors.mean(0) - least_squares.prediction_error(design, design.widths(widths)) - noise).abs() < bound
    ).all()


@pytest.mark.parametrize("member", [False, True])
def test_trained_ridge_has_the_exact_law(member):
    design, generator = Design(8, 24, 0.6), stream(0, "trained ridge")
    point = 1.4 * gaussian((24,), generator=generator)
    trained = trained_predictions(
        design, point, widths=[13], trials=4000, member=member, generator=generator, penalties=[0.1, 2.0]
    )
    sample = ridge.sample_member if member else ridge.sample_outsider
    for column, penalty in enumerate((0.1, 2.0)):
        exact = sample(design, 13, penalty, Query.from_point(point, design, 13), trials=20_000, generator=generator)
        assert stats.ks_2samp(trained[:, column], exact).pvalue > P_VALUE


def predictions(*, seed=0, **changes):
    """Predictions at one point from data sets that depend on the seed alone."""
    options = dict(widths=[3, 20], trials=50, member=True) | changes
    point = gaussian((30,), generator=stream(0, "point"))
    return trained_predictions(Design(6, 30, 0.5), point, generator=stream(seed, "data sets"), **options)


def test_all_models_of_a_trial_share_its_data():
    both = predictions()
    torch.testing.assert_close(both[:, :1], predictions(widths=[3]))
    torch.testing.assert_close(both[:, 1:], predictions(widths=[20]))
    # Without a penalty to speak of the ridge fit is the minimum-norm fit.
    torch.testing.assert_close(both[:, 1:], predictions(widths=[20], penalties=[1e-10]), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(both, predictions(seed=1))


def test_a_member_gets_its_label_back_at_every_interpolating_width():
    answers = predictions(widths=[6, 7, 20, 30])
    torch.testing.assert_close(answers, answers[:, -1:].expand(50, 4), rtol=1e-6, atol=1e-6)
    outsiders = predictions(widths=[6, 7, 20, 30], member=False)
    assert float((outsiders - outsiders[:, -1:])[:, :-1].abs().min()) > 1e-6


def test_the_moments_of_the_two_norms_are_those_of_chi_squares():
    points = point_quadrature(MEDIUM, WIDTHS, nodes=(200, 50))
    p = torch.tensor(WIDTHS, dtype=torch.float64)
    torch.testing.assert_close(points.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    # Quantiles at 200 nodes leave a relative 1e-3 of the tails.
    torch.testing.assert_close(points.mean(points.query.used), p, rtol=1e-3, atol=0)
    torch.testing.assert_close(points.mean(points.query.used.square()), p * (p + 2), rtol=1e-3, atol=0)
    torch.testing.assert_close(points.mean(points.query.unused), MEDIUM.D - p, rtol=1e-2, atol=0)
    torch.testing.assert_close(points.mean(points.query.used * points.query.unused), p * (60 - p), rtol=1e-2, atol=0)


def test_the_mean_advantage_is_that_over_drawn_points():
    points = point_quadrature(MEDIUM, WIDTHS)
    mean = points.mean(least_squares.advantage(MEDIUM, MEDIUM.widths(WIDTHS), points.query))
    drawn = Query.draw(MEDIUM, WIDTHS, count=20_000, generator=stream(0, "points"))
    sampled = least_squares.advantage(MEDIUM, MEDIUM.widths(WIDTHS), drawn)
    for value, column in zip(mean.tolist(), sampled.T, strict=True):
        assert estimates.mean_interval(column, level=0.9999).agrees_with(value)


@pytest.mark.parametrize("penalty", [None, 0.3])
def test_a_comparison_finds_the_law_that_the_models_have(penalty):
    design, generator = Design(8, 24, 0.6), stream(0, f"compare {penalty}")
    found = linear_regressions.compare_with_law(
        design, 20, trained=4000, sampled=40_000, generator=generator, penalty=penalty
    )
    assert list(found) == ["outsider", "member"]
    for one in found.values():
        assert one.test.p_value > P_VALUE
        assert penalty is not None or one.variance_ratio.low < 1 < one.variance_ratio.high


def test_variances_given_a_design_average_to_that_of_the_formula():
    design, generator = Design(6, 24, 0.6), stream(0, "given a design")
    point = gaussian((24,), generator=generator)
    rows = gaussian((20_000, 6, 24), generator=generator)
    found = estimates.mean_interval(linear_regressions.outsider_variances(rows, point, 16, sigma=0.6), level=0.999)
    assert found.low < least_squares.outsider_variance(design, 16, Query.from_point(point, design, 16)) < found.high
