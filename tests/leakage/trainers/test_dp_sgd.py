"""DP-SGD by the norm trick equals DP-SGD by one gradient for each example, and its noise and batches have their law."""

import math

import pytest
import torch
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.trainers import dp_sgd
from leakage.trainers.dp_sgd import PrivateRecipe
from leakage.trainers.ensembles import Examples
from reproduced.runtime import stream

MODELS, SETTINGS, BATCH = 3, 2, 7


def networks_of(widths, *, models=MODELS, settings=SETTINGS, dtype=torch.float64):
    return mlp.initial((models, settings), widths, generator=stream(1, "start"), dtype=dtype)


def a_batch(widths, *, models=MODELS, batch=BATCH, dtype=torch.float64):
    draws = stream(2, "batch")
    points = 2 * torch.randn(models, batch, widths[0], generator=draws, dtype=dtype)
    return points, torch.randint(widths[-1], (models, batch), generator=draws)


def example_gradients(network, points, labels):
    """The gradients of a network of no leading dimension, each example's apart, by automatic differentiation."""

    def loss(parameters, point, label):
        below = point
        for weight, bias in zip(*parameters, strict=True):
            above = weight @ below + bias
            below = above.relu()
        return cross_entropy(above, label)

    return vmap(grad(loss), in_dims=(None, 0, 0))((network.weights, network.biases), points, labels)


def each(networks):
    """(model, setting, network) for all of them."""
    for model in range(networks.weights[0].shape[0]):
        for setting in range(networks.weights[0].shape[1]):
            yield model, setting, networks[model][setting]


DEPTHS = pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (5, 8, 6, 3), (5, 4, 4, 4, 3)])


@DEPTHS
@pytest.mark.parametrize("clip", [0.3, 3.0, 1e6])
def test_the_clipped_sum_is_that_of_example_gradients(widths, clip):
    networks, (points, labels) = networks_of(widths), a_batch(widths)
    total = dp_sgd.clipped_gradient_sum(networks, points, labels, clip=clip)
    for model, setting, network in each(networks):
        gradients = example_gradients(network, points[model], labels[model])
        norms = sum(part.flatten(1).square().sum(1) for side in gradients for part in side).sqrt()
        factors = (clip / norms).clamp_max(1)
        parts = [part for layer in zip(*gradients, strict=True) for part in layer]
        for part, found in zip(parts, total, strict=True):
            expected = torch.einsum("b,b...->...", factors, part)
            torch.testing.assert_close(found[model, setting], expected, rtol=1e-11, atol=1e-12)  # float64 rounding


def test_no_example_moves_the_sum_by_more_than_the_bound():
    widths = (5, 8, 3)
    networks, (points, labels) = networks_of(widths), a_batch(widths)
    points[:, 0] *= 1e4  # a gradient that would swamp all others
    with_it = dp_sgd.clipped_gradient_sum(networks, points, labels, clip=0.5)
    without = dp_sgd.clipped_gradient_sum(networks, points[:, 1:], labels[:, 1:], clip=0.5)
    moved = torch.zeros(MODELS, SETTINGS, dtype=torch.float64)
    for one, other in zip(with_it, without, strict=True):
        moved += (one - other).flatten(2).square().sum(-1)
    # Rounding of 1e4; less where it is well classified.
    assert float(moved.sqrt().max()) == pytest.approx(0.5, rel=1e-9)


def a_problem(widths=(5, 8, 3), *, points=40, own=20, models=MODELS):
    draws = stream(3, "problem")
    features = torch.randn(points, widths[0], generator=draws, dtype=torch.float64)
    labels = torch.randint(widths[-1], (points,), generator=draws)
    rows = torch.rand(models, points, generator=draws).argsort(-1)[:, :own]
    return Examples((features,), labels), rows


@DEPTHS
def test_without_noise_clipping_and_sampling_it_is_gradient_descent(widths):
    examples, rows = a_problem(widths)
    (features,), labels = examples.inputs, examples.targets
    start, rates = networks_of(widths), torch.tensor([0.1, 0.5], dtype=torch.float64)
    ours = dp_sgd.train(
        start,
        examples,
        rows,
        PrivateRecipe(steps=6, batch=rows.shape[1], clip=1e9),
        noise=torch.zeros(SETTINGS),
        learning_rate=rates,
        generator=stream(0, "train"),
    )
    for model, setting, network in each(start):
        parts = [part.clone().requires_grad_() for part in (*network.weights, *network.biases)]
        mover = torch.optim.SGD(parts, lr=float(rates[setting]))
        for _ in range(6):
            outputs = Mlp.__call__(network_of(parts), features[rows[model]])
            mover.zero_grad()
            cross_entropy(outputs, labels[rows[model]]).backward()
            mover.step()
        found = ours[model][setting]
        for one, other in zip(parts, (*found.weights, *found.biases), strict=True):
            torch.testing.assert_close(other, one.detach(), rtol=1e-10, atol=1e-12)  # float64 rounding of 6 steps


def network_of(parts):
    half = len(parts) // 2
    return Mlp(tuple(parts[:half]), tuple(parts[half:]))


def test_settings_do_not_disturb_each_other():
    examples, rows = a_problem()
    start = networks_of((5, 8, 3), settings=3)
    noise, rate = torch.tensor([0.5, 1.0, 4.0]), torch.tensor([0.1, 0.2, 0.4])
    recipe = PrivateRecipe(steps=5, batch=6.0)
    together = dp_sgd.train(start, examples, rows, recipe, noise=noise, learning_rate=rate, generator=stream(0, "t"))
    for setting in range(3):
        alone = dp_sgd.train(
            dp_sgd.repeat_for_settings(start[:, setting], 1),
            examples,
            rows,
            recipe,
            noise=noise[[setting]],
            learning_rate=rate[[setting]],
            generator=stream(0, "t"),
        )
        for one, other in zip(together[:, setting].weights, alone.weights, strict=True):
            torch.testing.assert_close(one, other[:, 0], rtol=1e-12, atol=1e-14)  # rounding


def test_noise_is_gaussian_with_the_spread_of_the_guarantee():
    # No point is ever present (B / m is tiny), so the weights move by noise alone: T steps of -ησC/B ξ.
    widths, steps, batch, clip = (200, 100, 3), 9, 1e-7, 2.0
    draws = stream(4, "points")
    points = torch.randn(10, 200, generator=draws)
    examples = Examples((points,), torch.randint(3, (10,), generator=draws))
    start = networks_of(widths, models=1, settings=2)
    noise, rate = torch.tensor([1.0, 3.0]), torch.tensor([1e-7, 5e-8])
    moved = dp_sgd.train(
        start,
        examples,
        torch.arange(10)[None],
        PrivateRecipe(steps, batch, clip),
        noise=noise,
        learning_rate=rate,
        generator=stream(0, "noise"),
    )
    change = (moved.weights[0] - start.weights[0])[0].flatten(1)
    expected = rate * noise * clip / batch * math.sqrt(steps)
    # The standard deviation of n = 20,000 normals has the relative error 1 / √(2n) = 0.5 %; four of these.
    torch.testing.assert_close(change.std(1), expected.double(), rtol=0.02, atol=0)
    assert bool((change.mean(1).abs() < 4 * expected / math.sqrt(change.shape[1])).all())
    # Settings share the draws, as the module says; models and layers do not.
    torch.testing.assert_close(change[0] / expected[0], change[1] / expected[1], rtol=1e-6, atol=1e-6)


def test_models_have_noise_of_their_own():
    examples, rows = a_problem()
    start = mlp.initial((MODELS, 1), (5, 8, 3), generator=stream(1, "start"))
    moved = dp_sgd.train(
        start,
        examples,
        rows,
        PrivateRecipe(1, 1e-9),
        noise=torch.ones(1),
        learning_rate=torch.tensor([1e-9]),
        generator=stream(0, "noise"),
    )
    change = (moved.weights[0] - start.weights[0]).flatten(1)
    assert float(torch.corrcoef(change).triu(1).abs().max()) < 4 / math.sqrt(change.shape[1])


def test_each_row_enters_a_batch_independently_with_the_rate():
    rows = torch.stack([torch.arange(50), torch.arange(100, 150)])
    rate, steps = 0.2, 2000
    seen = torch.zeros(2, 200)
    sizes = []
    for index, present in dp_sgd.poisson_batches(rows, rate, steps=steps, generator=stream(0, "batches")):
        assert index.shape == present.shape
        assert int(present.sum(-1).max()) == index.shape[1]  # no longer than the longest
        seen.scatter_add_(1, index, present.float())
        sizes.append(present.sum(-1))
    inside = seen.gather(1, rows) / steps
    assert float(seen.sum()) == pytest.approx(float(seen.gather(1, rows).sum()))  # a model sees its own rows only
    # 100 rates, each with the standard error √(q(1-q)/T) = 0.009; none is off by five of these.
    assert float((inside - rate).abs().max()) < 5 * math.sqrt(rate * (1 - rate) / steps)
    counts = torch.stack(sizes).double()
    # Independent rows make the size binomial: its variance is m q (1 - q), to the relative error √(2/T) of a variance.
    torch.testing.assert_close(
        counts.var(0), torch.full((2,), 50 * rate * (1 - rate), dtype=torch.float64), rtol=0.13, atol=0
    )
    assert abs(float(torch.corrcoef(counts.T)[0, 1])) < 4 / math.sqrt(steps)  # the models' batches are unrelated


def test_a_planted_outlier_is_learnt_without_clipping_and_hidden_by_it():
    # One row has a label that its twin contradicts nowhere: only this row can teach it. Its features are huge.
    features = torch.cat([torch.randn(30, 4, generator=stream(0, "x"), dtype=torch.float64), torch.full((1, 4), 50.0)])
    labels = torch.cat([torch.zeros(30, dtype=torch.int64), torch.ones(1, dtype=torch.int64)])
    examples = Examples((features,), labels)
    start = dp_sgd.repeat_for_settings(mlp.initial((1,), (4, 2), generator=stream(0, "w")), 1)

    def answer(clip, noise):
        out = dp_sgd.train(
            start,
            examples,
            torch.arange(31)[None],
            PrivateRecipe(40, 15.5, clip),
            noise=torch.tensor([noise]),
            learning_rate=torch.tensor([0.05]),
            generator=stream(0, "t"),
        )
        return int(out[:, 0](features[-1:]).argmax())

    assert answer(clip=1e9, noise=0.0) == 1
    assert answer(clip=1e-4, noise=1.0) == int(start[:, 0](features[-1:]).argmax())
