"""The benchmark of chapter kkt_margin compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import pytest
import torch

import benchmark_runs
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE

benchmark = benchmark_runs.module("kkt_margin")


@pytest.fixture(scope="module")
def tiny(benchmark):
    return benchmark.Sizes(
        rows=10,
        rate=0.01,
        wide=(30, 20, 5, 3),
        path=(60, 100),
        margin=3.0,
        far=(10**4, 10, 2, 5),
        fresh=6,
        near=(50, 2),
        checked=(150, 20, 8, 200),
        problems=3,
        neurons=(200, 2000),
        rounds=2,
    )


def test_every_comparison_is_checked_measured_and_recorded(benchmark, tiny, tmp_path):
    record, page = benchmark_runs.recorded(benchmark, tiny, tmp_path)
    assert [row["id"] for row in record["rows"]] == ["step", "path", "far", "optimum"]
    for row, evidence in zip(record["rows"], ("same values", "same path", "same law", "same optimum"), strict=True):
        assert evidence in row["note"]
    assert "autograd on the weights" in page


def test_autograd_takes_the_step_that_is_due_by_hand(benchmark):
    start = TwoLayer(*(torch.tensor(values, dtype=DTYPE) for values in ([[0.5]], [0.5], [1.0])))
    after = benchmark.by_autograd(
        start, torch.tensor([[2.0]], dtype=DTYPE), torch.ones(1, dtype=DTYPE), steps=1, rate=0.1
    )
    pull = 0.1 * float(torch.sigmoid(torch.tensor(-1.5, dtype=DTYPE)))
    assert [float(part) for part in benchmark.parts(after)] == pytest.approx(
        [0.5 + 2 * pull, 0.5 + pull, 1 + 1.5 * pull]
    )
    assert start.weights.item() == 0.5


@pytest.mark.parametrize(
    ("case", "name", "complaint"),
    [("step", "train", "the values differ"), ("path", "train", "the directions differ")],
)
def test_networks_that_differ_are_not_timed(benchmark, tiny, monkeypatch, case, name, complaint):
    right = getattr(benchmark.margin_flow, name)

    def wrong(model, points, labels, recipe):
        trained = right(model, points, labels, recipe)
        if recipe.learning_rate is not None:
            trained.model.weights.mul_(3)
        return trained

    monkeypatch.setattr(benchmark.margin_flow, name, wrong)
    with pytest.raises(benchmark.Disagreement, match=complaint):
        getattr(benchmark, case)(tiny).check()


def test_answers_of_another_law_are_not_timed(benchmark, tiny, monkeypatch):
    right = benchmark.fresh_outputs
    monkeypatch.setattr(benchmark, "fresh_outputs", lambda *a: 3 * right(*a))
    with pytest.raises(benchmark.Disagreement, match="the laws differ"):
        benchmark.far(tiny).check()


def test_an_optimum_that_training_beats_is_none(benchmark, tiny, monkeypatch):
    right = benchmark.optimum.univariate

    def louder(*problem):
        found = right(*problem)
        worse = TwoLayer(*(1.2 * part for part in benchmark.parts(found.model)))
        return benchmark.optimum.Optimum(worse, found.multipliers, found.gap)

    monkeypatch.setattr(benchmark.optimum, "univariate", louder)
    with pytest.raises(benchmark.Disagreement, match="exceed the least norm"):
        benchmark.optima(tiny).check()


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    benchmark_runs.assert_promises_are_of_cases(benchmark, tiny)
    assert (benchmark.NEEDED["step"].ratio, benchmark.NEEDED["far"].seconds) == (40, 10)
