r"""Exact symmetries of a gradient, and how knowledge of the labels $y_i = f(x_i) - r_i$ decides between two batches.

Where two inputs with residuals have the same gradient, an attack takes the one whose label is nearer to a possible one.
Possible labels are those that the caller gives, otherwise ±1, and 0 and 1 for the logistic loss.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.inversion.activations import Activation
from leakage.inversion.observation import Observation, Reconstruction

_TIE = 1e-9  # labels of mirror images that agree up to rounding; other ties are at the level of the sampling error
_LABEL_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
"""How far a label may be from a possible one, relative to 1 + |r|: rounding leaves 2e-6 at most in 300 batches in
float32, 1e-12 in float64, and a wrong batch 1e-2 and more."""


def symmetries(activation: Activation, *, outputs_seen: bool) -> tuple[str, ...]:
    r"""The symmetries that leave a gradient unchanged, in words; empty where the gradient determines its batch.

    A known length or label can still tell the batches apart: an output bias b beyond all labels makes every $r_i$
    positive, and then no input can be mirrored.

    Args:
        outputs_seen: whether the gradient of the output layer is known, which distinguishes a sigmoid from its mirror.
    """
    if activation.name == "linear":
        return ("only the sum of r·x is determined",)
    if activation.name == "quadratic":
        return ("only the sum of r·x·xᵀ is determined",)
    found = []
    if activation.centre == 0 or (activation.centre is not None and not outputs_seen):
        found.append("each (x, r) may be (-x, -r)")
    if activation.homogeneity is not None:
        found.append("each (x, r) may be (s·x, r/s) with s > 0")
    return tuple(found)


def signs_from_labels(
    observation: Observation,
    inputs: Float[Tensor, "B d"],
    residuals: Float[Tensor, " B"],
    labels: Sequence[float] | None = None,
    *,
    outputs_seen: bool,
) -> tuple[Float[Tensor, " B"], tuple[str, ...]]:
    r"""The sign of each $(x_i, r_i)$ whose label is nearer to a possible one, and the `symmetries` that remain.

    All signs are 1 where the activation has no mirror symmetry. None of the symmetries remains where the labels decide
    for every input.
    """
    found = symmetries(observation.activation, outputs_seen=outputs_seen)
    if observation.activation.centre is None:
        return torch.ones_like(residuals), found
    mirrored, tied = compare_labels(observation, (inputs, residuals), (-inputs, -residuals), labels)
    return torch.where(mirrored, -1.0, 1.0).to(inputs), found if bool(tied.any()) else ()


def compare_labels(
    observation: Observation,
    one: tuple[Float[Tensor, "B d"], Float[Tensor, " B"]],
    other: tuple[Float[Tensor, "B d"], Float[Tensor, " B"]],
    labels: Sequence[float] | None,
) -> tuple[Bool[Tensor, " B"], Bool[Tensor, " B"]]:
    """Which inputs of `other`, each with its residual, have likelier labels than those of `one`, and which are tied."""
    possible = labels if labels is not None else (0.0, 1.0) if observation.logistic else (-1.0, 1.0)
    here, there = (_distances(observation.labels(*batch), possible) for batch in (one, other))
    return there < here, (here - there).abs() <= _TIE * (1 + here)


def labels_allowed(found: Reconstruction, labels: Sequence[float] | None) -> bool:
    """Whether every label that was found is a possible one, up to rounding; true where any label is possible."""
    if labels is None or found.labels is None:
        return True
    tolerance = _LABEL_TOLERANCE[found.labels.dtype] * (1 + found.residuals.abs())
    return bool((_distances(found.labels, labels) < tolerance).all())


def _distances(found: Float[Tensor, " B"], possible: Sequence[float]) -> Float[Tensor, " B"]:
    return (found.unsqueeze(-1) - found.new_tensor([float(label) for label in possible])).abs().amin(-1)
