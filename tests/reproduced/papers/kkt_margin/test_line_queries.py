"""A function on the line comes back from its answers, and the attack finds the same points as from the weights."""

import pytest
import torch

from leakage.precision import DTYPE
from planted import piecewise
from reproduced.papers.kkt_margin import line_queries
from reproduced.papers.kkt_margin.line_problems import draw_problem
from reproduced.papers.kkt_margin.line_queries import PRECISIONS, compare_attacks, interpolate, join_answers, rebuild
from reproduced.papers.kkt_margin.max_margin import optimum_on_line
from reproduced.papers.kkt_margin.piecewise_linear import from_network
from reproduced.runtime import stream

ZIGZAG = piecewise([-1.3, 0.2, 0.9, 3.1], [1, -2, 2, 0.5], left=0.5, right=-3)


def test_a_function_comes_back_from_its_answers_with_few_of_them():
    found = rebuild(ZIGZAG, low=-10, high=12)
    assert found.function.nodes.tolist() == pytest.approx(ZIGZAG.nodes.tolist(), abs=1e-12)
    assert found.function.values.tolist() == pytest.approx(ZIGZAG.values.tolist(), abs=1e-12)
    assert found.function.slopes.tolist() == pytest.approx(ZIGZAG.slopes.tolist(), abs=1e-12)
    assert len(found.asked) < 100 * len(ZIGZAG.nodes)
    assert len(found.asked.unique()) == len(found.asked)


@pytest.mark.parametrize(("name", "error"), [("single", 1e-5), ("4 digits", 1e-3), ("2 digits", 0.1)])
def test_rounded_answers_give_the_kinks_up_to_the_rounding(name, error):
    found = rebuild(ZIGZAG, low=-10, high=12, precision=PRECISIONS[name])
    assert found.function.nodes.tolist() == pytest.approx(ZIGZAG.nodes.tolist(), abs=error)


def test_a_straight_line_needs_no_kink():
    found = rebuild(lambda places: 2 * places + 1, low=-1, high=1)
    assert float(found.function(torch.tensor(0.3, dtype=DTYPE))) == pytest.approx(1.6)
    assert float(found.function.slopes.diff().abs().max()) < 1e-12


def test_kinks_that_balance_do_not_hide():
    bump = piecewise([-1, 0, 1], [0, 1, 0], left=0, right=0)  # in the middle of its part it bends, beside it as well
    shifted = lambda places: bump(places - 0.02)  # noqa: E731
    found = rebuild(shifted, low=-16, high=16)
    assert found.function.nodes.tolist() == pytest.approx([-0.98, 0.02, 1.02], abs=1e-9)


def test_known_kinks_need_two_answers_more():
    asked = []

    def ask(places):
        asked.extend(places.tolist())
        return ZIGZAG(places)

    found = interpolate(ask, ZIGZAG.nodes)
    assert len(asked) == len(ZIGZAG.nodes) + 2
    places = torch.linspace(-9, 9, 101, dtype=DTYPE)
    torch.testing.assert_close(found(places), ZIGZAG(places), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("law", "count"), [("random", 12), ("alternating", 8)])
def test_answers_give_the_list_that_the_weights_give(law, count):
    (found,) = line_queries.compare_with_weights(law, count, problems=1, generator=stream(3, law))["double"]
    assert found.found == found.found_by_weights > 0
    assert found.apart < 1e-6
    assert found.wrong == 0
    assert found.queries < 100 * found.kinks


def test_coarse_answers_give_a_part_of_it():
    points, labels = draw_problem("alternating", count=8, generator=stream(0, "coarse"))
    model = optimum_on_line(points, labels).model
    coarse, fine = (compare_attacks(model, points, PRECISIONS[name]) for name in ("2 digits", "double"))
    assert coarse.queries < fine.queries / 2
    assert coarse.found <= fine.found == 8


def test_the_polygon_of_answers_goes_through_them():
    points, labels = draw_problem("random", count=6, generator=stream(0, "polygon"))
    function = from_network(optimum_on_line(points, labels).model)
    joined = join_answers(function, low=-5, high=5, count=501)
    places = torch.linspace(-5, 5, 501, dtype=DTYPE)
    torch.testing.assert_close(joined(places), function(places), rtol=1e-9, atol=1e-9)
