"""The ridge chain stops where deeper steps no longer move a bit, and its law is that of the matrices it stands for."""

import pytest
import torch
from scipy.stats import ks_2samp

from leakage.data.gaussians import chi_square, gaussian
from leakage.runtime import DTYPE, stream
from leakage.theory import ridge

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
# rows, columns, μ: next to square, wide, tall and square matrices, penalties from Figure 7's weakest upwards and below
SETTINGS = [
    (100, 105, 30.0),
    (100, 105, 500.0),
    (100, 100, 100.0),
    (100, 3000, 1e-4),
    (100, 3000, 30.0),
    (100, 200, 30.0),
    (400, 200, 40.0),
    (1000, 10**6, 300.0),
    (300, 20, 1e3),
    (10, 300, 1e6),
]


@pytest.mark.parametrize(("rows", "columns", "mu"), SETTINGS)
def test_steps_left_out_would_not_have_moved_a_bit(rows, columns, mu):
    draws = stream(0, f"depth {rows} {columns} {mu}")
    depth = ridge._depth(rows, columns, mu=mu)
    short, whole = (ridge._heights(rows, columns, depth=d) for d in (depth, rows))
    assert len(short) < len(whole)
    assert short == whole[: len(short)]
    c = [chi_square(height, (500,), generator=draws) for height in whole]
    for ours, full in zip(chain(c[: len(short)], mu), chain(c, mu), strict=True):
        torch.testing.assert_close(ours, full)


def chain(c, mu):
    """The scalars from given chi-squares, outermost first."""
    inverse = torch.full((500,), 1 / mu, dtype=DTYPE)
    state = ridge.Resolvent(inverse, inverse.square(), torch.zeros_like(inverse), torch.zeros_like(inverse))
    for draw in reversed(c):
        state = ridge._extend(state, draw, torch.tensor(mu, dtype=DTYPE))
    return state


@pytest.mark.parametrize(("rows", "columns", "mu"), [(24, 30, 300.0), (30, 24, 300.0), (24, 120, 300.0)])
def test_a_shortened_chain_has_the_law_of_dense_matrices(rows, columns, mu):
    draws = stream(0, f"short {rows} {columns}")
    assert ridge._depth(rows, columns, mu=mu) < min(rows, columns)
    matrices = gaussian((800, rows, columns), generator=draws)
    values, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    values, weights = values.clamp_min(0), vectors[:, 0].square()
    sampled = ridge.sample_resolvent(rows, columns, torch.tensor([mu]), trials=20_000, generator=draws)
    for scalar, power, fall in zip(sampled, (0, 0, 1, 2), (1, 2, 2, 2), strict=True):
        dense = (weights * values**power / (values + mu) ** fall).sum(-1)
        assert ks_2samp(dense.numpy(), scalar[0].numpy()).pvalue > P_VALUE


@pytest.mark.parametrize("mu", [1e-300, 1e-12, 1.0, 1e17, 1e300])
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (1, 1), (100, 105), (7, 10**6)])
def test_the_depth_is_positive_and_finite_for_every_shape_and_penalty(rows, columns, mu):
    assert 1 <= ridge._depth(rows, columns, mu=mu) < 10**15


def test_a_small_penalty_next_to_square_takes_every_step():
    assert ridge._heights(3, 2, depth=ridge._depth(3, 2, mu=1e-6)) == [3, 1, 2]
    assert ridge._heights(2, 5, depth=ridge._depth(2, 5, mu=1e-6)) == [2, 4, 1, 3]
    assert ridge._heights(0, 5, depth=9) == []
