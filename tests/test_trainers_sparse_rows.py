"""Sparse rows are the matrix they were made of, and networks learn from them what they learn from the plain one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.trainers import dp_sgd, sparse_rows
from leakage.trainers.criteria import Examples
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.perceptrons import MlpEnsemble
from leakage.trainers.sparse_rows import SparseRows


def matrix(rows: int, columns: int, seed: int, *, ones: bool) -> torch.Tensor:
    draws = stream(seed, "sparse rows")
    kept = torch.rand(rows, columns, generator=draws) < 0.1
    return kept.float() if ones else kept * torch.randn(rows, columns, generator=draws)


def dense(rows: SparseRows) -> torch.Tensor:
    return rows.times(torch.eye(rows.width))


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99), st.booleans())
def test_every_form_is_the_matrix(rows: int, columns: int, seed: int, ones: bool):
    plain = matrix(rows, columns, seed, ones=ones)
    sparse = SparseRows.of(plain)
    if sparse is None:
        assert float((plain != 0).double().mean()) > sparse_rows._MOST
        return
    torch.testing.assert_close(dense(sparse), plain)
    torch.testing.assert_close(dense(sparse.transposed), plain.T)
    torch.testing.assert_close(dense(sparse.between(rows // 3, rows)), plain[rows // 3 :])
    chosen = torch.randint(rows, (3, 4), generator=stream(seed, "chosen"))
    torch.testing.assert_close(dense(sparse.blocks(chosen)), torch.block_diag(*plain[chosen]))


def test_full_double_and_empty_matrices_are_left_alone():
    assert SparseRows.of(torch.ones(3, 4)) is None
    assert SparseRows.of(torch.eye(30).double()) is None
    assert SparseRows.of(torch.zeros(0, 4)) is None


def examples(*, ones: bool) -> Examples:
    draws = stream(1, "examples")
    return Examples((matrix(60, 50, 1, ones=ones),), torch.randint(3, (60,), generator=draws))


def networks(*leading: int) -> Mlp:
    return mlp.initial(leading, (50, 8, 3), generator=stream(0, "networks"), dtype=torch.float32)


@pytest.mark.parametrize("ones", [True, False])
def test_scores_are_those_of_plain_products(ones: bool, monkeypatch: pytest.MonkeyPatch):
    asked, ensemble = examples(ones=ones), MlpEnsemble.of(networks(4))
    assert asked.sparse is not None
    sparse = ensemble.evaluate(asked)
    monkeypatch.setattr(sparse_rows, "_MOST", 0.0)
    plain = ensemble.evaluate(examples(ones=ones))
    assert torch.allclose(sparse.losses, plain.losses, atol=1e-6)
    torch.testing.assert_close(sparse.wrong, plain.wrong)


@pytest.mark.parametrize("ones", [True, False])
def test_private_training_is_that_of_plain_products(ones: bool, monkeypatch: pytest.MonkeyPatch):
    rows = torch.stack([torch.randperm(60, generator=stream(2, "rows"))[:40] for _ in range(2)])
    settings = dict(noise=torch.tensor([0.5, 1.0, 0.0]), learning_rate=torch.tensor([0.5, 1.0, 2.0]))

    def trained() -> Mlp:
        recipe = PrivateRecipe(steps=12, batch=10, clip=1.0)
        return dp_sgd.train(networks(2, 3), examples(ones=ones), rows, recipe, generator=stream(3, "draws"), **settings)

    sparse = trained()
    monkeypatch.setattr(sparse_rows, "_MOST", 0.0)
    for first, second in zip(sparse.weights + sparse.biases, trained().weights + trained().biases, strict=True):
        assert torch.allclose(first, second, atol=1e-5)
