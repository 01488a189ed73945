r"""The same network with no more inputs than it has neurons in its first layer.

The network sees a point only through $W_1 x$. With $W_1 = F Q^\top$, $Q^\top Q = I$, it is a network of
$u = Q^\top x$ with the first weight F, and two points that differ within the row space of $W_1$ are as far apart in
u as in x. All gradients lie there. So whoever follows gradients from x loses nothing in u. Directions that were not
made from gradients, such as random ones, do not belong here.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.geometry.patterns import Gates
from leakage.geometry.rays import LEVEL, label_change
from leakage.models.mlp import Mlp

_TOGETHER = 4096  # segments looked at together: the heights of a few hundred neurons there fit a cache


class RowSpace(NamedTuple):
    """A network over the row space of its first weight, and the basis Q; `points @ basis` are its points."""

    network: Mlp
    basis: Float[Tensor, "*b d r"]

    def of(self, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t r"]:
        """`points @ basis`, and the points themselves where the basis is the identity."""
        return points if self.basis.shape[-2] == self.basis.shape[-1] else points @ self.basis


def row_space(network: Mlp) -> RowSpace:
    r"""Write $W_1 = F Q^\top$ with $r = \min(d, n_1)$ orthonormal columns of Q.

    Distances within the row space, predictions, $\lVert A_P \rVert_F$ and $b_P$ are the same in u and in x.

    Returns:
        The network of u, exact up to rounding. With no more inputs than neurons it is the network itself, and Q = I.
    """
    first = network.weights[0]
    neurons, inputs = first.shape[-2:]
    if inputs <= neurons:
        return RowSpace(network, torch.eye(inputs, dtype=first.dtype, device=first.device))
    basis, triangle = torch.linalg.qr(first.mT)
    return RowSpace(Mlp((triangle.mT.contiguous(), *network.weights[1:]), network.biases), basis)


def read_out_weights(network: Mlp, gates: Gates) -> Float[Tensor, "*b t classes d"]:
    r"""$A_P$, multiplied from the outputs down: $(W_{H+1} D_H) W_H \cdots D_1 W_1$.

    `geometry.patterns.read_out` multiplies from the inputs up and knows all neurons on the way. From the outputs down
    no product is larger than classes × neurons, which is what a step of `deepfool` can afford for each point.
    """
    product = network.weights[-1].unsqueeze(-3)
    for gate, weight in zip(reversed(gates), reversed(network.weights[:-1]), strict=True):
        product = (product * gate.to(weight.dtype).unsqueeze(-2)) @ weight.unsqueeze(-3)
    return product


def first_change(network: Mlp, points: Float[Tensor, "t d"], ends: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    """How far along each segment the predicted label first changes, exactly.

    Where rounding hides the change just before an end of another label, it is put at the end. Infinite where the
    label of the end is that of the point and no other comes between.
    """
    found = torch.full_like(points[:, 0], torch.inf)
    parts = zip(points.split(_TOGETHER), ends.split(_TOGETHER), strict=True)
    open_ = (~torch.cat([_keeps_label(network, *part) for part in parts])).nonzero().squeeze(-1)
    if len(open_):
        found[open_] = _first_change(network, points[open_], ends[open_])
    return found


def _first_change(network: Mlp, points: Tensor, ends: Tensor) -> Float[Tensor, " t"]:
    """By following each segment from polytope to polytope."""
    paths = ends - points
    lengths = paths.norm(dim=-1)
    # A segment without length has no direction; any will do, for nothing is found within its length.
    axis = torch.eye(1, paths.shape[-1], dtype=paths.dtype, device=paths.device)
    directions = torch.where(lengths[:, None] > 0, paths / lengths[:, None], axis)
    longest = max(float(lengths.max()), torch.finfo(lengths.dtype).tiny)
    found = label_change(network, points, directions, until=longest)
    other = network(points).argmax(-1) != network(ends).argmax(-1)
    return torch.where(found <= lengths, found, torch.where(other, lengths, torch.inf))


def _keeps_label(network: Mlp, points: Tensor, ends: Tensor) -> Bool[Tensor, " t"]:
    r"""Whether interval arithmetic proves that a whole segment has one label; most short ones are spared their walk.

    A neuron of the first layer is affine on the segment and lies between its two ends. Upwards, heights within
    $c \pm r$ lead to heights within $W c + b \pm |W| r$.
    """
    first, shift = network.weights[0], network.biases[0]
    here, there = points @ first.mT + shift, ends @ first.mT + shift
    low, high = torch.minimum(here, there), torch.maximum(here, there)
    for weight, bias in zip(network.weights[1:], network.biases[1:], strict=True):
        low, high = low.clamp_min(0), high.clamp_min(0)
        middle, radius = (low + high) / 2 @ weight.mT + bias, (high - low) / 2 @ weight.abs().mT
        low, high = middle - radius, middle + radius
    leader = low.argmax(-1, keepdim=True)
    second = high.scatter(-1, leader, -torch.inf).amax(-1)
    level = LEVEL * torch.maximum(low.abs(), high.abs()).amax(-1)
    return low.gather(-1, leader).squeeze(-1) - second > level
