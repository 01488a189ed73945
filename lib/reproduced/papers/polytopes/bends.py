r"""Where the hyperedges of a network bend: on hyperedges of earlier layers, and nowhere else.

Where no neuron of layers 1 to l - 1 is at zero, all of them keep their state in a neighbourhood. A neuron of layer l is
then affine there, $z_i(x) = \langle w^*_i, x \rangle + c_i$, and its hyperedge is a straight line. Neurons of its own
layer and of later ones are no inputs of it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.membership.polytopes import join_layers
from reproduced.papers.polytopes.subdivision import Subdivision

_SAME_PLACE = 1e-8  # ends of pieces that differ by less are one place; so far apart are heights that count as zero
_STRAIGHT = 1e-5  # radians: a smaller turn is none
_ROUNDING = 1e-12  # two pieces that leave one line by less, in units of the window, are on it


class Bends(NamedTuple):
    r"""The places where exactly two pieces of one neuron's hyperedge meet.

    Attributes:
        layer: of the neuron, the first being 0.
        turn: the angle between the two pieces, in radians; 0 if they are on one line.
        departure: how far the end of the shorter piece is from the line of the longer one.
        on_earlier: whether a neuron of an earlier layer is at zero there.
    """

    layer: Int[Tensor, " places"]
    turn: Float[Tensor, " places"]
    departure: Float[Tensor, " places"]
    on_earlier: Bool[Tensor, " places"]

    @property
    def bent(self) -> Bool[Tensor, " places"]:
        """Where the hyperedge turns, by more than rounding turns a short piece."""
        return (self.turn > _STRAIGHT) & (self.departure > _ROUNDING)


def find_bends(cells: Subdivision) -> Bends:
    r"""All places in a window where a hyperedge could bend, with the turn it takes there.

    With unit vectors u and v along the two pieces, away from the place, the turn is
    $\operatorname{atan2}(\lvert u \times v \rvert, -\langle u, v \rangle)$ and the departure
    $\min(\ell_u, \ell_v)\, \lvert u \times v \rvert$. Places where more than two pieces end are left out.

    Source: "hyperedges of neurons from deeper layers … need to have hyperedges of upper layers to perform a break",
    Peinemann (2021), Section 5.4.
    """
    segments, neurons = cells.hyperedges()
    ends, owners = segments.flatten(0, 1), neurons.repeat_interleave(2)
    away = segments.flip(1).flatten(0, 1) - ends  # along the piece, from this end to its other one
    keys = torch.cat([owners.unsqueeze(-1), (ends / _SAME_PLACE).round().long()], -1)
    _, group, size = keys.unique(dim=0, return_inverse=True, return_counts=True)
    order, starts = group.argsort(stable=True), size.cumsum(0) - size
    first, second = (order[starts[size == 2] + offset] for offset in (0, 1))
    whole = first // 2 != second // 2  # the two ends of one very short piece are no place
    first, second = first[whole], second[whole]

    lengths = away.norm(dim=-1)
    unit = away / lengths.unsqueeze(-1)
    (x, y), (u, v) = unit[first].unbind(-1), unit[second].unbind(-1)
    across, along = (x * v - y * u).abs(), x * u + y * v

    widths = torch.tensor(cells.network.widths[1:-1])
    layer_of = torch.arange(len(widths)).repeat_interleave(widths)
    layer = layer_of[owners[first]]
    at_zero = join_layers(cells.network.preactivations(cells.lift(ends[first]))[:-1]).abs() < _SAME_PLACE
    return Bends(
        layer=layer,
        turn=torch.atan2(across, -along),
        departure=torch.minimum(lengths[first], lengths[second]) * across,
        on_earlier=(at_zero & (layer_of < layer.unsqueeze(-1))).any(-1),
    )
