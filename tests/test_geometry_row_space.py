"""The network over the row space of its first weight is the same network."""

import pytest
import torch

from leakage.data.gaussians import gaussian
from leakage.geometry import row_space as row_space_module
from leakage.geometry.polytopes import activation_pattern, jacobian_norm, output_jacobian, output_map, row_space
from leakage.geometry.rays import ray_label_change, segment_label_change
from leakage.models import mlp
from leakage.runtime import stream


@pytest.mark.parametrize("widths", [(40, 6, 3), (40, 6, 5, 3), (4, 6, 3)])
def test_predictions_distances_and_polytope_functions_are_kept(widths):
    network = mlp.initial((), widths, generator=stream(0, "network"))
    points = gaussian((20, widths[0]), generator=stream(0, "points"))
    reduced, basis = row_space(network)
    inside = points @ basis
    assert reduced.widths[0] == min(widths[:2])
    assert torch.allclose(reduced(inside), network(points), atol=1e-13)
    gates = activation_pattern(network, points)
    assert torch.allclose(jacobian_norm(reduced, gates), jacobian_norm(network, gates), rtol=1e-12)
    assert torch.allclose(output_map(reduced, gates)[1], output_map(network, gates)[1], atol=1e-13)
    moved = points + gaussian((20, widths[1]), generator=stream(0, "moves")) @ network.weights[0]
    assert torch.allclose((moved @ basis - inside).norm(dim=-1), (moved - points).norm(dim=-1), rtol=1e-12)


def test_networks_side_by_side_have_row_spaces_of_their_own():
    networks = mlp.initial((3,), (9, 4, 2), generator=stream(0, "network"))
    points = gaussian((3, 5, 9), generator=stream(0, "points"))
    reduced, basis = row_space(networks)
    assert torch.allclose(reduced(points @ basis), networks(points), atol=1e-13)


@pytest.mark.parametrize("widths", [(7, 5, 3), (4, 6, 5, 3)])
def test_read_out_weights_are_those_of_the_polytope(widths):
    network = mlp.initial((), widths, generator=stream(1, "network"))
    points = gaussian((11, widths[0]), generator=stream(1, "points"))
    gates = activation_pattern(network, points)
    found = output_jacobian(network, gates).expand(11, -1, -1)
    assert torch.allclose(found, output_map(network, gates)[0], atol=1e-13)
    # On its polytope the network is affine, so its outputs move by A_P times the step.
    step = 1e-7 * gaussian((11, widths[0]), generator=stream(1, "steps"))
    moved = network(points + step) - network(points)
    # Rounding of outputs of size 1 over a step of size 1e-7.
    assert torch.allclose(moved, (found @ step.unsqueeze(-1)).squeeze(-1), atol=1e-14)


def two_halves() -> mlp.Mlp:
    """Label 1 where the first coordinate is above 1, label 0 elsewhere."""
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    read = torch.tensor([[0.0, 0.0], [1.0, -1.0]], dtype=torch.float64)
    return mlp.Mlp((weight, read), (torch.tensor([10.0, 10.0]).double(), torch.tensor([0.0, -2.0]).double()))


def test_the_first_change_on_a_segment_is_where_it_is():
    network = two_halves()
    points = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    ends = torch.tensor([[4.0, 0.0], [0.9, 0.0], [-1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    found = segment_label_change(network, points, ends)
    assert torch.allclose(found, torch.tensor([1.0, torch.inf, 2.0, torch.inf], dtype=torch.float64), atol=1e-14)


@pytest.mark.parametrize("widths", [(8, 12, 4), (8, 10, 9, 4)])
def test_segments_that_are_spared_their_walk_have_no_change(widths):
    network = mlp.initial((), widths, generator=stream(1, "network"))
    points = 2 * gaussian((400, 8), generator=stream(1, "points"))
    along = gaussian((400, 8), generator=stream(1, "ways"))
    lengths = torch.logspace(-2, 1, 400, dtype=torch.float64)
    along = along / along.norm(dim=-1, keepdim=True)
    ends = points + lengths[:, None] * along
    kept = row_space_module._keeps_label(network, points, ends)
    assert 0.2 < float(kept.double().mean()) < 0.98
    walked = ray_label_change(network, points, along, until=float(lengths.max()))
    assert bool((walked[kept] > lengths[kept]).all())
    found = segment_label_change(network, points, ends)
    torch.testing.assert_close(found.isfinite(), walked <= lengths)
    assert torch.allclose(found[found.isfinite()], walked[found.isfinite()], atol=1e-12)
