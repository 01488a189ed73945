"""An ensemble trains as separate PyTorch networks do: fully connected ones, and those of any module on either route."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakage.draws import gaussian
from leakage.models import mlp
from leakage.models.initialisation import Stack, initial
from leakage.precision import DTYPE
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, ModuleEnsemble, Recipe, shuffle_rows
from reproduced.runtime import stream

WIDTHS = (6, 9, 8, 4)
MODELS, POINTS, OWN = 3, 50, 22
RECIPE = Recipe(epochs=5, batch=6, learning_rate=0.01)  # 4 steps an epoch, the last of 4 points


def a_problem(dtype=torch.float64):
    draws = stream(0, "problem")
    features = torch.randn(POINTS, WIDTHS[0], generator=draws, dtype=dtype)
    labels = torch.randint(WIDTHS[-1], (POINTS,), generator=draws)
    rows = torch.rand(MODELS, POINTS, generator=draws).argsort(-1)[:, :OWN]
    return Examples((features,), labels), rows


def a_start(dtype=torch.float64):
    return MlpEnsemble.from_mlp(mlp.initial((MODELS,), WIDTHS, generator=stream(0, "start"), dtype=dtype))


def modules_of(networks):
    found = []
    for model in range(MODELS):
        layers = []
        for weight, bias in zip(networks[model].weights, networks[model].biases, strict=True):
            linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
            linear.weight.data, linear.bias.data = weight.clone(), bias.clone()
            layers += [linear, nn.ReLU()]
        found.append(nn.Sequential(*layers[:-1]))
    return found


@pytest.mark.parametrize(
    ("recipe", "separate"),
    [
        (RECIPE, lambda p: torch.optim.Adam(p, lr=0.01)),
        (replace(RECIPE, weight_decay=0.1), lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1)),
        (
            replace(RECIPE, optimiser="sgd", learning_rate=0.1, momentum=0.9),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        ),
    ],
    ids=["adam", "weight decay", "sgd with momentum"],
)
def test_an_ensemble_computes_what_separate_networks_compute(recipe, separate):
    examples, rows = a_problem()
    start = a_start()
    together = ensembles.train(start, examples, rows, recipe, generator=stream(0, "shuffle"))
    modules = modules_of(start)
    movers, draws = [separate(module.parameters()) for module in modules], stream(0, "shuffle")
    batches = itertools.chain.from_iterable(
        ensembles.shuffle_rows(rows, generator=draws).split(recipe.batch, dim=-1) for _ in range(recipe.epochs)
    )
    steps = 0
    for batch, (module, mover, model) in itertools.product(batches, zip(modules, movers, range(MODELS), strict=True)):
        mover.zero_grad()
        own = examples[batch[model]]
        cross_entropy(module(own.inputs[0]), own.targets).backward()
        mover.step()
        steps += 1
    assert steps == 20 * MODELS
    apart = mlp.stack([mlp.from_module(module) for module in modules])
    for ours, theirs in zip((*together.weights, *together.biases), (*apart.weights, *apart.biases), strict=True):
        # Rounding, which Adam's division by the gradient's size carries on for 20 steps.
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)
    losses = [cross_entropy(module(examples.inputs[0]), examples.targets, reduction="none") for module in modules]
    torch.testing.assert_close(together.compute_losses(examples).losses, torch.stack(losses).detach())


def test_every_network_sees_each_of_its_rows_once_an_epoch_in_an_order_of_its_own():
    rows = a_problem()[1]
    seen = ensembles.shuffle_rows(rows, generator=stream(0, "shuffle"))
    torch.testing.assert_close(seen.sort(-1).values, rows.sort(-1).values)
    same = torch.arange(20).expand(2, -1)
    first, second = ensembles.shuffle_rows(same, generator=stream(0, "shuffle"))
    assert not torch.allclose(first, second)


def test_the_epochs_asked_for_are_observed():
    examples, rows = a_problem()
    start = a_start()
    kept = {}
    last = ensembles.train(
        start,
        examples,
        rows,
        RECIPE,
        generator=stream(0, "shuffle"),
        observe=kept.__setitem__,
        observed_epochs=(0, 2, 5),
    )
    assert sorted(kept) == [0, 2, 5]
    torch.testing.assert_close(kept[0].weights[0], start.weights[0])
    torch.testing.assert_close(kept[5].weights[0], last.weights[0])
    shorter = ensembles.train(start, examples, rows, replace(RECIPE, epochs=2), generator=stream(0, "shuffle"))
    torch.testing.assert_close(kept[2].weights[0], shorter.weights[0])


def test_a_loss_judged_is_the_cross_entropy_however_small_it_is():
    logits = torch.randn(2, 50, 7, generator=stream(0, "logits"), dtype=DTYPE)
    targets = torch.randint(7, (2, 50), generator=stream(0, "targets"))
    losses, wrong = ensembles.cross_entropies(logits, targets)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(2, 50)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(wrong, logits.argmax(-1) != targets)
    coarse, _ = ensembles.cross_entropies(logits.float(), targets)
    torch.testing.assert_close(coarse, expected, rtol=1e-5, atol=1e-5)  # rounding of logits up to 4
    sure, _ = ensembles.cross_entropies(torch.tensor([40.0, 0.0]), torch.tensor(0))
    assert float(sure) == pytest.approx(4.248354255291589e-18, rel=1e-9)  # e^-40, which float32 rounds to 0


def test_a_tie_is_a_mistake():
    assert ensembles.cross_entropies(torch.zeros(2, 3), torch.tensor([0, 2]))[1].tolist() == [True, True]


STACKED, IMAGES, SIDE = 3, 40, 4
IMAGE_RECIPE = Recipe(epochs=4, batch=6, learning_rate=0.01)  # 5 batches an epoch, the last of 2 points


class Network(nn.Module):
    """A convolution with batch normalisation and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.upper = nn.Linear(3 * SIDE**2, 2)

    def forward(self, images):
        return self.upper(self.norm(self.lower(images)).relu().flatten(1))


def image_problem(dtype=DTYPE):
    modules = [Network().to(dtype) for _ in range(STACKED)]
    stack = initial(modules[0], STACKED, generator=stream(0, "networks"), dtype=dtype)
    for index, module in enumerate(modules):
        module.load_state_dict({name: part[index] for name, part in (stack.parameters | stack.buffers).items()})
    images = gaussian((IMAGES, 1, SIDE, SIDE), generator=stream(0, "images")).to(dtype)
    examples = Examples((images,), (images.mean((1, 2, 3)) > 0).long())
    rows = torch.rand(STACKED, IMAGES, generator=stream(0, "rows")).argsort(-1)[:, :26]
    return modules, stack, examples, rows


def ensemble_of(stack, form=None, **how):
    return ModuleEnsemble(form or Network().to("meta"), stack, **how)


def train_stack(stack, examples, rows, recipe=IMAGE_RECIPE, *, how=None, **settings) -> Stack:
    settings: dict[str, Any] = {"generator": stream(0, "shuffles")} | settings
    return ensembles.train(ensemble_of(stack, **(how or {})), examples, rows, recipe, **settings).stack


def differences(one: Stack, other: Stack) -> float:
    pairs = [(one.parameters, other.parameters), (one.buffers, other.buffers)]
    return max(float((a[name] - b[name]).abs().max()) for a, b in pairs for name in a)


@pytest.mark.parametrize("how", [{"batched": False}, {"batched": True}])
def test_an_ensemble_equals_separate_trainings_with_their_running_means(how):
    modules, stack, examples, rows = image_problem()
    found = train_stack(stack, examples, rows, how=how)
    generator = stream(0, "shuffles")
    optimisers = [torch.optim.Adam(module.parameters(), lr=IMAGE_RECIPE.learning_rate) for module in modules]
    for _ in range(IMAGE_RECIPE.epochs):
        for batch in shuffle_rows(rows, generator=generator).split(IMAGE_RECIPE.batch, dim=-1):
            for module, optimiser, own in zip(modules, optimisers, batch, strict=True):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(examples.inputs[0][own]), examples.targets[own]).backward()
                optimiser.step()
    # 20 steps in float64: rounding only. Adam enlarges it where a gradient is almost 0, as those of the convolution's
    # biases are, which the normalisation takes away again; 4e-10 is measured there.
    assert differences(found, Stack(*torch.func.stack_module_state(modules)).clone()) < 1e-8
    evaluated = torch.stack([copy.deepcopy(module).eval()(examples.inputs[0]) for module in modules])
    score = ensemble_of(found, Network(), **how).compute_losses(examples)
    expected = nn.functional.cross_entropy(
        evaluated.flatten(0, 1), examples.targets.repeat(STACKED), reduction="none"
    ).unflatten(0, (STACKED, -1))
    torch.testing.assert_close(score.losses, expected.detach(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(score.wrong.bool(), evaluated.argmax(-1) != examples.targets)


def test_neither_the_module_nor_the_start_nor_the_scored_networks_change():
    modules, stack, examples, rows = image_problem()
    before, module = stack.clone(), modules[0].eval()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ensembles.train(ensemble_of(stack, module), examples, rows, IMAGE_RECIPE, generator=stream(0, "shuffles"))
    ensemble_of(stack, module).compute_losses(examples)
    assert differences(stack, before) == 0
    assert not module.training
    torch.testing.assert_close(dict(module.state_dict()), state)


def test_dropout_and_networks_that_diverge_are_refused():
    _, stack, examples, rows = image_problem()
    with pytest.raises(ValueError, match="`module` must have no dropout"):
        ensemble_of(stack, nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    with pytest.raises(ValueError, match=r"a network has diverged: .* lower the `learning_rate`"):
        train_stack(stack, examples, rows, replace(IMAGE_RECIPE, learning_rate=float("inf")))
