"""An ensemble trains as separate PyTorch networks do."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakage.models import mlp
from leakage.runtime import stream
from leakage.trainers import ensembles, perceptrons
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import MlpEnsemble

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
    return MlpEnsemble.of(mlp.initial((MODELS,), WIDTHS, generator=stream(0, "start"), dtype=dtype))


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


def test_every_network_sees_each_of_its_rows_once_an_epoch_in_an_order_of_its_own():
    rows = a_problem()[1]
    seen = ensembles.shuffle_rows(rows, generator=stream(0, "shuffle"))
    torch.testing.assert_close(seen.sort(-1).values, rows.sort(-1).values)
    same = torch.arange(20).expand(2, -1)
    first, second = ensembles.shuffle_rows(same, generator=stream(0, "shuffle"))
    assert not torch.allclose(first, second)


def test_orders_of_the_caller_are_followed():
    examples, rows = a_problem()
    draws = stream(0, "shuffle")
    orders = [ensembles.shuffle_rows(rows, generator=draws) for _ in range(RECIPE.epochs)]
    drawn = ensembles.train(a_start(), examples, rows, RECIPE, generator=stream(0, "shuffle"))
    given = ensembles.train(a_start(), examples, rows, RECIPE, generator=stream(1, "unused"), orders=orders)
    torch.testing.assert_close(drawn.weights[0], given.weights[0])


def test_a_network_does_not_depend_on_the_others_but_for_the_shuffles():
    examples, rows = a_problem()
    start = a_start()
    full = replace(RECIPE, batch=OWN)  # the order within a full batch changes rounding only
    together = ensembles.train(start, examples, rows, full, generator=stream(0, "shuffle"))
    alone = ensembles.train(MlpEnsemble.of(start[1:2]), examples, rows[1:2], full, generator=stream(1, "shuffle"))
    assert torch.allclose(together.weights[0][1], alone.weights[0][0], rtol=0, atol=1e-10)


def test_the_initial_networks_are_left_as_they_are_and_precision_follows_them():
    examples, rows = a_problem()
    start = a_start(torch.float32)
    before = start.weights[0].clone()
    trained = ensembles.train(start, examples, rows, RECIPE, generator=stream(0, "shuffle"))
    torch.testing.assert_close(start.weights[0], before)
    assert trained.weights[0].dtype == torch.float32
    assert not torch.allclose(trained.weights[0], before)


def test_losses_and_mistakes_are_those_of_the_outputs(monkeypatch):
    examples, _ = a_problem()
    networks, labels = a_start(), examples.targets
    monkeypatch.setattr(perceptrons, "_LARGEST_EVALUATION", 3 * 9 * 7)  # 7 points at a time
    outputs = networks(examples.inputs[0])
    expected = torch.stack([cross_entropy(each, labels, reduction="none") for each in outputs])
    found = networks.evaluate(examples)
    assert torch.allclose(found.losses, expected, atol=1e-14)
    torch.testing.assert_close(found.wrong.bool(), outputs.argmax(-1) != labels)
    assert bool((found.answers == 1).all())


def test_a_tiny_loss_is_not_rounded_to_zero():
    sure = MlpEnsemble((torch.zeros(1, 2, 3),), (torch.tensor([[40.0, 10.0]]),))
    loss = sure.evaluate(Examples((torch.zeros(1, 3),), torch.tensor([0]))).losses
    assert loss.dtype == torch.float64
    assert float(loss) == pytest.approx(9.4e-14, rel=0.1)  # e^-30, with float64 rounding of 1 beside it


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


def test_a_network_that_diverges_is_not_given_away():
    start = a_start(torch.float32)
    wild = Recipe(epochs=20, batch=6, learning_rate=1e30, optimiser="sgd")
    with pytest.raises(ValueError, match="diverged"):
        ensembles.train(start, *a_problem(), wild, generator=stream(0, "shuffle"))


def test_shuffles_are_uniform_draws_in_order_whatever_is_tied():
    rows = torch.arange(7 * 900).view(7, 900)
    for seed in range(20):
        found = ensembles.shuffle_rows(rows, generator=stream(seed, "shuffles"))
        drawn = torch.rand(rows.shape, generator=stream(seed, "shuffles"))
        torch.testing.assert_close(found, rows.gather(-1, drawn.argsort(dim=-1, stable=True)))
