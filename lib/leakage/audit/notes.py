"""What the design of an audit cannot show, and what makes its answer too small: sentences, never errors."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leakage.attacks.membership.trained_models import TrainedModels
from leakage.evaluation import fewest_outsiders, is_resolvable
from leakage.metrics.scores import marked

_FEW = 8  # targets, below which an interval over them says little
_TELLING = 0.05  # area under the curve beyond one half


def limits_of_design(models: TrainedModels, *, fprs: Sequence[float]) -> list[str]:
    """Every reservation about this design, the gravest first."""
    return [*_of_shapes(models), *_of_counts(models), *_of_references(models), *_of_rates(models, fprs)]


def find_swapped_members(low: float, high: float) -> list[str]:
    """Whether losses, whose area under the curve has this interval, are those of members turned over."""
    if high >= 0.5 - _TELLING / 2:
        return []
    return [
        f"Members have the larger losses (AUC {low:.2f} to {high:.2f}), as no training leaves them: are these "
        "probabilities, whose logarithms with the sign turned are losses, or is `member` turned over?"
    ]


def _of_shapes(models: TrainedModels) -> list[str]:
    count, rows = models.member.shape
    return [f"There are more models ({count:,}) than rows ({rows:,}): are the arrays transposed?"] * (count > rows)


def _of_counts(models: TrainedModels) -> list[str]:
    """Whether the number of references that saw a row tells whether the target did."""
    if models.partner is not None or len(models.member) < 3:
        return []
    count, targets = models.member.sum(0), models.target_member
    areas = [marked((count - member.long()).double(), member=member).auc() for member in targets]
    inside = targets.sum(1)
    area, fewest = float(torch.stack(areas).mean()), int(torch.minimum(inside, targets.shape[1] - inside).min())
    if abs(area - 0.5) < max(_TELLING, 5 / math.sqrt(6 * fewest)):  # Mann and Whitney's deviation of equal halves
        return []
    return [
        "The count of references that were trained on a row tells whether the target was "
        f"(AUC {area:.2f} from counts alone), so an attack may win by counting; draw independent subsets, or only "
        "complementary pairs."
    ]


def find_duplicates(models: TrainedModels) -> list[str]:
    """Rows with the same losses under every model, of which a target saw one and not the other.

    Coarse losses, as trees give them, are equal for rows that differ: they are told by the many that are equal under
    one model and not under all.
    """
    losses = models.losses
    if len(losses) < 3:
        return []
    keys = _keys(losses.numpy())
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    alike = int((counts[which] > 1).sum())
    if not alike or np.mean([_equal(row.numpy()) for row in losses]) > 1.5 * alike:
        return []
    told = "the same losses under every model as"
    return twins(which, models.target_member, told, unless="unless they differ and the losses are coarse, as few trees give")


def _keys(losses: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each row, the same where all losses are; of ten million others two agree once in 370,000.

    Each loss is mixed in by the steps of SplitMix64: G. L. Steele, D. Lea, C. H. Flood (2014), OOPSLA.
    """
    keys = np.zeros(losses.shape[1], dtype=np.uint64)
    for row in losses:
        keys += (row + 0.0).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)  # -0 is 0
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys


def _equal(losses: np.ndarray) -> int:
    """How many losses of one model occur more than once."""
    ordered = np.sort(losses)
    same = ordered[1:] == ordered[:-1]
    return int((np.append(same, False) | np.append(False, same)).sum())


def twins(which: np.ndarray, member: Tensor, same: str, *, unless: str = "") -> list[str]:
    """The warning where rows of one group number, `which`, are members and outsiders of one target."""
    size = int(which.max()) + 1
    both = np.zeros(size, dtype=bool)
    for row in member.numpy():
        seen, unseen = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        seen[which[row]], unseen[which[~row]] = True, True
        both |= seen & unseen
    affected = int(both[which].sum())
    if not affected:
        return []
    return [
        f"{affected} rows have {same} another row that is on the other side: an outsider whose duplicate is a member "
        f"counts as a false alarm, so that the bound is optimistic; keep one of each{', ' + unless if unless else ''}."
    ]


def _of_references(models: TrainedModels) -> list[str]:
    found = models.shadow_support
    if found.models < 2:
        return [
            f"There {'is no reference model' if not found.models else 'is one reference model'} for some target: LiRA "
            "and RMIA need two or more, and find more than a threshold on the loss."
        ]
    if not found.both:
        return [
            "No row has references that were trained on it and others that were not: only offline attacks, which are "
            "weaker."
        ]
    if min(found.members, found.outsiders) < 2:
        return ["No row has two references of each kind: LiRA and RMIA are left out; train more models."]
    return []


def _of_rates(models: TrainedModels, fprs: Sequence[float]) -> list[str]:
    fewest = fewest_outsiders(models)
    return [
        f"TPR at {100 * fpr:g} % FPR needs ≥ {math.ceil(1 / fpr - 1e-9):,} outsiders; there are {fewest:,}."
        for fpr in fprs
        if not is_resolvable(fpr, fewest)
    ]


def what_intervals_mean(models: TrainedModels, level: float) -> str:
    targets = len(models.target_numbers)
    if targets == 1:
        return f"Intervals ({100 * level:g} %) are over the rows, for this one model; another training may leak more."
    few = f" {targets} are few for it." if targets < _FEW else ""
    return f"Numbers are means over {targets} models; intervals ({100 * level:g} %) are for other trainings.{few}"
