"""Sentences about what an audit cannot show, and about inputs that make its answer wrong; none is an error."""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakage.arrays import row_contents
from leakage.membership.evaluation import fewest_outsiders, is_resolvable
from leakage.membership.trained_models import TrainedModels
from leakage.metrics.estimates import Estimate

_FEW_TARGETS = 8  # an interval over fewer says little
_CLEAR_AUC_GAP = 0.05  # between an area under the curve and one half


def find_limits(models: TrainedModels, *, fprs: Sequence[float]) -> list[str]:
    """Every reservation about a design, the gravest first."""
    if share_one_split(models):
        return [
            "All models were trained on the same rows, so that the shadow models of a target tell who was a member: "
            "attacks that use shadow models are left out; train each model on a random half of its own.",
            *_find_unmeasurable_rates(fewest_outsiders(models), fprs),
        ]
    return [
        *_find_telling_counts(models),
        *_find_missing_shadows(models),
        *_find_unmeasurable_rates(fewest_outsiders(models), fprs),
    ]


def share_one_split(models: TrainedModels) -> bool:
    """Whether there are several models, all trained on the same rows."""
    return len(models.member) > 1 and bool((models.member == models.member[0]).all())


def find_swapped_members(low: float, high: float, *, probabilities: bool = True) -> list[str]:
    """A note if the area under the curve of the losses, in this interval, is clearly below one half."""
    if high >= 0.5 - _CLEAR_AUC_GAP / 2:
        return []
    cause = "these probabilities, whose logarithms with the sign turned are losses"
    return [
        f"Members have the larger losses (AUC {low:.2f} to {high:.2f}), as no training leaves them: are "
        f"{cause if probabilities else 'their signs turned'}, or is `member` turned over?"
    ]


def find_differing_members(without_model: Estimate) -> list[str]:
    """A note if the area under the curve of an attacker without the model is clearly above one half."""
    if without_model.low < 0.5 + _CLEAR_AUC_GAP / 2:
        return []
    return [
        f"Members differ from outsiders without the model: AUC {without_model:.2f} from the features alone. An attack "
        "whose AUC is below this shows no leak; take members and outsiders from the same rows at random."
    ]


def find_single_labels(labels: np.ndarray | None, rows: str) -> list[str]:
    """A note if some labels occur once."""
    if labels is None or not (once := int((np.unique(labels, return_counts=True)[1] == 1).sum())):
        return []
    return [
        f"{once:,} of {len(labels):,} {rows} have a label that no other has; a model that was not trained on it cannot "
        "know it, so that what is found there is the label and not the row: group rare labels, or leave them out."
    ]


def find_duplicate_losses(models: TrainedModels) -> list[str]:
    """A note if rows on both sides of a target have the same losses under every model.

    Coarse losses, as trees give them, are equal for rows that differ. Then many more are equal under one model than
    under all, and there is no note.
    """
    losses = models.losses.numpy()
    if len(losses) < 3:
        return []
    group = _number_groups(row.tobytes() for row in np.add(losses.T, 0.0, order="C"))  # -0 becomes 0
    duplicates = _count_repeated(group)
    if not duplicates or np.mean([_count_repeated(row) for row in losses]) > 1.5 * duplicates:
        return []
    unless = ", unless they differ and the losses are coarse, as few trees give"
    targets = models.select_targets(models.member)
    return _warn_of_duplicates(group, targets, "the same losses under every model as", unless)


def find_duplicate_rows(X: Any, labels: Sequence[Any], member: Tensor) -> list[str]:
    """A note if rows with equal content and equal labels are on both sides of a target."""
    group = _number_groups(zip(row_contents(X), map(str, labels), strict=True))
    return _warn_of_duplicates(group, member, "the same content and label as")


def _number_groups(rows: Iterable[Hashable]) -> np.ndarray:
    """A number for each row, the same for equal rows."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(row, len(numbers)) for row in rows])


def _count_repeated(values: np.ndarray) -> int:
    """How many of the values occur more than once."""
    counts = np.unique(values, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def _warn_of_duplicates(group: np.ndarray, member: Tensor, same: str, unless: str = "") -> list[str]:
    """A note if rows of one group are members and outsiders of one target."""
    size = np.bincount(group)
    mixed = np.zeros(len(size), dtype=bool)
    for row in member.numpy():
        inside = np.bincount(group[row], minlength=len(size))
        mixed |= (0 < inside) & (inside < size)
    affected = int(size[mixed].sum())
    if not affected:
        return []
    return [
        f"{affected} rows have {same} another row that is on the other side: an outsider whose duplicate is a member "
        f"counts as a false alarm, so that the bound is optimistic; keep one of each{unless}."
    ]


def _find_telling_counts(models: TrainedModels) -> list[str]:
    """A note if the number of shadow models trained on a row tells whether the target was."""
    if models.partner is not None or len(models.member) < 3:
        return []
    count, targets = models.unit_member.sum(0), models.target_member
    area = sum(_auc_of_counts(count - row.long(), row) for row in targets) / len(targets)
    inside = targets.sum(1)
    chance = 5 / math.sqrt(
        6 * int(torch.minimum(inside, targets.shape[1] - inside).min())
    )  # five standard errors of the area, by Mann and Whitney
    if abs(area - 0.5) < max(_CLEAR_AUC_GAP, chance):
        return []
    return [
        "The count of shadow models that were trained on a row tells whether the target was "
        f"(AUC {area:.2f} from counts alone), so an attack may win by counting; draw independent subsets, or only "
        "complementary pairs."
    ]


def _auc_of_counts(counts: Tensor, member: Tensor) -> float:
    """The area under the curve of small whole numbers, which needs no sort."""
    inside, outside = (counts[kind].bincount(minlength=int(counts.max()) + 1).double() for kind in (member, ~member))
    below = outside.cumsum(0) - outside / 2
    return float(inside @ below / (inside.sum() * outside.sum()))


def _find_missing_shadows(models: TrainedModels) -> list[str]:
    support = models.shadow_support
    if support.models < 2:
        number = "is no shadow model" if not support.models else "is one shadow model"
        return [
            f"There {number} for some target: LiRA and RMIA need two or more, and find more than a threshold on the "
            "loss."
        ]
    if not support.both:
        return [
            "No row has shadow models that were trained on it and others that were not: only offline attacks, which "
            "are weaker."
        ]
    if min(support.members, support.outsiders) < 2:
        return ["No row has two shadow models of each kind: LiRA and RMIA are left out; train more models."]
    return []


def _find_unmeasurable_rates(outsiders: int, fprs: Sequence[float]) -> list[str]:
    return [
        f"TPR at {100 * fpr:g} % FPR needs ≥ {math.ceil(1 / fpr - 1e-9):,} outsiders; there are {outsiders:,}."
        for fpr in fprs
        if not is_resolvable(fpr, outsiders)
    ]


def explain_intervals(targets: int, level: float, *, one_split: bool, rows: str) -> str:
    interval = f"interval ({100 * level:g} %) says where"
    if targets == 1:
        return (
            f"An {interval} the number for all {rows} of this kind lies, for this one model; another training may leak "
            "more."
        )
    means = f"Numbers are means over {targets} models; an {interval}"
    if one_split:
        return f"{means} the mean for all {rows} of this kind lies."
    few = f" {targets} models are few for it." if targets < _FEW_TARGETS else ""
    return f"{means} the mean over many such trainings on these {rows} lies.{few}"
