"""The scoreboard of all signals: what memorises leaks, what has learned nothing does not."""

import math

import pytest
import torch

import noise_labels
from leakage.attacks.membership import hyperedges
from leakage.data.gaussians import gaussian
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.runtime import stream
from reproduced.studies.polytopes import signals


def test_a_network_that_memorised_is_found_out():
    found = signals.attack_by_signals(0, task=noise_labels.task(epochs=40, size=80), models=8, targets=3, rates=(0.01,))
    assert list(found) == [
        *(f"{kind}: {name}" for kind in ("raw", "calibrated") for name in signals.STANDALONE_SIGNALS),
        *(f"combined: {name}" for name in signals.COMBINERS),
    ]
    for name in ("raw: margin", "calibrated: margin", "combined: margin", "combined: answer"):
        assert float(found[name].auc.mean()) > 0.85
        assert found[name].tpr.shape == (3, 1)


def test_a_network_that_has_learned_nothing_is_not():
    found = signals.attack_by_signals(0, task=noise_labels.task(epochs=0, size=80), models=8, rates=(0.01,))
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
    data = noise_labels.task(epochs=0).data
    model = mlp.initial((1,), (data.features.shape[1], 9, data.classes), generator=stream(0, "net"))
    first = model.weights[0] / model.weights[0].norm(dim=-1, keepdim=True)
    found = signals.raw_signals(Mlp((first, *model.weights[1:]), model.biases), data)
    torch.testing.assert_close(found["kinks"], found["cell distance"])
    weighted = signals.raw_signals(model, data)
    smallest = model[0].to(torch.float64).preactivations(data.features.double())[0].abs().sort(-1).values
    torch.testing.assert_close(weighted["kinks"][0], -smallest[:, : hyperedges.NEAREST].mean(-1))


def test_the_gradient_s_norm_is_that_of_all_parameters():
    data = noise_labels.task(epochs=0).data
    model = mlp.initial((1,), (data.features.shape[1], 9, 7, data.classes), generator=stream(0, "net"))
    found = signals.raw_signals(model, data)["answer: gradient"]
    parameters = [part[0].double().requires_grad_() for part in (*model.weights, *model.biases)]
    alone = Mlp(tuple(parameters[:3]), tuple(parameters[3:]))
    loss = torch.nn.functional.cross_entropy(alone(data.features[:1].double()), data.labels[:1])
    squares = [part.square().sum() for part in torch.autograd.grad(loss, parameters)]
    assert float(found[0, 0]) == pytest.approx(-float(sum(squares).sqrt().log()))
