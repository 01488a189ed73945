"""The other machine computes what this one does, up to the last bit, and always the same."""

import pytest
import torch

from last_bits import LastBits
from reproduced.runtime import stream

pytestmark = pytest.mark.slow
X = torch.randn(40, 60, generator=stream(0, "numbers"), dtype=torch.float64)
OPERATIONS = {
    "sums": lambda x: x.sum(0),
    "products of matrices": lambda x: x @ x.mT,
    "functions in place": lambda x: x.clone().tanh_(),
    "solutions": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(len(x), dtype=x.dtype), x),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_results_move_by_little_and_alike_in_each_run(operation):
    with LastBits(1):
        there, again = operation(X), operation(X)
    difference = (there - operation(X)).norm() / there.norm()
    assert 0 < difference < 1e-13
    assert float((there - again).norm()) == pytest.approx(0, abs=1e-300)


def test_what_every_machine_rounds_alike_stays():
    with LastBits(1):
        there = (X + 2.7) * X / 3.1 - X.abs().sqrt(), X.round().sum(0)
    torch.testing.assert_close(there, ((X + 2.7) * X / 3.1 - X.abs().sqrt(), X.round().sum(0)), rtol=0, atol=0)


def test_signs_of_vectors_are_a_machines_own_and_belong_together():
    x = X[:8, :6]
    here = torch.linalg.eigh(x.mT @ x).eigenvectors
    with LastBits(1):
        values, vectors = torch.linalg.eigh(x.mT @ x)
        left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    assert {*(here * vectors).sum(0).round().tolist()} == {-1.0, 1.0}
    torch.testing.assert_close(vectors * values @ vectors.mT, x.mT @ x)
    torch.testing.assert_close(left * sizes @ right, x)
