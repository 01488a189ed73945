"""The benchmark compares like with like, refuses to time what differs, and leaves a record that the book can show.

Times are never asserted: they belong to a machine.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
import torch

from leakage.pipeline import tables
from leakage.theory.latent_space import LatentSpace
from leakage.theory.least_squares import Design

ROOT = Path(__file__).parents[1]
FIELDS = ["id", "what", "ours", "theirs", "ours_seconds", "theirs_seconds", "ratio", "unit", "note"]


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark as `python benchmarks/min_norm.py` loads it: with its own folder on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import min_norm

        yield min_norm


@pytest.fixture(scope="module")
def timing(benchmark):
    import timing

    return timing


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


@pytest.fixture(scope="module")
def recorded(benchmark, tiny, tmp_path_factory):
    """What `--record` writes in a tiny run, and its exit status."""
    root = tmp_path_factory.mktemp("repository")
    status = benchmark.main(["--record"], sizes=tiny, root=root)
    return json.loads((root / benchmark.RECORD).read_text("utf-8")), status


def test_every_comparison_is_checked_measured_and_recorded(recorded, timing):
    record, status = recorded
    assert status == 0
    assert [row["id"].partition(".")[0] for row in record["rows"]] == (
        ["ls"] * 3 + ["ridge"] * 3 + ["fig2b", "sweep"] + ["latent"] * 2 + ["relu"]
    )
    assert [field.name for field in fields(timing.Row)] == FIELDS
    for row in record["rows"]:
        assert list(row) == FIELDS
        assert min(row["ours_seconds"], row["theirs_seconds"], row["ratio"]) > 0
        assert "same law: p = " in row["note"] or "same values: up to " in row["note"]


def test_a_record_says_where_it_comes_from(recorded):
    record, _ = recorded
    assert {"title", "date", "commit", "cpu", "threads", "clock", "versions", "rows"} == set(record)
    assert record["threads"] == 1
    assert record["cpu"]
    assert all(f"{name} " in record["versions"] for name in ("python", "torch", "numpy", "scipy"))


def test_the_page_on_performance_shows_a_record(recorded):
    record, _ = recorded
    page = tables.performance({"performance.min_norm": record})
    assert "## Parameters or privacy" in page
    assert "draw n × D, lstsq" in page
    assert record["date"] in page


def test_nothing_is_written_unless_asked(benchmark, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "cases", lambda sizes: iter([benchmark.sweep(sizes)]))
    assert benchmark.main([], sizes=tiny, root=tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    assert "one design at 7 widths" in capsys.readouterr().out


def test_a_broken_promise_is_the_exit_status(benchmark, timing, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "cases", lambda sizes: iter([benchmark.sweep(sizes)]))
    monkeypatch.setattr(benchmark, "_needed", lambda id, sizes: timing.Needed(seconds=0.0))
    assert benchmark.main([], sizes=tiny, root=tmp_path) == 1


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


def test_the_paper_sizes_carry_the_promises(benchmark, tiny):
    cases = {case.id: case for case in benchmark.cases(benchmark.PAPER)}
    assert cases["ls.105"].needed.ratio == 2e4
    assert cases["ridge.105"].needed.ratio == 5e2
    assert cases["ridge.3000"].needed.ratio == 1e5
    assert cases["fig2b"].needed.seconds == 10
    assert cases["sweep"].needed.ratio == 15
    assert set(benchmark.NEEDED) <= set(cases)
    assert not any(str(case.needed) for case in benchmark.cases(tiny))


def test_a_promise_is_a_ratio_or_a_time(timing):
    row = timing.Row("x", "x", "x", "x", ours_seconds=2.0, theirs_seconds=30.0, ratio=15.0, unit="x", note="")
    assert timing.Needed(ratio=15).met_by(row)
    assert not timing.Needed(ratio=15.1).met_by(row)
    assert timing.Needed(seconds=2).met_by(row)
    assert not timing.Needed(seconds=1.9).met_by(row)
    assert [str(n) for n in (timing.Needed(ratio=2e4), timing.Needed(seconds=10), timing.Needed())] == [
        "≥ 20,000×",
        "≤ 10 s",
        "",
    ]
    assert list(asdict(row)) == FIELDS


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.48e-7, "148 ns"), (3.456e-3, "3.46 ms"), (1.0, "1 s"), (90, "1.5 min"), (7.9e5, "9.14 d")]
)
def test_a_duration_is_written_in_its_largest_unit(timing, seconds, text):
    assert timing.duration(seconds) == text


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
