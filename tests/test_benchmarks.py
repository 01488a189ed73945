"""What all benchmarks share: sides that agree are timed in turns, promises are judged, and records name their origin.

Times are never asserted: they belong to a machine.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import benchmark_runs

timing = benchmark_runs.module("timing")


@pytest.fixture
def toy(timing):
    """A benchmark whose one case adds numbers; its sizes are how many, and what their side is off by."""

    def cases(sizes):
        count, fault = sizes
        numbers = np.arange(1.0, count)
        ours, theirs = (lambda: numbers.sum()), (lambda: sum(numbers) + fault)
        yield timing.Case(
            id="sum",
            what=f"the sum of {count} numbers",
            unit="sum",
            ours=timing.Side("at once", ours, calls=200),
            theirs=timing.Side("one by one", theirs, calls=20),
            check=lambda: timing.equal(ours(), theirs()),
            rounds=2,
        )

    return timing.Benchmark("toy", "Sums", cases, (3000, 0.0), {"sum": 1e9})


def test_a_record_says_where_it_comes_from(toy, timing, tmp_path):
    record = benchmark_runs.recorded(SimpleNamespace(BENCHMARK=toy), (2000, 0.0), tmp_path)
    assert {"title", "date", "commit", "cpu", "threads", "clock", "versions", "rows"} == set(record)
    assert record["threads"] == 1
    assert record["cpu"]
    assert all(f"{name} " in record["versions"] for name in ("python", "torch", "numpy", "scipy"))
    (row,) = record["rows"]
    assert row["least"] <= row["ratio"] <= row["most"]
    assert (row["rounds"], row["agreement"][:11]) == (2, "same values")
    assert json.loads((tmp_path / "book/records/performance.toy.json").read_text("utf-8")) == record


def test_nothing_is_written_unless_asked(toy, tmp_path, capsys):
    assert toy.run([], sizes=(2000, 0.0), root=tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert "the sum of 2000 numbers" in capsys.readouterr().out


def test_a_broken_promise_is_the_exit_status(toy, tmp_path, capsys):
    assert toy.run([], root=tmp_path) == 1
    assert "≥ 1e+09× ✗" in capsys.readouterr().out


def test_sides_that_differ_are_not_timed(toy, timing, tmp_path):
    with pytest.raises(timing.Disagreement, match="the values differ by"):
        toy.run([], sizes=(10, 1e-6), root=tmp_path)


def test_one_thread_is_only_for_a_while(timing):
    before = torch.get_num_threads()
    with timing.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_the_processor_is_named(timing, tmp_path):
    information = tmp_path / "cpuinfo"
    information.write_text("processor\t: 0\nmodel name\t: Some Chip 9\n", "utf-8")
    assert timing.processor(information) == "Some Chip 9"
    assert timing.processor(tmp_path / "absent")
