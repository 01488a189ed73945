r"""Classifiers that tell members from outsiders by features: a small neural network, or gradient-boosted trees.

The attacker sees features of each point under the target, (points, features), and knows the members of a shadow model,
on which the classifier is fitted. A score is the log-odds of membership. Infinite features, where no boundary was met,
are clamped to the finite range on the shadow's points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, Recipe

Features = Mapping[str, Float[Tensor, "t f"]]
"""Feature sets by name; each may have another number of columns, and all have the same rows."""
MODELS = ("NN", "NN standardised", "GBDT")
"""`NN` has one hidden layer and takes features as they are; `NN standardised` centres and scales them by the shadow's
mean and spread; `GBDT` are boosted trees."""


@dataclass(frozen=True)
class Settings:
    """Sizes of the attack models."""

    hidden: int = 64
    recipe: Recipe = field(default_factory=lambda: Recipe(epochs=50, batch=100, learning_rate=1e-2))
    trees: int = 100
    leaves: int = 6
    rate: float = 0.05


class AttackTask(NamedTuple):
    """One attack by one kind of classifier, fitted anew for each feature set.

    The classifier, one of `MODELS`, is fitted to the shadow's features and `member`. Trees use no `generator`.
    """

    model: str
    shadow: Features
    member: Bool[Tensor, " t"]
    target: Features
    generator: torch.Generator


def run_attack_models(tasks: Sequence[AttackTask], *, settings: Settings | None = None) -> list[dict[str, Tensor]]:
    r"""For each task a score of each of the target's points, by feature set.

    The networks of all tasks are trained at once, so all shadows must have equally many points; each task draws what it
    would draw alone.

    Source: Salem et al. (2018), with the 64 neurons that Peinemann (2021), Section 7.3, states.
    """
    settings = settings or Settings()
    by_networks = iter(_train_networks([task for task in tasks if task.model != "GBDT"], settings))
    return [
        score_with_trees(task.shadow, task.member, task.target, settings=settings)
        if task.model == "GBDT"
        else next(by_networks)
        for task in tasks
    ]


def score_with_trees(
    shadow: Features, member: Bool[Tensor, " t"], target: Features, *, settings: Settings | None = None
) -> dict[str, Tensor]:
    """A score of each of the target's points, by feature set, from gradient-boosted trees.

    Source: Peinemann (2021), Section 7.4, with the histogram trees of scikit-learn.
    """
    settings = settings or Settings()
    sizes: dict[str, Any] = dict(
        learning_rate=settings.rate, max_iter=settings.trees, max_leaf_nodes=settings.leaves, early_stopping=False
    )
    scores = {}
    for name in shadow:
        known, asked = _clamp(shadow[name], target[name])
        trees = HistGradientBoostingClassifier(**sizes, random_state=0).fit(known.cpu().numpy(), member.cpu().numpy())
        scores[name] = torch.as_tensor(trees.decision_function(asked.cpu().numpy()), device=asked.device)
    return scores


def _train_networks(tasks: Sequence[AttackTask], settings: Settings) -> list[dict[str, Tensor]]:
    """The scores of tasks by networks; narrower feature sets get columns of zeros, whose weights never move."""
    if not tasks:
        return []
    prepared = [[_prepare(task, name) for name in task.shadow] for task in tasks]
    pairs = [pair for sets in prepared for pair in sets]
    widest = max(known.shape[1] for known, _ in pairs)
    known = torch.stack([_widen(shadow, widest) for shadow, _ in pairs])
    rows = torch.arange(known.shape[0] * known.shape[1], device=known.device).view(known.shape[:2])
    starts, shuffles = [], []
    for task, sets, own in zip(tasks, prepared, rows.split([len(sets) for sets in prepared]), strict=True):
        starts += [_initial(shadow.shape[1], widest, settings.hidden, task.generator) for shadow, _ in sets]
        shuffles.append([ensembles.shuffle_rows(own, generator=task.generator) for _ in range(settings.recipe.epochs)])
    labels = torch.cat([task.member.long().repeat(len(sets)) for task, sets in zip(tasks, prepared, strict=True)])
    fitted = ensembles.train(
        MlpEnsemble.from_mlp(mlp.stack(starts).each(lambda part: part.to(known.device))),
        Examples((known.flatten(0, 1),), labels),
        rows,
        settings.recipe,
        generator=tasks[0].generator,
        orders=[torch.cat(orders) for orders in zip(*shuffles, strict=True)],
    )
    outputs = [fitted[place](_widen(asked, widest)).double() for place, (_, asked) in enumerate(pairs)]
    scores = iter([output[..., 1] - output[..., 0] for output in outputs])
    return [{name: next(scores) for name in task.shadow} for task in tasks]


def _prepare(task: AttackTask, name: str) -> tuple[Tensor, Tensor]:
    shadow, target = _clamp(task.shadow[name], task.target[name])
    if task.model == "NN standardised":
        mean, spread = shadow.mean(0), shadow.std(0)
        spread = torch.where(spread > 0, spread, 1.0)
        shadow, target = ((part - mean) / spread for part in (shadow, target))
    return shadow.float(), target.float()


def _clamp(shadow: Float[Tensor, "s f"], target: Float[Tensor, "t f"]) -> tuple[Tensor, Tensor]:
    """Both within the finite range of the shadow's columns."""
    finite = shadow.isfinite()
    low = torch.where(finite, shadow, torch.inf).amin(0).nan_to_num(posinf=0.0)
    high = torch.where(finite, shadow, -torch.inf).amax(0).nan_to_num(neginf=0.0)
    return shadow.clamp(low, high), target.clamp(low, high)


def _widen(features: Float[Tensor, "t f"], width: int) -> Float[Tensor, "t width"]:
    return torch.nn.functional.pad(features, (0, width - features.shape[1]))


def _initial(inputs: int, width: int, hidden: int, generator: torch.Generator) -> Mlp:
    """A network of `inputs` inputs, with further inputs up to `width` that it does not see."""
    network = mlp.initial((), (inputs, hidden, 2), generator=generator, dtype=torch.float32)
    return Mlp((_widen(network.weights[0], width), network.weights[1]), network.biases)
