r"""The one table of membership attacks: what each sees of the target, what else it knows, where it comes from.

An attack takes `TrainedModels` and a generator and gives scores (targets, points): larger for likelier members, finite,
in float64. It may read `member` for shadow models, not for the target or its partner. One that knows "outsiders" may
also read which other points the target did not train on. Its scores do not depend on the order of points.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.membership import (
    attack_models,
    boundary_distance,
    hyperedges,
    label_only,
    loss_threshold,
    margin,
    posterior,
)
from leakage.membership.attack_models import AttackTask
from leakage.membership.calibration import calibrate_scores
from leakage.membership.label_only import HopSkipJumpSettings
from leakage.membership.lira import lira_of_logits
from leakage.membership.polytopes import activation_pattern, jacobian_norm
from leakage.membership.rmia import rmia
from leakage.membership.row_features import quantile_regression
from leakage.membership.trained_models import NotAvailable, TrainedModels
from leakage.metrics.scores import Scores

Knowledge = Literal["true label", "shadow models", "outsiders"]
"""What an attacker may have besides the points."""
ScoreFunction = Callable[[TrainedModels, torch.Generator], Float[Tensor, "*e targets points"]]

_HOP_SKIP_JUMP = HopSkipJumpSettings(iterations=2, directions=40)
_COPIES = 32  # noisy ones of each point, for each amount of noise
_NOISES = {"flip": (0.02, 0.05, 0.1, 0.2), "gaussian": (0.05, 0.15, 0.4, 1.0)}  # of bits; of the median gap of points
_SLACK = 0.05  # of an estimated margin: those of networks with one recipe scatter by some hundredths
_LEAST_OUTSIDERS = 10  # to fit quantiles to


@dataclass(frozen=True)
class Attack:
    """An attack and its terms.

    Attributes:
        score: from models and generator to scores of the targets, or of every model.
        sees: of the target the `label`, the `loss` of the true label, the `posterior`, the `margin` of the two largest
            logits, or the `weights`.
        signed: whether a positive score says "member". If not, the threshold is learned on the shadow models.
        source: key in the book's references; empty for ours and for yours.
        sentence: what it does, for somebody who has not read its source.
    """

    score: ScoreFunction
    sees: Literal["label", "loss", "posterior", "margin", "weights"] = "posterior"
    knows: frozenset[Knowledge] = frozenset()
    signed: bool = False
    source: str = ""
    sentence: str = ""


def deterministic(score: Callable[[TrainedModels], Tensor]) -> ScoreFunction:
    """The score function of an attack that draws nothing."""
    return lambda models, generator: score(models)


def own_attack(name: str, attack: Any) -> Attack:
    """An attack of a user's: an `Attack`, a function of the models, or one of the models and a generator."""
    if isinstance(attack, Attack):
        return attack
    if _takes(attack, 1):
        return Attack(deterministic(attack))
    if _takes(attack, 2):
        return Attack(attack)
    raise TypeError(
        f"`attacks`: {name!r} must be a function of the models, or of the models and a generator, got "
        f"{arguments.shown(attack)}."
    )


def _takes(function: Any, count: int) -> bool:
    """Whether this is a function that takes so many arguments; one written in C may not say, and is believed to."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _gap(models: TrainedModels) -> Float[Tensor, "models points"]:
    """½ where the prediction is right, -½ elsewhere."""
    return models.correct.double() - 0.5


def _in_fixed_order(score: ScoreFunction) -> ScoreFunction:
    """The attack on sorted points, so that what it draws for a point does not depend on the point's place."""

    def in_fixed_order(models: TrainedModels, generator: torch.Generator) -> Tensor:
        ordered, order = models.sorted_by_content
        scores = score(ordered, generator)
        return torch.empty_like(scores).index_copy_(1, order, scores)

    return in_fixed_order


def _noise(models: TrainedModels, generator: torch.Generator) -> Float[Tensor, "models points"]:
    """Robustness to noise, of the one of four amounts that finds most members of the shadow models."""
    rows, labels = models.rows, models.true_labels
    kind = "flip" if bool(((rows == 0) | (rows == 1)).all()) else "gaussian"
    unit = 1.0 if kind == "flip" else _median_gap(rows)
    tried = []
    for amount in _NOISES[kind]:
        sizes: dict[str, Any] = dict(amount=amount * unit, copies=_COPIES, noise=kind, generator=generator)
        tried.append([label_only.noise_robustness(one, rows, labels, **sizes) for one in models.classifiers])
    scores = torch.stack([torch.stack(one).double() for one in tried])
    areas = Scores.from_mask(scores, member=models.member).auc()  # of every amount on every model
    best = (areas @ models.shadows.to(areas).mT).argmax(0)
    return scores[best, torch.arange(len(best), device=best.device)]


def _median_gap(rows: Float[Tensor, "points d"]) -> float:
    """The median distance of a point to the nearest other one."""
    gaps = torch.cdist(rows, rows).fill_diagonal_(torch.inf).amin(1)
    return max(float(gaps.median()), torch.finfo(torch.float64).tiny)


def _hop_skip_jump(models: TrainedModels, generator: torch.Generator) -> Float[Tensor, "models points"]:
    distances = [
        label_only.hop_skip_jump(one, models.rows, models.rows, settings=_HOP_SKIP_JUMP, generator=generator)
        for one in models.classifiers
    ]
    return _zero_where_wrong(models, torch.stack(distances))


def _zero_where_wrong(models: TrainedModels, distances: Tensor) -> Float[Tensor, "models points"]:
    """Distances to another label, finite, and 0 for a point whose predicted label is wrong."""
    return boundary_distance.replace_infinite(distances) * models.correct


def _size(models: TrainedModels) -> Float[Tensor, "models points"]:
    """By how much the largest logit leads: |Φ| of a network of two classes."""
    first, second = models.logits.topk(2, dim=-1).values.unbind(-1)
    return margin.size_score(first - second)


def _equality(models: TrainedModels) -> Float[Tensor, "models points"]:
    """How close |Φ| is to the mean margin of the shadow models; outputs far below it belong to outsiders."""
    sizes = _size(models)
    margins = sizes.masked_fill(~models.member, torch.inf).amin(1)
    shadows = models.shadows.to(margins)
    estimated = (shadows @ margins) / shadows.sum(1)
    return margin.one_sided_score(sizes, estimated.clamp_min(torch.finfo(torch.float64).tiny), slack=_SLACK)


def _ml_leaks(name: str, source: str, *, sentence: str) -> Attack:
    """A classifier of ML-Leaks, fitted on one shadow model's three largest posteriors."""

    def score(models: TrainedModels, generator: torch.Generator) -> Tensor:
        features = [{"top-3": one} for one in posterior.top_posteriors(models.logits)]
        tasks = []
        for target, asked in enumerate(features):
            shadow = models.next_shadow(target)
            tasks.append(AttackTask(name, features[shadow], models.member[shadow], asked, generator))
        return torch.stack([found["top-3"].double() for found in attack_models.run_attack_models(tasks)])

    return Attack(_in_fixed_order(score), "posterior", _SHADOWS, signed=True, source=source, sentence=sentence)


def _from_weights(measure: Callable[..., Tensor]) -> Callable[[TrainedModels], Tensor]:
    """A quantity of every network, computed from its weights, at every point."""
    return lambda models: torch.stack([measure(network, models.rows) for network in models.mlps])


_cell = _from_weights(hyperedges.hyperedge_distance_score)
_norm = _from_weights(lambda network, rows: jacobian_norm(network, activation_pattern(network, rows)))


def _boundary_distance(measure: Callable[..., Tensor]) -> ScoreFunction:
    """A distance to another label, computed from the weights."""
    return deterministic(lambda models: _zero_where_wrong(models, _from_weights(measure)(models)))


def _calibrate(models: TrainedModels, scores: Tensor) -> Float[Tensor, "models points"]:
    """Scores less those of shadow models that were not trained on the point."""
    models.need_shadows(outsiders=1)
    return _each_target(partial(calibrate_scores, scores), models)


def _threshold(score: Callable[..., Tensor], models: TrainedModels) -> Float[Tensor, "*e targets points"]:
    """Losses against a threshold that is learned on the shadow models."""
    models.need_shadows(members=1, outsiders=1)
    return _each_target(partial(score, models.losses), models)


def _lira(models: TrainedModels, *, offline: bool = False, **how: Any) -> Float[Tensor, "*e targets points"]:
    _need_ratios(models, offline)
    return _each_target(partial(lira_of_logits, models.margins, offline=offline, **how), models)


def _rmia(models: TrainedModels, *, offline: bool = False) -> Float[Tensor, "*e targets points"]:
    _need_ratios(models, offline)
    ratios = partial(rmia, models.losses, population=models.population, offline=offline)
    return _each_target(ratios, models)


def _quantile_regression(models: TrainedModels) -> Float[Tensor, "targets points"]:
    if models.features is None:
        raise NotAvailable("needs features of the points")
    logits, member = (models.select_targets(table) for table in (models.margins, models.member))
    if int((~member).sum(1).min()) < _LEAST_OUTSIDERS:
        raise NotAvailable(f"needs {_LEAST_OUTSIDERS} outsiders of each target")
    return quantile_regression(logits, member, models.features, models.units)


def _need_ratios(models: TrainedModels, offline: bool) -> None:
    """Two shadow models of each kind that is compared; offline every point needs one that was not trained on it."""
    models.need_shadows(members=0 if offline else 2, outsiders=2)
    if offline and not (models.shadow_support.both or models.shadow_support.outsiders_everywhere):
        raise NotAvailable("needs a shadow model that was not trained on the point, for every point")


def _each_target(score: Callable[..., Tensor], models: TrainedModels) -> Float[Tensor, "*e targets points"]:
    """The scores of all targets: all at once where every model is one."""
    if models.targets is None:
        return score(models.member, models.partner)
    return torch.cat([score(models.member, models.partner, target=target) for target in models.targets], -2)


_LABEL: frozenset[Knowledge] = frozenset({"true label"})
_SHADOWS: frozenset[Knowledge] = frozenset({"shadow models"})
_OUTSIDERS: frozenset[Knowledge] = frozenset({"outsiders"})


def _from_losses(score: Callable[[TrainedModels], Tensor], source: str, *, sentence: str) -> Attack:
    """An attack that compares a loss with those of shadow models."""
    return Attack(deterministic(score), "loss", _LABEL | _SHADOWS, signed=True, source=source, sentence=sentence)


ATTACKS: Mapping[str, Attack] = {
    "gap": Attack(
        deterministic(_gap),
        "label",
        _LABEL,
        signed=True,
        source="yeom2018privacy",
        sentence="It calls a row a member if the model's prediction for it is right.",
    ),
    "noise": Attack(
        _in_fixed_order(_noise),
        "label",
        _LABEL | _SHADOWS,
        source="choquette2021label",
        sentence="It adds noise to the row, by an amount tuned on shadow models, and counts how often the predicted "
        "label changes: members keep their label more often.",
    ),
    "HopSkipJump": Attack(
        _in_fixed_order(_hop_skip_jump),
        "label",
        _LABEL,
        source="chen2020hopskipjump",
        sentence="It searches, by predicted labels alone, for the nearest point with another label: from members it "
        "is farther.",
    ),
    "loss": Attack(
        deterministic(lambda models: -models.losses),
        "loss",
        _LABEL,
        source="yeom2018privacy",
        sentence="It calls rows with a small loss members.",
    ),
    "global threshold": _from_losses(
        partial(_threshold, loss_threshold.global_scores),
        "tan2023blessing",
        sentence="It compares the loss with one threshold for all rows, the best on the shadow models; so it ranks "
        "rows as the loss does.",
    ),
    "sample threshold": _from_losses(
        partial(_threshold, loss_threshold.sample_scores),
        "ye2021enhanced",
        sentence="It compares the loss with a threshold of the row's own, the best on the shadow models.",
    ),
    "calibrated loss": _from_losses(
        lambda models: _calibrate(models, -models.losses),
        "watson2022importance",
        sentence="It subtracts from the loss what shadow models lose on the row that were not trained on it.",
    ),
    "calibrated logit": _from_losses(
        lambda models: _calibrate(models, models.margins),
        "watson2022importance",
        sentence="It subtracts from the logit what shadow models give to the row that were not trained on it.",
    ),
    "LiRA": _from_losses(
        _lira,
        "carlini2022membership",
        sentence="It fits one normal law to the row's logits under shadow models trained on it and one to those "
        "under the others, and says by which of them the target's logit is likelier. All rows share the "
        "variances.",
    ),
    "LiRA, own variance": _from_losses(
        partial(_lira, variance="own"),
        "carlini2022membership",
        sentence="It is LiRA with variances of each row's own.",
    ),
    "LiRA, offline": _from_losses(
        partial(_lira, offline=True),
        "carlini2022membership",
        sentence="It is LiRA without shadow models trained on the row: it says how unusually large the target's "
        "logit is.",
    ),
    "RMIA": _from_losses(
        _rmia,
        "zarifzadeh2024low",
        sentence="It compares how much likelier the row is under the target than under shadow models with the same "
        "ratio of other rows, and counts those that the row beats.",
    ),
    "RMIA, offline": _from_losses(
        partial(_rmia, offline=True),
        "zarifzadeh2024low",
        sentence="It is RMIA without shadow models trained on the row.",
    ),
    "quantile regression": Attack(
        deterministic(_quantile_regression),
        "loss",
        _LABEL | _OUTSIDERS,
        signed=True,
        source="bertran2023scalable",
        sentence="It learns from known outsiders which logits the model gives to rows with such features, and says by "
        "how much the row's logit exceeds their median.",
    ),
    "ML-Leaks, network": _ml_leaks(
        "NN",
        "salem2019mlleaks",
        sentence="A small network learns from one shadow model how the three largest probabilities of members look.",
    ),
    "ML-Leaks, trees": _ml_leaks(
        "GBDT",
        "peinemann2021inside",
        sentence="Boosted trees learn from one shadow model how the three largest probabilities of members look.",
    ),
    "margin size": Attack(
        deterministic(_size),
        "margin",
        source="smorodinsky2024provable",
        sentence="It calls rows members whose largest logit leads by far.",
    ),
    "margin equality": Attack(
        deterministic(_equality),
        "margin",
        _SHADOWS,
        source="smorodinsky2024provable",
        sentence="For networks near a KKT point: it calls rows members whose margin is little above the smallest one "
        "of the shadow models' members.",
    ),
    "DeepFool": Attack(
        _boundary_distance(boundary_distance.deepfool),
        "weights",
        _LABEL,
        source="moosavi2016deepfool",
        sentence="It walks through the weights to a near point with another label: from members it is farther.",
    ),
    "certified radius": Attack(
        _boundary_distance(boundary_distance.certified_radius),
        "weights",
        _LABEL,
        sentence="It bounds from below, through the weights, the distance to another label: around members it is "
        "larger.",
    ),
    "cell distance": Attack(
        deterministic(_cell),
        "weights",
        source="peinemann2021inside",
        sentence="It takes the mean distance of the row from the four nearest borders of the network's linear regions.",
    ),
    "calibrated cell distance": Attack(
        deterministic(lambda models: _calibrate(models, _cell(models))),
        "weights",
        _SHADOWS,
        signed=True,
        source="watson2022importance",
        sentence="It subtracts from the cell distance that of shadow models that were not trained on the row.",
    ),
    "weight norm": Attack(
        deterministic(_norm),
        "weights",
        source="peinemann2021inside",
        sentence="It measures how steep the network is in the linear region of the row.",
    ),
}
"""The membership attacks of the book. To add one, write a line here and its algorithm in `membership`."""
