r"""The complete subdivision of a convex window of the plane into activation polytopes, exactly.

`subdivide` cuts the window by the neurons of one layer after the other. On the polygons that layers 1 to l - 1 leave,
every neuron of layer l is affine, so its hyperedge is one line in each. Coordinates are those of the window: the
network's input, or (s, t) on a `Plane` through it. Everything is float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.membership.polytopes import (
    activation_pattern,
    jacobian_norm,
    join_layers,
    output_jacobian,
    output_map,
    split_layers,
)
from leakage.models.mlp import Mlp
from reproduced.papers.polytopes.polygons import (
    Polygons,
    centres,
    counterclockwise,
    is_corner,
    is_inside,
    sides,
    triangle_fans,
)

_CHUNK = 4096  # polygons whose affine maps are composed at once, which bounds the memory


class Plane(NamedTuple):
    r"""The points $x_0 + s U_1 + t U_2$: `origin` (d,) and the two rows of `basis` (2, d)."""

    origin: Float[Tensor, " d"]
    basis: Float[Tensor, "2 d"]


@dataclass(frozen=True, eq=False)
class Subdivision:
    """All R activation polytopes of a network in a window.

    Attributes:
        network: up to the requested layer.
        window: counter-clockwise.
        plane: that of the window, if it is not the input plane itself.
        vertices: corners of each cell, counter-clockwise, the last one repeated.
        counts: number of corners of each cell.
        owners: the neuron, counted through all layers, whose hyperedge edge k (from corner k to the next) is on;
            sides of the window are -1, -2, ...
        maps: the rows $(A_P, b_P)$ of the affine map from window coordinates to outputs.
        layer_counts: the number of cells after each layer.
    """

    network: Mlp
    window: Float[Tensor, "w 2"]
    plane: Plane | None
    vertices: Float[Tensor, "cells v 2"]
    counts: Int[Tensor, " cells"]
    owners: Int[Tensor, "cells v"]
    pattern: Bool[Tensor, "cells N"]
    maps: Float[Tensor, "cells classes 3"]
    layer_counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def areas(self) -> Float[Tensor, " cells"]:
        """The area of each cell."""
        return triangle_fans(self.vertices)[1].sum(-1)

    @cached_property
    def centres(self) -> Float[Tensor, "cells 2"]:
        """The mean of the corners of each cell, which is inside it."""
        return centres(self.vertices, self.counts)

    @cached_property
    def weight_norms(self) -> Float[Tensor, " cells"]:
        r"""$\lVert A_P \rVert_F$ of each cell, in the network's own input."""
        return jacobian_norm(self.network, split_layers(self.network, self.pattern))

    @cached_property
    def bias_norms(self) -> Float[Tensor, " cells"]:
        r"""$\lVert b_P \rVert_\infty$ of each cell, in the network's own input."""
        if self.plane is None:
            return self.maps[..., 2].abs().amax(-1)
        rows = self.pattern.split(_CHUNK)
        return torch.cat([output_map(self.network, split_layers(self.network, row))[1].abs().amax(-1) for row in rows])

    @cached_property
    def margin_gradients(self) -> Float[Tensor, "cells 2"]:
        """The gradient of $g = o_1 - o_0$ in window coordinates, constant on each cell."""
        return self.maps[:, 1, :2] - self.maps[:, 0, :2]

    def lift(self, points: Float[Tensor, "t 2"]) -> Float[Tensor, "t d"]:
        """Points of the window as inputs of the network."""
        return points if self.plane is None else self.plane.origin + points @ self.plane.basis

    def locate(self, points: Float[Tensor, "t 2"]) -> Int[Tensor, " t"]:
        """The cell of each point of the window, found by its pattern; -1 outside, or at the end of a hyperedge."""
        cell_of = {row.tobytes(): cell for cell, row in enumerate(self.pattern.cpu().numpy())}
        rows = join_layers(activation_pattern(self.network, self.lift(points))).cpu().numpy()
        cells = torch.tensor([cell_of.get(row.tobytes(), -1) for row in rows], dtype=torch.int64, device=points.device)
        return torch.where(is_inside(points, self.window), cells, -1)

    def hyperedges(self) -> tuple[Float[Tensor, "edges 2 2"], Int[Tensor, " edges"]]:
        """Every piece of hyperedge once, as its two ends, and its neuron.

        Each piece borders one cell where its neuron is active and one or more where it is not; it is listed for the
        active side.
        """
        return sides(self.vertices, self.counts)[self._listed_edges], self.owners[self._listed_edges]

    @cached_property
    def gradient_jumps(self) -> Float[Tensor, " edges"]:
        r"""$\lVert A_P - A_{P'} \rVert_F$ between the two sides of each piece, in the order of `hyperedges`."""
        cell, corner = self._listed_edges.nonzero(as_tuple=True)
        rows = self.pattern[cell].scatter(1, self.owners[cell, corner].unsqueeze(-1), False)  # beyond the hyperedge
        pairs = zip(self.pattern[cell].split(_CHUNK), rows.split(_CHUNK), strict=True)
        here_and_there = (
            [output_jacobian(self.network, split_layers(self.network, row)) for row in pair] for pair in pairs
        )
        return torch.cat([(here - there).flatten(1).norm(dim=-1) for here, there in here_and_there])

    @cached_property
    def _listed_edges(self) -> Bool[Tensor, "cells v"]:
        """The edges that are a piece of hyperedge seen from its active side."""
        active = self.pattern.gather(1, self.owners.clamp_min(0)) & (self.owners >= 0)
        return active & is_corner(self.counts, self.owners.shape[1])


def subdivide(
    network: Mlp, window: Float[Tensor, "w 2"], *, plane: Plane | None = None, layers: int | None = None
) -> Subdivision:
    r"""All activation polytopes of `network` that meet the window.

    For l = 1, ..., H and each neuron of layer l, every polygon with corners strictly on both sides of the neuron's
    line is cut in two; both parts inherit its affine maps $(A_l, c_l)$. After the layer
    $A_{l+1} = W_{l+1} D_l A_l$. The cost is one evaluation of a line for each neuron and polygon, where Algorithm 4 of
    Peinemann (2021) solves two linear programs of N constraints for each.

    Args:
        network: one network in float64, without leading dimensions, with two inputs unless there is a plane.
        window: corners of a convex polygon, in either orientation.
        layers: stop after this many hidden layers; all by default. The subdivision is then that of the truncated
            network, whose outputs are the heights of the next layer.
    """
    return _cut([_truncate(network, layers)], counterclockwise(window).unsqueeze(0), [plane])[0]


def subdivide_planes(network: Mlp, windows: Float[Tensor, "planes w 2"], planes: Sequence[Plane]) -> list[Subdivision]:
    """`subdivide` for a window on each of several planes, all cut at once: they cost little more than one."""
    return _cut([_truncate(network, None)], torch.stack([counterclockwise(window) for window in windows]), planes)


def subdivide_networks(networks: Mlp, window: Float[Tensor, "w 2"]) -> list[Subdivision]:
    """`subdivide` for several networks, along one leading dimension and in one window, all cut at once."""
    count = len(networks.weights[0])
    each = [_truncate(networks[number], None) for number in range(count)]
    return _cut(each, counterclockwise(window).expand(count, -1, -1), [None] * count)


def _cut(
    networks: Sequence[Mlp], windows: Float[Tensor, "windows w 2"], planes: Sequence[Plane | None]
) -> list[Subdivision]:
    """One subdivision for each window; each network has equally many of them, one after the other, in one table."""
    polygons, share = Polygons(windows), len(windows) // len(networks)
    maps = torch.stack([_in_window(networks[number // share], plane) for number, plane in enumerate(planes)], -1)
    rows = torch.zeros((len(windows), 0), dtype=torch.bool, device=maps.device)
    whose, counts, owner = torch.arange(len(windows), device=maps.device), [], 0
    for layer in range(1, len(networks[0].weights)):
        polygons.begin_generation()
        for lines in maps:
            polygons.cut(lines, owner=owner)
            owner += 1
        parents = polygons.parents[: polygons.count]
        whose = whose[parents]
        inside = centres(polygons.vertices[: polygons.count], polygons.corners[: polygons.count])
        gates, maps = _compose(maps, parents, inside, networks, layer, whose // share)
        rows = torch.cat([rows[parents], gates], -1)
        counts.append(whose.bincount(minlength=len(windows)).tolist())
    found = []
    for number, (window, plane, layer_counts) in enumerate(
        zip(windows, planes, zip(*counts, strict=True), strict=True)
    ):
        own = (whose == number).nonzero().squeeze(-1)
        corners = polygons.corners[own]
        slots = int(corners.max())
        vertices, owners = polygons.vertices[own, :slots], polygons.owners[own, :slots]
        outputs = maps[..., own].permute(2, 0, 1).contiguous()
        network = networks[number // share]
        found.append(Subdivision(network, window, plane, vertices, corners, owners, rows[own], outputs, layer_counts))
    return found


def _compose(
    maps: Tensor, parents: Tensor, centres: Tensor, networks: Sequence[Mlp], layer: int, whose: Tensor
) -> tuple[Tensor, Tensor]:
    """The gates of the layer before `layer` on every polygon, and the affine maps (m, 3, R) of `layer` there.

    The network of each polygon is given by its number.
    """
    count, width = len(parents), networks[0].weights[layer].shape[0]
    gates = torch.empty((count, len(maps)), dtype=torch.bool, device=maps.device)
    following = maps.new_empty((width, 3, count))
    for number, network in enumerate(networks):
        everywhere = (whose == number).nonzero().squeeze(-1) if len(networks) > 1 else torch.arange(count).to(whose)
        for chosen in everywhere.split(_CHUNK):
            own = maps.index_select(2, parents[chosen])
            x, y = centres[chosen].T
            gate = own[:, 0] * x + own[:, 1] * y + own[:, 2] > 0
            gates[chosen] = gate.T
            # One plain product: a batch of small ones takes many times longer.
            product = (network.weights[layer] @ (own * gate.unsqueeze(1)).flatten(1)).unflatten(1, (3, len(chosen)))
            product[:, 2] += network.biases[layer].unsqueeze(-1)
            following.index_copy_(2, chosen, product)
    return gates, following


def _in_window(network: Mlp, plane: Plane | None) -> Float[Tensor, "n 3"]:
    """The first layer as rows $(W_1 U^\\top, W_1 x_0 + b_1)$ in window coordinates."""
    weight, bias = network.weights[0], network.biases[0]
    if plane is None:
        return torch.cat([weight, bias.unsqueeze(-1)], -1)
    return torch.cat([weight @ plane.basis.T, (weight @ plane.origin + bias).unsqueeze(-1)], -1)


def _truncate(network: Mlp, layers: int | None) -> Mlp:
    """The network up to the requested layer."""
    kept = len(network.weights) - 1 if layers is None else layers
    return Mlp(network.weights[: kept + 1], network.biases[: kept + 1])
