"""What the design of an audit cannot show, and what makes its answer too small: sentences, never errors."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leakage import blocks
from leakage.audit.attacks import Support
from leakage.audit.given import Given
from leakage.audit.measures import visible
from leakage.metrics.scores import Scores

_FEW = 8  # targets, below which an interval over them says little
_TELLING = 0.05  # area under the curve beyond one half


def notes(given: Given, found: Support, *, fprs: Sequence[float], level: float) -> list[str]:
    """Every reservation about this design, the gravest first."""
    several = [*_of_shapes(given), *_of_counts(given), *_of_references(given, found), *_of_rates(given, fprs)]
    return [*several, *given.notes, _of_intervals(given, level)]


def of_signs(low: float, high: float) -> list[str]:
    """Whether losses, whose area under the curve has this interval, are those of members turned over."""
    if high >= 0.5 - _TELLING / 2:
        return []
    return [
        f"Members have the larger losses (AUC {low:.2f} to {high:.2f}), as no training leaves them: are these "
        "probabilities, whose logarithms with the sign turned are losses, or is `member` turned over?"
    ]


def _of_shapes(given: Given) -> list[str]:
    models, rows = given.losses.shape
    return [f"There are more models ({models:,}) than rows ({rows:,}): are the arrays transposed?"] * (models > rows)


def _of_counts(given: Given) -> list[str]:
    """Whether the number of references that saw a row tells whether the target did."""
    if given.partner is not None or len(given.losses) < 3:
        return []
    count = torch.cat([given.member[:, part].sum(0) for part in blocks.of(given.member.shape)])
    areas = [
        Scores.from_mask((count - given.member[target].long()).double(), member=given.member[target]).auc()
        for target in given.targets
    ]
    area, fewest = float(torch.stack(areas).mean()), min(given.fewest)
    if abs(area - 0.5) < max(_TELLING, 5 / math.sqrt(6 * fewest)):  # Mann and Whitney's deviation of equal halves
        return []
    return [
        "The count of references that were trained on a row tells whether the target was "
        f"(AUC {area:.2f} from counts alone), so an attack may win by counting; draw independent subsets, or only "
        "complementary pairs."
    ]


def of_twins(given: Given) -> list[str]:
    """Rows with the same losses under every model, of which a target saw one and not the other.

    Coarse losses, as trees give them, are equal for rows that differ: they are told by the many that are equal under
    one model and not under all.
    """
    losses = given.losses
    if len(losses) < 3:
        return []
    keys = np.concatenate([_keys(losses[:, part].double().numpy()) for part in blocks.of(losses.shape)])
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    alike = int((counts[which] > 1).sum())
    if not alike or np.mean([_equal(row.numpy()) for row in losses]) > 1.5 * alike:
        return []
    told = "the same losses under every model as"
    return twins(which, given.attacked, told, unless="unless they differ and the losses are coarse, as few trees give")


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


def _of_references(given: Given, found: Support) -> list[str]:
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
    if min(found.seen, found.unseen) < 2:
        return ["No row has two references of each kind: LiRA and RMIA are left out; train more models."]
    return []


def _of_rates(given: Given, fprs: Sequence[float]) -> list[str]:
    fewest = given.fewest[1]
    return [
        f"TPR at {100 * fpr:g} % FPR needs ≥ {math.ceil(1 / fpr - 1e-9):,} outsiders; there are {fewest:,}."
        for fpr in fprs
        if not visible(fewest, fpr)
    ]


def _of_intervals(given: Given, level: float) -> str:
    models = len(given.targets)
    if models == 1:
        return f"Intervals ({100 * level:g} %) are over the rows, for this one model; another training may leak more."
    few = f" {models} are few for it." if models < _FEW else ""
    return f"Numbers are means over {models} models; intervals ({100 * level:g} %) are for other trainings.{few}"
