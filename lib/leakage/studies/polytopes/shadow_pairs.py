"""Targets with their shadow models: two networks of one shape, each trained on its quarter of one data set.

Four disjoint quarters: the target's members and outsiders, the shadow's members and outsiders. The attacker knows the
last two and what the shadow model makes of them. Nothing here attacks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.data import adult, embedded, fetch, location, newsgroups, purchase, registry, texas
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import stream
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import Perceptrons


@dataclass(frozen=True)
class Task:
    """What is trained on what.

    Attributes:
        data: a name in `LOADERS`.
        size: points of a quarter.
        hidden: neurons of each hidden layer.
        recipe: of the training.
    """

    data: str
    size: int
    hidden: tuple[int, ...]
    recipe: Recipe

    def __post_init__(self) -> None:
        if self.data not in LOADERS:
            raise ValueError(f"`data` must be one of {', '.join(LOADERS)}; got {self.data!r}.")
        if self.size < 2 or not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"`size` must be at least 2 and `hidden` name a layer or more, got {self}.")

    def content_elsewhere(self) -> str:
        """The checksum of the data as they are here, so that no result is kept of a set that was replaced since."""
        return fetch.checksum(self.data) if self.data in registry.DATASETS else ""


class Labelled(NamedTuple):
    """Points and their classes."""

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]


def _location() -> Labelled:
    users = location.load()
    return Labelled(users.features.float(), users.labels)


def _adult() -> Labelled:
    """Numbers standardised and words one-hot, as fixed by all rows: an encoding that says nothing about a split."""
    people = adult.load()
    return Labelled(adult.encode(people, adult.fit_encoder(people)).float(), people.over_50k.long())


def _digits() -> Labelled:
    """Black and white, so that they are bits like the places of Location-30."""
    digits = embedded.digits()
    return Labelled((digits.features >= 0.5).float(), digits.labels)


def _tumours() -> Labelled:
    """Measurements standardised by all rows: an encoding that says nothing about a split."""
    tumours = embedded.breast_cancer()
    centred = tumours.features - tumours.features.mean(0)
    return Labelled((centred / tumours.features.std(0)).float(), tumours.labels)


def _purchase() -> Labelled:
    shoppers = purchase.load()
    return Labelled(shoppers.features.float(), shoppers.labels)


def _texas() -> Labelled:
    stays = texas.load()
    return Labelled(stays.features.float(), stays.labels)


def _newsgroups() -> Labelled:
    """Weights of the most frequent words; the thesis keeps all 134,410."""
    messages = newsgroups.load()
    return Labelled(newsgroups.tf_idf(messages)[0], messages.labels)


LOADERS: Mapping[str, Callable[[], Labelled]] = {
    "location": _location,
    "adult": _adult,
    "purchase100": _purchase,
    "texas100": _texas,
    "20newsgroups": _newsgroups,
    "digits": _digits,
    "breast-cancer": _tumours,
}
TASKS: Mapping[str, Task] = {
    "location": Task("location", size=1252, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "adult": Task("adult", size=2500, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "purchase100": Task("purchase100", size=10_000, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "texas100": Task("texas100", size=10_000, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "20newsgroups": Task("20newsgroups", size=2500, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "digits": Task("digits", size=449, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
    "breast-cancer": Task("breast-cancer", size=142, hidden=(128,), recipe=Recipe(epochs=60, batch=100)),
}
"""Quarters of 1252 and 60 epochs bring a network of 128 neurons to 100 % on its members of Location-30 and some 62 % on
outsiders, which is what Peinemann (2021), Section 7.3, states of a target whose shape is not given. The two sets that
come with scikit-learn have quarters as large as they can be."""


def load(task: Task, *, device: torch.device | str = "cpu") -> Labelled:
    """The data of a task, in float32.

    Raises:
        DataAbsent: if the file is not here.
    """
    features, labels = LOADERS[task.data]()
    return Labelled(features.to(device), labels.to(device))


@dataclass(frozen=True, eq=False)
class Side:
    """One network and the points that its membership is asked about: its members first, then as many outsiders.

    The network and the points are in float64, although the training was in float32.
    """

    network: Mlp
    points: Float[Tensor, "t d"]
    labels: Int[Tensor, " t"]
    member: Bool[Tensor, " t"]

    @property
    def fit(self) -> dict[str, float]:
        """Accuracy on members (`train`) and outsiders (`test`)."""
        right = self.network(self.points).argmax(-1) == self.labels
        return {
            "train": float(right[self.member].double().mean()),
            "test": float(right[~self.member].double().mean()),
        }

    def some(self, count: int) -> "Side":
        """The first `count` members and the first `count` outsiders.

        Raises:
            ValueError: if there are not as many.
        """
        half = len(self.labels) // 2
        if not 1 <= count <= half:
            raise ValueError(f"`count` must lie between 1 and {half}, got {count!r}.")
        kept = torch.arange(count, device=self.labels.device)
        rows = torch.cat([kept, kept + half])
        return Side(self.network, self.points[rows], self.labels[rows], self.member[rows])


class Pair(NamedTuple):
    """The target and its shadow."""

    target: Side
    shadow: Side


def quarters(count: int, *, size: int, generator: torch.Generator) -> Int[Tensor, "4 size"]:
    """Four disjoint random sets of rows: target's members and outsiders, shadow's members and outsiders.

    Raises:
        ValueError: if four times `size` is more than `count`, or `size` is below 1.
    """
    if not 1 <= size <= count // 4:
        raise ValueError(f"`size` must lie between 1 and a quarter of {count} points, got {size!r}.")
    order = torch.randperm(count, generator=generator, device=generator.device)
    return order[: 4 * size].view(4, size)


def train_pair(data: Labelled, task: Task, *, split: int, seed: int) -> Pair:
    """Split the data anew and train target and shadow on it; `split` and `seed` fix everything that is random.

    Raises:
        ValueError: as `quarters` and `ensembles.train`, or if all labels are equal.
    """
    features, labels = data
    if bool((labels == labels[0]).all()):
        raise ValueError(f"`labels` must hold two classes or more, got {int(labels[0])} only.")
    device = features.device
    rows = quarters(len(labels), size=task.size, generator=stream(seed, f"quarters/{split}", device))
    widths = (features.shape[1], *task.hidden, int(labels.max()) + 1)
    start = mlp.initial((2,), widths, generator=stream(seed, f"pair/{split}", device), dtype=torch.float32)
    shuffles = stream(seed, f"shuffles/{split}", device)
    examples = Examples((features,), labels)
    networks = ensembles.train(Perceptrons.of(start), examples, rows[::2], task.recipe, generator=shuffles)
    sides = [_side(network, data, rows[2 * i], rows[2 * i + 1]) for i, network in enumerate((networks[0], networks[1]))]
    return Pair(*sides)


def _side(network: Mlp, data: Labelled, members: Tensor, outsiders: Tensor) -> Side:
    rows = torch.cat([members, outsiders])
    member = torch.arange(len(rows), device=rows.device) < len(members)
    return Side(network.to(torch.float64), data.features[rows].double(), data.labels[rows], member)
