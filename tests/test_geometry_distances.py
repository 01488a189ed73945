"""The inscribed radius is the distance to the boundary of the polytope, in every direction."""

import math

import pytest
import torch

from geometry_networks import directions, network, one_layer, points
from leakage.geometry import polytopes, rays


def test_one_neuron_is_as_far_as_its_line():
    model = one_layer([[3.0, 4.0], [0.0, 2.0]], [5.0, -6.0])
    found = polytopes.nearest_hyperedges(model, torch.zeros(1, 2, dtype=torch.float64), count=2)
    assert found.distances.tolist() == [[1.0, 3.0]]
    assert found.neurons.tolist() == [[0, 1]]


@pytest.mark.parametrize("widths", [(3, 12, 2), (3, 8, 8, 2)])
def test_no_ray_meets_the_boundary_before_the_inscribed_radius_and_some_ray_meets_it_there(widths):
    model, centre = network(widths, 0), points(1, 3)
    radius = float(polytopes.inscribed_radius(model, centre))
    count = 20_000
    found = rays.ray_crossings(model, centre.expand(count, -1), directions(count, 3), crossings=1).lengths[:, 0]
    assert found.min() >= radius * (1 - 1e-12)
    # The best of n directions misses the normal by an angle a with (1 - cos a) / 2 about 1 / n.
    assert found.min() <= radius * (1 + 20 / count)


def test_within_the_radius_the_pattern_stays_and_the_closest_neuron_flips_behind_it():
    model, given = network((5, 10, 10, 3), 0), points(100, 5)
    found = polytopes.nearest_hyperedges(model, given)
    gates = polytopes.activation_pattern(model, given)
    rows = polytopes.join_layers(gates)
    normals = torch.cat([w.expand(100, -1, -1) for w in polytopes.layer_maps(model, gates)[0][:-1]], 1)
    normal = normals[torch.arange(100), found.neurons[:, 0]]
    away = -normal / normal.norm(dim=-1, keepdim=True) * (2 * rows.gather(1, found.neurons).double() - 1)
    for share, flips in ((1 - 1e-6, 0), (1 + 1e-6, 1)):
        moved = polytopes.join_layers(polytopes.activation_pattern(model, given + share * found.distances * away))
        changed = moved != rows
        # Another hyperedge within a millionth of the first would flip too: none of these 100 points has one.
        assert changed.sum(-1).tolist() == [flips] * 100


def test_a_neuron_without_open_path_is_never_reached():
    model = one_layer([[1.0, 0.0]], [0.0])
    deep = type(model)(
        (model.weights[0], torch.ones(1, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)),
        (model.biases[0], torch.zeros(1, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)),
    )
    found = polytopes.hyperedge_distances(deep, torch.tensor([[-2.0, 0.0]], dtype=torch.float64))
    assert found.tolist() == [[2.0, math.inf]]


def test_networks_along_a_leading_dimension_are_independent():
    models, given = network((7, 6, 5, 3), 0, models=(3,)), points(10, 7)
    together = polytopes.inscribed_radius(models, given.expand(3, -1, -1))
    assert torch.allclose(together[2], polytopes.inscribed_radius(models[2], given), rtol=1e-12)


def test_bad_input_is_refused():
    model = network((3, 4, 2), 0)
    with pytest.raises(ValueError, match="count"):
        polytopes.nearest_hyperedges(model, points(2, 3), count=5)
    with pytest.raises(ValueError, match="count"):
        polytopes.nearest_hyperedges(model, points(2, 3), count=0)
    with pytest.raises(ValueError, match="hidden layer"):
        polytopes.inscribed_radius(network((3, 2), 0), points(2, 3))
    with pytest.raises(ValueError, match="finite"):
        polytopes.inscribed_radius(model, points(2, 3) * torch.inf)
