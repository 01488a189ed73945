"""The other machine computes what this one does, up to the last bit, and always the same."""

import pytest
import torch

from last_bits import LastBits
from leakage.runtime import stream

KINDS = pytest.mark.parametrize("kind", [torch.float32, torch.float64])


def drawn(*shape, kind=torch.float64):
    return torch.randn(*shape, generator=stream(0, "numbers"), dtype=torch.float64).to(kind)


OPEN = {
    "sums": lambda x: x.sum(0),
    "means": lambda x: x.mean(),
    "products of matrices": lambda x: x @ x.mT,
    "functions": torch.exp,
    "functions in place": lambda x: x.clone().tanh_(),
    "fused steps": lambda x: x.add(x.flip(0), alpha=0.3),
    "powers": lambda x: x.abs().pow(0.3),
    "solutions": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(len(x), dtype=x.dtype), x),
}
SHUT = {
    "the four operations": lambda x: (x + 2.7) * x / 3.1 - x,
    "roots and squares": lambda x: x.square() + x.abs().sqrt(),
    "sums of two": lambda x: x[:2].sum(0),
    "sums of whole numbers": lambda x: x.round().sum(0),
    "means of whole numbers": lambda x: (x > 0).to(x).mean(0),
    "comparisons": lambda x: x.sort().values.clamp_min(0.1),
    "what has nothing added": lambda x: torch.lerp(x, x, 0.3) + torch.hypot(x, 0 * x),
}


@KINDS
@pytest.mark.parametrize("operation", OPEN.values(), ids=OPEN)
def test_what_ieee_leaves_open_moves_by_little(operation, kind):
    x = drawn(40, 60, kind=kind)
    here, unit = operation(x), torch.finfo(kind).eps
    found = set()
    for seed in range(8):
        with LastBits(seed):
            there, again = operation(x), operation(x)
        assert torch.equal(there, again), "a machine that does not repeat itself tests nothing"
        assert float((there - here).norm()) <= 200 * unit * float(here.norm())
        found.add(tuple(there.flatten()[:50].tolist()))
    assert len(found) > 1


@KINDS
@pytest.mark.parametrize("operation", SHUT.values(), ids=SHUT)
def test_what_every_machine_computes_alike_stays(operation, kind):
    x = drawn(40, 60, kind=kind)
    here = operation(x)
    for seed in range(8):
        with LastBits(seed):
            assert torch.equal(operation(x), here)


def test_signs_of_vectors_are_a_machines_own_and_belong_together():
    x = drawn(8, 6)
    here = torch.linalg.eigh(x.mT @ x).eigenvectors
    with LastBits(1):
        values, vectors = torch.linalg.eigh(x.mT @ x)
        left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    turned = (here * vectors).sum(0).round()
    assert set(turned.tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(vectors * values @ vectors.mT, x.mT @ x)
    torch.testing.assert_close(left * sizes @ right, x)


def test_derivatives_and_batches_pass_through():
    x = drawn(5, 3)
    slope = torch.func.vmap(torch.func.grad(lambda row: (row @ row).exp()))
    here = slope(x)
    with LastBits(3):
        there = slope(x)
    assert not torch.equal(there, here)
    torch.testing.assert_close(there, here, rtol=1e-13, atol=0)
