r"""The thesis' second attack: the distance to another label, by walks along a gradient, beside other distances.

Distances are Euclidean in the input, and a member is expected to be further from the boundary. A boundary that was not
reached is infinitely far: such points rank first, are never dropped, and `unreached` is their share. Each score has the
accuracy of its best threshold on the target, which is what the thesis reports, beside that of the threshold that is
best on the shadow, which is what an attacker has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.membership import label_only, posterior
from leakage.membership.boundary_distance import certified_radius, deepfool, replace_infinite
from leakage.membership.label_only import HopSkipJumpSettings
from leakage.membership.polytopes import jacobian_norm, row_space, smooth_pattern
from leakage.membership.rays import segment_label_change
from leakage.metrics.roc import calibrate_threshold
from leakage.metrics.scores import Scores
from leakage.models.mlp import Mlp
from reproduced.papers.polytopes.shadow_attacks import (
    AttackedNetwork,
    TargetAndShadow,
    Task,
    evaluate_scores,
    train_pair,
)
from reproduced.runtime import Run

# ── the walk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class WalkEnds(NamedTuple):
    """Where the walks from each point ended.

    Attributes:
        distances: from the point to where the walk last saw the label change; infinite if it never changed.
        reached: whether the label changed.
        changes: how often the label changed.
    """

    distances: Float[Tensor, " t"]
    reached: Bool[Tensor, " t"]
    changes: Int[Tensor, " t"]


@dataclass(frozen=True)
class WalkSettings:
    """How a walk goes.

    Attributes:
        loss: a name in `LOSSES`.
        variant: a name in `VARIANTS`.
        width: length of the first step, in units of the input; steps have one length, because the gradient of a
            saturated softmax is nearly 0.
        iterations: number of steps.
    """

    loss: str = "confidence"
    variant: str = "exact"
    width: float = 0.25
    iterations: int = 60


def walk_to_boundary(network: Mlp, points: Float[Tensor, "t d"], settings: WalkSettings) -> WalkEnds:
    r"""Walk from every point up the gradient of a loss until, or as long as, the predicted label changes.

    $$ x \leftarrow x \pm \delta\, \nabla J(x) / \lVert \nabla J(x) \rVert $$

    Gradients lie in the row space of $W_1$, so the walk takes place there.

    Source: Peinemann (2021), Algorithm 9. The variants are

    - `printed`: at each change of the label the sign turns, and after the first change δ is halved at each step. For
      `confidence`, J is the loss of the currently predicted label. Its ridge lies *on* the boundary: the walk turns
      round there and climbs away from it on the other side.
    - `start label`: the same, with J = minus the log-confidence of the label at the start, whatever the loss. It falls
      across the boundary and so leads back to it.
    - `exact`: steps of δ until the label has changed; the first change on the last step is found exactly.
    """
    network, basis = row_space(network)
    return VARIANTS[settings.variant](network, (points @ basis).detach(), settings)


Objective = Callable[[Mlp, Tensor, Tensor], Tensor]


def _start_confidence(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    return -network(points).log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


def _bias_norm(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    r"""$\lVert b_P \rVert_\infty$ with smooth gates, without the $A_l$ that `patterns.adapted` makes on the way."""
    gates, bias = smooth_pattern(network, points), network.biases[0].expand(len(points), -1)
    for gate, weight, shift in zip(gates, network.weights[1:], network.biases[1:], strict=True):
        bias = (gate * bias) @ weight.mT + shift
    return bias.abs().amax(-1)


LOSSES: Mapping[str, Objective] = {
    "confidence": lambda network, points, labels: -network(points).log_softmax(-1).amax(-1),
    "output": lambda network, points, labels: -network(points).norm(dim=-1),
    "weight": lambda network, points, labels: jacobian_norm(network, smooth_pattern(network, points)),
    "bias": _bias_norm,
}
r"""The losses J to climb: minus the log of the largest posterior (the direction of the confidence's fall, without its
saturation), $-\lVert o \rVert_2$, $\lVert A_P \rVert_F$ and $\lVert b_P \rVert_\infty$, the last two with $\sigma(z)$
for the pattern (Peinemann 2021, Section 6.3)."""


def _direction(network: Mlp, points: Tensor, labels: Tensor, objective: Objective) -> Float[Tensor, "t d"]:
    """The normalised gradient; zero where there is none."""
    with torch.enable_grad():
        places = points.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(objective(network, places, labels).sum(), places)
    norm = slope.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, slope / norm, 0.0)


def _walk_back_and_forth(network: Mlp, points: Tensor, settings: WalkSettings, objective: Objective) -> WalkEnds:
    start = last = network(points).argmax(-1)
    place, end = points, points
    sign, width = (torch.full_like(points[:, :1], value) for value in (1.0, settings.width))
    changes = torch.zeros_like(start)
    for _ in range(settings.iterations):
        place = place + sign * width * _direction(network, place, start, objective)
        seen = network(place).argmax(-1)
        turned = (seen != last)[:, None]
        sign, end, last = torch.where(turned, -sign, sign), torch.where(turned, place, end), seen
        changes = changes + turned.squeeze(1)
        width = torch.where(changes[:, None] > 0, width / 2, width)
    reached = changes > 0
    return WalkEnds(torch.where(reached, (end - points).norm(dim=-1), torch.inf), reached, changes)


def _walk_exactly(network: Mlp, points: Tensor, settings: WalkSettings) -> WalkEnds:
    """All steps first, then the first change on each: as many segments at once cost little more than a few.

    Points that have arrived are left out of the steps that follow. One that crosses to another label and back within a
    step goes on, but the first change counts.
    """
    objective = _start_confidence if settings.loss == "confidence" else LOSSES[settings.loss]
    start = network(points).argmax(-1)
    place, moving, taken = points, torch.arange(len(points)), []
    for _ in range(settings.iterations):
        after = place + settings.width * _direction(network, place, start[moving], objective)
        taken.append((moving, place, after))
        goes_on = network(after).argmax(-1) == start[moving]
        moving, place = moving[goes_on], after[goes_on]
        if not len(moving):
            break
    row, before, after = (torch.cat(parts) for parts in zip(*taken, strict=True))
    length = segment_label_change(network, before, after)
    met = length.isfinite().nonzero().squeeze(-1)
    first = torch.full_like(start, len(row)).scatter_reduce(0, row[met], met, "amin")
    reached = first < len(row)
    first = first[reached]
    way = after[first] - before[first]
    share = length[first] / way.norm(dim=-1).clamp_min(torch.finfo(way.dtype).tiny)
    crossing = before[first] + share[:, None] * way
    distances = torch.full_like(points[:, 0], torch.inf)
    distances[reached] = (crossing - points[reached]).norm(dim=-1)
    return WalkEnds(distances, reached, reached.long())


VARIANTS: Mapping[str, Callable[[Mlp, Tensor, WalkSettings], WalkEnds]] = {
    "printed": lambda network, points, settings: _walk_back_and_forth(network, points, settings, LOSSES[settings.loss]),
    "start label": lambda network, points, settings: _walk_back_and_forth(network, points, settings, _start_confidence),
    "exact": _walk_exactly,
}

# ── distances as attacks: one call is one split ──────────────────────────────────────────────────────────────────────


class DistanceResult(NamedTuple):
    """What a distance, as a membership score, achieves against a target.

    Attributes:
        accuracy_target_threshold: accuracy at the threshold that is best on the target.
        accuracy_shadow_threshold: accuracy at the threshold that is best on the shadow.
        auc: area under the curve.
        unreached: share of the target's points from which no boundary was reached.
    """

    accuracy_target_threshold: Float[Tensor, "*b"]
    accuracy_shadow_threshold: Float[Tensor, "*b"]
    auc: Float[Tensor, "*b"]
    unreached: Float[Tensor, "*b"]


def attack_by_walks(
    split: int,
    *,
    task: Task,
    run: Run,
    points: int = 300,
    losses: Sequence[str] = tuple(LOSSES),
) -> dict[str, DistanceResult]:
    """The walk by each loss with exact crossings, DeepFool, and the baselines that need no walk.

    "… + label" sets the distance of misclassified points to 0, as label-only attacks do. The baselines are `loss` (the
    true label's margin) and `gap` (whether the prediction is right). `points` counts members, and as many outsiders,
    of the target and of the shadow.
    """
    pair = TargetAndShadow(*(side.take(points) for side in train_pair(task, split=split, run=run)))
    found: dict[str, DistanceResult] = {}
    for loss in losses:
        settings = WalkSettings(loss=loss, iterations=30)
        walks = [walk_to_boundary(side.network, side.points, settings) for side in pair]
        found |= _evaluate_both(pair, loss, [ends.distances for ends in walks])
    return found | _attack_without_walk(pair)


def attack_by_labels(
    split: int,
    *,
    task: Task,
    run: Run,
    points: int = 100,
    jumps: HopSkipJumpSettings | None = None,
    noise: str = "flip",
    copies: int = 200,
) -> dict[str, DistanceResult]:
    """HopSkipJump with the true label (misclassified points are at distance 0), robustness to noise, and baselines.

    HopSkipJump starts from the other side's points: for the target, those of the shadow, which the attacker knows.
    """
    whole = train_pair(task, split=split, run=run)
    pair = TargetAndShadow(*(side.take(points) for side in whole))
    generator = run.stream(f"label only/{split}")
    distances, shares = [], []
    for side, other in zip(pair, reversed(whole), strict=True):
        # Many thousand queries for a label: float32 gives the same answers.
        network, places, pool = side.network.to(torch.float32), side.points.float(), other.points.float()
        arrived = label_only.hop_skip_jump(network, places, pool, settings=jumps, generator=generator)
        distances.append(_zero_if_wrong(side, arrived.double()))
        robustness = partial(label_only.noise_robustness, network, places, side.labels, amount=0.05)
        shares.append(robustness(copies=copies, noise=noise, generator=generator))
    found = {"HopSkipJump + label": evaluate_distances(pair, distances), "noise": evaluate_distances(pair, shares)}
    return found | _attack_without_walk(pair)


def _attack_without_walk(pair: TargetAndShadow) -> dict[str, DistanceResult]:
    """DeepFool, and the baselines."""
    reached = [deepfool(side.network, side.points) for side in pair]
    outputs = [(side.network(side.points), side.labels) for side in pair]
    return _evaluate_both(pair, "DeepFool", reached) | {
        "loss": evaluate_distances(pair, [posterior.label_logit(*answer) for answer in outputs]),
        "gap": evaluate_distances(pair, [posterior.correct(*answer) for answer in outputs]),
    }


def _evaluate_both(pair: TargetAndShadow, name: str, distances: Sequence[Tensor]) -> dict[str, DistanceResult]:
    """One distance without and with the true label."""
    known = [_zero_if_wrong(side, own) for side, own in zip(pair, distances, strict=True)]
    return {name: evaluate_distances(pair, distances), f"{name} + label": evaluate_distances(pair, known)}


def _zero_if_wrong(side: AttackedNetwork, distances: Float[Tensor, " t"]) -> Float[Tensor, " t"]:
    """The distances, 0 where the prediction is wrong."""
    return torch.where(posterior.correct(side.network(side.points), side.labels) > 0, distances, 0.0)


def evaluate_distances(pair: TargetAndShadow, scores: Sequence[Float[Tensor, " t"]]) -> DistanceResult:
    """The result of scores of the target's points, with those of the shadow's points behind them."""
    target, shadow = replace_infinite(scores[0], scores[1]), replace_infinite(scores[1], scores[0])
    known = pair.shadow.member
    ranked = Scores.from_mask(target, member=pair.target.member)
    threshold = calibrate_threshold(member=shadow[known], outsider=shadow[~known])
    return DistanceResult(
        accuracy_target_threshold=(1 + ranked.best_advantage()) / 2,
        accuracy_shadow_threshold=(1 + ranked.advantage(threshold)) / 2,
        auc=ranked.auc(),
        unreached=scores[0].isinf().double().mean(),
    )


class WalkResult(NamedTuple):
    """How walks end.

    Attributes:
        accuracy: of their distances as a membership score, at the best threshold.
        once: share of the points reached whose label changed once.
        more: share of the points reached whose label changed more often.
        ratio: median of the distance over DeepFool's.
        distinct: how many distances differ by more than 1e-6.
        reached_count: how many points reached a boundary.
    """

    accuracy: Float[Tensor, "*b"]
    once: Float[Tensor, "*b"]
    more: Float[Tensor, "*b"]
    ratio: Float[Tensor, "*b"]
    distinct: Float[Tensor, "*b"]
    reached_count: Float[Tensor, "*b"]


def compare_variants(
    split: int, *, task: Task, run: Run, points: int = 300, widths: Sequence[float] = (1.0, 0.25, 0.05)
) -> dict[str, WalkResult]:
    """How walks of each of `VARIANTS` end, from the same points, by "variant, step width"."""
    side = train_pair(task, split=split, run=run).target.take(points)
    nearest = deepfool(side.network, side.points)
    found: dict[str, WalkResult] = {}
    for width in widths:
        for variant in VARIANTS:
            ends = walk_to_boundary(side.network, side.points, WalkSettings(variant=variant, width=width))
            met, scores = ends.reached, replace_infinite(ends.distances)
            found[f"{variant}, {width:g}"] = WalkResult(
                accuracy=evaluate_scores(scores, member=side.member).accuracy,
                once=(ends.changes[met] == 1).double().mean(),
                more=(ends.changes[met] > 1).double().mean(),
                ratio=(ends.distances / nearest)[met & nearest.isfinite()].median(),
                distinct=scores.new_tensor(len(torch.unique(ends.distances.div(1e-6).round()))),
                reached_count=met.double().sum(),
            )
    return found


class Bounds(NamedTuple):
    """Both bounds of each point's distance to another label.

    Where no other polytope lies between, they are one number and may cross by rounding, some 1e-15 of the distance.

    Attributes:
        certified: at most the distance.
        deepfool: at least the distance.
        member: whether the point is a member.
    """

    certified: Float[Tensor, " t"]
    deepfool: Float[Tensor, " t"]
    member: Bool[Tensor, " t"]


def distance_bounds(split: int, *, task: Task, run: Run, points: int = 300) -> Bounds:
    """Lower and upper bounds of the distance to another label, for each point of one split."""
    side = train_pair(task, split=split, run=run).target.take(points)
    upper = deepfool(side.network, side.points)
    return Bounds(certified_radius(side.network, side.points), upper, side.member)
