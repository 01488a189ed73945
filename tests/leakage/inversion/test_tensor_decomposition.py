"""The decomposition finds planted terms, orthogonal or not, of either sign, and says how much of a tensor it left."""

from itertools import permutations

import pytest
import torch

from leakage.draws import gaussian
from leakage.inversion.tensor_decomposition import decompose, powers
from leakage.precision import DTYPE
from reproduced.papers.gradient_inversion.step_errors import METHODS, assemble
from reproduced.runtime import stream

NOISE = 0.05


def planted(side, *, tensors=6, correlation=0.5, order=3, seed=0):
    """Unit vectors with all products equal to `correlation`, weights of size 1 to 2 and random signs, their tensor."""
    generator = stream(seed, "planted")
    turn = torch.linalg.qr(gaussian((tensors, side, side), generator=generator)).Q
    products = correlation + (1 - correlation) * torch.eye(side, dtype=DTYPE)
    factors = torch.linalg.cholesky(products) @ turn
    sizes = 1 + torch.rand((tensors, side), generator=generator, dtype=DTYPE)
    weights = sizes * gaussian((tensors, side), generator=generator).sign()
    return factors, weights, assemble(factors, weights, order=order)


def symmetric_noise(shape, *, seed=0):
    noise = gaussian(shape, generator=stream(seed, "noise"))
    axes = list(permutations(range(1, noise.ndim)))
    return sum(noise.permute(0, *axis) for axis in axes) / len(axes)


def angle(found, factors):
    """The sine of the largest angle between a planted vector and the found one nearest to it, for each tensor."""
    cosines = (factors @ found.mT).abs().amax(-1)
    return (1 - cosines.square()).clamp_min(0).sqrt().amax(-1)


def solve(tensor, *, method="joint", **options):
    return decompose(tensor, method=METHODS.get(method, method), generator=stream(0, "attack"), **options)


def test_powers_are_outer_products():
    u, v = torch.tensor([[1.0, 2.0]], dtype=DTYPE), torch.tensor([[0.5, -1.0, 3.0]], dtype=DTYPE)
    assert powers(u, 3).tolist() == [[1, 2, 2, 4, 2, 4, 4, 8]]
    torch.testing.assert_close(assemble(v, torch.tensor([2.0], dtype=DTYPE), order=2), 2 * torch.outer(v[0], v[0]))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("side", [1, 2, 4, 8])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_planted_terms_are_found_exactly(side, order, correlation):
    factors, weights, tensor = planted(side, correlation=correlation, order=order)
    found = solve(tensor, order=order)
    # Rounding times the condition number of the factors, below 10; an angle of 1e-8 is already lost in its cosine.
    assert angle(found.factors, factors).max() < 1e-6
    assert found.residual.max() < 1e-12
    rebuilt = assemble(found.factors, found.weights, order=order)
    torch.testing.assert_close(rebuilt, tensor, rtol=0, atol=1e-12)
    sizes = weights.abs().sort(descending=True).values
    torch.testing.assert_close(found.weights.abs(), sizes, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("method", "starts"), [("jennrich", 3), ("als", 8)])
def test_the_comparators_find_planted_terms_too(method, starts):
    factors, _, tensor = planted(3, tensors=2)
    assert angle(solve(tensor, method=method, starts=starts).factors, factors).max() < 1e-4  # als stops early


def test_joint_diagonalisation_beats_one_pair_and_deflation_under_noise():
    factors, _, tensor = planted(8)
    tensor = tensor + NOISE * symmetric_noise(tensor.shape)
    joint, pair, deflation = (
        angle(solve(tensor, method=method, starts=starts).factors, factors).median()
        for method, starts in (("joint", 3), ("jennrich", 1), ("deflation", 10))
    )
    assert joint < 0.25  # 0.12 to 0.15 over eight seeds
    assert 2 * joint < pair
    assert 2 * joint < deflation


def test_terms_come_largest_first_and_with_the_promised_signs():
    for order in (3, 4):
        found = solve(planted(5, order=order)[2], order=order)
        sizes = found.weights.abs()
        assert bool((sizes[..., :-1] >= sizes[..., 1:]).all())
        largest = found.factors.gather(-1, found.factors.abs().argmax(-1, keepdim=True))
        assert bool((found.weights > 0).all()) if order == 3 else bool((largest > 0).all())
    assert bool((solve(planted(5, order=4)[2], order=4).weights < 0).any())


def test_tensors_are_independent_of_their_neighbours():
    tensor = planted(4)[2]
    together = solve(tensor.reshape(2, 3, 4, 4, 4), contractions=None, starts=1)
    assert together.factors.shape == (2, 3, 4, 4)
    alone = solve(tensor[4], contractions=None, starts=1)
    torch.testing.assert_close(together.weights[1, 1], alone.weights, rtol=1e-10, atol=0)


def test_a_rotation_of_the_basis_rotates_the_factors():
    tensor = planted(4, tensors=1)[2]
    noisy = tensor + 0.01 * symmetric_noise(tensor.shape)
    turn = torch.linalg.qr(gaussian((4, 4), generator=stream(1, "turn"))).Q
    turned = torch.einsum("nabc,ia,jb,kc->nijk", noisy, turn, turn, turn)
    one, other = (solve(t, contractions=None) for t in (noisy, turned))
    torch.testing.assert_close(other.factors, one.factors @ turn.mT, rtol=0, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_one_term_is_found_by_every_method(method):
    found = solve(torch.tensor([[[-3.0]]], dtype=DTYPE), method=method)
    assert (found.factors.item(), found.weights.item()) == pytest.approx((-1.0, 3.0))
