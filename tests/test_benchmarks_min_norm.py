"""The benchmark of chapter min_norm compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import numpy as np
import pytest

import benchmark_runs
from leakage.studies.min_norm.latent_space import LatentSpace
from leakage.theory.least_squares import Design

benchmark, timing = benchmark_runs.module("min_norm"), benchmark_runs.module("timing")


@pytest.fixture(scope="module")
def tiny(benchmark):
    return benchmark.Sizes(
        linear=Design(n=8, D=100, sigma=1.0),
        widths=(10, 12, 16, 24, 60, 90, 100),
        points=2,
        trials=50,
        shown=(10, 24, 90),
        mu=3.0,
        nodes=(12, 32, 3),
        latent=LatentSpace(n=12, d=3, sigma=1.0),
        latent_widths=(16, 40),
        relu=Design(n=8, D=30, sigma=1.0),
        relu_widths=(10, 12, 20),
        batch=2000,
        calls=2,
        checked=100,
        rounds=2,
        few=1,
    )


def test_every_comparison_is_checked_measured_and_recorded(benchmark, tiny, tmp_path):
    record, page = benchmark_runs.recorded(benchmark, tiny, tmp_path)
    assert [row["id"].partition(".")[0] for row in record["rows"]] == (
        ["ls"] * 3 + ["ridge"] * 3 + ["fig2b", "sweep"] + ["latent"] * 2 + ["relu"]
    )
    for row in record["rows"]:
        assert "same law: p = " in row["note"] or "same values: up to " in row["note"]
    assert "draw n × D, lstsq" in page


def test_a_law_that_differs_is_not_timed(benchmark, timing, tiny, monkeypatch):
    right = benchmark.least_squares_law.sample_outsider
    monkeypatch.setattr(benchmark.least_squares_law, "sample_outsider", lambda *a, **k: 3 * right(*a, **k))
    with pytest.raises(timing.Disagreement, match="the laws differ"):
        timing.measure(benchmark.least_squares_prediction(tiny, 24))


def test_values_that_differ_are_not_timed(benchmark, timing, tiny, monkeypatch):
    right = benchmark.nested_min_norm
    monkeypatch.setattr(benchmark, "nested_min_norm", lambda *a, **k: right(*a, **k) * (1 + 1e-6))
    with pytest.raises(timing.Disagreement, match="the values differ"):
        timing.measure(benchmark.sweep(tiny))


def test_the_two_ridge_solvers_give_the_same_coefficients(benchmark):
    rng = np.random.default_rng(0)
    for shape in ((6, 4), (6, 6), (6, 9)):
        features, labels = rng.standard_normal(shape), rng.standard_normal(6)
        by_rows = benchmark.ridge_by_rows(0.5)(features, labels)
        np.testing.assert_allclose(benchmark.ridge(0.5)(features, labels), by_rows, rtol=1e-10)


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    benchmark_runs.assert_promises_are_of_cases(benchmark, tiny)
    needed = benchmark.NEEDED
    assert [needed[f"ls.{p}"].ratio for p in (105, 500, 3000)] == [2e4] * 3
    assert (needed["ridge.105"].ratio, needed["ridge.3000"].ratio, needed["sweep"].ratio) == (5e2, 1e5, 15)
    assert needed["fig2b"].seconds == 10
    assert set(needed) <= {case.id for case in benchmark.cases(benchmark.PAPER)}
