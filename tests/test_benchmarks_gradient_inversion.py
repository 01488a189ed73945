"""The benchmark of chapter gradient_inversion compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import pytest
import torch

import benchmark_runs
from gradient_batches import hermite_tensor
from leakage.runtime import stream

benchmark = benchmark_runs.module("gradient_inversion")


@pytest.fixture(scope="module")
def tiny(benchmark):
    return benchmark.Sizes(
        tensor=(2, 6, 50),
        repeats=2,
        span=(3, 20, 60),
        matching=(2, 10, 120),
        batches=2,
        images=(2, 12, 120),
        rounds=2,
    )


def test_every_comparison_is_checked_measured_and_recorded(benchmark, tiny, tmp_path):
    record, page = benchmark_runs.recorded(benchmark, tiny, tmp_path)
    assert [row["id"] for row in record["rows"]] == list(benchmark.NEEDED)
    for row, evidence in zip(record["rows"], ["same values"] * 2 + ["same batches"] * 2, strict=True):
        assert evidence in row["note"]
    assert "singular value decomposition" in page


def test_the_dense_tensor_is_the_mean_over_the_neurons(benchmark):
    _, seen = benchmark.problem("dense", 2, 4, 30, activation="gelu", bias=1.0)
    products = seen.outputs.view(-1, 1, 1, 1) * hermite_tensor(seen.weights, 3)
    torch.testing.assert_close(benchmark.dense_tensor(seen), products.mean(0), rtol=0, atol=1e-13)


def test_a_batch_that_only_one_side_finds_is_not_timed(benchmark, tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "FOUND", 1e-30)
    monkeypatch.setattr(benchmark, "DESCENTS", 1)
    with pytest.raises(benchmark.Disagreement, match="fails 1 times in a row"):
        benchmark.attack("matching", tiny.matching, 1, 1).check()
    monkeypatch.setattr(
        benchmark, "matched", lambda seen, batch, draws: benchmark.recover(seen, batch=2, norm=1.0, generator=draws)
    )
    with pytest.raises(benchmark.Disagreement, match="not every batch is found"):
        benchmark.attack("matching", tiny.matching, 1, 1).check()


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    benchmark_runs.assert_promises_are_of_cases(benchmark, tiny)
    assert [benchmark.NEEDED[id].ratio for id in ("tensor", "span", "matching", "images")] == [200, 10, 5, 5]


def test_a_problem_is_fixed_by_its_name(benchmark):
    one, same, other = (benchmark.problem(id, 2, 5, 9, activation="tanh", bias=0.0)[0] for id in ("a", "a", "b"))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert stream(0, "a").initial_seed() != stream(0, "b").initial_seed()
