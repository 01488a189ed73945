"""The printed search is right where a unit step hides one event, and only there."""

import torch

from geometry_networks import directions, network, one_layer, points
from leakage.geometry import rays
from reproduced.studies.polytopes.printed_search import bisection


def test_the_search_is_right_where_a_unit_step_hides_one_event_only():
    model = one_layer([[1.0, 0.0]], [-2.3])
    given, along = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = bisection(model, given, along, steps=60, event="pattern")
    # Each halving leaves the point last seen on the other side within one more step of the event.
    assert abs(float(found.lengths) - 2.3) < 1e-12


def test_the_search_misses_what_a_unit_step_jumps_over():
    model = one_layer([[1.0, 0.0], [1.0, 0.0]], [-0.2, -0.6])
    given, along = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    exact = float(rays.walk(model, given, along, crossings=1).lengths)
    found = float(bisection(model, given, along, steps=60, event="pattern").lengths)
    assert abs(exact - 0.2) < 1e-15
    assert abs(found - exact) > 0.1


def test_the_search_for_the_label_is_right_where_it_changes_once():
    # Two classes, level at x = 2.3 only.
    model = one_layer([[1.0, 0.0]], [0.0], outputs=[[1.0], [0.0]])
    model = type(model)(model.weights, (model.biases[0], torch.tensor([0.0, 2.3], dtype=torch.float64)))
    given, along = torch.tensor([[0.5, 0.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert abs(float(bisection(model, given, along, steps=60).lengths) - 1.8) < 1e-12
    assert abs(float(rays.label_change(model, given, along, until=60.0)) - 1.8) < 1e-12


def test_nothing_is_met_where_nothing_changes():
    model = one_layer([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.2], outputs=[[1.0, 1.0], [-1.0, -1.0]])
    found = bisection(model, points(20, 2).abs(), directions(20, 2).abs(), steps=9)
    assert not found.met.any()
    assert found.lengths.isinf().all()


def test_networks_along_a_leading_dimension_are_independent():
    models, given, along = network((4, 6, 5, 3), 0, models=(3,)), points(10, 4), directions(10, 4)
    together = bisection(models, given.expand(3, -1, -1), along.expand(3, -1, -1), steps=9, event="pattern").lengths
    assert torch.allclose(together[1], bisection(models[1], given, along, steps=9, event="pattern").lengths)
