"""The candidates of a network on the line hold its training points, and nothing but the weights goes in."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.precision import DTYPE
from planted import piecewise
from reproduced.papers.kkt_margin.line_problems import LABEL_LAWS, draw_problem
from reproduced.papers.kkt_margin.line_reconstruction import (
    ALGORITHMS,
    algorithm_1,
    algorithm_2,
    all_crossings,
    candidates_from_function,
    point_from_margin,
    point_from_ratio,
)
from reproduced.papers.kkt_margin.line_theorems import precision_and_recall
from reproduced.papers.kkt_margin.max_margin import optimum_on_line, single_neuron_optimum
from reproduced.papers.kkt_margin.piecewise_linear import PiecewiseLinear, from_network, simplify
from reproduced.papers.kkt_margin.two_layer import TwoLayer
from reproduced.runtime import stream

KINKS = 1e-5  # of the margin: more than what the solver leaves of a kink that two neurons share


def attacked(law, *, count, seed=0):
    points, labels = draw_problem(law, count=count, generator=stream(seed, f"{law}/{count}"))
    return sharp(optimum_on_line(points, labels).model), points


def sharp(model):
    return simplify(from_network(model), low=-20, high=20, tolerance=KINKS)


def test_neighbouring_pieces_give_their_crossings():
    zigzag = piecewise([0, 2, 4, 5], [0, 2, -2, 0])
    # 0 → 2 → -2 → 0 crosses ±1 four times on its first two pieces and once on the last.
    for algorithm in (algorithm_1, algorithm_2, all_crossings):
        assert algorithm(zigzag, 1.0).tolist() == pytest.approx([1, 2.5, 3.5, 4.5])


def test_the_outermost_pieces_count_in_the_complete_set_and_if_they_are_asked_for():
    bent = piecewise([0, 1], [3, -3], left=1, right=1)
    for algorithm in (algorithm_1, algorithm_2):
        assert algorithm(bent, 1.0).tolist() == []
        torch.testing.assert_close(algorithm(bent, 1.0, outer=True), all_crossings(bent, 1.0))
    assert all_crossings(bent, 1.0).tolist() == pytest.approx([-4, -2, 1 / 3, 2 / 3, 3, 5])


def test_only_algorithm_1_takes_the_ends_of_a_ramp():
    ramp = piecewise([0, 1, 2, 3], [1, 1, -1, -1], left=1, right=-1)
    assert algorithm_1(ramp, 1.0).tolist() == pytest.approx([1, 2])
    assert algorithm_2(ramp, 1.0).tolist() == []
    unbounded = piecewise([1, 2], [1, -1])  # flat on either side, without end
    assert algorithm_1(unbounded, 1.0).tolist() == []
    assert algorithm_1(unbounded, 1.0, outer=True).tolist() == pytest.approx([1, 2])
    step = piecewise([0, 1, 2, 3], [1, 1, -1, 0])  # not flat on the right: two free neighbours
    for algorithm in (algorithm_1, algorithm_2):
        assert algorithm(step, 1.0).tolist() == pytest.approx([1, 2])


@pytest.mark.parametrize("law", LABEL_LAWS)
@pytest.mark.parametrize("seed", range(3))
def test_at_least_a_quarter_of_the_candidates_are_training_points(law, seed):
    attack, points = attacked(law, count=12, seed=seed)
    for algorithm in ALGORITHMS.values():
        found = precision_and_recall(algorithm(attack, 1.0), points, tolerance=1e-3)
        assert not found.candidates or found.precision >= 0.25


def test_alternating_labels_give_away_every_point():
    attack, points = attacked("alternating", count=10)
    found = precision_and_recall(all_crossings(attack, 1.0), points, tolerance=1e-6)
    assert (found.precision, found.recall) == (1, 1)
    found = precision_and_recall(algorithm_1(attack, 1.0), points, tolerance=1e-6)
    assert found.recall == pytest.approx(0.8)  # all but the ends


def test_the_scale_of_the_network_does_not_matter():
    attack, _ = attacked("pairs", count=12)
    scaled = PiecewiseLinear(attack.nodes, 7 * attack.values, 7 * attack.left_slope, 7 * attack.right_slope)
    torch.testing.assert_close(algorithm_1(scaled, 7.0), algorithm_1(attack, 1.0), rtol=0, atol=1e-9)


def test_random_weights_give_nothing_away():
    # Blind control: the candidates of a network that never saw the points match them as often as chance does.
    generator, finds, expected = stream(0, "blind"), 0.0, 0.0
    for _ in range(200):
        weights, biases, outputs = gaussian((3, 20), generator=generator)
        points = torch.rand(10, generator=generator, dtype=DTYPE) * 4 - 2
        guesses = all_crossings(from_network(TwoLayer(weights[:, None], biases, outputs)), 1.0)
        guesses = guesses[guesses.abs() < 1.9]
        finds += float(((guesses[:, None] - points).abs() <= 0.05).sum())
        expected += len(guesses) * 10 * 0.1 / 4
    assert abs(finds - expected) < 5 * math.sqrt(expected)  # five standard errors of a Poisson count


@pytest.mark.parametrize("law", ["random", "alternating"])
def test_smeared_weights_give_away_what_the_exact_ones_do(law):
    points, labels = draw_problem(law, count=8, generator=stream(4, law))
    exact, copies = optimum_on_line(points, labels).model, 40
    # Every neuron in 40 parts with slightly different kinks, and 100 neurons that do next to nothing.
    parts = [
        part.repeat_interleave(copies, 0) / math.sqrt(copies) for part in (exact.weights, exact.biases, exact.outputs)
    ]
    generator = stream(5, law)
    noise = 1e-4 * gaussian((parts[1].shape[0],), generator=generator)
    dust = 1e-4 * gaussian((3, 100), generator=generator)
    smeared = TwoLayer(
        torch.cat([parts[0], dust[0, :, None]]),
        torch.cat([parts[1] * (1 + noise), dust[1]]),
        torch.cat([parts[2], dust[2]]),
    )
    margin = float((labels * smeared(points[:, None])).min())
    blurred = candidates_from_function(from_network(smeared), margin, low=-20, high=20)
    found = precision_and_recall(blurred, points, tolerance=0.05)
    assert found.precision >= 0.8
    assert (
        found.recall >= precision_and_recall(all_crossings(sharp(exact), 1.0), points, tolerance=1e-3).recall - 0.15
    )  # one point of eight


@pytest.mark.parametrize("x", [0.7, -3.0, 12.0])
@pytest.mark.parametrize("label", [-1, 1])
def test_one_neuron_gives_its_point_away_twice(x, label):
    point = torch.tensor([x], dtype=DTYPE)
    model, _ = single_neuron_optimum(point, label=label, margin=2.5)
    torch.testing.assert_close(point_from_ratio(model), point, rtol=1e-14, atol=0)
    torch.testing.assert_close(point_from_margin(model, 2.5), point, rtol=1e-12, atol=1e-12)


def test_one_neuron_gives_its_point_away_in_any_dimension():
    point = gaussian((7,), generator=stream(0, "seven"))
    model, _ = single_neuron_optimum(point, label=-1, margin=2.0)
    torch.testing.assert_close(point_from_ratio(model), point)
    torch.testing.assert_close(point_from_margin(model, 2.0), point)


def test_candidates_close_together_are_one():
    near = piecewise([0, 1, 2, 3], [0, 1 + 1e-6, 0, 2])
    assert algorithm_2(near, 1.0).tolist() == pytest.approx([1, 2.5], abs=1e-5)
