"""Synthetic draws have the laws they are named after."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from leakage.data.gaussians import bartlett_factor, chi_square, gaussian_equivalent, sphere, standardise
from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always


def test_gaussian_draws_are_standard_normal():
    draws = gaussian((200, 100), generator=stream(0, "gaussian"))
    assert (draws.shape, draws.dtype) == ((200, 100), DTYPE)
    assert stats.kstest(draws.flatten(), stats.norm.cdf).pvalue > P_VALUE


@pytest.mark.parametrize("dof", [0.5, 1, 2, 7, 2000])
def test_chi_square_draws_have_their_law(dof):
    draws = chi_square(dof, (20_000,), generator=stream(0, f"chi square {dof}"))
    assert draws.dtype == DTYPE
    assert stats.kstest(draws, stats.chi2(dof).cdf).pvalue > P_VALUE


def test_chi_square_takes_degrees_of_freedom_for_each_column():
    degrees = torch.tensor([0, 1, 30])
    draws = chi_square(degrees, (20_000, 3), generator=stream(0, "columns"))
    assert bool((draws[:, 0] == 0).all())
    for column, dof in ((1, 1), (2, 30)):
        assert stats.kstest(draws[:, column], stats.chi2(dof).cdf).pvalue > P_VALUE
    assert abs(torch.corrcoef(draws[:, 1:].T)[0, 1]) < 4 / math.sqrt(20_000)  # 4 standard errors


@pytest.mark.parametrize("dimension", [2, 3, 20])
def test_points_on_the_sphere_are_uniform(dimension):
    points = sphere(5000, dimension, generator=stream(0, f"sphere {dimension}"))
    torch.testing.assert_close(points.norm(dim=-1), torch.ones(5000, dtype=DTYPE))
    coordinate = (1 + points @ torch.eye(dimension, dtype=DTYPE)[0]) / 2  # Beta by Archimedes' theorem
    law = stats.beta((dimension - 1) / 2, (dimension - 1) / 2)
    assert stats.kstest(coordinate, law.cdf).pvalue > P_VALUE


def test_standardised_inputs_are_centred_with_squared_norm_d_on_average():
    inputs = 5 + 3 * gaussian((50, 7), generator=stream(0, "inputs")).float()
    outputs = standardise(inputs)
    assert outputs.dtype == DTYPE
    torch.testing.assert_close(outputs.mean(0), torch.zeros(7, dtype=DTYPE), rtol=0, atol=1e-12)
    torch.testing.assert_close(outputs.square().sum(-1).mean(), torch.tensor(7.0, dtype=DTYPE))


@hypothesis_settings(max_examples=40)
@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-100, 100))
def test_standardise_forgets_units_and_origin(scale, shift):
    inputs = gaussian((6, 3), generator=stream(0, "units"))
    # Rounding: a shift of 100 costs the digits by which it exceeds the spread, 1e-3.
    torch.testing.assert_close(standardise(scale * inputs + shift), standardise(inputs), rtol=1e-9, atol=1e-9)


def test_gaussian_equivalent_rows_have_the_covariance_of_the_inputs():
    generator = stream(0, "twin")
    inputs = standardise(gaussian((30, 4), generator=generator) @ gaussian((4, 6), generator=generator))
    rows, covariance = gaussian_equivalent(inputs, 50_000, generator=generator), inputs.T @ inputs / 30
    spread = covariance.diagonal().sqrt()
    deviation = (rows.T @ rows / 50_000 - covariance) / (spread[:, None] * spread)
    assert deviation.abs().max() < 5 * math.sqrt(2 / 50_000)  # 21 entries, each of standard error √(2/N) at most
    # Four directions carry everything, and the rows have no others.
    off_support = rows @ torch.linalg.eigh(covariance).eigenvectors[:, :2]
    assert off_support.abs().max() < 1e-6  # the square root of the rounding of the covariance
    assert stats.kstest(rows[:, 0] / spread[0], stats.norm.cdf).pvalue > P_VALUE


@pytest.mark.parametrize("columns", [2, 4, 5, 9])
def test_factor_has_the_gram_law_of_the_matrix(columns):
    generator = stream(0, f"wishart {columns}")
    factor = bartlett_factor(4, columns, (3000,), generator=generator)
    matrix = gaussian((3000, 4, columns), generator=generator)
    direction = gaussian((4,), generator=generator)
    for summary in (
        lambda g: g.diagonal(dim1=-2, dim2=-1).sum(-1),
        lambda g: direction @ g @ direction,
        lambda g: torch.linalg.eigvalsh(g)[:, -1],
        lambda g: torch.linalg.det(g + torch.eye(4)),
    ):
        assert stats.ks_2samp(summary(factor @ factor.mT), summary(matrix @ matrix.mT)).pvalue > P_VALUE
