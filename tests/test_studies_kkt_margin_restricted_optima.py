"""Optima over some of the cones are KKT points of the whole problem, and worse than its optimum."""

import itertools

import pytest

from leakage.runtime import stream
from leakage.studies.kkt_margin import line_statements, restricted_optima
from leakage.studies.kkt_margin.line_problems import draw_problem
from leakage.theory.kkt import conditions
from leakage.theory.kkt.optimum import univariate


def drawn(law="alternating", *, count=5, tries=12, problems=8):
    generator = stream(0, f"elsewhere/{law}")
    for _ in range(problems):
        points, labels = draw_problem(law, count=count, generator=generator, points="spaced")
        for other in restricted_optima.elsewhere(points, labels, share=0.5, tries=tries, generator=generator):
            yield points, labels, other


@pytest.mark.parametrize("law", ["alternating", "random"])
def test_they_meet_the_kkt_conditions_and_are_no_optima(law):
    found = list(itertools.islice(drawn(law), 3))
    assert found
    for points, labels, other in found:
        assert float(other.value) > float(univariate(points, labels).value)
        answers = labels * other.model(points[:, None])
        assert float(answers.min()) == pytest.approx(1)
        # The solver's accuracy, 1e-5 of a neuron, is that of the residual.
        checked = conditions.check(other.model, points[:, None], labels, kinks=1e-4)
        assert float(checked.residual) < 1e-3
        assert float((other.multipliers * (answers - 1)).max()) < 1e-4
        lengths = line_statements.unit_lengths(other.model, points, labels, other.multipliers)
        assert bool(((lengths - 1).abs() < 1e-4).all())


def test_the_statements_about_all_kkt_points_hold_there():
    for points, _, other in itertools.islice(drawn(), 6):
        own = line_statements.marginal(points, other.multipliers)
        assert line_statements.kinks_in_gaps(other.model, own).violations == 0


def test_points_out_of_order_are_refused():
    points, labels = draw_problem("random", count=4, generator=stream(0, "order"))
    with pytest.raises(ValueError, match="ascend"):
        restricted_optima.elsewhere(points.flip(0), labels, share=0.5, tries=1, generator=stream(0, "order"))


def test_without_a_neuron_of_his_sign_nobody_is_fitted():
    points, labels = draw_problem("random", count=4, generator=stream(0, "few"))
    found = restricted_optima.elsewhere(points, labels, share=1e-9, tries=3, generator=stream(0, "few"))
    assert found == []
