"""Algorithm 9 as printed walks away from the boundary it has found; repaired it stays."""

import pytest
import torch

from leakage.attacks.membership.boundary_distance import deepfool
from leakage.data.gaussians import gaussian
from leakage.geometry.patterns import read_out, smooth
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from reproduced.studies.polytopes import boundary_walk as walks
from reproduced.studies.polytopes.boundary_walk import Steps, walk


def a_network(widths=(20, 16, 4)) -> Mlp:
    return mlp.initial((), widths, generator=stream(1, "network"))


def some_points(count: int = 60) -> torch.Tensor:
    return 2 * gaussian((count, 20), generator=stream(1, "points"))


def plane() -> Mlp:
    """Two classes on either side of x1 = 0, affine wherever we look."""
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    return Mlp((weight, torch.eye(2).double()), (torch.full((2,), 100.0).double(), torch.zeros(2).double()))


@pytest.mark.parametrize("width", [0.3, 1.0])
def test_on_a_plane_every_variant_is_known(width):
    points = torch.tensor([[2.2, 5.0], [-0.45, 1.0]], dtype=torch.float64)
    exact = walk(plane(), points, Steps(width=width))
    assert exact.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-12)
    fixed = walk(plane(), points, Steps(variant="start label", width=width))
    # After n halvings the walk is within the last steps' length of the boundary.
    assert fixed.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-9)
    printed = walk(plane(), points, Steps(variant="printed", width=width))
    overshoot = torch.ceil(points[:, 0].abs() / width) * width
    assert printed.distances.tolist() == pytest.approx(overshoot.tolist(), abs=1e-12)
    assert printed.changes.tolist() == [1, 1]


def test_as_printed_the_label_changes_once_and_never_again():
    network, points = a_network(), some_points()
    nearest = deepfool(network, points).distances
    printed, fixed = (walk(network, points, Steps(variant=name, width=0.5)) for name in ("printed", "start label"))
    assert bool(printed.reached.all())
    assert float((printed.changes == 1).double().mean()) >= 0.95
    assert float((fixed.changes > 1).double().mean()) >= 0.8
    assert float((printed.distances / nearest).median()) > float((fixed.distances / nearest).median())


@pytest.mark.parametrize("loss", list(walks.LOSSES))
def test_the_end_of_an_exact_walk_lies_on_the_boundary(loss):
    network, points = a_network(), some_points()
    found = walk(network, points, Steps(loss=loss, width=0.2, iterations=40))
    torch.testing.assert_close(found.reached, found.distances.isfinite())
    assert bool(found.reached.any())
    # Straight to the boundary is never longer than by DeepFool's own lower bound of that very piece.
    inside = walk(network, points, Steps(loss=loss, width=0.01, iterations=1))
    assert bool((inside.distances[inside.reached] <= 0.01 + 1e-12).all())


def test_a_boundary_that_is_not_reached_is_infinitely_far():
    found = walk(plane(), torch.tensor([[9.0, 0.0]], dtype=torch.float64), Steps(width=0.1, iterations=5))
    assert found.distances.isinf().all()
    assert not bool(found.reached.any())


def test_losses_are_what_they_are_called():
    network, points = a_network((5, 7, 6, 3)), gaussian((9, 5), generator=stream(0, "points"))
    labels = network(points).argmax(-1)
    weight, bias = read_out(network, smooth(network, points))
    expected = {
        "confidence": -network(points).softmax(-1).amax(-1).log(),
        "output": -network(points).norm(dim=-1),
        "weight": weight.square().sum((-2, -1)).sqrt(),
        "bias": bias.abs().amax(-1),
    }
    for name, objective in walks.LOSSES.items():
        assert torch.allclose(objective(network, points, labels), expected[name], rtol=1e-12)
