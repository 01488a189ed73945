r"""Where a ray $x + t v$, $t \ge 0$, crosses hyperedges and changes its label: exactly, for many rays at once.

A ray goes from polytope to polytope and flips one bit of the pattern at each crossing. The pattern is carried along and
never computed at a crossing, where $z_i$ is ±1e-17. Directions are unit vectors, so that t is a distance.

A label is the class of the largest output, the lowest of several equal ones, as with `argmax`. A change counts only if
the new label holds on a segment of positive length; a tie at a point does not count. Where outputs are equal on a whole
polytope, for example where all neurons are inactive, its points have the lowest class.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.membership.polytopes import Gates, join_layers, split_layers
from leakage.models.mlp import Mlp

TIE_TOLERANCE = 1e-12
"""Outputs that differ by less, in units of the largest, are equal; pieces below this share of a ray are none."""
_STALE = 0.9  # drop finished rays when fewer than this share is left (dropping copies the rest)
_SEGMENTS_AT_ONCE = 4096  # segments looked at together: the heights of a few hundred neurons there fit a cache


class Crossings(NamedTuple):
    """The next hyperedges that rays cross.

    Attributes:
        lengths: t of each crossing, ascending; infinite after the last.
        neurons: which neuron flips, counted through all layers; -1 after the last.
        gates: the pattern behind the last of these crossings.
    """

    lengths: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]
    gates: Gates


def ray_crossings(
    network: Mlp,
    points: Float[Tensor, "*b t d"],
    directions: Float[Tensor, "*b t d"],
    *,
    crossings: int,
    gates: Gates | None = None,
) -> Crossings:
    r"""The first `crossings` hyperedges on each ray.

    On a polytope $z_i(x + t v) = \alpha_i + \beta_i t$. The polytope ends at

    $$ t^* = \min_i \{ -\alpha_i / \beta_i : (s_i = 1 \wedge \beta_i < 0) \vee (s_i = 0 \wedge \beta_i > 0) \}, $$

    behind which the pattern differs in exactly that bit. Simultaneous crossings follow each other at equal t.

    Args:
        network: the network, or one for each leading dimension.
        directions: unit vectors $v$.
        gates: the pattern to start from, for points on a hyperedge that was crossed before; else that of the points,
            where a neuron on its own hyperedge is inactive.
    """
    ray = _Rays(network, points, directions, gates)
    lengths, neurons = [], []
    for _ in range(crossings):
        reached, neuron = ray.advance(*ray.hidden())
        lengths.append(reached)
        neurons.append(neuron)
    return Crossings(torch.stack(lengths, -1), torch.stack(neurons, -1), ray.gates)


def ray_label_change(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, until: float
) -> Float[Tensor, "*b t"]:
    r"""The first t, at most `until`, at which the label is not the $y = \arg\max_k o_k(x)$ of the start; else infinity.

    On each polytope of the ray, with $g_k = o_y - o_k$, the label changes at
    $t = \min_k \{ -g_k / \dot g_k : \dot g_k < 0 \}$, if that is before the polytope's end; and where the polytope
    begins if $g_k = 0$ on all of it for some $k < y$.
    """
    ray = _Rays(network, points, directions, None)
    outputs = network(points)
    label, size = outputs.argmax(-1, keepdim=True), outputs.abs().amax(-1, keepdim=True)
    found, unfinished = torch.full_like(points[..., 0], torch.inf), torch.ones_like(points[..., 0], dtype=torch.bool)
    single = points.ndim == 2 and network.weights[0].ndim == 2
    rows = torch.arange(len(points), device=points.device)
    while left := int(unfinished.sum()):
        if single and left < _STALE * len(rows):
            rows, label, size = rows[unfinished], label[unfinished], size[unfinished]
            ray.keep(unfinished)
        start, (constants, slopes) = ray.length, ray.hidden()
        outputs = ray.outputs(constants[-1], slopes[-1])
        end, _ = ray.advance(constants, slopes)
        change = _first_overtaking(*outputs, label, size, start, end.clamp_max(until))
        found[rows] = torch.where(found[rows].isinf(), change, found[rows])
        unfinished = found[rows].isinf() & (end <= until)
    return torch.where(found <= until, found, torch.inf)


def _first_overtaking(
    constant: Tensor, slope: Tensor, label: Tensor, size: Tensor, start: Tensor, end: Tensor
) -> Tensor:
    """The first t in [start, end) behind which another class has the label, all outputs being affine; else infinity.

    A change within rounding of the end is left to the next polytope. Outputs of a ray that begins with outputs of this
    `size` are known up to rounding of it.
    """
    begin, stop = start.unsqueeze(-1), end.unsqueeze(-1)
    rounding = TIE_TOLERANCE * torch.maximum(size, (constant.abs() + slope.abs() * stop).amax(-1, keepdim=True))
    lead = constant.gather(-1, label) - constant
    loss = slope - slope.gather(-1, label)
    here, there = lead - loss * begin, lead - loss * stop
    meets = torch.where((loss > 0) & (there < -rounding), lead / loss, torch.inf)
    # A lower class has the label where it is equal; a higher one must be above.
    lower = torch.arange(constant.shape[-1], device=constant.device) < label
    ties = lower & (here.abs() <= rounding) & (there.abs() <= rounding)
    meets = torch.where((here < -rounding) | ties, begin, torch.maximum(meets, begin))
    meets = torch.where(meets < stop - TIE_TOLERANCE * stop, meets, torch.inf)
    return meets.amin(-1)


class _Rays:
    """The length t that each ray has reached, the pattern there, and all neurons as affine functions of t."""

    def __init__(self, network: Mlp, points: Tensor, directions: Tensor, gates: Gates | None) -> None:
        if gates is None:
            gates = network.preactivations(points)[:-1]
            first = gates[0]
        else:
            first = points @ network.weights[0].mT + network.biases[0].unsqueeze(-2)
        self.network, self.active = network, join_layers(tuple(gate > 0 for gate in gates))
        self.length = torch.zeros_like(points[..., 0])
        # The first layer costs most and is the same everywhere: all its hyperedges on the ray are computed once.
        self.first = first, directions @ network.weights[0].mT
        self.ends = _ends(self.gates[0], *self.first)

    @property
    def gates(self) -> Gates:
        """The pattern of the present polytope, layer by layer."""
        return split_layers(self.network, self.active)

    def hidden(self) -> tuple[list[Tensor], list[Tensor]]:
        """α and β of every hidden layer on the present polytope."""
        constants, slopes = [self.first[0]], [self.first[1]]
        layers = zip(self.gates[:-1], self.network.weights[1:-1], self.network.biases[1:-1], strict=True)
        for gate, weight, bias in layers:
            constants.append((gate * constants[-1]) @ weight.mT + bias.unsqueeze(-2))
            slopes.append((gate * slopes[-1]) @ weight.mT)
        return constants, slopes

    def outputs(self, constant: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """α and β of the outputs, given those of the last hidden layer."""
        gate, weight = self.gates[-1].to(constant.dtype), self.network.weights[-1]
        return (gate * constant) @ weight.mT + self.network.biases[-1].unsqueeze(-2), (gate * slope) @ weight.mT

    def keep(self, rows: Tensor) -> None:
        """Drop all rays but these, given by a mask; for a single network only."""
        self.active, self.length, self.ends = self.active[rows], self.length[rows], self.ends[rows]
        self.first = self.first[0][rows], self.first[1][rows]

    def advance(self, constants: list[Tensor], slopes: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Cross the next hyperedge, given the hidden layers: its t and its neuron; infinity and -1 if there is none."""
        deeper = [_ends(*layer) for layer in zip(self.gates[1:], constants[1:], slopes[1:], strict=True)]
        reached, neuron = join_layers((self.ends, *deeper)).min(-1)
        place, met = neuron.unsqueeze(-1), reached.isfinite()
        self.active.scatter_(-1, place, self.active.gather(-1, place) ^ met.unsqueeze(-1))
        # A ray crosses a hyperedge of the first layer once; one of a deeper layer is bent and may come again.
        width = self.ends.shape[-1]
        crossed = place.clamp_max(width - 1)
        self.ends.scatter_(-1, crossed, self.ends.gather(-1, crossed).masked_fill(place < width, torch.inf))
        # Rounding may place a simultaneous crossing just before the last one.
        self.length = torch.maximum(reached, self.length)
        return self.length, torch.where(met, neuron, -1)


def _ends(gate: Tensor, constant: Tensor, slope: Tensor) -> Tensor:
    """The t at which affine neurons become 0: -α/β, or infinity if they move away from 0."""
    leaving = torch.where(gate, slope < 0, slope > 0)
    return torch.where(leaving, -constant / slope, torch.inf)


def segment_label_change(network: Mlp, points: Float[Tensor, "t d"], ends: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
    """The distance along each segment at which the predicted label first changes, exactly.

    Where rounding hides the change just before an end with another label, it is the segment's length. Infinite where
    the label of the end is that of the point and no other comes between.
    """
    found = torch.full_like(points[:, 0], torch.inf)
    parts = zip(points.split(_SEGMENTS_AT_ONCE), ends.split(_SEGMENTS_AT_ONCE), strict=True)
    unproved = (~torch.cat([_keeps_label(network, *part) for part in parts])).nonzero().squeeze(-1)
    if len(unproved):
        found[unproved] = _follow_segments(network, points[unproved], ends[unproved])
    return found


def _follow_segments(network: Mlp, points: Tensor, ends: Tensor) -> Float[Tensor, " t"]:
    """`segment_label_change` by following each segment from polytope to polytope."""
    paths = ends - points
    lengths = paths.norm(dim=-1)
    # A segment without length has no direction; any will do, as nothing is found within its length.
    axis = torch.eye(1, paths.shape[-1], dtype=paths.dtype, device=paths.device)
    directions = torch.where(lengths[:, None] > 0, paths / lengths[:, None], axis)
    longest = max(float(lengths.max()), torch.finfo(lengths.dtype).tiny)
    found = ray_label_change(network, points, directions, until=longest)
    other = network(points).argmax(-1) != network(ends).argmax(-1)
    return torch.where(found <= lengths, found, torch.where(other, lengths, torch.inf))


def _keeps_label(network: Mlp, points: Tensor, ends: Tensor) -> Bool[Tensor, " t"]:
    r"""Whether interval arithmetic proves that a whole segment has one label, as it does for most short ones.

    A neuron of the first layer is affine on the segment and lies between its two ends. In the next layers, heights
    within $c \pm r$ lead to heights within $W c + b \pm |W| r$.
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
    rounding = TIE_TOLERANCE * torch.maximum(low.abs(), high.abs()).amax(-1)
    return low.gather(-1, leader).squeeze(-1) - second > rounding
