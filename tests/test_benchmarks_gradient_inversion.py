"""The benchmark of chapter gradient_inversion compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What it shares with min_norm is tested in test_benchmarks.
"""

import json
from pathlib import Path

import pytest
import torch

from leakage.pipeline import tables
from leakage.runtime import stream
from leakage.theory.hermite import hermite_tensor

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark as `python benchmarks/gradient_inversion.py` loads it: with its own folder on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import gradient_inversion

        yield gradient_inversion


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
    assert benchmark.main(["--record"], sizes=tiny, root=tmp_path) == 0
    record = json.loads((tmp_path / benchmark.RECORD).read_text("utf-8"))
    assert [row["id"] for row in record["rows"]] == list(benchmark.NEEDED)
    for row, evidence in zip(record["rows"], ["same values"] * 2 + ["same batches"] * 2, strict=True):
        assert min(row["ours_seconds"], row["theirs_seconds"], row["ratio"]) > 0
        assert evidence in row["note"]
    page = tables.performance({"performance.gradient_inversion": record})
    assert "## Batches from gradients" in page
    assert "singular value decomposition" in page


def test_the_dense_tensor_is_the_mean_over_the_neurons(benchmark):
    _, seen = benchmark.problem("dense", 2, 4, 30, activation="gelu", bias=1.0)
    products = seen.outputs.view(-1, 1, 1, 1) * hermite_tensor(seen.weights, order=3)
    torch.testing.assert_close(benchmark.dense_tensor(seen), products.mean(0), rtol=0, atol=1e-13)


def test_a_batch_that_only_one_side_finds_is_not_timed(benchmark, tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "FOUND", 1e-30)
    monkeypatch.setattr(benchmark, "DESCENTS", 1)
    with pytest.raises(benchmark.Disagreement, match="fails 1 times in a row"):
        benchmark.attack("matching", tiny.matching, 1, 1, tiny).check()
    monkeypatch.setattr(
        benchmark, "matched", lambda seen, batch, draws: benchmark.recover(seen, batch=2, generator=draws)
    )
    with pytest.raises(benchmark.Disagreement, match="not every batch is found"):
        benchmark.attack("matching", tiny.matching, 1, 1, tiny).check()


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    promised = {case.id: case.needed for case in benchmark.cases(benchmark.PAPER)}
    assert promised == benchmark.NEEDED
    assert (promised["tensor"].ratio, promised["span"].ratio, promised["matching"].ratio) == (200, 10, 5)
    assert {str(case.needed) for case in benchmark.cases(tiny)} == {""}


def test_a_problem_is_fixed_by_its_name(benchmark):
    one, same, other = (benchmark.problem(id, 2, 5, 9, activation="tanh", bias=0.0)[0] for id in ("a", "a", "b"))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert stream(0, "a").initial_seed() != stream(0, "b").initial_seed()
