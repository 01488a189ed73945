"""Ensembles of any module equal separate PyTorch trainings, on every route."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from leakage.data.gaussians import gaussian
from leakage.models.initialisation import Stack, initial
from leakage.runtime import DTYPE, stream
from leakage.trainers import criteria, ensembles
from leakage.trainers import modules as room
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe, shuffle_rows
from leakage.trainers.modules import ModuleEnsemble

MODELS, POINTS, SIDE = 3, 40, 4
RECIPE = Recipe(epochs=4, batch=6, learning_rate=0.01)  # five batches an epoch, the last one of two points: 20 steps


class Network(nn.Module):
    """A convolution with batch normalisation and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.upper = nn.Linear(3 * SIDE**2, 2)

    def forward(self, images):
        return self.upper(self.norm(self.lower(images)).relu().flatten(1))


def problem(dtype=DTYPE):
    modules = [Network().to(dtype) for _ in range(MODELS)]
    stack = initial(modules[0], MODELS, generator=stream(0, "networks"), dtype=dtype)
    for index, module in enumerate(modules):
        module.load_state_dict({name: part[index] for name, part in (stack.parameters | stack.buffers).items()})
    images = gaussian((POINTS, 1, SIDE, SIDE), generator=stream(0, "images")).to(dtype)
    examples = Examples((images,), (images.mean((1, 2, 3)) > 0).long())
    rows = torch.rand(MODELS, POINTS, generator=stream(0, "rows")).argsort(-1)[:, :26]
    return modules, stack, examples, rows


def of(stack, form=None, **how):
    return ModuleEnsemble(form or Network().to("meta"), stack, criterion=criteria.classification, **how)


def trained(stack, examples, rows, recipe=RECIPE, *, how=None, **settings) -> Stack:
    settings: dict[str, Any] = {"generator": stream(0, "shuffles")} | settings
    return ensembles.train(of(stack, **(how or {})), examples, rows, recipe, **settings).stack


def differences(one: Stack, other: Stack) -> float:
    pairs = [(one.parameters, other.parameters), (one.buffers, other.buffers)]
    return max(float((a[name] - b[name]).abs().max()) for a, b in pairs for name in a)


@pytest.mark.parametrize("how", [{"route": "loop"}, {"route": "vmap"}, {"route": "vmap", "together": 2}])
def test_an_ensemble_equals_separate_trainings_with_their_running_means(how):
    modules, stack, examples, rows = problem()
    found = trained(stack, examples, rows, how=how)
    generator = stream(0, "shuffles")
    optimisers = [torch.optim.Adam(module.parameters(), lr=RECIPE.learning_rate) for module in modules]
    for _ in range(RECIPE.epochs):
        for batch in shuffle_rows(rows, generator=generator).split(RECIPE.batch, dim=-1):
            for module, optimiser, own in zip(modules, optimisers, batch, strict=True):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(examples.inputs[0][own]), examples.targets[own]).backward()
                optimiser.step()
    # 20 steps in float64: rounding only. Adam enlarges it where a gradient is almost 0, as those of the convolution's
    # biases are, which the normalisation takes away again; 4e-10 is measured there.
    assert differences(found, Stack(*torch.func.stack_module_state(modules)).clone()) < 1e-8
    evaluated = torch.stack([copy.deepcopy(module).eval()(examples.inputs[0]) for module in modules])
    score = of(found, Network(), **how).evaluate(examples)
    expected = nn.functional.cross_entropy(
        evaluated.flatten(0, 1), examples.targets.repeat(MODELS), reduction="none"
    ).unflatten(0, (MODELS, -1))
    torch.testing.assert_close(score.losses, expected.detach(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(score.wrong.bool(), evaluated.argmax(-1) != examples.targets)


def test_neither_the_module_nor_the_start_nor_the_scored_networks_change():
    modules, stack, examples, rows = problem()
    before, module = stack.clone(), modules[0].eval()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ensembles.train(of(stack, module), examples, rows, RECIPE, generator=stream(0, "shuffles"))
    of(stack, module).evaluate(examples)
    assert differences(stack, before) == 0
    assert not module.training
    torch.testing.assert_close(dict(module.state_dict()), state)


def test_scores_do_not_depend_on_the_chunks_or_the_route(monkeypatch):
    _, stack, examples, _ = problem()
    whole = of(stack, Network()).evaluate(examples)
    monkeypatch.setattr(room, "_CHUNK", 7)
    parts = of(stack, Network(), route="vmap", together=2).evaluate(examples)
    torch.testing.assert_close(parts.losses, whole.losses, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.wrong, whole.wrong)
    assert whole.losses.dtype == DTYPE


def test_losses_of_float32_networks_are_judged_in_float64():
    stack = Stack({"weight": torch.tensor([[[40.0], [0.0]]]), "bias": torch.zeros(1, 2)}, {})
    score = of(stack, nn.Linear(1, 2)).evaluate(Examples((torch.ones(1, 1),), torch.tensor([0])))
    assert float(score.losses) == pytest.approx(4.248354255291589e-18, rel=1e-9)  # e^-40, which float32 rounds to 0


def test_augmented_inputs_are_what_networks_are_trained_on():
    _, stack, examples, rows = problem()
    blind = trained(stack, examples, rows, augment=lambda images, _: torch.zeros_like(images))
    flat = Examples((torch.zeros_like(examples.inputs[0]),), examples.targets)
    assert differences(blind, trained(stack, flat, rows)) == 0


def test_networks_learn_what_can_be_learnt():
    _, stack, examples, rows = problem(torch.float32)
    found = trained(stack, examples, rows, replace(RECIPE, epochs=25))
    score = of(found, Network()).evaluate(examples)
    own = score.wrong.gather(-1, rows)
    assert int(own.sum()) == 0


def test_what_cannot_be_trained_is_refused():
    _, stack, examples, rows = problem()
    with pytest.raises(ValueError, match=r"`module` must have no dropout, .* got 1"):
        of(stack, nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    with pytest.raises(ValueError, match=r"wrong shapes of norm\.running_mean"):
        trained(Stack(stack.parameters, stack.buffers | {"norm.running_mean": torch.zeros(3)}), examples, rows)
    with pytest.raises(ValueError, match="`route` must be one of auto, loop, vmap; got 'fast'"):
        of(stack, route="fast")
    with pytest.raises(ValueError, match="`together` must be a whole number at least 1, got 0"):
        of(stack, together=0)
    with pytest.raises(ValueError, match=r"a network has diverged: .* lower the `learning_rate`"):
        trained(stack, examples, rows, replace(RECIPE, learning_rate=float("inf")))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_gives_the_same_networks():
    _, stack, examples, rows = problem()
    there = Stack(*({name: part.cuda() for name, part in parts.items()} for parts in (stack.parameters, stack.buffers)))
    asked = Examples((examples.inputs[0].cuda(),), examples.targets.cuda())
    once = replace(RECIPE, epochs=1, batch=26)  # one batch, so that the shuffle, drawn elsewhere, does not matter
    found = trained(there, asked, rows.cuda(), once, generator=stream(0, "shuffles", "cuda"))
    expected = trained(stack, examples, rows, once)
    assert found.parameters["upper.weight"].is_cuda
    torch.testing.assert_close(
        found.parameters["upper.weight"].cpu(), expected.parameters["upper.weight"], rtol=1e-7, atol=1e-9
    )
