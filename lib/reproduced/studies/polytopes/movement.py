r"""How much area changes its activation from one epoch to the next, layer by layer, and through whose update.

The area that a hyperedge sweeps is the area where its neuron's state changes. A neuron of layer l changes its state
either because its own layer's weights moved or because the layers before it did: *own* replaces layer l alone,
*upstream* all layers before it. Shares are means over neurons and points.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.models.mlp import Mlp


class Moves(NamedTuple):
    """Shares of the area in which a neuron's state changes, averaged over the neurons of each hidden layer.

    Attributes:
        both: if all layers are updated.
        own: if only the layer itself is updated.
        upstream: if only the layers before it are updated; 0 for the first layer.
    """

    both: Float[Tensor, "*b layers"]
    own: Float[Tensor, "*b layers"]
    upstream: Float[Tensor, "*b layers"]


def moves(before: Mlp, after: Mlp, points: Float[Tensor, "t d"]) -> Moves:
    r"""The moves of an update from `before` to `after`, as means over points that stand for an area.

    With activations $a$ of the old and $a'$ of the new network, layer l's states are read off four heights,
    $W_l a^{l-1} + b_l$ (old), $W'_l a'^{l-1} + b'_l$ (both), $W'_l a^{l-1} + b'_l$ (own) and $W_l a'^{l-1} + b_l$
    (upstream).

    Source: the question is Section 5.4 of Peinemann (2021), the split is ours.
    """
    old = new = points
    found: list[list[Tensor]] = []
    for layer in range(len(before.weights) - 1):
        start = _height(before, layer, old)
        end = _height(after, layer, new)
        own, upstream = _height(after, layer, old), _height(before, layer, new)
        on = start > 0
        moved = [((height > 0) != on).sum((-2, -1)) for height in (end, own, upstream)]
        found.append([count.to(points.dtype) / on.shape[-2:].numel() for count in moved])
        old, new = start.clamp_min(0), end.clamp_min(0)
    return Moves(*(torch.stack(layers, -1) for layers in zip(*found, strict=True)))


def mean_moves(snapshots: dict[int, Mlp], points: Float[Tensor, "t d"], *, first: int, last: int) -> Moves:
    """The mean of `moves` over the epochs from `first` to `last`, one update an epoch."""
    wanted = range(first, last + 1)
    steps = [moves(snapshots[epoch], snapshots[epoch + 1], points) for epoch in wanted[:-1]]
    return Moves(*(torch.stack(parts).mean(0) for parts in zip(*steps, strict=True)))


def _height(network: Mlp, layer: int, below: Tensor) -> Tensor:
    return below @ network.weights[layer].mT + network.biases[layer].unsqueeze(-2)
