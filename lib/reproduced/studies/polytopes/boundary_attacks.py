r"""Attacks by the distance to another label, side by side on one split: by gradients, by labels only, and baselines.

One call is one point of a grid. Each score has the accuracy of its best threshold on the target, which is what the
thesis reports, beside that of the threshold that is best on the shadow, which is what an attacker has. A boundary that
was not reached is infinitely far: such points rank first, are never dropped, and `unreached` is their share.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.attacks.membership import label_only, posterior
from leakage.attacks.membership.boundary_distance import capped, certified_radius, deepfool
from leakage.attacks.membership.label_only import Jumps
from leakage.metrics.roc import calibrate_threshold
from leakage.metrics.scores import marked
from leakage.runtime import stream
from reproduced.studies.polytopes import boundary_walk as walks
from reproduced.studies.polytopes import shadow_pairs
from reproduced.studies.polytopes.boundary_walk import Steps
from reproduced.studies.polytopes.shadow_pairs import Pair, Side, Task
from reproduced.studies.polytopes.standings import Table, standing, table


class Judgement(NamedTuple):
    """What a distance, as a membership score, achieves against a target.

    Attributes:
        optimal: accuracy at the threshold that is best on the target.
        shadow: accuracy at the threshold that is best on the shadow.
        auc: area under the curve.
        unreached: share of the target's points from which no boundary was reached.
    """

    optimal: Float[Tensor, "*b"]
    shadow: Float[Tensor, "*b"]
    auc: Float[Tensor, "*b"]
    unreached: Float[Tensor, "*b"]


class Crossings(NamedTuple):
    """How walks end.

    Attributes:
        accuracy: of their distances as a membership score, at the best threshold.
        once: share of the points reached whose label changed once.
        more: share of the points reached whose label changed more often.
        ratio: median of the distance over DeepFool's.
        distinct: how many distances differ by more than 1e-6.
        unreached: share of the points from which no boundary was reached.
        met: how many points reached a boundary.
    """

    accuracy: Float[Tensor, "*b"]
    once: Float[Tensor, "*b"]
    more: Float[Tensor, "*b"]
    ratio: Float[Tensor, "*b"]
    distinct: Float[Tensor, "*b"]
    unreached: Float[Tensor, "*b"]
    met: Float[Tensor, "*b"]


class Bounds(NamedTuple):
    """Both bounds of each point's distance to another label.

    Where no other polytope lies between, they are one number and may cross by rounding, some 1e-15 of the distance.

    Attributes:
        certified: at most the distance.
        deepfool: at least the distance.
        member: whether the point is a member.
        stays: whether DeepFool's first projection ends on the polytope of the point.
    """

    certified: Float[Tensor, " t"]
    deepfool: Float[Tensor, " t"]
    member: Bool[Tensor, " t"]
    stays: Bool[Tensor, " t"]


def white_box_trial(
    split: int,
    *,
    task: Task,
    seed: int = 0,
    points: int = 300,
    losses: Sequence[str] = tuple(walks.LOSSES),
    width: float = 0.25,
    iterations: int = 30,
) -> Table[Judgement]:
    """The walk by each loss with exact crossings, DeepFool, and the baselines that need no walk.

    "… + label" sets the distance of misclassified points to 0, as label-only attacks do. The baselines are `loss` (the
    true label's margin) and `gap` (whether the prediction is right). `points` counts members, and as many outsiders,
    of the target and of the shadow; `width` is the length of a step, in units of the input.
    """
    pair = shadow_pairs.train_pair(task, split=split, seed=seed)
    found: dict[str, Judgement] = {}
    for loss in losses:
        steps = Steps(loss=loss, width=width, iterations=iterations)
        found |= _distance(
            pair, points, loss, lambda side, steps=steps: walks.walk(side.network, side.points, steps)[0]
        )
    found |= _distance(pair, points, "DeepFool", lambda side: deepfool(side.network, side.points).distances)
    return table(found | _baselines(pair, points))


def label_only_trial(
    split: int,
    *,
    task: Task,
    seed: int = 0,
    points: int = 100,
    jumps: Jumps | None = None,
    noise: str = "flip",
    amount: float = 0.05,
    copies: int = 200,
) -> Table[Judgement]:
    """HopSkipJump with the true label (misclassified points are at distance 0), robustness to noise, and baselines.

    HopSkipJump starts from the other side's points: for the target, those of the shadow, which the attacker knows.
    """
    pair = shadow_pairs.train_pair(task, split=split, seed=seed)
    generator = stream(seed, f"label only/{split}", task.device)
    measured: list[tuple[Tensor, Tensor]] = []
    for side, other in ((pair.target, pair.shadow), (pair.shadow, pair.target)):
        part = side.some(points)
        # Many thousand queries for a label: float32 gives the same answers.
        network, places, pool = part.network.to(torch.float32), part.points.float(), other.points.float()
        arrived = label_only.hop_skip_jump(network, places, pool, jumps=jumps or Jumps(), generator=generator)
        right = posterior.correct(part.network(part.points), part.labels) > 0
        robust = label_only.noise_robustness(
            network, places, part.labels, amount=amount, copies=copies, noise=noise, generator=generator
        )
        measured.append((torch.where(right, arrived.distances.double(), 0.0), robust))
    member = [side.some(points).member for side in pair]
    distances, shares = zip(*measured, strict=True)
    found = {"HopSkipJump + label": judged(distances, member), "noise": judged(shares, member)}
    found |= _distance(pair, points, "DeepFool", lambda side: deepfool(side.network, side.points).distances)
    return table(found | _baselines(pair, points))


def printed_trial(
    split: int,
    *,
    task: Task,
    seed: int = 0,
    points: int = 300,
    widths: Sequence[float] = (1.0, 0.25, 0.05),
    iterations: int = 60,
) -> Table[Crossings]:
    """How walks end by Algorithm 9 as printed, with the label fixed, and with exact crossings, from the same points.

    The names of the rows are "variant, step width".
    """
    side = shadow_pairs.train_pair(task, split=split, seed=seed).target.some(points)
    nearest = deepfool(side.network, side.points).distances
    found: dict[str, Crossings] = {}
    for width in widths:
        for variant in walks.VARIANTS:
            steps = Steps(variant=variant, width=width, iterations=iterations)
            there = walks.walk(side.network, side.points, steps)
            met = there.reached
            scores = capped(there.distances)
            found[f"{variant}, {width:g}"] = Crossings(
                accuracy=standing(scores, member=side.member).accuracy,
                once=(there.changes[met] == 1).double().mean(),
                more=(there.changes[met] > 1).double().mean(),
                ratio=(there.distances / nearest)[met & nearest.isfinite()].median(),
                distinct=scores.new_tensor(len(torch.unique(there.distances.div(1e-6).round()))),
                unreached=(~met).double().mean(),
                met=met.double().sum(),
            )
    return table(found)


def bounds_trial(split: int, *, task: Task, seed: int = 0, points: int = 300) -> Bounds:
    """Lower and upper bounds of the distance to another label, for each point of one split."""
    side = shadow_pairs.train_pair(task, split=split, seed=seed).target.some(points)
    reach = deepfool(side.network, side.points)
    return Bounds(certified_radius(side.network, side.points), reach.distances, side.member, reach.first_stays)


def judged(scores: Sequence[Float[Tensor, " t"]], member: Sequence[Bool[Tensor, " t"]]) -> Judgement:
    """The judgement of scores, given (and `member` likewise) for the target's points first, then for the shadow's."""
    target, shadow = capped(scores[0], scores[1]), capped(scores[1], scores[0])
    threshold = calibrate_threshold(member=shadow[member[1]], outsider=shadow[~member[1]])
    ranked = marked(target, member=member[0])
    return Judgement(
        optimal=(1 + ranked.best_advantage()) / 2,
        shadow=(1 + ranked.advantage(threshold)) / 2,
        auc=ranked.auc(),
        unreached=scores[0].isinf().double().mean(),
    )


def _distance(
    pair: Pair, points: int, name: str, measure: Callable[[Side], Float[Tensor, " t"]]
) -> dict[str, Judgement]:
    """One distance on both sides, without and with the true label."""
    sides = [side.some(points) for side in pair]
    plain = [measure(side) for side in sides]
    right = [posterior.correct(side.network(side.points), side.labels) > 0 for side in sides]
    known = [torch.where(fits, distance, 0.0) for fits, distance in zip(right, plain, strict=True)]
    member = [side.member for side in sides]
    return {name: judged(plain, member), f"{name} + label": judged(known, member)}


_BASELINES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"loss": posterior.margin, "gap": posterior.correct}


def _baselines(pair: Pair, points: int) -> dict[str, Judgement]:
    sides = [side.some(points) for side in pair]
    member = [side.member for side in sides]
    return {
        name: judged([score(side.network(side.points), side.labels) for side in sides], member)
        for name, score in _BASELINES.items()
    }
