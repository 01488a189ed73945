"""The cosine model: leverages against the definition, aliases in closed form, and the role of the solver's cutoff."""

import math

import numpy as np
import pytest
import torch

from reproduced.papers.min_norm.cosine_regression import (
    Cosines,
    alias_law,
    exact_advantages,
    exact_outsider_variances,
    outsider_variances,
    solved_advantages,
    training_times,
    uncovered_probability,
)
from reproduced.papers.min_norm.gaussian_mixtures import total_variation
from reproduced.runtime import stream

QUERIES = torch.tensor([0, 5, 20])


def setting(model, *, trials=20, aliases=True, queries=QUERIES):
    return training_times(model, queries, trials=trials, aliases=aliases, generator=stream(0, f"times {model}"))


def variance_by_definition(model, times, query):
    """Mean over the coefficients of the squared prediction of NumPy's `lstsq`, from its p × p hat matrix."""
    k = np.arange(model.signal)

    def cosines(t):
        c = np.cos(2 * np.pi * np.outer(t, k) / model.period)
        return c / np.linalg.norm(c, axis=1, keepdims=True)

    design, point = cosines(times), cosines([query])[0, : model.width]
    hat = np.linalg.lstsq(design[:, : model.width], design, rcond=1e-9)[0]
    return np.sum((point @ hat) ** 2) / model.signal


@pytest.mark.parametrize(
    "model",
    [
        Cosines.band_limited(10, 32, 12),
        Cosines.band_limited(10, 32, 32),
        Cosines.band_limited(10, 32, 24, signal=32),
        Cosines.released(10, 32, 12),
        Cosines.released(10, 32, 6),
    ],
)
def test_outsider_variances_follow_the_definition(model):
    times = setting(model)
    ours = outsider_variances(model, times, QUERIES, cutoff=1e-9)
    brute = [[variance_by_definition(model, t, q) for t in row] for row, q in zip(times, QUERIES, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(brute), rtol=1e-5, atol=1e-9)  # condition numbers up to 1e8


@pytest.mark.parametrize("width", [4, 12, 17, 32])
def test_exact_arithmetic_has_a_closed_form(width):
    model = Cosines.released(10, 32, width)
    times = setting(model)
    exact = exact_outsider_variances(model, times, QUERIES)
    torch.testing.assert_close(outsider_variances(model, times, QUERIES), exact, rtol=1e-9, atol=1e-12)
    assert ((exact * width <= 1 + 1e-12) & (exact > 0)).all()


def test_aliases_are_predicted_as_members():
    model = Cosines.released(10, 32, 12)  # period 23: 3 and 20, 5 and 18 and 28 look alike
    times = torch.tensor([[[20, 1, 2, 4, 6, 7, 8, 9, 10, 11]]])
    exact = exact_outsider_variances(model, times, torch.tensor([3]))
    assert exact.item() == pytest.approx(model.member_variance)


def test_the_chance_of_an_alias_counts_subsets():
    model = Cosines.released(3, 32, 6)  # period 11
    aliases = [sum((t - q) % 11 == 0 or (t + q) % 11 == 0 for t in range(32) if t != q) for q in QUERIES.tolist()]
    expected = [math.comb(31 - a, 3) / math.comb(31, 3) for a in aliases]
    torch.testing.assert_close(uncovered_probability(model, QUERIES), torch.tensor(expected).double())


def test_the_mixture_with_known_alias_probability_has_the_sampled_mean():
    model = Cosines.released(10, 64, 20)
    sampled = exact_outsider_variances(model, setting(model, trials=4000), QUERIES)
    law = alias_law(model, QUERIES, exact_outsider_variances(model, setting(model, trials=50, aliases=False), QUERIES))
    error = sampled.std(-1) / math.sqrt(4000)
    assert ((law.mean_variance - sampled.mean(-1)).abs() < 4 * error).all()


def test_training_times_without_aliases_keep_none():
    model = Cosines.released(4, 32, 8)  # period 15
    times = setting(model, trials=50, aliases=False)
    same = ((times - QUERIES[:, None, None]) % 15 == 0) | ((times + QUERIES[:, None, None]) % 15 == 0)
    assert not same.any()


def test_reduced_phases_make_aliases_equal():
    model = Cosines.released(10, 1024, 300)
    times = torch.tensor([7, 599 - 7, 599 + 7])
    reduced = model.rows(times)
    for alias in reduced[1:]:
        torch.testing.assert_close(alias, reduced[0], rtol=0, atol=1e-15)
    released = model.rows(times, phase="left-to-right")
    assert 1e-15 < float((released[0] - released[1]).abs().max()) < 1e-11


def test_rounding_noise_decides_the_released_curve():
    """p = 256: published 0.4517; exact arithmetic gives 0.62, the default cutoff on unreduced phases less."""
    model, queries = Cosines.released(128, 1024, 256), torch.tensor([300, 41, 700])
    times = setting(model, trials=30, aliases=False, queries=queries)
    member = torch.tensor([model.member_variance]).double()

    def advantage(variances):
        return float(total_variation(outsider=alias_law(model, queries, variances), member=member).mean())

    exact = advantage(exact_outsider_variances(model, times, queries))
    cut = advantage(outsider_variances(model, times, queries, phase="left-to-right", cutoff=1e-10))
    kept = advantage(outsider_variances(model, times, queries, phase="left-to-right"))
    assert abs(exact - 0.617) < 0.01  # the number of aliases of a time varies by one
    assert abs(cut - exact) < 1e-6
    assert abs(kept - 0.4517) < 0.08  # between-time deviation 0.05, three times; LAPACK's rounding is not ours to fix


def test_a_fit_below_n_recovers_a_band_limited_signal():
    model = Cosines.band_limited(20, 64, 10)
    variances = outsider_variances(model, setting(model), QUERIES)
    torch.testing.assert_close(variances, torch.full_like(variances, model.member_variance), rtol=1e-9, atol=0)


def test_advantages_of_the_solver_and_of_exact_arithmetic_agree_where_no_singular_value_is_near_zero():
    model, times = Cosines.released(10, 32, 12), torch.arange(1, 8)
    asked = times[uncovered_probability(model, times) > 0]
    exact = exact_advantages(model, asked, trials=600, generator=stream(0, "exact"))
    solved = solved_advantages(model, asked, trials=600, cutoff=1e-8, generator=stream(0, "solved"))
    torch.testing.assert_close(solved, exact, rtol=0, atol=0.02)  # 600 sets of times each
