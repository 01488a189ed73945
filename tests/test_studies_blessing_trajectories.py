"""What is recorded of networks while they train has the form that attacks read."""

import torch
from torch import nn

from leakage.data.gaussians import gaussian
from leakage.data.membership_splits import complementary_pairs
from leakage.models.initialisation import Stack, initial
from leakage.runtime import stream
from leakage.trainers import criteria
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.modules import Modules
from reproduced.studies.blessing.trajectories import watch

POOL, MODELS = 40, 4
RECIPE = Recipe(epochs=3, batch=10, learning_rate=0.05)


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def examples(count, name):
    points = gaussian((count, 5), generator=stream(0, name)).float()
    return Examples((points,), points[:, :3].argmax(-1))


def record(stack=None, epochs=(0, 1, 3)):
    draws = stream(0, "networks")
    networks = Modules(network(), stack or initial(network(), MODELS, generator=draws), criterion=criteria.classes)
    pairs = complementary_pairs(POOL, MODELS, generator=stream(0, "pairs"))
    pool, other = examples(POOL, "pool"), examples(30, "other")
    return watch(networks, pool, other, RECIPE, pairs=pairs, epochs=epochs, generator=draws)


def test_the_record_has_the_form_that_attacks_read():
    found = record()
    assert {name: tuple(part.shape) for name, part in found.seen._asdict().items()} == {
        "losses": (3, MODELS, POOL),
        "error": (3, MODELS),
        "validation_loss": (3, MODELS),
    }
    assert found.epochs.tolist() == [0, 1, 3]
    assert found.member.sum(0).tolist() == [MODELS // 2] * POOL
    assert bool((found.member ^ found.member[found.partner]).all())


def test_before_training_the_losses_are_those_of_the_initial_networks():
    start = initial(network(), MODELS, generator=stream(0, "networks"))
    expected = Modules(network(), start, criterion=criteria.classes).scores(examples(POOL, "pool"))
    torch.testing.assert_close(record().seen.losses[0], expected.losses)


def test_losses_of_members_fall_and_all_is_reproducible():
    found, again = record(), record()
    members = found.seen.losses[:, found.member].mean(-1)
    assert members[0] > members[1] > members[2]
    for one, other in zip(found.seen, again.seen, strict=True):
        torch.testing.assert_close(one, other)


def test_networks_of_ones_own_can_be_the_start():
    modules = [network() for _ in range(MODELS)]
    found = record(Stack(*torch.func.stack_module_state(modules)).clone(), epochs=(0,))
    other = examples(30, "other")
    wrong = torch.stack([module(other.inputs[0]).argmax(-1) != other.targets for module in modules])
    torch.testing.assert_close(found.seen.error[0], wrong.double().mean(-1))
