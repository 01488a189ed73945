"""What the design of an audit cannot show, and what makes its answer too small: sentences, never errors."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leakage.auditing.attacks import Support
from leakage.auditing.given import Given
from leakage.auditing.measures import visible
from leakage.metrics.scores import marked

_FEW = 8  # targets, below which an interval over them says little
_TELLING = 0.05  # area under the curve beyond one half


def notes(given: Given, found: Support, *, fprs: Sequence[float], level: float) -> list[str]:
    """Every reservation about this design, the gravest first."""
    several = [*_of_counts(given), *_of_references(given, found), *_of_rates(given, fprs)]
    return [*several, *given.notes, _of_intervals(given, level)]


def _of_counts(given: Given) -> list[str]:
    """Whether the number of references that saw a row tells whether the target did."""
    if given.partner is not None or len(given.losses) < 3:
        return []
    others = torch.stack([given.member.sum(0) - given.member[target].long() for target in given.targets])
    area = float(marked(others.double(), member=given.attacked).auc().mean())
    fewest = int(torch.minimum(given.attacked.sum(-1), (~given.attacked).sum(-1)).min())
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
    losses = given.losses.numpy()
    if len(losses) < 3:
        return []
    alike = _equal(losses)
    if not alike.any() or np.mean([_equal(row[None]).sum() for row in losses]) > 1.5 * alike.sum():
        return []
    _, which = np.unique(losses.T, axis=0, return_inverse=True)
    return twins(which.reshape(-1), given.attacked, "the same losses under every model as")


def _equal(losses: np.ndarray) -> np.ndarray:
    """Whether a row has the same losses as another one."""
    _, which, counts = np.unique(losses.T, axis=0, return_inverse=True, return_counts=True)
    return counts[which.reshape(-1)] > 1


def twins(which: np.ndarray, member: Tensor, same: str) -> list[str]:
    """The warning where rows of one group number, `which`, are members and outsiders of one target."""
    groups = torch.from_numpy(which.astype(np.int64)).expand(member.shape)
    size = int(which.max()) + 1
    seen, unseen = (
        torch.zeros(len(member), size, dtype=torch.int64).scatter_add_(1, groups, kind.long())
        for kind in (member, ~member)
    )
    affected = int(((seen > 0) & (unseen > 0)).any(0)[torch.from_numpy(which)].sum())
    if not affected:
        return []
    return [
        f"{affected} rows have {same} another row that is on the other side: an outsider whose duplicate is a member "
        "counts as a false alarm, so that the bound is optimistic; keep one of each."
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
    fewest = int((~given.attacked).sum(-1).min())
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
