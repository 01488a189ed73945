r"""The thesis' first attack: ML-Leaks with and without the metrics of activation polytopes, against one target.

Target and shadow are two networks of one shape, each trained on its quarter of one data set; the other two quarters are
their outsiders. The attacker knows the shadow with its members and outsiders, fits each attack model on the shadow's
features and applies it to the target. The accuracy is that of the attack model's own decision; no threshold was chosen
on the target. Posteriors go into the raw network as they are, as in ML-Leaks.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from leakage.data.membership_splits import target_and_shadow_sets
from leakage.data.tabular import LabelledData
from leakage.membership import attack_models, hyperedges, posterior
from leakage.membership.attack_models import AttackTask, Settings
from leakage.membership.boundary_distance import deepfool
from leakage.membership.polytopes import nearest_hyperedges
from leakage.membership.rays import ray_label_change
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.metrics.scores import Scores
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, Recipe
from reproduced.runtime import Run, map_tensors, move

# ── targets and their shadows ────────────────────────────────────────────────────────────────────────────────────────

RECIPE = Recipe(epochs=60, batch=100)


@dataclass(frozen=True, eq=False)
class Task:
    """The data, the shape of the networks and their training; `size` points a quarter."""

    data: LabelledData
    size: int
    hidden: tuple[int, ...] = (128,)
    recipe: Recipe = RECIPE

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the networks: inputs, hidden layers, classes."""
        return (self.data.features.shape[1], *self.hidden, self.data.classes)


SIZES: Mapping[str, int] = {"location": 1252, "adult": 2500, "digits": 449, "breast-cancer": 142}
"""Points of a quarter, by data set. Quarters of 1252 and 60 epochs bring a network of 128 neurons to 100 % on its
members of Location-30 and some 62 % on outsiders, which is what Peinemann (2021), Section 7.3, states of a target whose
shape is not given. The two sets that come with scikit-learn have quarters as large as they can be."""


class Fit(NamedTuple):
    """A network's accuracy on its members, `train`, and on outsiders, `test`."""

    train: float
    test: float


@dataclass(frozen=True, eq=False)
class AttackedNetwork:
    """One network and the points that the attack asks about: its members first, then as many outsiders.

    The network and the points are in float64, although the training was in float32.
    """

    network: Mlp
    points: Float[Tensor, "t d"]
    labels: Int[Tensor, " t"]
    member: Bool[Tensor, " t"]

    @property
    def fit(self) -> Fit:
        """The network's accuracy."""
        right = self.network(self.points).argmax(-1) == self.labels
        return Fit(*(float(right[kind].double().mean()) for kind in (self.member, ~self.member)))

    def take(self, count: int) -> "AttackedNetwork":
        """The first `count` members and the first `count` outsiders."""
        kept = torch.arange(count)
        rows = torch.cat([kept, kept + len(self.labels) // 2])
        return AttackedNetwork(self.network, self.points[rows], self.labels[rows], self.member[rows])


class TargetAndShadow(NamedTuple):
    """The target and its shadow."""

    target: AttackedNetwork
    shadow: AttackedNetwork


@functools.lru_cache(maxsize=32)  # several experiments ask for the pairs of the same splits
def train_pair(task: Task, *, split: int, run: Run) -> TargetAndShadow:
    """Split the data anew and train target and shadow on it; `split` and `run.seed` fix everything that is random."""
    data = task.data
    rows = target_and_shadow_sets(len(data), size=task.size, generator=run.stream(f"quarters/{split}"))
    start = mlp.initial((2,), task.widths, generator=run.stream(f"pair/{split}"), dtype=torch.float32)
    networks = train_networks(start, task, rows[::2], run=run, shuffles=f"shuffles/{split}")
    sides = []
    for index in range(2):
        own = rows[2 * index : 2 * index + 2].flatten()
        member = torch.arange(len(own)) < task.size
        sides.append(AttackedNetwork(networks[index].to(DTYPE), data.features[own].double(), data.labels[own], member))
    return TargetAndShadow(*sides)


def train_networks(start: Mlp, task: Task, rows: Int[Tensor, "models size"], *, run: Run, shuffles: str) -> Mlp:
    """The networks trained on these rows of the task's data; `shuffles` names the stream that shuffles them."""
    begun = MlpEnsemble.from_mlp(start)
    device = run.device_for("networks", task.recipe.batch * sum(part.numel() for part in begun.parameters))
    given = move((begun, Examples((task.data.features,), task.data.labels), rows), device)
    return move(ensembles.train(*given, task.recipe, generator=run.stream(shuffles)), "cpu")


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class AttackResult(NamedTuple):
    """What a membership score achieves against targets.

    Attributes:
        accuracy: on as many members as outsiders.
        auc: area under the curve.
        tpr: true positive rate at each of the false positive rates that were asked for.
    """

    accuracy: Float[Tensor, "*b"]
    auc: Float[Tensor, "*b"]
    tpr: Float[Tensor, "*b rates"]


def evaluate_scores(
    scores: Real[Tensor, "*b n"],
    *,
    member: Bool[Tensor, "*b n"],
    rates: Sequence[float] = (),
    threshold: float | None = None,
) -> AttackResult:
    """The result of scores; without a threshold the accuracy is that of the best one on these very scores."""
    ranked = Scores.from_mask(scores, member=member)
    advantage = ranked.best_advantage() if threshold is None else ranked.advantage(threshold)
    return AttackResult((1 + advantage) / 2, ranked.auc(), ranked.tpr_at_fprs(rates))


def stack_splits(splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result for each name, with the splits along a new first axis of its tensors."""
    return map_tensors(lambda *parts: torch.stack(parts), *splits)


def gain_beside_posteriors(
    scores: Mapping[str, AttackResult], added: str, *, model: str, measure: Literal["accuracy", "auc"]
) -> Estimate:
    """What an attack model gains from the signals `added` beside the three posteriors: the mean over splits, paired."""
    with_signals, alone = (getattr(scores[f"{model}: {name}"], measure) for name in (f"top-3 + {added}", "top-3"))
    return mean_interval(with_signals - alone)


# ── attacks ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STANDALONE_SIGNALS = ("distance", "norm", "cosine", "distance, all rays", "label distance", "cell", "DeepFool")
"""Signals that are attacks by themselves. The metrics of rays are those of one ray unless all are named."""
COMBINED_FEATURE_SETS: Mapping[str, tuple[str, ...]] = {
    "top-3": ("top-3",),
    "top-3 logits": ("top-3 logits",),
    "top-3 + distance": ("top-3", "distance"),
    "top-3 + norm": ("top-3", "norm"),
    "top-3 + cosine": ("top-3", "cosine"),
    "top-3 + all metrics": ("top-3", "distance", "norm", "cosine"),
    "top-3 + distance + cell": ("top-3", "distance", "cell"),
    "top-3 + correct": ("top-3", "correct"),
    "top-3 + distance + cell + correct": ("top-3", "distance", "cell", "correct"),
}
"""Feature sets by the signals in them."""
SWAPPED_FEATURE_SETS = ("distance", "norm", "cosine", "distance, all rays", "top-3")
"""The feature sets that also attack the shadow, as if the attacker had trained the target."""
RETRAINED_FEATURE_SETS = ("distance", "distance, all rays")
"""The feature sets on which the network is trained several times: its accuracy depends on its start, by two points."""
RAW_FEATURE_SETS = ("top-3", "top-3 logits")
"""The feature sets that the network `NN` gets, without standardising: the posteriors of ML-Leaks, and their logits."""

_RAYS = 4  # from each point, in the set `distance, all rays`; the other sets use the first of them
_BOUNDARIES = 5  # hyperedges met by each ray
_CELLS = 6  # nearest hyperedges of the set `cell`
_UNTIL = 50.0  # length up to which a ray looks for another label


class ShadowAttacks(NamedTuple):
    """The attacks on one split.

    Attributes:
        fit: the target's.
        scores: by "attack model: feature set"; the true positive rate at 1 % if the target has 100 outsiders.
            "threshold: …" needs no shadow: `DeepFool`, if among the sets, is its distance, `correct` the gap attack;
            their accuracies are those of the best threshold.
        swapped: the same for `SWAPPED_FEATURE_SETS`, with target and shadow in each other's place: one more attack on
            the same two networks.
        by_ray: the accuracy of `NN standardised` on each signal of `each_ray` along each ray alone, the mean over both
            directions of the attack.
        retrained: the accuracy of `NN standardised` on each of `RETRAINED_FEATURE_SETS`, trained from several starts,
            likewise.
    """

    fit: Fit
    scores: dict[str, AttackResult]
    swapped: dict[str, AttackResult]
    by_ray: Float[Tensor, "signals rays"]
    retrained: Float[Tensor, "sets trainings"]


def attack_split(
    split: int,
    *,
    task: Task,
    run: Run,
    settings: Settings | None = None,
    models: Sequence[str] = attack_models.MODELS,
    sets: Sequence[str] = (*STANDALONE_SIGNALS, *COMBINED_FEATURE_SETS),
    each_ray: Sequence[str] = (),
    trainings: int = 0,
) -> ShadowAttacks:
    """Train, measure and attack one split; the raw network has its own feature sets, whatever `sets` says.

    `each_ray` names signals of `hyperedges.SIGNALS` to be tried along each ray alone; `trainings` is how often the
    network is trained on `RETRAINED_FEATURE_SETS`, besides once on each of `sets`.
    """
    pair = train_pair(task, split=split, run=run)
    alone = [f"{signal}, ray {ray}" for signal in each_ray for ray in range(_RAYS)]
    needed = {part for key in (*RAW_FEATURE_SETS, *sets) for part in COMBINED_FEATURE_SETS.get(key, (key,))}
    needed |= {"correct", *alone, *(RETRAINED_FEATURE_SETS if trainings else ())}
    target, shadow = (
        measure_signals(side, needed, generator=run.stream(f"rays/{split}/{name}"))
        for name, side in pair._asdict().items()
    )
    directions = {
        "": (shadow, pair.shadow.member, target, pair.target.member),
        "/swapped": (target, pair.target.member, shadow, pair.shadow.member),
    }
    tasks: dict[tuple[str, str] | tuple[int, str], AttackTask] = {}
    for direction, (known, member, asked, _) in directions.items():
        for name in models:
            candidates = RAW_FEATURE_SETS if name == "NN" else sets
            chosen = [key for key in candidates if not direction or key in SWAPPED_FEATURE_SETS]
            if chosen:
                features = _features(chosen, known), member, _features(chosen, asked)
                tasks[name, direction] = AttackTask(name, *features, run.stream(f"{name}/{split}{direction}"))
        if alone:
            features = _features(alone, known), member, _features(alone, asked)
            draws = run.stream(f"each ray/{split}{direction}")
            tasks["rays", direction] = AttackTask("NN standardised", *features, draws)
        for number in range(trainings):
            again = (_features(RETRAINED_FEATURE_SETS, signals) for signals in (known, asked))
            draws = run.stream(f"training {number}/{split}{direction}")
            tasks[number, direction] = AttackTask("NN standardised", next(again), member, next(again), draws)
    scores = dict(zip(tasks, attack_models.run_attack_models([*tasks.values()], settings=settings), strict=True))
    rates = (0.01,) if int((~pair.target.member).sum()) >= 100 else ()
    found, swapped = (
        {
            f"{name}: {key}": evaluate_scores(score, member=truth, rates=rates, threshold=0.0)
            for name in models
            for key, score in scores.get((name, direction), {}).items()
        }
        for direction, (*_, truth) in directions.items()
    )
    for key in ("DeepFool", "correct") if "DeepFool" in needed else ("correct",):
        found[f"threshold: {key}"] = evaluate_scores(target[key].squeeze(1), member=pair.target.member, rates=rates)
    by_ray = [
        [evaluate_scores(scores["rays", direction][key], member=truth, threshold=0.0).accuracy for key in alone]
        for direction, (*_, truth) in directions.items()
    ]
    accuracy = torch.tensor(by_ray, dtype=DTYPE).mean(0).reshape(len(each_ray), _RAYS)
    retrained = torch.zeros(len(RETRAINED_FEATURE_SETS), trainings, dtype=DTYPE)
    for place, key in enumerate(RETRAINED_FEATURE_SETS):
        for number in range(trainings):
            for direction, (*_, truth) in directions.items():
                result = evaluate_scores(scores[number, direction][key], member=truth, threshold=0.0)
                retrained[place, number] += result.accuracy / len(directions)
    return ShadowAttacks(pair.target.fit, found, swapped, accuracy, retrained)


def _features(sets: Sequence[str], signals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The columns of each feature set."""
    return {key: torch.cat([signals[part] for part in COMBINED_FEATURE_SETS.get(key, (key,))], dim=1) for key in sets}


def measure_signals(
    side: AttackedNetwork, names: Collection[str], *, generator: torch.Generator
) -> dict[str, Float[Tensor, "t f"]]:
    """The signals `names` of the points of one network; the directions of all rays are drawn in any case."""
    network, points = side.network, side.points
    logits = network(points)
    first = hyperedges.draw_directions(points, rays=_RAYS, generator=generator)
    followed = first if any(" ray" in name for name in names) else first[:, :1]
    crossings = hyperedges.shoot_rays(network, points, followed, boundaries=_BOUNDARIES)

    def along(ray: int, signal: str) -> Tensor:
        return hyperedges.ray_features(hyperedges.Crossings(*(part[:, [ray]] for part in crossings)), signal)

    def boundary() -> Tensor:
        reach = deepfool(network, points)
        return torch.where(reach.isfinite(), reach, torch.where(reach.isfinite(), reach, 0.0).max())

    measures: dict[str, Callable[[], Tensor]] = {
        "top-3": lambda: posterior.top_posteriors(logits),
        "top-3 logits": lambda: posterior.top_logits(logits),
        "correct": lambda: posterior.correct(logits, side.labels)[:, None],
        "distance, all rays": lambda: hyperedges.ray_features(crossings, "distance"),
        # The event of Algorithm 5 of Peinemann (2021) as printed: it compares classes, not patterns.
        "label distance": lambda: ray_label_change(network, points, first[:, 0], until=_UNTIL)[:, None],
        "cell": lambda: nearest_hyperedges(network, points, count=min(_CELLS, sum(network.widths[1:-1]))).distances,
        "DeepFool": lambda: boundary()[:, None],
    }
    for signal in hyperedges.SIGNALS:
        measures[signal] = partial(along, 0, signal)
        measures |= {f"{signal}, ray {ray}": partial(along, ray, signal) for ray in range(_RAYS)}
    return {name: measures[name]() for name in names}


LEAVES = (4, 8, 31)
"""Leaves of the boosted trees that are compared."""


class TreeSizes(NamedTuple):
    """What boosted trees with the numbers of leaves of `LEAVES` achieve on the target.

    Attributes:
        shadow_accuracy: the accuracy on one half of the shadow's points, of trees fitted on the other half. The
            attacker would take the size where it is largest.
    """

    accuracy: Float[Tensor, " sizes"]
    auc: Float[Tensor, " sizes"]
    shadow_accuracy: Float[Tensor, " sizes"]


def compare_tree_sizes(split: int, *, task: Task, trees: int, run: Run) -> TreeSizes:
    """ML-Leaks by boosted trees of different sizes on one split, judged on the target and on the shadow alone."""
    target, shadow = train_pair(task, split=split, run=run)
    asked, known = (posterior.top_posteriors(side.network(side.points)) for side in (target, shadow))
    held = torch.arange(len(shadow.member)) % 2 == 1
    halves = known[~held], shadow.member[~held], known[held], shadow.member[held]
    rows = []
    for leaves in LEAVES:
        settings, results = Settings(trees=trees, leaves=leaves), []
        for fitted, member, judged, truth in ((known, shadow.member, asked, target.member), halves):
            features = {"top-3": fitted}, member, {"top-3": judged}
            scores = attack_models.score_with_trees(*features, settings=settings)["top-3"]
            results.append(evaluate_scores(scores, member=truth, threshold=0.0))
        rows.append(torch.stack([results[0].accuracy, results[0].auc, results[1].accuracy]))
    return TreeSizes(*torch.stack(rows, -1))
