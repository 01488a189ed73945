r"""What an attacker's knowledge of the labels decides: a label is $f(x_i) - r_i$, so a batch without them has others.

Where two inputs with residuals have one gradient, the one whose label is nearer to a possible one is believed. Labels
are those of the caller, or what the loss suggests: ±1, and 0 and 1 for the logistic one. Nothing here is random.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.observation import Observation, Reconstruction
from leakage.models.activations import Activation

_TIE = 1e-9  # labels of mirror images that agree up to rounding; other ties are at the level of the sampling error
_NEAR = {torch.float32: 1e-4, torch.float64: 1e-6}
"""How far a label may be from a possible one, next to 1 + |r|: rounding leaves 2e-6 at most in 300 batches in float32,
1e-12 in float64, and a wrong batch 1e-2 and more."""


def check(labels: Sequence[float] | None) -> None:
    """Raise `ValueError` unless `labels` are finite numbers, one at least, or `None`."""
    if labels is not None and not len(labels):
        raise ValueError("`labels` must name a value that labels may have, or be None; it is empty.")
    for label in () if labels is None else labels:
        arguments.number("labels", label)


def nearer(
    observation: Observation,
    one: tuple[Float[Tensor, "B d"], Float[Tensor, " B"]],
    other: tuple[Float[Tensor, "B d"], Float[Tensor, " B"]],
    labels: Sequence[float] | None,
) -> tuple[Bool[Tensor, " B"], Bool[Tensor, " B"]]:
    """Which inputs of `other`, each with its residual, have likelier labels than those of `one`, and which are tied."""
    possible = labels if labels is not None else (0.0, 1.0) if observation.logistic else (-1.0, 1.0)
    here, there = (_distances(observation.labels(*batch), possible) for batch in (one, other))
    return there < here, (here - there).abs() <= _TIE * (1 + here)


def signs_from_labels(
    observation: Observation,
    inputs: Float[Tensor, "B d"],
    residuals: Float[Tensor, " B"],
    labels: Sequence[float] | None = None,
    *,
    outputs_seen: bool,
) -> tuple[Float[Tensor, " B"], tuple[str, ...]]:
    r"""The sign of each $(x_i, r_i)$ whose label is nearer to a possible one, and what leaves the batch undetermined.

    Args:
        observation: the network that was sent.
        inputs: $x_i$, up to sign where the activation can be mirrored; of any other the signs are 1.
        residuals: $r_i$, with that sign.
        labels: the possible values; `None` for ±1, and for 0 and 1 if the loss is logistic.
        outputs_seen: see `symmetries`, which are no doubt where labels decide for every input.
    """
    found = symmetries(observation.activation, outputs_seen=outputs_seen)
    if observation.activation.centre is None:
        return torch.ones_like(residuals), found
    turned, tied = nearer(observation, (inputs, residuals), (-inputs, -residuals), labels)
    return torch.where(turned, -1.0, 1.0).to(inputs), found if bool(tied.any()) else ()


def symmetries(activation: Activation, *, outputs_seen: bool) -> tuple[str, ...]:
    r"""The symmetries that leave a gradient as it is, in words; none where it determines its batch.

    Knowledge of norms or labels can still tell the batches apart: a bias b beyond all labels makes every $r_i$
    positive, and then no input is mirrored.

    Args:
        activation: of the hidden layer.
        outputs_seen: whether the gradient of the output layer is known; it is what tells a sigmoid from its mirror.
    """
    if activation.name == "linear":
        return ("only the sum of r·x is determined",)
    if activation.name == "quadratic":
        return ("only the sum of r·x·xᵀ is determined",)
    found = []
    if activation.centre == 0 or (activation.centre is not None and not outputs_seen):
        found.append("each (x, r) may be (-x, -r)")
    if activation.degree is not None:
        found.append("each (x, r) may be (s·x, r/s) with s > 0")
    return tuple(found)


def possible(found: Reconstruction, labels: Sequence[float] | None) -> bool:
    """Whether every label that was found is one of `labels`, up to rounding, or nothing is known of them."""
    if labels is None or found.labels is None:
        return True
    near = _NEAR[found.labels.dtype] * (1 + found.residuals.abs())
    return bool((_distances(found.labels, labels) < near).all())


def _distances(found: Float[Tensor, " B"], possible: Sequence[float]) -> Float[Tensor, " B"]:
    return (found.unsqueeze(-1) - found.new_tensor([float(label) for label in possible])).abs().amin(-1)
