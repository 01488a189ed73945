"""Models of chapter blessing, trained one at a time and with all their features, as one writes it.

The oracles that `blessing` times and checks the library's own ways against. Shuffles and draws come in as streams, so
that both sides can be given the same ones.
"""

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, linear, pad

from leakage.draws import gaussian
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from leakage.trainers.ensembles import Recipe, shuffle_rows
from reproduced.papers.blessing.logistic_models import Bilevel, Points


def drawn(ensemble: Bilevel, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """A training set with all its features."""
    strong = gaussian((ensemble.n, ensemble.d), generator=draws)
    weak = gaussian((ensemble.n, ensemble.p - ensemble.d), generator=draws)
    chance = torch.sigmoid(ensemble.kappa * strong[:, 0])
    labels = (torch.rand(ensemble.n, generator=draws, dtype=DTYPE) < chance).to(DTYPE)
    return torch.cat([strong.mul_(ensemble.strong**0.5), weak.mul_(ensemble.weak**0.5)], dim=1), labels


def explicit(ensemble: Bilevel, points: Points) -> Tensor:
    """The points with all their features."""
    strong = pad(points.strong, (0, ensemble.d - points.strong.shape[1]))
    weak = pad(points.weak, (0, ensemble.p - ensemble.d - points.weak.shape[1]))
    return torch.cat([strong * ensemble.strong**0.5, weak * ensemble.weak**0.5], dim=1)


def refits(rows: Tensor, labels: Tensor, asked: Tensor, given: Tensor, *, ridge: float) -> tuple[Tensor, Tensor]:
    """Outputs at the points without them, and of one model for each that is trained with it."""
    outputs = [
        asked[j] @ regression(torch.cat([rows, asked[j : j + 1]]), torch.cat([labels, given[j : j + 1]]), ridge=ridge)
        for j in range(len(given))
    ]
    return asked @ regression(rows, labels, ridge=ridge), torch.stack(outputs)


def regression(rows: Tensor, labels: Tensor, *, ridge: float) -> Tensor:
    """Coefficients of a ridge logistic regression; at the default tolerance outputs would be off by one half."""
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=10_000)
    return torch.from_numpy(model.fit(rows.numpy(), labels.numpy()).coef_[0])


def by_modules(
    start: Mlp, features: Tensor, labels: Tensor, rows: Tensor, recipe: Recipe, *, generator: torch.Generator
) -> Mlp:
    """Train one network after the other in every step, by Adam."""
    networks = [as_module(start[model]) for model in range(len(rows))]
    optimisers = [torch.optim.Adam(network.parameters(), lr=recipe.learning_rate) for network in networks]
    features = features.to(start.weights[0])
    for _ in range(recipe.epochs):
        for batch in shuffle_rows(rows, generator=generator).split(recipe.batch, dim=-1):
            for network, optimiser, own in zip(networks, optimisers, batch, strict=True):
                optimiser.zero_grad()
                cross_entropy(network(features[own]), labels[own]).backward()
                optimiser.step()
    return mlp.stack([mlp.from_module(network) for network in networks])


def as_module(network: Mlp) -> nn.Sequential:
    """A network of one hidden layer as PyTorch's own."""
    inputs, width, classes = network.widths
    module = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, classes))
    parts = [part for layer in zip(network.weights, network.biases, strict=True) for part in layer]
    for parameter, part in zip(module.parameters(), parts, strict=True):
        parameter.data = part.clone()
    return module


def clipped_by_examples(networks: Mlp, points: Tensor, labels: Tensor) -> Mlp:
    """The sum of gradients, each formed and clipped to norm 1."""

    def surprise(network: tuple[tuple[Tensor, ...], tuple[Tensor, ...]], point: Tensor, label: Tensor) -> Tensor:
        (first, second), (bias, last) = network
        return cross_entropy(linear(linear(point, first, bias).relu(), second, last), label)

    of_examples = vmap(vmap(grad(surprise), in_dims=(None, 0, 0)))
    weights, biases = of_examples((networks.weights, networks.biases), points, labels)
    squares = [part.flatten(2).square().sum(-1) for part in (*weights, *biases)]
    share = torch.stack(squares).sum(0).rsqrt().clamp_max(1).unsqueeze(1)
    weights, biases = (
        tuple((share @ part.flatten(2)).view_as(part[:, 0]) for part in side) for side in (weights, biases)
    )
    return Mlp(weights, biases)
