"""Check and convert the inputs of an audit.

NumPy, PyTorch and lists come in. float32 stays float32, since a loss below its rounding is not 0 but unknown;
everything else becomes float64 on the CPU. Unusable input raises an error that says how to fix it; input that is usable
with a reservation adds a note.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments
from leakage.attacks.membership.trained_models import TrainedModels
from leakage.audit.arrays import to_matrix, to_names

_INFINITE = -math.log(torch.finfo(torch.float64).eps)  # nats: of the least probability that is not lost beside 1
_LEAST = 2  # members, and outsiders, of a model that is attacked


class AuditInputs(NamedTuple):
    """What an audit attacks.

    Attributes:
        models: their losses, who was trained on what, and which of them are targets.
        labels: a name for each row.
        groups: another one.
        notes: reservations about the input.
    """

    models: TrainedModels
    labels: np.ndarray | None
    groups: np.ndarray | None
    notes: tuple[str, ...]


def validate_inputs(
    losses: Any,
    member: Any,
    *,
    target: Any = None,
    population: Any = None,
    correct: Any = None,
    labels: Any = None,
    groups: Any = None,
) -> AuditInputs:
    """Everything checked and converted; see `audit.of_losses` for the arguments."""
    values, notes = _check_losses("losses", to_matrix("losses", losses))
    truths = _spread_target_row(
        to_matrix("member", member, truth=True), target, models=len(values), rows=values.shape[1]
    )
    if truths.shape != values.shape:
        raise ValueError(
            f"`member` must be of the shape of `losses`, (models, rows), got {tuple(truths.shape)} for "
            f"{tuple(values.shape)}; is one of them transposed?"
        )
    outside, more = None, []
    if population is not None:
        outside, more = _check_losses("population", to_matrix("population", population))
        if len(outside) != len(values):
            raise ValueError(f"`population` must have losses of all {len(values)} models, got {len(outside)} rows.")
        outside = outside.to(values.dtype)
    right = None if correct is None else to_matrix("correct", correct, truth=True)
    if right is not None and right.shape != values.shape:
        raise ValueError(f"`correct` must be of the shape of `losses`, got {tuple(right.shape)}.")
    targets = _find_targets(truths, target)
    models = TrainedModels.from_losses(
        values,
        truths,
        find_partners(truths),
        saved_correct=right,
        population=outside,
        targets=None if len(targets) == len(values) else targets,
    )
    rows = values.shape[1]
    return AuditInputs(models, to_names("labels", labels, rows), to_names("groups", groups, rows), (*notes, *more))


def inputs_from_models(models: Any, *, target: int | None, groups: Any) -> AuditInputs:
    """The inputs of an audit of trained models; see `audit.of_models`."""
    if not isinstance(models, TrainedModels):
        raise TypeError(
            f"`models` must be leakage.TrainedModels, got {type(models).__name__}; `TrainedModels.from_modules` and "
            "`TrainedModels.from_estimators` make them."
        )
    # Saved losses are passed on in their own precision: float32 has lost the small ones.
    saved = models.saved_losses is not None
    losses = models.saved_losses if saved else models.losses
    correct = models.saved_correct if saved else models.correct
    more = {"population": models.population, "correct": correct, "labels": models.labels, "groups": groups}
    inputs = validate_inputs(losses, models.member, target=target, **more)
    if target is None and models.targets is not None:
        inputs = inputs._replace(models=dataclasses.replace(inputs.models, targets=models.targets))
    return inputs


def _spread_target_row(
    member: Bool[Tensor, "m rows"], target: Any, *, models: int, rows: int
) -> Bool[Tensor, "n rows"]:
    """The members of all models, where one row may be given: that of the target, whose references saw none."""
    if not len(member) == 1 < models or member.shape[1] != rows:
        return member
    if target is None:
        raise ValueError(
            f"`member` must have a row for each of the {models} models, got one row; where it is that of one "
            "target and the others never saw the rows, say which with `target`."
        )
    spread = torch.zeros(models, rows, dtype=torch.bool)
    spread[arguments.check_count("target", target, most=models - 1)] = member[0]
    return spread


def _check_losses(name: str, losses: Float[Tensor, "models points"]) -> tuple[Tensor, list[str]]:
    """Losses that can be attacked, finite and at least 0, and notes."""
    infinite = losses == math.inf
    broken = losses.isnan().any(-1) | (infinite.sum(-1) > losses.shape[1] / 2)
    if bool(broken.any()):
        which = ", ".join(map(str, broken.nonzero().flatten().tolist()[:8]))
        raise ValueError(
            f"`{name}` must be finite, got NaN or mostly inf of model {which}. Where training diverged leave the "
            "model out of `losses` and `member`, or train it again with a lower learning rate; where it is the same "
            "rows of every model, leave those out."
        )
    if float(losses.min()) < 0:
        raise ValueError(
            f"`{name}` must be at least 0, got {float(losses.min()):g} among them; of logarithms of probabilities, "
            "turn the sign."
        )
    diverged = ((losses > _INFINITE).sum(-1) > losses.shape[1] // 2).nonzero().flatten().tolist()
    notes = [
        f"Model {', '.join(map(str, diverged[:8]))} gives most rows of `{name}` a probability below 1e-15, as one that "
        "has diverged: what its losses tell is no leak; leave it out or train it again."
    ] * bool(diverged)
    if not bool(infinite.any()):
        return losses, notes
    cap = max(_INFINITE, float(losses.masked_fill(infinite, 0).max()))
    note = f"{int(infinite.sum())} {name} are infinite (a probability of 0) and count as {cap:.1f} nats."
    return losses.clamp_max(cap), [*notes, note]


def _find_targets(member: Bool[Tensor, "models points"], target: Any) -> tuple[int, ...]:
    """The models that are attacked: the one asked for, or all that have enough members and outsiders."""
    inside = member.sum(-1)
    fewest = torch.minimum(inside, member.shape[1] - inside)
    if target is not None:
        target = arguments.check_count("target", target, most=len(member) - 1)
        if int(fewest[target]) < _LEAST:
            raise ValueError(
                f"`member` must have {_LEAST} members and {_LEAST} outsiders of the target, model {target}."
            )
        return (target,)
    targets = tuple((fewest >= _LEAST).nonzero().flatten().tolist())
    if not targets:
        raise ValueError(
            f"`member` must have {_LEAST} members and {_LEAST} outsiders of some model: there is nobody to tell apart."
        )
    return targets


def find_partners(member: Bool[Tensor, "models points"]) -> Int[Tensor, " models"] | None:
    """Each model's partner, where all models come in complementary pairs; else None."""
    waiting: dict[bytes, list[int]] = {}
    partner = [-1] * len(member)
    for model, row in enumerate(member.numpy()):
        opposite = np.packbits(~row).tobytes()
        if waiting.get(opposite):
            other = waiting[opposite].pop(0)
            partner[model], partner[other] = other, model
        else:
            waiting.setdefault(np.packbits(row).tobytes(), []).append(model)
    return None if -1 in partner else torch.tensor(partner)
