"""What is recorded of any module while it trains has the form that attacks read."""

from typing import Any

import torch
from torch import nn

from leakage.data.gaussians import gaussian
from leakage.models.initialisation import initial, stacked
from leakage.runtime import stream
from leakage.trainers import criteria, module_ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.module_trajectories import trajectories

POOL, MODELS = 40, 4
RECIPE = Recipe(epochs=3, batch=10, learning_rate=0.05)


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def examples(count, name):
    points = gaussian((count, 5), generator=stream(0, name)).float()
    return Examples((points,), points[:, :3].argmax(-1))


def record(**changes):
    settings: dict[str, Any] = {"models": MODELS, "criterion": criteria.classes, "epochs": (0, 1, 3)}
    settings |= {"draws": stream(0, "pairs"), "starts": stream(0, "networks")}
    return trajectories(network(), examples(POOL, "pool"), examples(30, "other"), RECIPE, **(settings | changes))


def test_the_record_has_the_form_of_early_stopping():
    found = record()
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        "losses": (3, MODELS, POOL),
        "error": (3, MODELS),
        "validation_loss": (3, MODELS),
        "epochs": (3,),
        "member": (MODELS, POOL),
        "partner": (MODELS,),
    }
    assert found["epochs"].tolist() == [0, 1, 3]
    assert found["member"].sum(0).tolist() == [MODELS // 2] * POOL
    assert bool((found["member"] ^ found["member"][found["partner"]]).all())


def test_before_training_the_losses_are_those_of_the_initial_networks():
    start = initial(network(), MODELS, generator=stream(0, "networks"))
    found = record()
    expected = module_ensembles.scores(network(), start, examples(POOL, "pool"), criterion=criteria.classes)
    assert torch.equal(found["losses"][0], expected.losses)


def test_losses_of_members_fall_and_all_is_reproducible():
    found, again = record(), record()
    members = found["losses"][:, found["member"]].mean(-1)
    assert members[0] > members[1] > members[2]
    assert all(torch.equal(tensor, again[name]) for name, tensor in found.items())


def test_networks_of_ones_own_can_be_the_start():
    modules = [network() for _ in range(MODELS)]
    found = record(start=stacked(modules), epochs=(0,))
    other = examples(30, "other")
    wrong = torch.stack([module(other.inputs[0]).argmax(-1) != other.targets for module in modules])
    torch.testing.assert_close(found["error"][0], wrong.double().mean(-1))
