"""How growth is measured: power laws are found, curves end when they are slow, and methods agree first.

Times are never asserted: they belong to a machine.
"""

import json
import math
import os
import sys
from dataclasses import replace

import numpy as np
import pytest

import benchmark_runs

growing, growth, growth_axes = map(benchmark_runs.module, ("growing", "growth", "growth_axes"))
timing = benchmark_runs.module("timing")
SIZES = (100, 200, 400, 800, 1600)
IDS = (
    "kkt_margin.step.d",
    "kkt_margin.step.n",
    "blessing.trial.p",
    "blessing.left_out.n",
    "blessing.training.models",
    "gradient_inversion.tensor.d",
    "gradient_inversion.span.d",
    "gradient_inversion.attack.m",
    "polytopes.cut.neurons",
    "min_norm.law.n",
    "min_norm.law.D",
    "min_norm.nested.widths",
    "audit.curves.points",
    "audit.ratios.models",
)


@pytest.fixture
def brief(growing, monkeypatch):
    """A machine that is measured in no time: what is asserted of a run is not what it measures."""
    monkeypatch.setattr(growing, "_MATRIX", 64)
    monkeypatch.setattr(growing, "_COPIED", 2**12)
    monkeypatch.setattr(growing, "_LASTING", 1e-3)


@pytest.fixture
def toy(growing):
    """One axis: sums of n numbers, at once and one by one."""

    def at_once(n):
        numbers = np.ones(n)
        return lambda: numbers.sum(), 1

    def one_by_one(n):
        numbers = np.ones(n)
        return lambda: sum(numbers), 1

    linear, none = growing.Law(1, "each is read", note="a toy"), growing.Law(0, "a sum", note="a toy")
    return growing.Axis(
        id="toy.sum.n",
        chapter="toy",
        what="a sum",
        along="numbers n",
        unit="sum",
        ours=growing.Curve("at once", at_once, SIZES, linear, none),
        theirs=(growing.Curve("one by one", one_by_one, SIZES[:4], linear, none),),
        check=lambda n: f"{n} numbers",
        checked=10,
        flops=growing.Work("n", float),
        traffic=growing.Work("8 n", lambda n: 8.0 * n),
    )


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5, -1.0])
def test_the_exponent_of_a_power_law_is_found(growing, exponent):
    found = growing.fit(SIZES, [3e-4 * size**exponent for size in SIZES])
    assert found == pytest.approx((exponent,) * 3, abs=1e-9)  # rounding


def test_the_interval_of_an_exponent_covers_it(growing):
    draws, covered, trials = np.random.default_rng(0), 0, 600
    for _ in range(trials):
        found = growing.fit(SIZES, [size**1.5 * math.exp(0.1 * draws.standard_normal()) for size in SIZES])
        covered += found.low < 1.5 < found.high
    assert 0.93 < covered / trials < 0.97


@pytest.mark.parametrize(("sizes", "values"), [((1, 2), (1.0, 2.0)), ((1, 2, 4), (0.0, 1.0, 2.0)), ((), ())])
def test_what_has_no_exponent_is_refused(growing, sizes, values):
    with pytest.raises(ValueError, match="3 or more and positive"):
        growing.fit(sizes, values)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is read from Linux")
def test_the_peak_is_that_of_the_call_alone(growing):
    held, asked = np.ones(2**22), 2**24
    found, spent = growing.peak(lambda: np.ones(asked // 8))
    assert spent > 0
    assert asked - growing.FLOOR <= found < asked + 4 * growing.FLOOR  # the kernel counts late
    assert len(held) == 2**22


def test_a_run_is_recorded(growth, brief, toy, tmp_path, capsys):
    assert growth.run(["--record"], axes=lambda: [toy], root=tmp_path) == 0
    assert "toy.sum.n: a sum, in numbers n; 10 numbers" in capsys.readouterr().out
    record = json.loads((tmp_path / growth.PATH).read_text("utf-8"))
    assert {"date", "commit", "cpu", "threads", "clock", "versions", "memory", "peak"} < set(record)
    (axis,) = record["axes"]
    assert [(curve["side"], curve["sizes"]) for curve in axis["curves"]] == [
        ("ours", list(SIZES)),
        ("theirs", list(SIZES[:4])),
    ]
    assert axis["flops_share"] > 0
    assert axis["curves"][0]["time"]["fitted"] == 4
    assert axis["curves"][0]["memory"]["exponent"] is None  # far less than what is counted in pages


def test_nothing_is_written_unless_asked(growth, brief, toy, tmp_path):
    assert growth.run(["--only", "nothing"], axes=lambda: [toy], root=tmp_path) == 0
    assert os.listdir(tmp_path) == []


def test_a_curve_ends_where_a_unit_takes_too_long(growing, toy, monkeypatch):
    monkeypatch.setattr(growing, "LONGEST", 0.0)
    monkeypatch.setattr(growing, "_LASTING", 1e-3)
    rows = []
    list(growing.lines([toy], {"float64": 1.0, "copy": 1.0}, rows))
    assert [curve["sizes"] for curve in rows[0]["curves"]] == [[100], [100]]
    assert rows[0]["curves"][0]["time"]["exponent"] is None


def test_an_exponent_far_from_the_theory_needs_a_note(growing):
    def row(exponent, note):
        found = {"exponent": exponent, "theory": 1.0, "note": note}
        return {"id": "x", "curves": [{"method": "m", "time": found, "memory": {**found, "exponent": None}}]}

    assert list(growing.unexplained([row(1.2, "")])) == ["x, m: time 1.20, not 1"]
    assert not list(growing.unexplained([row(1.2, "overhead"), row(1.1, ""), row(None, "")]))


def test_the_axes_are_those_of_all_chapters(growth_axes):
    axes = list(growth_axes.axes())
    assert tuple(axis.id for axis in axes) == IDS
    for axis in axes:
        for curve in (axis.ours, *axis.theirs):
            assert curve.sizes[-1] >= 16 * curve.sizes[0]
            assert len(curve.sizes) >= 5
            assert axis.flops.at(axis.ours.sizes[0]) > 0
            assert axis.traffic.at(axis.ours.sizes[0]) > 0


@pytest.mark.parametrize("name", IDS)
def test_the_methods_of_an_axis_agree(growth_axes, name):
    (axis,) = (axis for axis in growth_axes.axes() if axis.id == name)
    assert axis.check(axis.checked)


def test_methods_that_differ_are_not_measured(growing, timing, toy):
    def differs(size):
        raise timing.Disagreement("they differ")

    with pytest.raises(timing.Disagreement, match="they differ"):
        list(growing.lines([replace(toy, check=differs)], {"float64": 1.0, "copy": 1.0}, []))
