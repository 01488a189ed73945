"""The benchmarks of the chapters compare like with like and refuse to time what differs: one table of them all.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import benchmark_runs
from gradient_batches import hermite_tensor
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE, stream
from leakage.studies.min_norm.latent_space import LatentSpace
from leakage.theory.least_squares import Design
from leakage.theory.logistic.output_law import average_advantage

NAMES = ("audit", "blessing", "gradient_inversion", "kkt_margin", "min_norm", "polytopes")
audit, blessing, gradient_inversion, kkt_margin, min_norm, polytopes = map(benchmark_runs.module, NAMES)
ordinary, timing = benchmark_runs.module("ordinary_models"), benchmark_runs.module("timing")


class Line(NamedTuple):
    """A benchmark at small sizes.

    Attributes:
        sizes: its settings.
        evidence: what the record says of the two sides of each comparison, by its name without a width.
        promises: of the project: ratios, or seconds as the page writes them.
        planted: comparison, function that our side calls, its spoilt form, and what the check says then.
    """

    sizes: dict[str, Any]
    evidence: dict[str, str]
    promises: dict[str, float | str]
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

    def walk(*arguments, crossings):
        found = right(*arguments, crossings=crossings + 1)
        return change(found, lengths=found.lengths[..., 1:])

    return walk


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
        dict(lira="the loop 0", own="same values", rmia="same shares", roc="same shares", end="the same halves"),
        {"lira": 50, "end": "≤ 1.2 × theirs"},
        (
            ("lira", "shadow_models.lira", times(-1), "the loop finds more"),
            ("own", "shadow_models.lira", times(1.01), "the values differ"),
            ("rmia", "shadow_models.rmia", times(1.01), "the shares differ"),
            ("roc", "rates", spoilt(lambda x: {name: 0.99 * value for name, value in x.items()}), "the shares differ"),
        ),
    ),
    "blessing": Line(
        dict(panel=(2, 3), nodes=(301,), settings=8, iterations=50, trial=(100, 200, 600, 2, 1), points=2)
        | dict(checked=(30, 60, 180, 50, 200), left_out=(120, 24, 120, 2), training=(2, 30, 16, 12, 5, 3, 8))
        | dict(private=(2, 6, 12, 5, 3), private_steps=2, machines=(3, 12, 40), rounds=1),
        dict(advantage="same advantages", system="ours solves all", trial="on the same rows", left_out="same outputs")
        | dict(training="same values", private="same values", machines="same machines"),
        {"left_out": 50, "private": 20},
        (
            ("advantage", "average_advantage", times(1.1), "same advantages"),
            ("system", "solve", NOT_ITERATED, "same solutions"),
            ("trial", "logistic_regression.with_point", spoilt(lambda x: change(x, outputs=x.without)), "same rows"),
            ("trial", "sample", spoilt(lambda x: change(x, outputs=2 + x.outputs)), "the laws differ"),
            ("left_out", "logistic_regression.leave_one_out", times(-1, "without"), "outputs"),
            ("training", "ensembles.train", spoilt(biased), "the values differ"),
            ("private", "dp_sgd.clipped_sum", spoilt(biased), "the values differ"),
            ("machines", "hard_margin", spoilt(lambda x: change(x, dual=x.dual.square())), "same machines"),
        ),
    ),
    "gradient_inversion": Line(
        dict(tensor=(2, 6, 50), repeats=2, span=(3, 20, 60), matching=(2, 10, 120), batches=1)
        | dict(images=(2, 12, 120), layers=(6, 40, 5), own=(1, 2), steps=120, rounds=1),
        dict(tensor="same values", span="same values", matching="same batches", images="same batches")
        | dict(own="same batch"),
        {"tensor": 200, "span": 10, "matching": 5, "images": 5, "own.1": 100, "own.4": 2},
    ),
    "kkt_margin": Line(
        dict(rows=10, rate=0.01, wide=(30, 20, 5, 3), path=(60, 100), margin=3.0, far=(10**4, 10, 2, 5), fresh=6)
        | dict(near=(50, 2), checked=(150, 20, 8, 200), problems=2, neurons=(200, 2000), rounds=1),
        dict(step="same values", path="same path", far="same law", optimum="same optimum"),
        {"step": 40, "far": "≤ 10 s"},
        (
            ("step", "margin_flow.train", NOT_BY_RATE, "the values differ"),
            ("path", "margin_flow.train", NOT_BY_RATE, "the directions differ"),
            ("far", "fresh_outputs", times(3), "the laws differ"),
            ("optimum", "optimum.univariate", louder((1.2,) * 3), "exceed the least norm"),
        ),
    ),
    "min_norm": Line(
        dict(linear=Design(n=8, D=100, sigma=1.0), widths=(10, 12, 16, 24, 60, 90, 100), points=2, trials=50)
        | dict(shown=(10, 24, 90), mu=3.0, nodes=(12, 32, 3), latent=LatentSpace(n=12, d=3, sigma=1.0), few=1)
        | dict(latent_widths=(16, 40), relu=Design(n=8, D=30, sigma=1.0), relu_widths=(10, 12, 20), batch=2000)
        | dict(calls=2, checked=100, rounds=1),
        dict.fromkeys(("ls", "ridge", "fig2b", "sweep", "latent", "relu"), r"same law: p = |same values: up to "),
        dict.fromkeys(("ls.105", "ls.500", "ls.3000"), 2e4)
        | {"ridge.105": 5e2, "ridge.3000": 1e5, "sweep": 15, "fig2b": "≤ 10 s"},
        (
            ("ls.24", "least_squares_law.sample_outsider", times(3), "the laws differ"),
            ("sweep", "nested_min_norm", times(1 + 1e-6), "the values differ"),
        ),
    ),
    "polytopes": Line(
        dict(hidden=(6, 5), reach=5.0, cells=2, side=30, widths=(12, 6, 3), points=20, steps=60, rounds=1),
        dict(programs="same polytopes", pixels="same window", rows="same window", rays="same first crossing")
        | dict.fromkeys(("norms", "projections", "differentiated"), "same values"),
        {"programs": 2000, "pixels": 3, "rows": 5, "rays": 4, "norms": 100, "differentiated": 5},
        (
            ("programs", "subdivide", spoilt(moved), "the polytopes differ"),
            ("pixels", "brute_force.by_pixels", spoilt(lambda _: torch.arange(10_000)), "pixels see 10000 patterns"),
            ("rays", "rays.walk", later, "an earlier crossing"),
            ("norms", "frobenius_norm", times(1.01), "the values differ"),
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
def test_the_promises_are_those_of_the_project(loaded, name):
    benchmark, sizes = loaded
    cases = list(benchmark.BENCHMARK.promised(sizes))
    assert {str(case.needed) for case in cases} == {""}, "small sizes promise nothing"
    # The paper's sizes may have more widths, and cost too much to prepare here.
    assert {id.partition(".")[0] for id in benchmark.NEEDED} <= {case.id.partition(".")[0] for case in cases}
    promised = {id: needed.ratio or str(needed) for id, needed in benchmark.NEEDED.items()}
    assert all(one if isinstance(one, str) else one >= 1 for one in promised.values())
    others = {"advantage", "system", "trial", "training", "machines", "path", "optimum"}
    assert {id: one for id, one in promised.items() if id.partition(".")[0] not in others} == TABLE[name].promises


def test_what_is_promised_of_minimum_norm_is_compared_at_the_papers_sizes(min_norm):
    assert set(min_norm.NEEDED) <= {case.id for case in min_norm.cases(min_norm.PAPER)}


# ── what the sides are made of ──────────────────────────────────────────────────────────────────────────────────────


def test_the_grid_tends_to_what_the_root_gives(blessing):
    law = blessing.panel_laws(2, 3)
    exact = average_advantage(law, nodes=blessing.TEACHER_NODES)
    errors = [float((blessing.by_grid(law, nodes) - exact).abs().max()) for nodes in (301, 3001)]
    # The kink where the densities cross costs the square of the step.
    assert errors[1] < errors[0] / 30


def test_the_ordinary_regression_is_stationary(ordinary):
    draws = stream(0, "rows")
    rows = torch.randn(20, 30, generator=draws, dtype=DTYPE)
    labels = (torch.rand(20, generator=draws) < 0.5).to(DTYPE)
    found = ordinary.regression(rows, labels, ridge=0.1)
    slope = rows.T @ (torch.sigmoid(rows @ found) - labels) + 0.1 * found
    assert float(slope.abs().max()) < 1e-5  # lbfgs stops where the objective no longer falls: the root of rounding


def test_the_ordinary_machine_of_two_points_is_known_by_hand(ordinary):
    # x = ±2 on the line: w = 1/2, and w = Σ a y x with equal a gives a = 1/8.
    gram = torch.tensor([[4.0, -4.0], [-4.0, 4.0]], dtype=DTYPE)
    found = ordinary.machine(gram.numpy(), torch.tensor([1.0, -1.0], dtype=DTYPE).numpy())
    torch.testing.assert_close(found, torch.tensor([0.125, -0.125], dtype=DTYPE))


def test_ordinary_clipping_bounds_each_gradient_by_one(ordinary):
    draws = stream(0, "networks")
    networks = mlp.initial((2,), (3, 4, 2), generator=draws)
    points, labels = 100 * torch.randn(2, 1, 3, generator=draws, dtype=DTYPE), torch.tensor([[0], [1]])
    one = ordinary.clipped_by_examples(networks, points, labels)
    norm = torch.cat([part.flatten(1) for part in (*one.weights, *one.biases)], dim=-1).norm(dim=-1)
    assert bool(((norm > 0) & (norm <= 1 + 1e-12)).all())


def test_a_module_is_the_network_it_is_made_of(ordinary):
    network = mlp.initial((), (3, 4, 2), generator=stream(0, "network"))
    points = torch.randn(5, 3, generator=stream(0, "points"), dtype=DTYPE)
    torch.testing.assert_close(ordinary.as_module(network)(points), network(points))


def test_the_dense_tensor_is_the_mean_over_the_neurons(gradient_inversion):
    _, seen = gradient_inversion.problem("dense", 2, 4, 30, activation="gelu", bias=1.0)
    products = seen.outputs.view(-1, 1, 1, 1) * hermite_tensor(seen.weights, 3)
    torch.testing.assert_close(gradient_inversion.dense_tensor(seen), products.mean(0), rtol=0, atol=1e-13)


def test_a_batch_that_only_one_side_finds_is_not_timed(gradient_inversion, monkeypatch):
    sizes = TABLE["gradient_inversion"].sizes["matching"], 1, 1
    monkeypatch.setattr(gradient_inversion, "FOUND", 1e-30)
    monkeypatch.setattr(gradient_inversion, "DESCENTS", 1)
    with pytest.raises(gradient_inversion.Disagreement, match="fails 1 times in a row"):
        gradient_inversion.attack("matching", *sizes).check()
    found = gradient_inversion.recover
    monkeypatch.setattr(gradient_inversion, "matched", lambda seen, _, g: found(seen, batch=2, norm=1.0, generator=g))
    with pytest.raises(gradient_inversion.Disagreement, match="not every batch is found"):
        gradient_inversion.attack("matching", *sizes).check()


def test_a_problem_is_fixed_by_its_name(gradient_inversion):
    one, same, other = (
        gradient_inversion.problem(id, 2, 5, 9, activation="tanh", bias=0.0)[0] for id in ("a", "a", "b")
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_autograd_takes_the_step_that_is_due_by_hand(kkt_margin):
    start = TwoLayer(*(torch.tensor(values, dtype=DTYPE) for values in ([[0.5]], [0.5], [1.0])))
    one = torch.ones(1, dtype=DTYPE)
    after = kkt_margin.by_autograd(start, 2 * one[:, None], one, steps=1, rate=0.1)
    pull = 0.1 * float(torch.sigmoid(-1.5 * one))
    assert [float(part) for part in parts(after)] == pytest.approx([0.5 + 2 * pull, 0.5 + pull, 1 + 1.5 * pull])
    assert start.weights.item() == 0.5


def test_the_two_ridge_solvers_give_the_same_coefficients(min_norm):
    rng = np.random.default_rng(0)
    for shape in ((6, 4), (6, 6), (6, 9)):
        features, labels = rng.standard_normal(shape), rng.standard_normal(6)
        by_rows = min_norm.ridge_by_rows(0.5)(features, labels)
        np.testing.assert_allclose(min_norm.ridge(0.5)(features, labels), by_rows, rtol=1e-10)
