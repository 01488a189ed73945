"""The tightness of KKT points is as in closed form."""

import math

import torch

from leakage.theory.kkt.bounds import Geometry, activation_ceiling, activation_floor, output_bound
from reproduced.studies.kkt_margin.tightness import Tightness, measure
from test_theory_kkt_bounds import CLOSE, WIDE, of


def held_against(point, *, fresh=None, kinks=1e-6):
    """The tightness of a symmetric KKT point, asked about `fresh` points."""
    fresh = point.points if fresh is None else fresh
    asked = dict(products=fresh @ point.points.mT, answers=point.network()(fresh), margin=of(point.margin)[0])
    return measure(point.network(), point.points, point.labels, kinks=kinks, **asked)


def test_the_tightness_of_a_kkt_point_is_as_in_closed_form():
    found, geometry, margin = held_against(WIDE), Geometry.of(WIDE.points), of(WIDE.margin)[0]
    own = WIDE.margin / WIDE.height * WIDE.multiplier
    torch.testing.assert_close(found.ceiling, own / activation_ceiling(geometry, margin), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.floor, own / activation_floor(geometry, margin), rtol=1e-6, atol=0)
    # Asked about the training points themselves, whose answers are m and whose largest product is Δ.
    bound = output_bound(geometry, geometry.most[None], margin, factor=1)
    torch.testing.assert_close(found.fresh, margin / bound[0], rtol=1e-9, atol=0)
    assert abs(float(found.member)) < 1e-9


def test_bounds_that_say_nothing_are_kept_by_everyone():
    found = held_against(CLOSE)
    assert [float(getattr(found, name)) for name in ("ceiling", "floor", "fresh", "member")] == [0, math.inf, 0, 0]


def test_the_worst_of_all_is_the_least_floor_and_the_largest_else():
    one, other = (Tightness(of(a, 0.5), of(a, 2.0), of(a, 0.1), of(a, 0.0)) for a in (1.5, 0.9))
    found = Tightness.worst([one, other])
    assert [float(getattr(found, name)) for name in ("ceiling", "floor", "fresh", "member")] == [1.5, 0.9, 1.5, 1.5]
