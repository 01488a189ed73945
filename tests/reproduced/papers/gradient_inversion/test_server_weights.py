"""Designed weights look standard normal row by row, and have the symmetry that their name promises."""

import math

import pytest
import torch

from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion import server_weights
from reproduced.runtime import stream

M, D = 4096, 8
EACH = pytest.mark.parametrize("kind", server_weights.KINDS)


def drawn(kind, *, m=M, d=D, name="draw"):
    return server_weights.draw_weights(kind, m=m, d=d, generator=stream(0, name))


@EACH
def test_every_kind_has_the_moments_of_a_standard_normal(kind):
    w = drawn(kind)
    assert (w.shape, w.dtype) == ((M, D), DTYPE)
    # Standard errors of 4096 rows, at most twice that where half of them are mirrored.
    error = 5 * math.sqrt(2 / M)
    assert float(w.mean(0).abs().max()) < error
    assert float((w.mT @ w / M - torch.eye(D, dtype=DTYPE)).abs().max()) < error * math.sqrt(2)
    fourth = w.pow(4).mean() / 3  # over all entries, of which those of a row depend on each other only through its norm
    assert float(fourth) == pytest.approx(1, abs=5 * math.sqrt(2 * 96 / 9 / M))
    product = (w[:, 0].square() * w[:, 1].square()).mean()  # 1 for a Gaussian, d/(d + 2) on a sphere
    assert float(product) == pytest.approx(1, abs=5 * math.sqrt(2 * 8 / M))


@pytest.mark.parametrize("kind", ["antithetic", "orthogonal_antithetic", "white_antithetic"])
def test_antithetic_rows_come_with_their_negatives(kind):
    w = drawn(kind)
    torch.testing.assert_close(w[: M // 2], -w[M // 2 :])


@pytest.mark.parametrize("kind", ["white", "white_antithetic"])
def test_white_weights_have_exact_second_moments(kind):
    w = drawn(kind)
    torch.testing.assert_close(w.mT @ w / M, torch.eye(D, dtype=DTYPE), rtol=0, atol=1e-13)


def test_orthogonal_rows_are_orthogonal_in_blocks_and_keep_gaussian_lengths():
    w = drawn("orthogonal", m=3 * D + 3)
    gram = w[D : 2 * D] @ w[D : 2 * D].mT
    torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-13)
    assert w.shape == (3 * D + 3, D)
    squares = drawn("orthogonal").square().sum(1)
    assert float(squares.mean()) == pytest.approx(D, abs=5 * math.sqrt(2 * D / M))
    assert float(squares.var()) == pytest.approx(2 * D, rel=0.25)  # a fixed length would have none
