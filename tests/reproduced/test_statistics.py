"""Histograms agree with numpy's and their optimism with its formula; slopes, ranks and crossings with closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reproduced.runtime import stream
from reproduced.statistics import (
    histogram_advantage,
    histogram_null_bias,
    histograms,
    rank_correlation,
    slope,
    value_at_crossing,
)

X = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)


def normal(*shape, name, scale=1.0):
    return torch.randn(*shape, generator=stream(0, name), dtype=torch.float64) * scale


def by_numpy(member, outsider, *, edges=150, percentiles=(0.01, 99.99)):
    """The estimator written down as in the paper's appendix, with the percentiles of its plotting code."""
    low, high = np.percentile(np.concatenate([member, outsider]), percentiles)
    grid = np.linspace(low, high, edges)
    masses = [counts / counts.sum() for counts in (np.histogram(sample, grid)[0] for sample in (member, outsider))]
    return np.maximum(masses[0] - masses[1], 0).sum()


@pytest.mark.parametrize(
    "options", [{}, {"edges": 2}, {"edges": 7, "percentiles": (0, 100)}, {"percentiles": (20, 55)}]
)
@pytest.mark.parametrize("lattice", [False, True])
def test_the_estimator_is_the_one_of_the_paper(options, lattice):
    member, outsider = normal(3000, name="m", scale=0.6), normal(2500, name="o")
    if lattice:  # values on bin edges, where rounding would decide
        member, outsider = (torch.round(x * 8) for x in (member, outsider))
    ours = histogram_advantage(member=member, outsider=outsider, **options)
    assert float(ours) == pytest.approx(by_numpy(member.numpy(), outsider.numpy(), **options), abs=1e-12)


@given(low=st.floats(-100, 100), width=st.floats(0.001, 1000), edges=st.integers(3, 200))
@settings(max_examples=60)
def test_a_value_on_an_edge_belongs_to_the_bin_above_and_one_just_below_to_the_bin_below(low, width, edges):
    ends = torch.tensor([low, low + width], dtype=torch.float64)
    grid = histograms(member=ends, outsider=ends, edges=edges, percentiles=(0, 100)).edges
    just_below = torch.cat([ends, grid[1:].nextafter(grid[:-1])])
    both = histograms(member=grid, outsider=just_below, edges=edges, percentiles=(0, 100))
    torch.testing.assert_close(both.edges, grid)
    assert (both.member * edges).round().tolist() == [1] * (edges - 2) + [2]
    assert (both.outsider * (edges + 1)).round().tolist() == [2] + [1] * (edges - 3) + [2]


def test_equal_samples_have_no_advantage_and_separate_ones_all():
    values = normal(500, name="m")
    assert float(histogram_advantage(member=values, outsider=values)) == pytest.approx(0)
    assert float(histogram_advantage(member=values, outsider=values + 100)) == pytest.approx(1)


def test_the_advantage_of_two_gaussians_is_their_distance_within_the_bias():
    scale, n = 0.5, 200_000
    cross = math.sqrt(-2 * math.log(scale) / (1 / scale**2 - 1))
    truth = 2 * (stats.norm.cdf(cross / scale) - stats.norm.cdf(cross))
    measured = float(histogram_advantage(member=normal(n, name="m", scale=scale), outsider=normal(n, name="o")))
    # Bias: bins where the laws differ add none, so it is below the null's .0125; sampling: 4 * sqrt(.5 / n) = .0063.
    assert abs(measured - truth) < 0.0125 + 0.0063


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_neither_order_nor_type_matters(kind):
    member, outsider = (torch.round(normal(800, name=name) * 20) for name in ("m", "o"))
    reference = float(histogram_advantage(member=member, outsider=outsider))
    turned = histogram_advantage(member=member.flip(0).to(kind), outsider=outsider.flip(0).to(kind))
    assert float(turned) == pytest.approx(reference, abs=1e-12)


@pytest.mark.parametrize("samples", [30, 300, 5000])
@pytest.mark.parametrize("mass", [1e-4, 1e-2, 0.2, 0.5, 0.97])
def test_the_null_bias_of_a_bin_is_half_the_mean_difference_of_two_binomials(samples, mass):
    below = stats.binom.cdf(np.arange(samples), samples, mass)
    exact = np.sum(below * (1 - below)) / samples  # half of E|X - X'| = 2 sum F (1 - F), over S
    ours = float(histogram_null_bias(torch.tensor([mass], dtype=torch.float64), samples=samples))
    assert ours == pytest.approx(exact, rel=0.007)  # the promise of the docstring from 30 draws on


def test_the_null_bias_is_what_identical_laws_show():
    repeats, samples = 300, 2000
    member, outsider = normal(repeats, samples, name="m"), normal(repeats, samples, name="o")
    shown = histogram_advantage(member=member, outsider=outsider)
    both = histograms(member=member, outsider=outsider)
    predicted = histogram_null_bias((both.member + both.outsider) / 2, samples=samples)
    # Bins estimated from the same 4000 values miss what lies beyond them: 2 % off at this size, less at larger ones.
    assert float(predicted.mean()) == pytest.approx(float(shown.mean()), rel=0.02)


def test_the_null_bias_of_full_bins_is_the_formula_of_the_chapter():
    masses = torch.full((149,), 1 / 149, dtype=torch.float64)
    plain = 0.5 * math.sqrt(2 / math.pi) * math.sqrt(2 / 1e5) * float(masses.sqrt().sum())
    assert float(histogram_null_bias(masses, samples=1e5)) == pytest.approx(plain, rel=0.005)


def test_the_slope_of_a_line_is_its_slope():
    assert slope(X, 3 - 2 * X) == pytest.approx(-2, rel=1e-14)


def test_the_slope_is_that_of_least_squares():
    y = torch.randn(4, generator=stream(0, "y"), dtype=torch.float64)
    design = torch.stack([X, torch.ones_like(X)], dim=1)
    assert slope(X, y) == pytest.approx(float(torch.linalg.lstsq(design, y[:, None]).solution[0]), rel=1e-12)


def test_rank_correlation_sees_order_only():
    assert rank_correlation(X, X**3) == pytest.approx(1)
    assert rank_correlation(X, 1 / X) == pytest.approx(-1)


def test_rank_correlation_shares_ranks_between_equal_values():
    # ranks 1, 2, 3.5, 3.5 against 1 … 4: the correlation is 4.5 / sqrt(5 · 4.5)
    assert rank_correlation(X, torch.tensor([0, 1, 2, 2])) == pytest.approx(4.5 / (5 * 4.5) ** 0.5)


def test_rank_correlation_of_a_constant_is_zero():
    assert rank_correlation(X, torch.ones(4)) == pytest.approx(0)


def test_values_that_differ_by_rounding_share_their_rank():
    x = torch.arange(4.0)
    exact = rank_correlation(x, torch.tensor([0.3, 0.1, 0.3, 0.5]))
    for y in ([0.1 + 0.2, 0.1, 0.3, 0.5], [0.3, 0.1, 0.1 + 0.2, 0.5]):
        assert rank_correlation(x, torch.tensor(y).double()) == pytest.approx(exact, abs=1e-12)
    assert rank_correlation(x, torch.tensor([0.3, 0.1 + 0.2, 0.3, 0.3]).double()) == 0


def test_a_curve_is_read_off_between_epochs():
    error = torch.tensor([0.8, 0.6, 0.4, 0.45, 0.3])
    advantage = torch.tensor([0.0, 0.1, 0.3, 0.4, 0.5])
    assert float(value_at_crossing(error, advantage, target=0.5)) == pytest.approx(0.2)
    assert float(value_at_crossing(error, advantage, target=0.42)) == pytest.approx(0.28), "the first crossing counts"
    assert float(value_at_crossing(advantage, error, target=0.3)) == pytest.approx(0.4)
    both = value_at_crossing(torch.stack([error, error]), torch.stack([advantage, -advantage]), target=0.5)
    assert both.tolist() == pytest.approx([0.2, -0.2])


def test_what_is_not_crossed_is_not_made_up():
    error, advantage = torch.tensor([0.8, 0.6, 0.4]), torch.tensor([0.1, 0.2, 0.3])
    assert math.isnan(float(value_at_crossing(error, advantage, target=0.39)))
    assert math.isnan(float(value_at_crossing(error, advantage, target=0.9)))
    assert float(value_at_crossing(error, advantage, target=0.4)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("level", "target", "expected"),
    [
        ((0.5, 0.2, 0.6), 0.3, 2 / 3),  # falls through the target before it rises
        ((0.25, 0.35, 0.2), 0.3, 0.5),  # rises through it before it falls
        ((0.2, 0.6, 0.4), 0.5, 0.75),
        ((0.3, 0.2, 0.3), 0.3, math.nan),  # starts on it
        ((0.2, 0.25, 0.28), 0.3, math.nan),
    ],
)
def test_the_first_epoch_says_whether_a_curve_must_rise_or_fall(level, target, expected):
    level, epochs = torch.tensor(level), torch.arange(3.0)
    assert float(value_at_crossing(level, epochs, target=target)) == pytest.approx(expected, nan_ok=True)
    assert float(value_at_crossing(-level, epochs, target=-target)) == pytest.approx(expected, nan_ok=True)
