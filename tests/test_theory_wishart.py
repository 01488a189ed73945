"""`gaussian_factor` has the Gram law of the Gaussian matrix it stands for."""

import pytest
import torch
from scipy.stats import ks_2samp

from leakage.data.synthetic import gaussian
from leakage.runtime import stream
from leakage.theory.wishart import gaussian_factor

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always


@pytest.mark.parametrize("columns", [2, 4, 5, 9])
def test_factor_has_the_gram_law_of_the_matrix(columns):
    generator = stream(0, f"wishart {columns}")
    factor = gaussian_factor(4, columns, (3000,), generator=generator)
    matrix = gaussian((3000, 4, columns), generator=generator)
    direction = gaussian((4,), generator=generator)
    for summary in (
        lambda g: g.diagonal(dim1=-2, dim2=-1).sum(-1),
        lambda g: direction @ g @ direction,
        lambda g: torch.linalg.eigvalsh(g)[:, -1],
        lambda g: torch.linalg.det(g + torch.eye(4)),
    ):
        assert ks_2samp(summary(factor @ factor.mT), summary(matrix @ matrix.mT)).pvalue > P_VALUE


def test_factor_has_the_fewest_columns():
    generator = stream(0, "wishart")
    assert gaussian_factor(4, 100, (2,), generator=generator).shape == (2, 4, 4)
    assert gaussian_factor(4, 3, (2,), generator=generator).shape == (2, 4, 3)
    assert gaussian_factor(4, 0, (2,), generator=generator).shape == (2, 4, 0)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, -1)])
def test_impossible_shapes_are_refused(rows, columns):
    with pytest.raises(ValueError, match="at least"):
        gaussian_factor(rows, columns, (), generator=stream(0, "wishart"))
