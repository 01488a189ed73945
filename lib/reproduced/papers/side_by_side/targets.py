"""Models of four kinds, trained by one protocol on complementary halves of the same rows: the targets of all attacks.

The seed and a name fix the rows, the halves, the initial weights and the shuffles. All kinds of one name are trained on
the same halves, so they can be compared model by model.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn
from torch.func import functional_call

from leakage.data.membership_splits import Pairs, complementary_pairs
from leakage.data.tabular import LabelledData
from leakage.membership.evaluation import evaluate
from leakage.membership.trained_models import TrainedModels
from leakage.models import initialisation, mlp
from leakage.models.classifier import Classifier, EstimatorClassifier
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, ModuleEnsemble, Recipe
from reproduced.runtime import Run, move, stream


def train_models(
    kind: str, data: LabelledData, *, points: int, models: int, name: str, run: Run, flipped: float = 0.0
) -> TrainedModels:
    """`models` models of a kind in `KINDS`, each trained on half of `points` rows of the data.

    `run.seed` and `name` fix the rows and the halves. A share `flipped` of the rows has its class drawn anew.
    """
    draws = run.stream(f"side by side/{name}")
    rows = torch.randperm(len(data), generator=draws)[:points]
    features, labels = data.features[rows].float(), data.labels[rows].clone()
    anew = torch.rand(points, dtype=torch.float32, generator=draws) < flipped
    labels[anew] = torch.randint(data.classes, (int(anew.sum()),), generator=draws)
    pairs = complementary_pairs(points, models, generator=draws)
    pool = LabelledData(features, labels)
    trained = KINDS[kind](pool, data.classes, pairs, run, run.stream(f"side by side/{name}/{kind}"))
    return TrainedModels(trained, features.double(), labels, pairs.member, pairs.partner)


def count_questions(models: TrainedModels, name: str, *, seed: int) -> float:
    """How many predictions an attack asks of a target for each point that it judges, on average."""
    asked = 0

    def count(network: Classifier) -> Classifier:
        def answer(points: Tensor) -> Tensor:
            nonlocal asked
            asked += len(points)
            return network(points)

        return answer

    counted = replace(models, networks=[count(network) for network in models.networks])
    evaluate(counted, [name], generator=stream(seed, "side by side/questions"))
    return asked / models.member.numel()


def _perceptron_trainer(hidden: tuple[int, ...], recipe: Recipe) -> Callable[..., list[Classifier]]:
    def train(pool: LabelledData, classes: int, pairs: Pairs, run: Run, generator: torch.Generator) -> list[Classifier]:
        widths = (pool.features.shape[1], *hidden, classes)
        start = mlp.initial((len(pairs.rows),), widths, generator=generator, dtype=torch.float32)
        device = _device_for_training((*start.weights, *start.biases), recipe, run)
        begun, examples, rows = move((start, Examples((pool.features,), pool.labels), pairs.rows), device)
        trained = ensembles.train(MlpEnsemble.from_mlp(begun), examples, rows, recipe, generator=generator)
        found = move(trained, "cpu")
        return [found[i].to(torch.float64) for i in range(len(pairs.rows))]

    return train


class _MaxPool(nn.Module):
    """`nn.MaxPool2d(2)`, ten times as fast on a CPU."""

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h2 w2"]:
        """The largest of each two by two pixels; an odd row or column at the end is dropped."""
        for axis in (-2, -1):
            first, second = images.unfold(axis, 2, 2).unbind(-1)
            images = torch.maximum(first, second)
        return images


def _train_convolutional(
    pool: LabelledData, classes: int, pairs: Pairs, run: Run, generator: torch.Generator
) -> list[Classifier]:
    """Networks of two convolutions over square images, whose pixels are the features."""
    side = round(pool.features.shape[1] ** 0.5)
    with torch.device("meta"):
        form = nn.Sequential(
            nn.Unflatten(1, (1, side, side)),
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), _MaxPool()),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten()),
            nn.Linear(16 * (side // 2) ** 2, classes),
        )
    start, recipe = initialisation.initial(form, len(pairs.rows), generator=generator), Recipe(30, 32, 3e-3)
    device = _device_for_training(start.parameters.values(), recipe, run)
    begun, examples, rows = move((start, Examples((pool.features,), pool.labels), pairs.rows), device)
    trained = ensembles.train(ModuleEnsemble(form, begun), examples, rows, recipe, generator=generator)
    found = move(trained.stack.parameters, "cpu")

    def network(number: int) -> Classifier:
        own = {key: part[number] for key, part in found.items()}
        return torch.no_grad()(lambda points: functional_call(form, own, points.float()).double())

    return [network(number) for number in range(len(pairs.rows))]


def _device_for_training(parameters: Iterable[Tensor], recipe: Recipe, run: Run) -> torch.device:
    """Where all networks of these parameters are trained."""
    return run.device_for("networks", recipe.batch * sum(part.numel() for part in parameters))


def _train_forests(
    pool: LabelledData, classes: int, pairs: Pairs, run: Run, generator: torch.Generator
) -> list[Classifier]:
    """Forests of fifty trees."""
    seeds = torch.randint(2**31 - 1, (len(pairs.rows),), generator=generator).tolist()
    x, y, halves = (part.numpy() for part in (pool.features, pool.labels, pairs.rows))
    forests = [
        RandomForestClassifier(50, random_state=number).fit(x[rows], y[rows])
        for rows, number in zip(halves, seeds, strict=True)
    ]
    return [EstimatorClassifier(forest, np.arange(classes)) for forest in forests]


KINDS: Mapping[str, Callable[..., list[Classifier]]] = {
    "MLP": _perceptron_trainer((64,), Recipe(epochs=60, batch=32, learning_rate=3e-3)),
    "linear": _perceptron_trainer((), Recipe(epochs=60, batch=32, learning_rate=1e-2)),
    "CNN": _train_convolutional,
    "forest": _train_forests,
}
"""How models of a kind are trained, from the pool, the number of classes, the halves, the run and a generator."""
