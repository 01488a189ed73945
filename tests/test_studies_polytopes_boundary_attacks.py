"""Walks end on the boundary unless they are printed; their distances find networks that memorise, and no others."""

import math

import pytest
import torch

import noise_labels
from leakage.attacks.membership.boundary_distance import deepfool
from leakage.attacks.membership.label_only import HopSkipJumpSettings
from leakage.data.gaussians import gaussian
from leakage.geometry.polytopes import output_map, smooth_pattern
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.runtime import stream
from reproduced.studies.polytopes import boundary_attacks
from reproduced.studies.polytopes.boundary_attacks import WalkSettings, walk_to_boundary
from reproduced.studies.polytopes.shadow_attacks import AttackedNetwork, TargetAndShadow

MEMORISED = noise_labels.task()


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
    exact = walk_to_boundary(plane(), points, WalkSettings(width=width))
    assert exact.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-12)
    fixed = walk_to_boundary(plane(), points, WalkSettings(variant="start label", width=width))
    # After n halvings the walk is within the last steps' length of the boundary.
    assert fixed.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-9)
    printed = walk_to_boundary(plane(), points, WalkSettings(variant="printed", width=width))
    overshoot = torch.ceil(points[:, 0].abs() / width) * width
    assert printed.distances.tolist() == pytest.approx(overshoot.tolist(), abs=1e-12)
    assert printed.changes.tolist() == [1, 1]


def test_as_printed_the_label_changes_once_and_never_again():
    network, points = a_network(), some_points()
    nearest = deepfool(network, points)
    printed, fixed = (
        walk_to_boundary(network, points, WalkSettings(variant=name, width=0.5)) for name in ("printed", "start label")
    )
    assert bool(printed.reached.all())
    assert float((printed.changes == 1).double().mean()) >= 0.95
    assert float((fixed.changes > 1).double().mean()) >= 0.8
    assert float((printed.distances / nearest).median()) > float((fixed.distances / nearest).median())


@pytest.mark.parametrize("loss", list(boundary_attacks.LOSSES))
def test_the_end_of_an_exact_walk_lies_on_the_boundary(loss):
    network, points = a_network(), some_points()
    found = walk_to_boundary(network, points, WalkSettings(loss=loss, width=0.2, iterations=40))
    torch.testing.assert_close(found.reached, found.distances.isfinite())
    assert bool(found.reached.any())
    # Straight to the boundary is never longer than by DeepFool's own lower bound of that very piece.
    inside = walk_to_boundary(network, points, WalkSettings(loss=loss, width=0.01, iterations=1))
    assert bool((inside.distances[inside.reached] <= 0.01 + 1e-12).all())


def test_a_boundary_that_is_not_reached_is_infinitely_far():
    found = walk_to_boundary(
        plane(), torch.tensor([[9.0, 0.0]], dtype=torch.float64), WalkSettings(width=0.1, iterations=5)
    )
    assert found.distances.isinf().all()
    assert not bool(found.reached.any())


def test_losses_are_what_they_are_called():
    network, points = a_network((5, 7, 6, 3)), gaussian((9, 5), generator=stream(0, "points"))
    labels = network(points).argmax(-1)
    weight, bias = output_map(network, smooth_pattern(network, points))
    expected = {
        "confidence": -network(points).softmax(-1).amax(-1).log(),
        "output": -network(points).norm(dim=-1),
        "weight": weight.square().sum((-2, -1)).sqrt(),
        "bias": bias.abs().amax(-1),
    }
    for name, objective in boundary_attacks.LOSSES.items():
        assert torch.allclose(objective(network, points, labels), expected[name], rtol=1e-12)


def test_what_memorises_is_found_out_by_distances():
    found = boundary_attacks.attack_by_walks(0, task=MEMORISED, points=100)
    for name in ("confidence + label", "DeepFool + label", "loss"):
        assert float(found[name].auc) > 0.8
        assert float(found[name].accuracy_shadow_threshold) <= float(found[name].accuracy_target_threshold) + 1e-12
    assert float(found["confidence"].unreached) == pytest.approx(0.0)
    assert list(found)[-2:] == ["loss", "gap"]


def test_what_memorises_is_found_out_by_labels():
    found = boundary_attacks.attack_by_labels(
        0, task=MEMORISED, points=60, jumps=HopSkipJumpSettings(iterations=2, directions=40), copies=50
    )
    for name in ("HopSkipJump + label", "noise"):
        assert float(found[name].auc) >= float(found["gap"].auc) > 0.7


def test_what_has_learned_nothing_is_not():
    found = boundary_attacks.attack_by_walks(0, task=noise_labels.task(epochs=0), points=120)
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.items():
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_as_printed_the_walk_changes_its_label_once():
    found = boundary_attacks.compare_variants(0, task=MEMORISED, points=60, widths=(1.0,))
    printed, start, exact = found.values()
    assert float(printed.once) >= 0.95
    assert float(start.more) >= 0.8
    assert float(printed.ratio) > float(start.ratio) > float(exact.ratio) - 0.01


def test_bounds_are_in_order():
    found = boundary_attacks.distance_bounds(0, task=MEMORISED, points=60)
    assert bool((found.certified <= found.deepfool * (1 + 1e-9)).all())
    assert bool((found.certified > 0).all())


def test_what_was_not_reached_ranks_first_and_is_counted():
    member = torch.tensor([True, True, False, False])
    distances = torch.tensor([torch.inf, 2.0, 1.0, torch.inf], dtype=torch.float64)
    side = AttackedNetwork(a_network(), torch.zeros(4, 20).double(), torch.zeros(4, dtype=torch.int64), member)
    found = boundary_attacks.evaluate_distances(TargetAndShadow(side, side), [distances] * 2)
    assert float(found.unreached) == pytest.approx(0.5)
    assert float(found.auc) == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert (float(found.accuracy_target_threshold), float(found.accuracy_shadow_threshold)) == pytest.approx(
        (0.75, 0.75)
    )
