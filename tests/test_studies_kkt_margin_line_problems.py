"""Problems on the line are drawn as their laws say; optima over some of the cones are KKT points, and no optima."""

import itertools
import math

import pytest
import torch

from leakage.theory import kkt, piecewise_linear
from leakage.theory.max_margin import optimum_on_line
from reproduced.runtime import stream
from reproduced.studies.kkt_margin import line_theorems
from reproduced.studies.kkt_margin.line_problems import LABEL_LAWS, draw_problem, ramp_flat_ramp, restricted_optima


@pytest.mark.parametrize("law", LABEL_LAWS)
def test_problems_are_drawn_sorted_with_both_signs_equally_often(law):
    generator = stream(0, law)
    draws = [draw_problem(law, count=6, generator=generator) for _ in range(400)]
    assert all(bool((points.diff() > 0).all()) and bool((labels.abs() == 1).all()) for points, labels in draws)
    first = torch.stack([labels[0] for _, labels in draws])
    assert abs(float(first.mean())) < 4 / math.sqrt(400)  # four standard errors


def test_spaced_points_keep_their_distance():
    points = draw_problem("random", count=50, generator=stream(0, "spaced"), spaced=True)[0]
    assert -2 < float(points[0]) < float(points[-1]) < 2
    assert float(points.diff().min()) >= 0.5 * 4 / 50 - 1e-12


def test_blocks_alternate():
    generator = stream(0, "blocks")
    for law, size in (("alternating", 1), ("pairs", 2), ("triples", 3)):
        labels = draw_problem(law, count=6, generator=generator)[1]
        assert (labels[size:] == -labels[:-size]).all()


def drawn(law="alternating", *, count=5, tries=12, problems=8):
    generator = stream(0, f"elsewhere/{law}")
    for _ in range(problems):
        points, labels = draw_problem(law, count=count, generator=generator, spaced=True)
        for other in restricted_optima(points, labels, share=0.5, tries=tries, generator=generator):
            yield points, labels, other


@pytest.mark.parametrize("law", ["alternating", "random"])
def test_restricted_optima_meet_the_kkt_conditions_and_are_no_optima(law):
    found = list(itertools.islice(drawn(law), 3))
    assert found
    for points, labels, other in found:
        assert float(other.value) > float(optimum_on_line(points, labels).value)
        answers = labels * other.model(points[:, None])
        assert float(answers.min()) == pytest.approx(1)
        # The solver's accuracy, 1e-5 of a neuron, is that of the residual.
        checked = kkt.check_kkt(other.model, points[:, None], labels, kink_tolerance=1e-4)
        assert float(checked.residual) < 1e-3
        assert float((other.multipliers * (answers - 1)).max()) < 1e-4
        lengths = line_theorems.unit_lengths(other.model, points, labels, other.multipliers)
        assert bool(((lengths - 1).abs() < 1e-4).all())


def test_the_statements_about_all_kkt_points_hold_at_restricted_optima():
    for points, _, other in itertools.islice(drawn(), 6):
        own = line_theorems.marginal_points(points, other.multipliers)
        assert line_theorems.check_lemma_f1(other.model, own).violations == 0


def test_a_kkt_point_has_three_bounded_pieces_and_no_case():
    points, labels, found = ramp_flat_ramp()
    assert float(found.value) > 1.01 * float(optimum_on_line(points, labels).value)
    answers = labels * found.model(points[:, None])
    assert float(answers.min()) == pytest.approx(1)
    # Gap 1e-12: neurons are good to its square root.
    assert float(kkt.check_kkt(found.model, points[:, None], labels, kink_tolerance=1e-6).residual) < 1e-6
    own = line_theorems.marginal_points(points, found.multipliers)
    assert float((found.multipliers * (answers - 1)).max()) < 1e-6
    function = piecewise_linear.from_network(found.model, tolerance=1e-6)
    assert function.nodes.tolist() == pytest.approx([-0.3775, -0.3020, 0.4038, 0.7933], abs=1e-4)
    assert function.values.tolist() == pytest.approx([1, -1, -1, 5.6404], abs=1e-4)
    assert line_theorems.check_theorem_4_2(function, own).occurrences == 0
    assert line_theorems.check_theorem_4_3(function, own).occurrences == 0
    assert line_theorems.has_active_neuron(found.model, points)


def test_without_cones_there_are_no_restricted_optima():
    points, labels = draw_problem("random", count=4, generator=stream(0, "few"))
    found = restricted_optima(points, labels, share=1e-9, tries=3, generator=stream(0, "few"))
    assert found == []
