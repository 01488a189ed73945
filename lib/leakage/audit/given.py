"""What an audit is given, as tensors that fit: losses, members, and whatever is known about the rows.

NumPy, PyTorch and lists come in; float32 stays float32, since a loss below its rounding is not 0 but unknown, and all
else becomes float64 on the CPU. A table that NumPy has mapped from a file stays where it is, if it is in order and of
such a type; tables are looked at in blocks (`blocks`). What cannot be used is refused by its name, with the cure; what
can be used with a reservation is, and a note says so. Nothing here attacks.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments, blocks
from leakage.attacks.membership.panels import Panel
from leakage.audit.arrays import to_matrix, to_names

_INFINITE = -math.log(torch.finfo(torch.float64).eps)  # nats: of the least probability that is not lost beside 1
_LEAST = 2  # members, and outsiders, of a model that is attacked


@dataclass(frozen=True, eq=False)
class Given:
    """The models, who was trained on what, and which of them are attacked.

    Attributes:
        losses: of each model on each row, finite and at least 0.
        member: whether the model was trained on the row.
        targets: the models that are attacked.
        partner: each model's partner, where all come in complementary pairs.
        population: losses on rows that no model was trained on.
        correct: whether each model's prediction is right.
        labels: a name for each row.
        groups: another one.
        notes: reservations.
    """

    losses: Float[Tensor, "models points"]
    member: Bool[Tensor, "models points"]
    targets: tuple[int, ...]
    partner: Int[Tensor, " models"] | None
    population: Float[Tensor, "models z"] | None
    correct: Bool[Tensor, "models points"] | None
    labels: np.ndarray | None
    groups: np.ndarray | None
    notes: tuple[str, ...]

    @cached_property
    def attacked(self) -> Bool[Tensor, "targets points"]:
        """The members of the targets."""
        return blocks.chosen(self.member, self.targets)

    @cached_property
    def fewest(self) -> tuple[int, int]:
        """The members, and the outsiders, of the target that has fewest of them."""
        inside = blocks.counted(self.attacked)
        return int(inside.min()), self.attacked.shape[1] - int(inside.max())

    def without(self, models: Sequence[int]) -> "Given":
        """The same without these models; there may be no target left."""
        left = [model for model in range(len(self.losses)) if model not in models]
        member = blocks.chosen(self.member, left)
        return replace(
            self,
            losses=blocks.chosen(self.losses, left),
            member=member,
            targets=tuple(place for place, model in enumerate(left) if model in self.targets),
            partner=_partners(member),
            population=None if self.population is None else blocks.chosen(self.population, left),
            correct=None if self.correct is None else blocks.chosen(self.correct, left),
        )


def given(
    losses: Any,
    member: Any,
    *,
    target: Any = None,
    population: Any = None,
    correct: Any = None,
    labels: Any = None,
    groups: Any = None,
) -> Given:
    """Everything checked and converted; see `audit.of_losses` for the arguments.

    Raises:
        TypeError: if something does not hold numbers.
        ValueError: if shapes do not fit, a value is out of range, or no model has members and outsiders.
    """
    values, notes = _finite("losses", to_matrix("losses", losses))
    truths = to_matrix("member", member, truth=True)
    if len(truths) == 1 < len(values) and truths.shape[1] == values.shape[1]:
        if target is None:
            raise ValueError(
                f"`member` must have a row for each of the {len(values)} models, got one row; where it is that of one "
                "target and the others never saw the rows, say which with `target`."
            )
        row, place = truths[0], arguments.count("target", target, most=len(values) - 1)
        truths = blocks.room(*values.shape, dtype=torch.bool).zero_()
        truths[place] = row
    if truths.shape != values.shape:
        raise ValueError(
            f"`member` must be of the shape of `losses`, (models, rows), got {tuple(truths.shape)} for "
            f"{tuple(values.shape)}; is one of them transposed?"
        )
    asked, more = None, []
    if population is not None:
        asked, more = _finite("population", to_matrix("population", population))
        if len(asked) != len(values):
            raise ValueError(f"`population` must have losses of all {len(values)} models, got {len(asked)} rows.")
        asked = asked.to(values.dtype)
    right = None if correct is None else to_matrix("correct", correct, truth=True)
    if right is not None and right.shape != values.shape:
        raise ValueError(f"`correct` must be of the shape of `losses`, got {tuple(right.shape)}.")
    return Given(
        values,
        truths,
        _targets(truths, target),
        _partners(truths),
        asked,
        right,
        to_names("labels", labels, values.shape[1]),
        to_names("groups", groups, values.shape[1]),
        (*notes, *more),
    )


def from_panel(panel: Any, *, target: int | None, groups: Any) -> Given:
    """What an audit of a panel is given; see `audit.of_panel`."""
    if not isinstance(panel, Panel):
        raise TypeError(
            f"`panel` must be an attacks.membership.panels.Panel, got {type(panel).__name__}; `Panel.of_modules` and "
            "`Panel.of_estimators` make one."
        )
    # Losses that were given are passed on in their own precision, in which they lost what they have lost.
    saved = panel.given is not None
    losses = panel.given if saved else panel.losses
    correct = None if saved else panel.correct
    return given(losses, panel.member, target=target, correct=correct, labels=panel.labels, groups=groups)


def _finite(name: str, losses: Float[Tensor, "models points"]) -> tuple[Tensor, list[str]]:
    """Losses that can be attacked, and a note where one was infinite."""
    parts, points = blocks.of(losses.shape), losses.shape[1]
    seen = _Seen.of(losses[:, parts[0]])
    for part in parts[1:]:
        seen = seen.and_of(losses[:, part])
    broken = seen.unknown | (seen.infinite / points > 0.5)
    if bool(broken.any()):
        which = ", ".join(map(str, broken.nonzero().flatten().tolist()[:8]))
        raise ValueError(
            f"`{name}` must be finite, got NaN or mostly inf of model {which}. Where training diverged leave the "
            "model out of `losses` and `member`, or train it again with a lower learning rate; where it is the same "
            "rows of every model, leave those out."
        )
    if bool((seen.least < 0).any()):
        raise ValueError(
            f"`{name}` must be at least 0, got {float(seen.least.min()):g} among them; of logarithms of probabilities, "
            "turn the sign."
        )
    lost = (seen.lost > points // 2).nonzero().flatten().tolist()
    notes = [
        f"Model {', '.join(map(str, lost[:8]))} gives most rows of `{name}` a probability below 1e-15, as one that has "
        "diverged: what its losses tell is no leak; leave it out or train it again."
    ] * bool(lost)
    if not bool(seen.infinite.any()):
        return losses, notes
    cap = max(_INFINITE, float(seen.largest.max()))
    note = f"{int(seen.infinite.sum())} {name} are infinite (a probability of 0) and count as {cap:.1f} nats."

    def capped(part: slice) -> Tensor:
        return losses[:, part].clamp_max(cap)

    return blocks.made(tuple(losses.shape), parts, capped, dtype=losses.dtype), [*notes, note]


class _Seen(NamedTuple):
    """What blocks show of each model's losses.

    Attributes:
        unknown: whether one is NaN.
        infinite: how many are infinite.
        lost: how many probabilities are lost beside 1.
        least: the least loss.
        largest: the largest finite one, 0 if there is none.
    """

    unknown: Bool[Tensor, " models"]
    infinite: Int[Tensor, " models"]
    lost: Int[Tensor, " models"]
    least: Float[Tensor, " models"]
    largest: Float[Tensor, " models"]

    @classmethod
    def of(cls, losses: Float[Tensor, "models points"]) -> "_Seen":
        infinite = losses == math.inf
        finite = losses.masked_fill(infinite, 0)
        counts = infinite.sum(-1), (losses > _INFINITE).sum(-1)
        return cls(losses.isnan().any(-1), *counts, losses.amin(-1), finite.amax(-1))

    def and_of(self, losses: Float[Tensor, "models points"]) -> "_Seen":
        """With one block more."""
        more = self.of(losses)
        return _Seen(
            self.unknown | more.unknown,
            self.infinite + more.infinite,
            self.lost + more.lost,
            torch.minimum(self.least, more.least),
            torch.maximum(self.largest, more.largest),
        )


def _targets(member: Bool[Tensor, "models points"], target: Any) -> tuple[int, ...]:
    models = len(member)
    inside = blocks.counted(member)
    fewest = torch.minimum(inside, member.shape[1] - inside)
    if target is not None:
        target = arguments.count("target", target, most=models - 1)
        if int(fewest[target]) < _LEAST:
            raise ValueError(
                f"`member` must have {_LEAST} members and {_LEAST} outsiders of the target, model {target}."
            )
        return (target,)
    found = tuple((fewest >= _LEAST).nonzero().flatten().tolist())
    if not found:
        raise ValueError(
            f"`member` must have {_LEAST} members and {_LEAST} outsiders of some model: nobody can be told."
        )
    return found


def _partners(member: Bool[Tensor, "models points"]) -> Int[Tensor, " models"] | None:
    """Each model's partner, where all come in complementary pairs, each to be taken for one pair only."""
    names = [(hashlib.sha256(), hashlib.sha256()) for _ in member]
    for part in blocks.of(member.shape):
        for row, (own, opposite) in zip(member[:, part].numpy(), names, strict=True):
            own.update(np.packbits(row).tobytes())
            opposite.update(np.packbits(~row).tobytes())
    left: dict[bytes, list[int]] = {}
    partner = [-1] * len(member)
    for model, (own, opposite) in enumerate(names):
        if waiting := left.get(opposite.digest()):
            other = waiting.pop(0)
            partner[model], partner[other] = other, model
        else:
            left.setdefault(own.digest(), []).append(model)
    return None if -1 in partner else torch.tensor(partner)
