"""Attacks find networks that have memorised noise, and none that has learned nothing."""

import math
from functools import partial

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership import attack_models, hyperedges
from leakage.membership.attack_models import Settings
from leakage.membership.label_only import HopSkipJumpSettings
from leakage.membership.polytopes import output_map, smooth_pattern
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.trainers.ensembles import Recipe
from planted import RANDOM_LABELS, half_space, one_layer, points
from reproduced.papers.polytopes import boundary_attacks, data_planes, shadow_attacks, signals
from reproduced.papers.polytopes.boundary_attacks import WalkSettings, walk_to_boundary
from reproduced.papers.polytopes.shadow_attacks import AttackedNetwork, TargetAndShadow, Task
from reproduced.papers.polytopes.subdivision import subdivide
from reproduced.papers.polytopes.windows import unit_square
from reproduced.runtime import Run, stream


def noise_task(*, epochs: int = 40, size: int = 120) -> Task:
    """The task of fitting labels by lot; with no epochs nothing is learned, and nothing can leak."""
    return Task(RANDOM_LABELS, size=size, hidden=(24,), recipe=Recipe(epochs=epochs, batch=20, learning_rate=5e-3))


MEMORISED, RUN = noise_task(), Run("smoke", 0, torch.device("cpu"))


# ── shadow models ────────────────────────────────────────────────────────────────────────────────────────────────────


QUICK = Settings(hidden=16, recipe=Recipe(epochs=20, batch=40, learning_rate=1e-2), trees=30)


def test_each_network_fits_its_members_and_not_the_outsiders():
    pair = shadow_attacks.train_pair(MEMORISED, split=0, run=RUN)
    for side in pair:
        assert side.fit.train > 0.99
        # Labels by lot of four classes: a quarter, and five standard errors of 120 points.
        assert side.fit.test < 0.25 + 5 * (0.25 * 0.75 / 120) ** 0.5
        assert side.points.dtype == torch.float64
        assert int(side.member.sum()) == 120
        assert side.take(10).fit.train > 0.99
    seen = [{tuple(row) for row in side.points.tolist()} for side in pair]
    assert not seen[0] & seen[1]


def test_what_memorises_is_found_out_by_posteriors():
    found = shadow_attacks.attack_split(0, task=MEMORISED, run=RUN, settings=QUICK)
    assert found.fit.train > 0.99
    gap = (found.fit.train - found.fit.test) / 2
    assert float(found.scores["threshold: correct"].accuracy) == pytest.approx(0.5 + gap, abs=1e-12)
    for name in attack_models.MODELS:
        assert float(found.scores[f"{name}: top-3"].auc) > 0.75
    assert all(row.tpr.shape == (1,) for row in found.scores.values())
    assert "NN: distance" not in found.scores
    assert set(shadow_attacks.STANDALONE_SIGNALS) <= {name.removeprefix("GBDT: ") for name in found.scores}


def test_what_has_learned_nothing_is_not_found_out_by_posteriors():
    task = noise_task(epochs=0)
    found = shadow_attacks.attack_split(0, task=task, run=RUN, settings=QUICK, models=("GBDT",))
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.scores.items():
        # Seventeen areas: one in a hundred sets of them passes four standard errors.
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_further_trainings_of_the_network_move_nothing_else():
    attack = partial(shadow_attacks.attack_split, 0, task=MEMORISED, run=RUN, settings=QUICK)
    once, again = (attack(models=("NN standardised",), sets=("distance",), trainings=count) for count in (0, 3))
    for name, row in once.scores.items():
        torch.testing.assert_close(again.scores[name].accuracy, row.accuracy)
    assert once.retrained.shape == (2, 0)
    assert again.retrained.shape == (2, 3)
    assert len(again.retrained[0].unique()) > 1  # starts differ
    both = (once.scores["NN standardised: distance"].accuracy + once.swapped["NN standardised: distance"].accuracy) / 2
    assert abs(float(again.retrained[0].mean() - both)) < 5 / math.sqrt(2 * 240)  # five standard errors of guessing


# ── distances to the boundary ────────────────────────────────────────────────────────────────────────────────────────


def a_network(widths=(20, 16, 4)) -> Mlp:
    return mlp.initial((), widths, generator=stream(1, "network"))


def some_points(count: int = 60) -> torch.Tensor:
    return 2 * gaussian((count, 20), generator=stream(1, "points"))


@pytest.mark.parametrize("width", [0.3, 1.0])
def test_on_a_plane_every_variant_is_known(width):
    points = torch.tensor([[2.2, 5.0], [-0.45, 1.0]], dtype=torch.float64)
    exact = walk_to_boundary(half_space(), points, WalkSettings(width=width))
    assert exact.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-12)
    fixed = walk_to_boundary(half_space(), points, WalkSettings(variant="start label", width=width))
    # After n halvings the walk is within the last steps' length of the boundary.
    assert fixed.distances.tolist() == pytest.approx([2.2, 0.45], abs=1e-9)
    printed = walk_to_boundary(half_space(), points, WalkSettings(variant="printed", width=width))
    overshoot = torch.ceil(points[:, 0].abs() / width) * width
    assert printed.distances.tolist() == pytest.approx(overshoot.tolist(), abs=1e-12)
    assert printed.changes.tolist() == [1, 1]


@pytest.mark.parametrize("loss", list(boundary_attacks.LOSSES))
def test_the_end_of_an_exact_walk_lies_on_the_boundary(loss):
    network, points = a_network(), some_points()
    found = walk_to_boundary(network, points, WalkSettings(loss=loss, width=0.2, iterations=40))
    torch.testing.assert_close(found.reached, found.distances.isfinite())
    assert bool(found.reached.any())
    # Straight to the boundary is never longer than by DeepFool's own lower bound of that very piece.
    inside = walk_to_boundary(network, points, WalkSettings(loss=loss, width=0.01, iterations=1))
    assert bool((inside.distances[inside.reached] <= 0.01 + 1e-12).all())


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
    found = boundary_attacks.attack_by_walks(0, task=MEMORISED, run=RUN, points=100)
    for name in ("confidence + label", "DeepFool + label", "loss"):
        assert float(found[name].auc) > 0.8
        assert float(found[name].accuracy_shadow_threshold) <= float(found[name].accuracy_target_threshold) + 1e-12
    assert float(found["confidence"].unreached) == pytest.approx(0.0)
    assert list(found)[-2:] == ["loss", "gap"]


def test_what_memorises_is_found_out_by_labels():
    found = boundary_attacks.attack_by_labels(
        0, task=MEMORISED, run=RUN, points=60, jumps=HopSkipJumpSettings(iterations=2, directions=40), copies=50
    )
    for name in ("HopSkipJump + label", "noise"):
        assert float(found[name].auc) >= float(found["gap"].auc) > 0.7


def test_what_has_learned_nothing_is_not_found_out_by_distances():
    found = boundary_attacks.attack_by_walks(0, task=noise_task(epochs=0), run=RUN, points=120)
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.items():
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_as_printed_the_walk_changes_its_label_once():
    found = boundary_attacks.compare_variants(0, task=MEMORISED, run=RUN, points=60, widths=(1.0,))
    printed, start, exact = found.values()
    assert float(printed.once) >= 0.95
    assert float(start.more) >= 0.8
    assert float(printed.ratio) > float(start.ratio) > float(exact.ratio) - 0.01


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


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_network_that_memorised_is_found_out():
    found = signals.attack_by_signals(
        0, task=noise_task(epochs=40, size=80), run=RUN, models=8, targets=3, rates=(0.01,)
    )
    assert list(found) == [
        *(f"{kind}: {name}" for kind in ("raw", "calibrated") for name in signals.STANDALONE_SIGNALS),
        *(f"combined: {name}" for name in signals.COMBINERS),
    ]
    for name in ("raw: margin", "calibrated: margin", "combined: margin", "combined: answer"):
        assert float(found[name].auc.mean()) > 0.85
        assert found[name].tpr.shape == (3, 1)


def test_a_network_that_has_learned_nothing_is_not():
    found = signals.attack_by_signals(0, task=noise_task(epochs=0, size=80), run=RUN, models=8, rates=(0.01,))
    error = math.sqrt(481 / (12 * 80 * 400)) / math.sqrt(8)
    for name in ("raw: margin", "calibrated: margin", "calibrated: cell distance", "combined: answer and kinks"):
        # Models share points, so that their areas are not independent: twice the usual room.
        assert abs(float(found[name].auc.mean()) - 0.5) < 8 * error


def test_a_combiner_does_not_see_the_targets_membership():
    member = torch.rand(8, 300, generator=stream(0, "member")) < 0.1
    raw = {"score": gaussian((8, 300), generator=stream(0, "scores")) + member}
    other = member.clone()
    other[2] = ~member[2]
    torch.testing.assert_close(
        signals.combine_signals(raw, member, target=2), signals.combine_signals(raw, other, target=2)
    )


def test_kinks_are_distances_to_walls_where_weights_have_length_one():
    data = noise_task(epochs=0).data
    model = mlp.initial((1,), (data.features.shape[1], 9, data.classes), generator=stream(0, "net"))
    first = model.weights[0] / model.weights[0].norm(dim=-1, keepdim=True)
    found = signals.raw_signals(Mlp((first, *model.weights[1:]), model.biases), data)
    torch.testing.assert_close(found["kinks"], found["cell distance"])
    weighted = signals.raw_signals(model, data)
    smallest = model[0].to(torch.float64).preactivations(data.features.double())[0].abs().sort(-1).values
    torch.testing.assert_close(weighted["kinks"][0], -smallest[:, : hyperedges.NEAREST].mean(-1))


def test_the_gradient_s_norm_is_that_of_all_parameters():
    data = noise_task(epochs=0).data
    model = mlp.initial((1,), (data.features.shape[1], 9, 7, data.classes), generator=stream(0, "net"))
    found = signals.raw_signals(model, data)["answer: gradient"]
    parameters = [part[0].double().requires_grad_() for part in (*model.weights, *model.biases)]
    alone = Mlp(tuple(parameters[:3]), tuple(parameters[3:]))
    loss = torch.nn.functional.cross_entropy(alone(data.features[:1].double()), data.labels[:1])
    squares = [part.square().sum() for part in torch.autograd.grad(loss, parameters)]
    assert float(found[0, 0]) == pytest.approx(-float(sum(squares).sqrt().log()))


# ── planes through data ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plane_goes_through_its_points():
    three = points(3, 7)
    found = data_planes.plane_through(three, frame=0.5)
    back = found.plane.origin + found.points @ found.plane.basis
    assert torch.allclose(back, three)
    assert torch.allclose(torch.pdist(found.points), torch.pdist(three))
    assert torch.allclose(found.plane.basis @ found.plane.basis.T, torch.eye(2).double())
    assert float(found.window.max() - found.points.abs().max()) == pytest.approx(0.5)


def test_rings_count_what_is_in_them():
    # One line at the distance 0.05 from the first point, and far from the two others.
    cells = subdivide(one_layer([[1.0, 0.0]], [-0.45]), unit_square())
    spots = torch.tensor([[0.5, 0.5], [0.9, 0.2], [0.9, 0.8]]).double()
    found = data_planes.ring_densities(cells, spots, radii=(0.04, 0.1))
    chord = 2 * math.sqrt(0.1**2 - 0.05**2) / 3
    assert found.lengths.tolist() == pytest.approx([0, chord / (math.pi * (0.1**2 - 0.04**2))])
    # The middles of the two cells are at x = 0.225 and 0.725.
    assert found.cells.tolist() == [0, 0]
    wide = data_planes.ring_densities(cells, spots[:1].expand(3, 2), radii=(0.3,))
    assert float(wide.cells[0]) == pytest.approx(2 / (math.pi * 0.09))


def side(labels: list[int], member: list[bool]) -> AttackedNetwork:
    model = Mlp((torch.eye(2).double(),), (torch.zeros(2).double(),))
    return AttackedNetwork(model, points(len(labels), 2), torch.tensor(labels), torch.tensor(member))


def test_triples_share_their_classes_and_differ_in_membership():
    given = side(
        [0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4], [True, False, False, True, False, True, True, False, True, True, False]
    )
    found = data_planes.draw_triples(given, 200, generator=stream(0, "planes"))
    members, outsiders = found.unbind(1)
    torch.testing.assert_close(given.labels[members], given.labels[outsiders])
    assert given.member[members].all()
    assert not given.member[outsiders].any()
    # Class 3 has no outsider; the other four are each in three of four triples.
    kinds = given.labels[members]
    assert all(len(set(row)) == 3 for row in kinds.tolist())
    shares = torch.bincount(kinds.flatten(), minlength=5) / 200
    assert float(shares[3]) == pytest.approx(0)
    assert float((shares[[0, 1, 2, 4]] - 0.75).abs().max()) < 4 * (0.75 * 0.25 / 200) ** 0.5
    # Each of a class is equally likely.
    assert abs(float((outsiders == 1).sum() / ((outsiders == 1) | (outsiders == 2)).sum()) - 0.5) < 0.2


def test_members_are_among_more_seams_and_a_network_that_saw_neither_knows_nothing():
    found = data_planes.measure_planes(0, task=MEMORISED, planes=25, run=RUN, radii=(0.5, 1.0))
    assert found.member.lengths.shape == (25, 2)
    gain = found.member.lengths - found.outsider.lengths
    chance = found.null_member.lengths - found.null_outsider.lengths
    error = (gain.std(0) / 5)[0], (chance.std(0) / 5)[0]
    assert float(gain.mean(0)[0] / error[0]) > 2
    assert abs(float(chance.mean(0)[0] / error[1])) < 4
