r"""Classifiers that tell members from outsiders by features: a small neural network, or gradient-boosted trees.

The attacker sees features of each point under the target (posteriors, distances; a true label only where a feature
needs it), and knows the members and outsiders of one shadow model, on which the classifier is fitted. Features are
(points, features), scores one for each of the target's points: log-odds, larger for likelier members. Every feature is
clamped to the finite range it has there: it is infinite where no boundary was met. Nothing here looks at the target's
truth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import Perceptrons

Features = Mapping[str, Float[Tensor, "t f"]]
"""Feature sets by name; each may have another number of columns, and all have the same rows."""


@dataclass(frozen=True)
class Settings:
    """Sizes of the attack models.

    Attributes:
        hidden: neurons of the network's one hidden layer.
        recipe: of the network's training.
        trees: how many trees are boosted.
        leaves: of each tree.
        rate: shrinkage of each tree.
    """

    hidden: int = 64
    recipe: Recipe = field(default_factory=lambda: Recipe(epochs=50, batch=100, learning_rate=1e-2))
    trees: int = 100
    leaves: int = 6
    rate: float = 0.05


def networks(
    shadow: Features,
    member: Bool[Tensor, " t"],
    target: Features,
    *,
    settings: Settings | None = None,
    generator: torch.Generator,
    standardise: bool = False,
) -> dict[str, Tensor]:
    r"""Log-odds of membership of the target's points, by one network of one hidden layer for each feature set.

    All are trained at once (`together`): narrower feature sets are filled up with columns of zeros, whose weights never
    move.

    Source: Salem et al. (2018), with the 64 neurons that Peinemann (2021), Section 7.3, states.

    Args:
        shadow: features of the shadow model's members and outsiders.
        member: which of these are members.
        target: the same features of the target's points.
        settings: sizes; `hidden` and `recipe` count.
        generator: initial weights and shuffles.
        standardise: centre and scale the features by the shadow's mean and spread first. Salem et al. take posteriors
            as they are.

    Returns:
        A score for each of the target's points, by feature set.
    """
    model = "NN standardised" if standardise else "NN"
    return together([Question(model, shadow, member, target, generator)], settings=settings)[0]


def boosted(
    shadow: Features,
    member: Bool[Tensor, " t"],
    target: Features,
    *,
    settings: Settings | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """As `networks`, by gradient-boosted trees, which draw nothing: `generator` is there for the sake of the table.

    Source: Peinemann (2021), Section 7.4, with the histogram trees of scikit-learn.
    """
    settings = settings or Settings()
    sizes: dict[str, Any] = dict(
        learning_rate=settings.rate, max_iter=settings.trees, max_leaf_nodes=settings.leaves, early_stopping=False
    )
    scores = {}
    for name in shadow:
        known, asked = _prepared(shadow[name], target[name])
        trees = HistGradientBoostingClassifier(**sizes, random_state=0).fit(known.cpu().numpy(), member.cpu().numpy())
        scores[name] = torch.as_tensor(trees.decision_function(asked.cpu().numpy()), device=asked.device)
    return scores


MODELS: Mapping[str, Callable[..., dict[str, Tensor]]] = {
    "NN": networks,
    "NN standardised": partial(networks, standardise=True),
    "GBDT": boosted,
}


class Question(NamedTuple):
    """One of `MODELS` by name, and what it is given; see `networks`."""

    model: str
    shadow: Features
    member: Bool[Tensor, " t"]
    target: Features
    generator: torch.Generator


def together(questions: Sequence[Question], *, settings: Settings | None = None) -> list[dict[str, Tensor]]:
    """The answer of `MODELS` to each question, to rounding, with the networks of all questions trained at once.

    What a question draws, it draws before the next one does, as if it were asked alone. All shadows have equally many
    points.
    """
    settings = settings or Settings()
    nets = [question for question in questions if question.model != "GBDT"]
    found = iter(_trained(nets, settings) if nets else ())
    return [
        boosted(one.shadow, one.member, one.target, settings=settings) if one.model == "GBDT" else next(found)
        for one in questions
    ]


def _trained(questions: Sequence[Question], settings: Settings) -> list[dict[str, Tensor]]:
    """The answers of networks. Their inputs are as many as the widest feature set has columns."""
    parts = [
        [
            tuple(
                part.float()
                for part in _prepared(one.shadow[name], one.target[name], standardise=one.model == "NN standardised")
            )
            for name in one.shadow
        ]
        for one in questions
    ]
    pairs = [pair for part in parts for pair in part]
    widest = max(known.shape[1] for known, _ in pairs)
    known = torch.stack([_widened(first, widest) for first, _ in pairs])
    rows = torch.arange(known.shape[0] * known.shape[1], device=known.device).view(known.shape[:2])
    own = rows.split([len(part) for part in parts])
    starts, shuffles = [], []
    for one, part, rows_of in zip(questions, parts, own, strict=True):
        starts += [_initial(first.shape[1], widest, settings.hidden, one.generator) for first, _ in part]
        shuffles.append([ensembles.shuffled(rows_of, generator=one.generator) for _ in range(settings.recipe.epochs)])
    labels = torch.cat([one.member.long().repeat(len(part)) for one, part in zip(questions, parts, strict=True)])
    fitted = ensembles.train(
        Perceptrons.of(mlp.stack(starts)),
        Examples((known.flatten(0, 1),), labels),
        rows,
        settings.recipe,
        generator=questions[0].generator,
        orders=[torch.cat(orders) for orders in zip(*shuffles, strict=True)],
    )
    outputs = [fitted[place](_widened(asked, widest)).double() for place, (_, asked) in enumerate(pairs)]
    scores = iter([output[..., 1] - output[..., 0] for output in outputs])
    return [{name: next(scores) for name in one.shadow} for one in questions]


def _prepared(
    shadow: Float[Tensor, "s f"], target: Float[Tensor, "t f"], *, standardise: bool = False
) -> tuple[Tensor, Tensor]:
    """Both within the finite range of the shadow's columns."""
    finite = shadow.isfinite()
    low = torch.where(finite, shadow, torch.inf).amin(0).nan_to_num(posinf=0.0)
    high = torch.where(finite, shadow, -torch.inf).amax(0).nan_to_num(neginf=0.0)
    shadow, target = (part.clamp(low, high) for part in (shadow, target))
    if standardise:
        mean, spread = shadow.mean(0), shadow.std(0)
        spread = torch.where(spread > 0, spread, 1.0)
        shadow, target = ((part - mean) / spread for part in (shadow, target))
    return shadow, target


def _widened(features: Float[Tensor, "t f"], width: int) -> Float[Tensor, "t width"]:
    return torch.nn.functional.pad(features, (0, width - features.shape[1]))


def _initial(inputs: int, width: int, hidden: int, generator: torch.Generator) -> Mlp:
    """A network of `inputs` inputs, with further inputs up to `width` that it does not see."""
    network = mlp.initial((), (inputs, hidden, 2), generator=generator, dtype=torch.float32)
    return Mlp((_widened(network.weights[0], width), network.weights[1]), network.biases)
