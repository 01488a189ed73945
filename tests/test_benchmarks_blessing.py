"""The benchmark of chapter blessing compares like with like and refuses to time what differs.

Times are never asserted: they belong to a machine. What all benchmarks share is tested in test_benchmarks.
"""

from dataclasses import replace

import pytest
import torch

import benchmark_runs
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import DTYPE, stream
from leakage.theory.logistic.output_law import average_advantage

benchmark = benchmark_runs.module("blessing")
ordinary = benchmark_runs.module("ordinary_models")


@pytest.fixture(scope="module")
def tiny(benchmark):
    return benchmark.Sizes(
        panel=(2, 3),
        nodes=(301,),
        settings=8,
        iterations=50,
        trial=(200, 300, 900, 2, 1),
        points=2,
        checked=(30, 60, 180, 50, 200),
        left_out=(120, 24, 120, 2),
        training=(2, 30, 16, 12, 5, 3, 8),
        private=(2, 6, 12, 5, 3),
        private_steps=2,
        machines=(3, 12, 40),
        rounds=2,
    )


def test_every_comparison_is_checked_measured_and_recorded(benchmark, tiny, tmp_path):
    record, page = benchmark_runs.recorded(benchmark, tiny, tmp_path)
    evidence = {
        "advantage.301": "same advantages",
        "system": "ours solves all",
        "trial": "on the same rows",
        "left_out": "same outputs",
        "training": "same values",
        "private": "same values",
        "machines": "same machines",
    }
    assert [row["id"] for row in record["rows"]] == list(evidence)
    for row in record["rows"]:
        assert evidence[row["id"]] in row["note"]
    assert "scikit-learn" in page


def change(found, **parts):
    return found._replace(**parts) if hasattr(found, "_replace") else replace(found, **parts)


def biased(found):
    return Mlp(found.weights, tuple(2 * bias for bias in found.biases))


# By case: a function that our side calls, what is done to its answer, and what the check says then.
PLANTED = {
    "advantage": ("average_advantage", lambda found: 1.1 * found, "same advantages"),
    "system": ("solve", lambda found: change(found, alpha=(1 + 1e-6) * found.alpha), "same solutions"),
    "trial": ("logistic_regression.with_point", lambda found: change(found, outputs=found.without), "the same rows"),
    "left_out": ("logistic_regression.leave_one_out", lambda found: change(found, without=-found.without), "outputs"),
    "training": ("ensembles.train", biased, "the values differ"),
    "private": ("dp_sgd.clipped_sum", biased, "the values differ"),
    "machines": ("hard_margin", lambda found: change(found, dual=found.dual.square()), "same machines"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_differs_is_not_timed(benchmark, tiny, monkeypatch, name):
    target, spoil, complaint = PLANTED[name]
    *room, function = target.split(".")
    owner = getattr(benchmark, room[0]) if room else benchmark
    right = getattr(owner, function)
    case = next(case for case in benchmark.cases(tiny) if case.id.startswith(name))

    def wrong(*arguments, **settings):
        found = right(*arguments, **settings)
        return found if "method" in settings else spoil(found)  # the plain iteration is the other side

    monkeypatch.setattr(owner, function, wrong)
    with pytest.raises(benchmark.Disagreement, match=complaint):
        case.check()


def test_outputs_of_another_law_are_not_timed(benchmark, tiny, monkeypatch):
    right = benchmark.sample
    monkeypatch.setattr(benchmark, "sample", lambda *a: change(right(*a), outputs=2 + right(*a).outputs))
    with pytest.raises(benchmark.Disagreement, match="the laws differ"):
        benchmark.trial(tiny).check()


def test_the_grid_tends_to_what_the_root_gives(benchmark):
    law = benchmark.panel_laws(2, 3)
    exact = average_advantage(law, nodes=benchmark.TEACHER_NODES)
    errors = [float((benchmark.by_grid(law, nodes) - exact).abs().max()) for nodes in (301, 3001)]
    # The kink where the densities cross costs the square of the step.
    assert errors[1] < errors[0] / 30


def test_the_promises_are_those_of_the_project(benchmark, tiny):
    benchmark_runs.assert_promises_are_of_cases(benchmark, tiny)
    promised = {id: needed.ratio for id, needed in benchmark.NEEDED.items()}
    assert promised["left_out"] == 50
    assert promised["private"] == 20
    assert all(ratio >= 1 for ratio in promised.values())


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
    assert bool((norm <= 1 + 1e-12).all())
    assert bool((norm > 0).all())


def test_a_module_is_the_network_it_is_made_of(ordinary):
    network = mlp.initial((), (3, 4, 2), generator=stream(0, "network"))
    points = torch.randn(5, 3, generator=stream(0, "points"), dtype=DTYPE)
    torch.testing.assert_close(ordinary.as_module(network)(points), network(points))
