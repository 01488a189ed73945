"""The closed forms of minimum-norm least squares against trained models, published values and their own identities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakage.data.gaussians import gaussian
from leakage.runtime import stream
from leakage.theory import two_gaussians
from leakage.theory.least_squares import (
    Design,
    Query,
    advantage,
    crossover_width,
    member_variance,
    noise_advantage,
    noise_for_error,
    outsider_variance,
    prediction_error,
    widths_within_budget,
)

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


def trained(design, p, points, *, generator):
    """The definition: `TRIALS` separate fits asked about `points` (one, or one each), and the true signal there."""
    rows = gaussian((TRIALS, design.n, design.D), generator=generator)
    beta = gaussian((TRIALS, design.D, 1), generator=generator) / math.sqrt(design.D)
    labels = rows @ beta + design.sigma * gaussian((TRIALS, design.n, 1), generator=generator)
    fits = torch.linalg.lstsq(rows[..., :p], labels, driver="gelsy").solution
    asked = points.unsqueeze(-2)
    return (asked[..., :p] @ fits).flatten(), (asked @ beta).flatten()


# |p - n| ≥ 5 or so: closer to n the fourth moment of a prediction is infinite, and with it the error of its variance.
@pytest.mark.parametrize(
    ("n", "p", "D", "sigma"), [(10, 4, 9, 0.5), (10, 25, 40, 0.8), (8, 20, 20, 1.0), (8, 30, 30, 0)]
)
def test_the_outsider_variance_is_that_of_trained_models_at_the_actual_point(n, p, D, sigma):
    generator, design = stream(0, f"variance {p} {D}"), Design(n, D, sigma)
    point = 2 * gaussian((D,), generator=generator)  # far from typical
    squares = trained(design, p, point, generator=generator)[0].square()
    formula = float(outsider_variance(design, torch.tensor(p), Query.from_point(point, design, p)))
    assert abs(float(squares.mean()) - formula) < 4 * float(squares.std()) / math.sqrt(TRIALS)  # 4 standard errors


def test_the_prediction_error_is_that_of_trained_models():
    generator, design = stream(0, "error"), Design(10, 40, 0.8)
    predictions, signal = trained(design, 25, gaussian((TRIALS, 40), generator=generator), generator=generator)
    squares = (signal + 0.8 * gaussian((TRIALS,), generator=generator) - predictions).square()
    formula = float(prediction_error(design, torch.tensor(25)))
    assert formula == pytest.approx(2.115, abs=5e-4)
    assert abs(float(squares.mean()) - formula) < 4 * float(squares.std()) / math.sqrt(TRIALS)  # 4 standard errors


def test_the_prediction_error_is_the_outsider_variance_in_other_words():
    widths = list(range(102, 3001))
    direct = prediction_error(FIGURE, FIGURE.widths(widths))
    variance = outsider_variance(FIGURE, FIGURE.widths(widths), Query.typical(FIGURE, widths))
    torch.testing.assert_close(direct, 1 + FIGURE.sigma**2 + variance - 2 * FIGURE.n / FIGURE.D, rtol=1e-12, atol=1e-12)


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
    assert bool((torch.diff(values) > 0).all())
    before = typical_advantage(design, list(range(n + 1, math.floor(start) + 1)))
    assert bool((torch.diff(before) < 0).all())


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


def test_noise_on_every_answer_protects_less_than_fewer_features_from_201_on():
    widths = list(range(201, 3000))
    noise = noise_for_error(FIGURE, prediction_error(FIGURE, FIGURE.widths(widths)))
    noisy = noise_advantage(FIGURE, noise, Query.typical(FIGURE, [3000] * len(widths)), on_members=True)
    assert bool((noisy > typical_advantage(FIGURE, widths)).all())


def test_no_noise_is_the_full_model():
    full = Query.typical(FIGURE, 3000)
    for on_members in (True, False):
        quiet = noise_advantage(FIGURE, torch.tensor(0.0), full, on_members=on_members)
        assert float(quiet) == pytest.approx(float(typical_advantage(FIGURE, 3000)), abs=1e-14)
    assert float(noise_for_error(FIGURE, prediction_error(FIGURE, torch.tensor(3000)))) == pytest.approx(0)


def test_a_budget_of_a_tenth_allows_the_known_widths():
    assert widths_within_budget(FIGURE, 0.1) == (166, 249)
    assert typical_advantage(FIGURE, [166, 249]).tolist() == pytest.approx([0.0998, 0.0986], abs=5e-5)


@settings(max_examples=60)
@given(n=st.integers(1, 40), extra=st.integers(2, 200), sigma=st.floats(0, 2), exponent=st.floats(-5, -0.01))
def test_the_widths_within_a_budget_are_those_a_search_finds(n, extra, sigma, exponent):
    design, budget = Design(n, n + extra, sigma), 10**exponent
    widths = list(range(n + 2, design.D + 1))
    allowed = [
        p for p, value in zip(widths, typical_advantage(design, widths).tolist(), strict=True) if value <= budget
    ]
    assert widths_within_budget(design, budget) == ((allowed[0], allowed[-1]) if allowed else None)


def test_a_budget_no_whole_number_meets_is_met_by_none():
    assert widths_within_budget(FIGURE, 1e-4) is None  # p* = 199.3: 199 has .0008 and 200 has .0017


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
    cut = points.at(1)
    torch.testing.assert_close(cut.used, points.used[:, 1])
    torch.testing.assert_close(cut.unused, points.unused[:, 1])


def test_the_query_of_a_point_splits_its_squared_norm():
    point = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, 4.0]])
    query = Query.from_point(point, Design(2, 3), 2)
    assert query.used.tolist() == [5.0, 0.25]
    assert query.unused.tolist() == [9.0, 16.0]
    assert Query.from_point(point, Design(2, 3), 3).unused.tolist() == [0.0, 0.0]
    assert Query.typical(Design(2, 9), [2, 9]).unused.tolist() == [7.0, 0.0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_gives_the_same_numbers():
    points = Query.draw(FIGURE, [100, 150, 600], count=5, generator=stream(0, "gpu"))
    there, widths = Query(points.used.cuda(), points.unused.cuda()), FIGURE.widths([100, 150, 600])
    near, far = advantage(FIGURE, widths, points), advantage(FIGURE, widths.cuda(), there)
    torch.testing.assert_close(far.cpu(), near, rtol=0, atol=1e-12)
    assert noise_for_error(FIGURE, prediction_error(FIGURE, widths[1:].cuda())).device.type == "cuda"
    assert float(two_gaussians.advantage(member=widths[:1].cuda(), outsider=widths[:1].cuda())) == pytest.approx(0)
