"""The benchmarks of the chapters compare like with like and refuse to time what differs: one table of them all.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import json
import re
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

import benchmark_runs
from leakage.models.mlp import Mlp
from leakage.models.two_layer import TwoLayer
from leakage.theory.least_squares import Design
from reproduced.studies.min_norm.latent_space import LatentSpace

NAMES = ("audit", "blessing", "gradient_inversion", "kkt_margin", "min_norm", "polytopes")
audit, blessing, gradient_inversion, kkt_margin, min_norm, polytopes = map(benchmark_runs.module, NAMES)
ordinary, timing = benchmark_runs.module("ordinary_models"), benchmark_runs.module("timing")


class Line(NamedTuple):
    """A benchmark at small sizes.

    Attributes:
        sizes: its settings.
        evidence: what the record says of the two sides of each comparison, by its name without a width.
        planted: comparison, function that our side calls, its spoilt form, and what the check says then.
    """

    sizes: dict[str, Any]
    evidence: dict[str, str]
    planted: tuple[tuple[Any, ...], ...] = ()


def spoilt(spoil, *, ours=lambda *arguments, **options: True):
    """A form of a function: what it answers our side is spoilt."""
    return lambda right: lambda *a, **k: spoil(right(*a, **k)) if ours(*a, **k) else right(*a, **k)


def times(factor, *names, **whose):
    """An answer that is multiplied, or parts of it are."""
    return spoilt(lambda x: change(x, **{n: factor * getattr(x, n) for n in names}) if names else factor * x, **whose)


def change(found, **parts):
    return found._replace(**parts) if hasattr(found, "_replace") else replace(found, **parts)


def louder(factors, **whose):
    """A trained network whose weights, biases and outputs are multiplied."""
    return spoilt(lambda x: change(x, model=TwoLayer(*map(torch.mul, parts(x.model), factors))), **whose)


def parts(model):
    return model.weights, model.biases, model.outputs


def later(right):
    """The crossing behind the one that is asked for."""

    def cross(*arguments, crossings):
        found = right(*arguments, crossings=crossings + 1)
        return change(found, lengths=found.lengths[..., 1:])

    return cross


def biased(found):
    return Mlp(found.weights, tuple(2 * bias for bias in found.biases))


def moved(found):
    found.vertices.mul_(1.001)
    return found


NOT_BY_RATE = louder((3, 1, 1), ours=lambda *a: a[-1].learning_rate is not None)
NOT_ITERATED = times(1 + 1e-6, "alpha", ours=lambda *_, **k: "method" not in k)
IN_ROWS = times(1.01, "distances", ours=lambda *_, settings: settings.space == "row")
TABLE = {
    "audit": Line(
        dict(data="digits", rows=150, models=6, iterations=300, trees=3, fprs=(0.05, 0.1), calls=1, rounds=1, few=1),
        dict(lira="the loop 0", own="same values", rmia="same values", roc="same values", end="the same halves"),
        (
            ("lira", "lira", times(-1), "the loop finds more"),
            ("own", "lira", times(1.01), "the values differ"),
            ("rmia", "rmia", times(1.01), "the values differ"),
            ("roc", "rates", spoilt(lambda x: {name: 0.99 * value for name, value in x.items()}), "the values differ"),
        ),
    ),
    "blessing": Line(
        dict(panel=(2, 3), nodes=(301,), settings=8, iterations=50, trial=(100, 200, 600, 2, 1), points=2)
        | dict(checked=(30, 60, 180, 50, 200), left_out=(120, 24, 120, 2), training=(2, 30, 16, 12, 5, 3, 8))
        | dict(private=(2, 6, 12, 5, 3), private_steps=2, machines=(3, 12, 40), rounds=1),
        dict(advantage="same advantages", system="ours solves all", trial="on the same rows", left_out="same outputs")
        | dict(training="same values", private="same values", machines="same machines"),
        (
            ("advantage", "average_advantage", times(1.1), "same advantages"),
            ("system", "solve", NOT_ITERATED, "same solutions"),
            (
                "trial",
                "logistic_regression.predict_with_point",
                spoilt(lambda x: change(x, outputs=x.without)),
                "same rows",
            ),
            ("trial", "sample", spoilt(lambda x: change(x, outputs=2 + x.outputs)), "the laws differ"),
            ("left_out", "logistic_regression.leave_one_out", times(-1, "without"), "outputs"),
            ("training", "ensembles.train", spoilt(biased), "the values differ"),
            ("private", "dp_sgd.clipped_gradient_sum", spoilt(lambda x: [2 * part for part in x]), "the values differ"),
            ("machines", "hard_margin", spoilt(lambda x: change(x, dual=x.dual.square())), "same machines"),
        ),
    ),
    "gradient_inversion": Line(
        dict(tensor=(2, 6, 50), repeats=2, span=(3, 20, 60), matching=(2, 10, 120), batches=1)
        | dict(images=(2, 12, 120), layers=(6, 40, 5), own=(1, 2), steps=120, rounds=1),
        dict(tensor="same values", span="same values", matching="same batches", images="same batches")
        | dict(own="same batch"),
    ),
    "kkt_margin": Line(
        dict(rows=10, rate=0.01, wide=(30, 20, 5, 3), path=(60, 100), margin=3.0, far=(10**4, 10, 2, 5), fresh=6)
        | dict(near=(50, 2), checked=(150, 20, 8, 200), problems=2, neurons=(200, 2000), rounds=1),
        dict(step="same values", path="same path", far="same law", optimum="same optimum"),
        (
            ("step", "margin_flow.train", NOT_BY_RATE, "the values differ"),
            ("path", "margin_flow.train", NOT_BY_RATE, "the directions differ"),
            ("far", "fresh_outputs", times(3), "the laws differ"),
            ("optimum", "max_margin.optimum_on_line", louder((1.2,) * 3), "exceed the least norm"),
        ),
    ),
    "min_norm": Line(
        dict(linear=Design(n=8, D=100, sigma=1.0), widths=(10, 12, 16, 24, 60, 90, 100), points=2, trials=50)
        | dict(shown=(10, 24, 90), mu=3.0, nodes=(12, 32, 3), latent=LatentSpace(n=12, d=3, sigma=1.0), few=1)
        | dict(latent_widths=(16, 40), relu=Design(n=8, D=30, sigma=1.0), relu_widths=(10, 12, 20), batch=2000)
        | dict(calls=2, checked=100, rounds=1),
        dict.fromkeys(("ls", "ridge", "fig2b", "sweep", "latent", "relu"), r"same law: p = |same values: up to "),
        (
            ("ls.24", "least_squares_theory.sample_outsider", times(3), "the laws differ"),
            ("sweep", "nested_min_norm", times(1 + 1e-6), "the values differ"),
        ),
    ),
    "polytopes": Line(
        dict(hidden=(6, 5), reach=5.0, cells=2, side=30, widths=(12, 6, 3), points=20, steps=60, rounds=1),
        dict(programs="same polytopes", pixels="same window", rows="same window", rays="same first crossing")
        | dict.fromkeys(("norms", "projections", "differentiated"), "same values"),
        (
            ("programs", "subdivide", spoilt(moved), "the polytopes differ"),
            ("pixels", "other_algorithms.number_pixels", spoilt(lambda _: torch.arange(10_000)), "pixels see 10000"),
            ("rays", "rays.ray_crossings", later, "an earlier crossing"),
            ("norms", "jacobian_norm", times(1.01), "the values differ"),
            ("projections", "deepfool", IN_ROWS, "the values differ"),
        ),
    ),
}


@pytest.fixture
def loaded(request, name):
    """A benchmark, and its small sizes."""
    benchmark = request.getfixturevalue(name)
    return benchmark, benchmark.Sizes(**TABLE[name].sizes)


@pytest.mark.parametrize("name", NAMES)
def test_every_comparison_is_checked_measured_and_recorded(loaded, name, tmp_path):
    record = benchmark_runs.recorded(*loaded, tmp_path)
    ids = [row["id"].partition(".")[0] for row in record["rows"]]
    assert list(dict.fromkeys(ids)) == list(TABLE[name].evidence)
    if name == "min_norm":
        assert ids == ["ls"] * 3 + ["ridge"] * 3 + ["fig2b", "sweep"] + ["latent"] * 2 + ["relu"]
    for id, row in zip(ids, record["rows"], strict=True):
        assert re.search(TABLE[name].evidence[id], row["agreement"])


@pytest.mark.parametrize(
    ("name", "case", "target", "form", "complaint"),
    [(name, *planted) for name, line in TABLE.items() for planted in line.planted],
)
def test_what_differs_is_not_timed(loaded, name, case, target, form, complaint, timing, monkeypatch):
    benchmark, sizes = loaded
    *room, function = target.split(".")
    owner = getattr(benchmark, room[0]) if room else benchmark
    monkeypatch.setattr(owner, function, form(getattr(owner, function)))
    with pytest.raises(timing.Disagreement, match=complaint):
        next(one for one in benchmark.cases(sizes) if one.id.startswith(case)).check()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_promised_is_compared_and_was_kept_in_the_record(loaded, name):
    benchmark, sizes = loaded
    record = json.loads((benchmark_runs.ROOT / benchmark.BENCHMARK.path).read_text("utf-8"))
    assert record["title"] == benchmark.BENCHMARK.title
    ratios = {row["id"]: row["ratio"] for row in record["rows"]}
    assert all(ratios[id] >= least for id, least in benchmark.PROMISED.items())
    assert {id.partition(".")[0] for id in ratios} == {case.id.partition(".")[0] for case in benchmark.cases(sizes)}
