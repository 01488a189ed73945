"""How growth is measured: power laws are found, curves end when they are slow, and methods agree first.

Times are never asserted: they belong to a machine.
"""

import json
import math
import sys

import numpy as np
import pytest

import benchmark_runs

growing, growth = map(benchmark_runs.module, ("growing", "growth"))
timing = benchmark_runs.module("timing")
SIZES = (100, 200, 400, 800, 1600)


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
        what="a sum",
        along="numbers n",
        unit="sum",
        ours=growing.Curve("at once", at_once, SIZES, linear, none),
        theirs=(growing.Curve("one by one", one_by_one, SIZES[:4], linear, none),),
        check=lambda n: f"{n} numbers",
        checked=10,
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is read from Linux")
def test_the_peak_is_that_of_the_call_alone(growing):
    held, asked = np.ones(2**22), 2**24
    found, spent = growing.peak(lambda: np.ones(asked // 8))
    assert spent > 0
    assert asked - growing.FLOOR <= found < asked + 4 * growing.FLOOR  # the kernel counts late
    assert len(held) == 2**22


def test_a_run_is_recorded(growing, growth, toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growing, "_LASTING", 1e-3)
    assert growth.run(["--record"], axes=[lambda: toy], root=tmp_path) == 0
    assert "toy.sum.n: a sum, in numbers n; 10 numbers" in capsys.readouterr().out
    record = json.loads((tmp_path / growth.PATH).read_text("utf-8"))
    assert {"date", "commit", "cpu", "threads", "clock", "versions", "memory"} < set(record)
    (axis,) = record["axes"]
    ours, theirs = axis["curves"]
    assert (ours["side"], ours["sizes"], theirs["side"], theirs["sizes"]) == ("ours", [*SIZES], "theirs", [*SIZES[:4]])
    assert ours["time"]["fitted"] == 4
    assert ours["memory"]["exponent"] is None  # far less than what is counted in pages


def test_a_curve_ends_where_a_unit_takes_too_long(growing, toy, monkeypatch):
    monkeypatch.setattr(growing, "LONGEST", 0.0)
    monkeypatch.setattr(growing, "_LASTING", 1e-3)
    curves = growing.measured(toy)["curves"]
    assert [curve["sizes"] for curve in curves] == [[100], [100]]
    assert curves[0]["time"]["exponent"] is None


def test_an_exponent_far_from_the_theory_needs_a_note(growing):
    def row(exponent, note):
        found = {"exponent": exponent, "theory": 1.0, "note": note}
        return {"id": "x", "curves": [{"method": "m", "time": found, "memory": {**found, "exponent": None}}]}

    assert list(growing.unexplained([row(1.2, "")])) == ["x, m: time 1.20, not 1"]
    assert not list(growing.unexplained([row(1.2, "overhead"), row(1.1, ""), row(None, "")]))


def test_the_methods_of_every_axis_agree_and_the_record_has_them_all(growth):
    axes = [make() for make in growth.AXES]
    record = json.loads((growth.ROOT / growth.PATH).read_text("utf-8"))
    assert [axis["id"] for axis in record["axes"]] == [axis.id for axis in axes]
    for axis, kept in zip(axes, record["axes"], strict=True):
        assert axis.check(axis.checked)
        assert [curve["method"] for curve in kept["curves"]] == [axis.ours.method, *(one.method for one in axis.theirs)]
