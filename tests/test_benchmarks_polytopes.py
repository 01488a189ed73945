"""The benchmark of chapter polytopes compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import pytest
import torch

import benchmark_runs

benchmark = benchmark_runs.module("polytopes")


@pytest.fixture(scope="module")
def tiny(benchmark):
    return benchmark.Sizes(hidden=(6, 5), reach=5.0, cells=2, side=30, widths=(12, 6, 3), points=20, steps=60, rounds=2)


def test_every_comparison_is_checked_measured_and_recorded(benchmark, tiny, tmp_path):
    record, page = benchmark_runs.recorded(benchmark, tiny, tmp_path)
    assert [row["id"] for row in record["rows"]] == [
        "programs",
        "pixels",
        "rows",
        "rays",
        "norms",
        "projections",
        "differentiated",
    ]
    evidence = ("same polytopes", *["same window"] * 2, "same first crossing", *["same values"] * 3)
    for row, words in zip(record["rows"], evidence, strict=True):
        assert words in row["note"]
    assert "two linear programs for each edge" in page


def test_cells_that_are_moved_are_not_timed(benchmark, tiny, monkeypatch):
    right = benchmark.subdivide

    def moved(network, window):
        fine = right(network, window)
        fine.vertices.mul_(1.001)
        return fine

    monkeypatch.setattr(benchmark, "subdivide", moved)
    with pytest.raises(benchmark.Disagreement, match="the polytopes differ"):
        benchmark.programs(tiny).check()


def test_fewer_cells_than_pixels_see_are_not_timed(benchmark, tiny, monkeypatch):
    monkeypatch.setattr(benchmark.brute_force, "by_pixels", lambda *_, side: torch.arange(10_000).view(100, 100))
    with pytest.raises(benchmark.Disagreement, match="pixels see 10000 patterns"):
        benchmark.pixels(tiny).check()


def test_a_crossing_that_is_not_the_first_is_not_timed(benchmark, tiny, monkeypatch):
    right = benchmark.rays.walk

    def late(*arguments, crossings):
        found = right(*arguments, crossings=crossings + 1)
        return found._replace(lengths=found.lengths[..., 1:])

    monkeypatch.setattr(benchmark.rays, "walk", late)
    with pytest.raises(benchmark.Disagreement, match="an earlier crossing"):
        benchmark.first_rays(tiny).check()


def test_norms_and_distances_that_differ_are_not_timed(benchmark, tiny, monkeypatch):
    right = benchmark.frobenius_norm
    monkeypatch.setattr(benchmark, "frobenius_norm", lambda *a: 1.01 * right(*a))
    with pytest.raises(benchmark.Disagreement, match="the values differ"):
        benchmark.norms(tiny).check()
    walked = benchmark.deepfool

    def longer(network, points, *, settings):
        found = walked(network, points, settings=settings)
        return found._replace(distances=found.distances * (1.01 if settings.space == "row" else 1.0))

    monkeypatch.setattr(benchmark, "deepfool", longer)
    with pytest.raises(benchmark.Disagreement, match="the values differ"):
        benchmark.projections(tiny).check()


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    benchmark_runs.assert_promises_are_of_cases(benchmark, tiny)
    asked = {name: needed.ratio for name, needed in benchmark.NEEDED.items()}
    assert asked == {"programs": 2000, "pixels": 3, "rows": 5, "rays": 4, "norms": 100, "differentiated": 5}
