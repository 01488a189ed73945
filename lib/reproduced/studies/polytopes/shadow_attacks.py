r"""The attack of ML-Leaks with and without the metrics of activation polytopes, on one split of a data set.

One call is one point of a grid: it trains target and shadow, measures both, fits each attack model on the shadow's
features and applies it to the target. The accuracy is that of the attack model's own decision; no threshold was chosen
on the target. Posteriors go into the raw network as they are, as in ML-Leaks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.attacks.membership import attack_models, hyperedges, posterior
from leakage.attacks.membership.attack_models import Question, Settings
from leakage.attacks.membership.boundary_distance import deepfool
from leakage.geometry.distances import nearest
from leakage.geometry.rays import label_change
from leakage.runtime import stream
from reproduced.studies.polytopes import shadow_pairs
from reproduced.studies.polytopes.shadow_pairs import Fit, Pair, Side, Task
from reproduced.studies.polytopes.standings import Standing, Table, standing, table

STANDALONE: dict[str, tuple[str, ...]] = {
    "distance": ("distance",),
    "norm": ("norm",),
    "cosine": ("cosine",),
    "distance, all rays": ("distance, all rays",),
    "label distance": ("label distance",),
    "cell": ("cell",),
    "DeepFool": ("DeepFool",),
}
COMBINED: dict[str, tuple[str, ...]] = {
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
"""Feature sets by the signals in them. The distance metrics are those of one ray unless all are named."""
RATES = (0.01,)
"""False positive rates at which the true positive rate is given."""
TWICE = ("distance", "norm", "cosine", "distance, all rays", "top-3")
"""The feature sets that also attack the shadow, as if the attacker had trained the target."""
AS_THEY_ARE = ("top-3", "top-3 logits")
"""The feature sets that the network `NN` gets, without standardising: the posteriors of ML-Leaks, and their logits."""


@dataclass(frozen=True)
class Shooting:
    """The rays from each point.

    Attributes:
        rays: how many, in the set `distance, all rays`; the other sets use the first of them.
        boundaries: hyperedges met by each ray.
        cells: nearest hyperedges of the set `cell`.
        until: length up to which a ray looks for another label.
    """

    rays: int = 4
    boundaries: int = 5
    cells: int = 6
    until: float = 50.0


class Comparison(NamedTuple):
    """The attacks on one split.

    Attributes:
        fit: the target's.
        scores: by "attack model: feature set"; the true positive rate at 1 % if the target has 100 outsiders.
            "threshold: …" needs no shadow: `DeepFool` is its distance, `correct` the gap attack; their accuracies are
            those of the best threshold.
        swapped: the same for the sets in `TWICE`, with target and shadow in each other's place: one more attack on the
            same two networks.
        by_ray: the accuracy of `NN standardised` on each signal of `each_ray` along each ray alone, the mean over both
            directions of the attack.
    """

    fit: Fit
    scores: Table[Standing]
    swapped: Table[Standing]
    by_ray: Float[Tensor, "signals rays"]


def attack(
    split: int,
    *,
    task: Task,
    seed: int = 0,
    shooting: Shooting | None = None,
    settings: Settings | None = None,
    models: Sequence[str] = tuple(attack_models.MODELS),
    sets: Sequence[str] = (*STANDALONE, *COMBINED),
    each_ray: Sequence[str] = (),
) -> Comparison:
    """Train, measure and attack one split; the raw network has its own feature sets, whatever `sets` says.

    `each_ray` names signals of `hyperedges.SIGNALS` to be tried along each ray alone.
    """
    pair = shadow_pairs.train_pair(task, split=split, seed=seed)
    return compare(
        pair,
        split=split,
        seed=seed,
        shooting=shooting,
        settings=settings,
        models=models,
        sets=sets,
        each_ray=each_ray,
    )


def compare(
    pair: Pair,
    *,
    split: int,
    seed: int,
    shooting: Shooting | None = None,
    settings: Settings | None = None,
    models: Sequence[str] = tuple(attack_models.MODELS),
    sets: Sequence[str] = (*STANDALONE, *COMBINED),
    each_ray: Sequence[str] = (),
) -> Comparison:
    """As `attack`, on a pair that is trained already."""
    shooting = shooting or Shooting()
    device = pair.target.points.device
    signals = [
        measure(side, shooting, generator=stream(seed, f"rays/{split}/{name}", device))
        for name, side in (("shadow", pair.shadow), ("target", pair.target))
    ]
    shadow, target = signals
    member = {"shadow": pair.shadow.member, "target": pair.target.member}
    ways = {"": (shadow, member["shadow"], target), "/swapped": (target, member["target"], shadow)}
    rays = [f"{signal}, ray {ray}" for signal in each_ray for ray in range(shooting.rays)]
    asked: dict[str, Question] = {}
    for way, (known, learnt, aim) in ways.items():
        for name in models:
            chosen = sets if name != "NN" else AS_THEY_ARE
            chosen = chosen if not way else [key for key in chosen if key in TWICE]
            draws = stream(seed, f"{name}/{split}{way}", device)
            if chosen:
                asked[f"{name}{way}"] = _question(name, chosen, known, learnt, aim, generator=draws)
        if rays:
            draws = stream(seed, f"each ray/{split}{way}", device)
            asked[f"rays{way}"] = _question("NN standardised", rays, known, learnt, aim, generator=draws)
    scores = dict(zip(asked, attack_models.together([*asked.values()], settings=settings), strict=True))
    rates = RATES if int((~member["target"]).sum()) >= 100 else ()
    found, swapped = (
        {
            f"{name}: {key}": standing(score, member=truth, rates=rates, threshold=0.0)
            for name in models
            for key, score in scores.get(f"{name}{way}", {}).items()
        }
        for way, truth in (("", member["target"]), ("/swapped", member["shadow"]))
    )
    for key in ("DeepFool", "correct"):
        found[f"threshold: {key}"] = standing(target[key].squeeze(1), member=member["target"], rates=rates)
    by_ray = [
        [standing(scores[f"rays{way}"][key], member=truth, threshold=0.0).accuracy for key in rays]
        for way, truth in (("", member["target"]), ("/swapped", member["shadow"]))
    ]
    along = torch.tensor(by_ray, dtype=torch.float64).mean(0).reshape(len(each_ray), shooting.rays)
    return Comparison(pair.target.fit, table(found), table(swapped or found), along)


def _question(
    name: str,
    sets: Sequence[str],
    known: Mapping[str, Tensor],
    member: Tensor,
    asked: Mapping[str, Tensor],
    *,
    generator: torch.Generator,
) -> Question:
    """One attack model on these sets of signals, to be fitted on the known ones and applied to the others."""
    parts_of = {key: (STANDALONE | COMBINED).get(key, (key,)) for key in sets}
    first, second = ({key: _joined(part, parts) for key, parts in parts_of.items()} for part in (known, asked))
    return Question(name, first, member, second, generator)


def measure(side: Side, shooting: Shooting, *, generator: torch.Generator) -> dict[str, Float[Tensor, "t f"]]:
    """All signals of the points of one network, by name."""
    network, points = side.network, side.points
    logits = network(points)
    first = hyperedges.directions(points, rays=shooting.rays, generator=generator)
    shots = hyperedges.shoot(network, points, first, boundaries=shooting.boundaries)
    one = hyperedges.Shots(*(part[:, :1] for part in shots))
    reach = deepfool(network, points)
    farthest = torch.where(reach.reached, reach.distances, 0.0).max()
    return {
        "top-3": posterior.top(logits),
        "top-3 logits": posterior.top_logits(logits),
        "correct": posterior.correct(logits, side.labels)[:, None],
        "distance, all rays": hyperedges.features(shots, "distance"),
        # The event of Algorithm 5 of Peinemann (2021) as printed: it compares classes, not patterns.
        "label distance": label_change(network, points, first[:, 0], until=shooting.until)[:, None],
        "cell": nearest(network, points, count=min(shooting.cells, sum(network.widths[1:-1]))).distances,
        "DeepFool": torch.where(reach.reached, reach.distances, farthest)[:, None],
        **{signal: hyperedges.features(one, signal) for signal in hyperedges.SIGNALS},
        **{
            f"{signal}, ray {ray}": hyperedges.features(hyperedges.Shots(*(part[:, [ray]] for part in shots)), signal)
            for signal in hyperedges.SIGNALS
            for ray in range(shooting.rays)
        },
    }


class TreeSizes(NamedTuple):
    """What boosted trees with different numbers of leaves achieve on the target.

    Attributes:
        known: the accuracy on one half of the shadow's points, of trees fitted on the other half. The attacker would
            take the size where it is largest.
    """

    leaves: Int[Tensor, " sizes"]
    accuracy: Float[Tensor, " sizes"]
    auc: Float[Tensor, " sizes"]
    known: Float[Tensor, " sizes"]


def tree_sizes(
    split: int,
    *,
    task: Task,
    seed: int = 0,
    leaves: Sequence[int] = (4, 8, 31),
    trees: int = 1024,
) -> TreeSizes:
    """ML-Leaks by boosted trees of different sizes on one split, judged on the target and on the shadow alone."""
    pair = shadow_pairs.train_pair(task, split=split, seed=seed)
    shadow, target = ({"top-3": posterior.top(side.network(side.points))} for side in (pair.shadow, pair.target))
    held = torch.arange(len(pair.shadow.member), device=pair.shadow.points.device) % 2 == 1
    rows = []
    for leaf in leaves:
        settings = Settings(trees=trees, leaves=leaf)
        scores = attack_models.boosted(shadow, pair.shadow.member, target, settings=settings)["top-3"]
        found = standing(scores, member=pair.target.member, threshold=0.0)
        half = [{"top-3": shadow["top-3"][part]} for part in (~held, held)]
        scores = attack_models.boosted(half[0], pair.shadow.member[~held], half[1], settings=settings)["top-3"]
        known = standing(scores, member=pair.shadow.member[held], threshold=0.0)
        rows.append(torch.stack([found.accuracy, found.auc, known.accuracy]))
    return TreeSizes(torch.tensor(leaves), *torch.stack(rows, -1))


def _joined(signals: Mapping[str, Tensor], parts: tuple[str, ...]) -> Float[Tensor, "t f"]:
    return torch.cat([signals[part] for part in parts], dim=1)
