"""Benchmarks compare like with like, refuse to time what differs, and keep their records.

Times are never asserted: they belong to a machine.
"""

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from leakage.membership.table import ATTACKS
from reproduced.papers.min_norm.latent_space import LatentSpace
from reproduced.papers.min_norm.least_squares import Design

ROOT = Path(__file__).parents[1]


def module(name):
    """A fixture: benchmarks/`name`.py, loaded with its own folder on the path, as `python benchmarks/…` has it."""

    @pytest.fixture(scope="module")
    def load():
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(ROOT / "benchmarks")
            yield importlib.import_module(name)

    return load


NAMES = ("audit", "blessing", "gradient_inversion", "kkt_margin", "min_norm", "polytopes")
audit, blessing, gradient_inversion, kkt_margin, min_norm, polytopes = map(module, NAMES)
growth, timing = map(module, ("growth", "timing"))


def write_record(benchmark, sizes, root):
    """The record that `--record` writes under `root` in a run of these sizes."""
    assert benchmark.BENCHMARK.run(["--record"], sizes=sizes, root=root) == 0
    return json.loads((root / benchmark.BENCHMARK.path).read_text("utf-8"))


# ── any benchmark ────────────────────────────────────────────────────────────────────────────────────────────────────


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


def test_a_record_says_where_it_comes_from(toy, tmp_path):
    record = write_record(SimpleNamespace(BENCHMARK=toy), (2000, 0.0), tmp_path)
    assert {"title", "date", "commit", "cpu", "threads", "clock", "versions", "rows"} == set(record)
    assert record["threads"] == 1
    assert record["cpu"]
    assert all(f"{name} " in record["versions"] for name in ("python", "torch", "numpy", "scipy"))
    (row,) = record["rows"]
    assert row["least"] <= row["ratio"] <= row["most"]
    assert (row["rounds"], row["agreement"][:11]) == (2, "same values")


def test_a_broken_promise_is_the_exit_status(toy, tmp_path, capsys):
    assert toy.run([], root=tmp_path) == 1
    assert "≥ 1e+09× ✗" in capsys.readouterr().out


def test_sides_that_differ_are_not_timed(toy, timing, tmp_path):
    with pytest.raises(timing.Disagreement, match="the values differ by"):
        toy.run([], sizes=(10, 1e-6), root=tmp_path)


# ── the chapters' benchmarks ─────────────────────────────────────────────────────────────────────────────────────────


class Line(NamedTuple):
    """A benchmark at small sizes.

    Attributes:
        sizes: its settings.
        evidence: what the record says of the two sides of each comparison, by its name without a width.
        planted: a comparison, a function that our side calls, a factor on its result, and what the check then says.
    """

    sizes: dict[str, Any]
    evidence: dict[str, str]
    planted: tuple[str, str, float, str] | None = None


TABLE = {
    "audit": Line(
        dict(data="digits", rows=150, models=6, iterations=300, trees=3, fprs=(0.05, 0.1), calls=1, rounds=1, few=1),
        dict(lira="the loop 0", own="same values", rmia="same values", roc="same values", end="the same halves"),
        ("rmia", "rmia", 1.01, "the values differ"),
    ),
    "blessing": Line(
        dict(panel=(2, 3), nodes=(301,), trial=(100, 200, 600, 2, 1), points=2, left_out=(120, 24, 120, 2))
        | dict(checked=(30, 60, 180, 50, 200), training=(2, 30, 16, 12, 5, 3, 8), private=(2, 6, 12, 5, 3))
        | dict(private_steps=2, rounds=1),
        dict(advantage="same advantages", trial="on the same rows", left_out="same outputs", training="same values")
        | dict(private="same values"),
        ("advantage", "average_advantage", 1.1, "same advantages"),
    ),
    "gradient_inversion": Line(
        dict(tensor=(2, 6, 50), repeats=2, span=(3, 20, 60), matching=(2, 10, 120), batches=1)
        | dict(images=(2, 12, 120), layers=(6, 40, 5), own=(1, 2), steps=120, rounds=1),
        dict(tensor="same values", span="same values", matching="same batches", images="same batches")
        | dict(own="same batch"),
    ),
    "kkt_margin": Line(
        dict(rows=10, rate=0.01, wide=(30, 20, 5, 3), far=(10**4, 10, 2, 5), fresh=6, near=(50, 2))
        | dict(checked=(150, 20, 8, 200), problems=2, neurons=(200, 2000), rounds=1),
        dict(step="same values", far="same law", optimum="same optimum"),
        ("far", "fresh_outputs", 3, "the laws differ"),
    ),
    "min_norm": Line(
        dict(linear=Design(n=8, D=100, sigma=1.0), widths=(10, 12, 16, 24, 60, 90, 100), points=2, trials=50)
        | dict(shown=(10, 24, 90), mu=3.0, nodes=(12, 32, 3), latent=LatentSpace(n=12, d=3, sigma=1.0), few=1)
        | dict(latent_widths=(16, 40), relu=Design(n=8, D=30, sigma=1.0), relu_widths=(10, 12, 20), batch=2000)
        | dict(calls=2, checked=100, rounds=1),
        dict.fromkeys(("ls", "ridge", "fig2b", "sweep", "latent", "relu"), r"same law: p = |same values: up to "),
        ("sweep", "nested_min_norm", 1 + 1e-6, "the values differ"),
    ),
    "polytopes": Line(
        dict(hidden=(6, 5), reach=5.0, cells=2, side=30, widths=(12, 6, 3), points=20, steps=60, rounds=1),
        dict(programs="same polytopes", pixels="same window", rays="same first crossing")
        | dict.fromkeys(("norms", "differentiated"), "same values"),
        ("norms", "jacobian_norm", 1.01, "the values differ"),
    ),
}


@pytest.fixture
def loaded(request, name):
    """A benchmark, and its small sizes."""
    benchmark = request.getfixturevalue(name)
    return benchmark, benchmark.Sizes(**TABLE[name].sizes)


@pytest.mark.parametrize("name", NAMES)
def test_every_comparison_is_checked_measured_and_recorded(loaded, name, tmp_path):
    record = write_record(*loaded, tmp_path)
    ids = [row["id"].partition(".")[0] for row in record["rows"]]
    assert list(dict.fromkeys(ids)) == list(TABLE[name].evidence)
    for id, row in zip(ids, record["rows"], strict=True):
        assert re.search(TABLE[name].evidence[id], row["agreement"])


@pytest.mark.parametrize("name", [name for name, line in TABLE.items() if line.planted])
def test_a_planted_difference_is_not_timed(loaded, name, timing, monkeypatch):
    benchmark, sizes = loaded
    case, function, factor, complaint = TABLE[name].planted
    right = getattr(benchmark, function)
    monkeypatch.setattr(benchmark, function, lambda *inputs, **options: factor * right(*inputs, **options))
    with pytest.raises(timing.Disagreement, match=complaint):
        next(one for one in benchmark.cases(sizes) if one.id.startswith(case)).check()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_promised_is_compared_and_was_kept_in_the_record(loaded, name):
    benchmark, sizes = loaded
    record = json.loads((ROOT / benchmark.BENCHMARK.path).read_text("utf-8"))
    assert record["title"] == benchmark.BENCHMARK.title
    ratios = {row["id"]: row["ratio"] for row in record["rows"]}
    assert all(ratios[id] >= least for id, least in benchmark.PROMISED.items())
    assert {id.partition(".")[0] for id in ratios} == {case.id.partition(".")[0] for case in benchmark.cases(sizes)}


def test_the_table_of_costs_names_every_attack():
    lines = (ROOT / "benchmarks/attack_costs.md").read_text("utf-8").splitlines()
    assert {line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")} > ATTACKS.keys()


# ── growth ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_exponent_of_a_power_law_is_found(growth):
    sizes = (100, 200, 400, 800)
    assert growth.exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_the_methods_of_every_axis_agree_and_the_record_has_them_all(growth):
    record = json.loads((growth.ROOT / growth.PATH).read_text("utf-8"))
    assert [axis["id"] for axis in record["axes"]] == [axis.id for axis in growth.AXES]
    for axis, kept in zip(growth.AXES, record["axes"], strict=True):
        assert axis.case(axis.checked).check()
        assert [curve["method"] for curve in kept["curves"]] == [curve.method for curve in axis.curves]
