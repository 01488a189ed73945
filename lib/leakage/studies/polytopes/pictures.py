r"""What a picture of a subdivided window shows, as arrays for `figures.polygons` and `Axes.plot`.

Everything but the output norm is exact: polygons with one value each, and segments. Coordinates are those of the
window. Nothing here draws or looks at more than one network.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import arguments
from leakage.geometry.boundary import decision_boundary
from leakage.geometry.subdivision import Plane, Subdivision, subdivide
from leakage.models.mlp import Mlp


@dataclass(frozen=True, eq=False)
class Picture:
    r"""A window with all that is drawn in it, on the CPU.

    Attributes:
        vertices: corners of the cells.
        counts: how many corners each cell has.
        areas: of the cells.
        weight_norms: $\lVert A_P \rVert_F$ of each.
        bias_norms: $\lVert b_P \rVert_\infty$ of each.
        boundary: the decision boundary as x and y of one line with gaps: `ax.plot(*picture.boundary)`.
        hyperedges: the same for the hyperedges of each hidden layer; those of the first l draw the cells of l layers.
        regions: corners of the cells cut by the decision boundary, their numbers of corners, and their classes.
        outputs: $\lVert o \rVert_2$ at evenly spaced points of the window's box, row after row from below.
        extent: left, right, bottom and top of that box, as `Axes.imshow` wants it, with `origin="lower"`.
    """

    vertices: Float[Tensor, "cells v 2"]
    counts: Int[Tensor, " cells"]
    areas: Float[Tensor, " cells"]
    weight_norms: Float[Tensor, " cells"]
    bias_norms: Float[Tensor, " cells"]
    boundary: Float[Tensor, "2 k"]
    hyperedges: tuple[Float[Tensor, "2 _"], ...]
    regions: tuple[Tensor, Tensor, Tensor]
    outputs: Float[Tensor, "side side"]
    extent: tuple[float, float, float, float]

    def __len__(self) -> int:
        return len(self.counts)


def picture(
    network: Mlp,
    window: Float[Tensor, "w 2"],
    *,
    plane: Plane | None = None,
    side: int = 240,
) -> Picture:
    """Everything that the book draws of one network in one window.

    Args:
        network: a single one, in float64.
        window: a convex polygon.
        plane: where it lies, for networks with more than two inputs.
        side: points of the output's picture along one side.

    Raises:
        ValueError: as `subdivision.subdivide`, or if `side` is below 1.
    """
    arguments.count("side", side, least=1)
    fine = subdivide(network, window, plane=plane)
    segments, neurons = fine.hyperedges()
    ends = torch.tensor(fine.network.widths[1:-1], device=neurons.device).cumsum(0)
    layer = torch.bucketize(neurons, ends, right=True)
    low, high = window.amin(0), window.amax(0)
    steps = (torch.arange(side, dtype=low.dtype, device=low.device) + 0.5) / side
    grid = torch.stack([steps.expand(side, side), steps.unsqueeze(-1).expand(side, side)], -1)
    outputs = fine.network(fine.lift((low + grid * (high - low)).flatten(0, 1))).norm(dim=-1)
    left, bottom, right, top = (float(value) for value in (*low, *high))
    return Picture(
        vertices=fine.vertices.cpu(),
        counts=fine.counts.cpu(),
        areas=fine.areas.cpu(),
        weight_norms=fine.weight_norms.cpu(),
        bias_norms=fine.bias_norms.cpu(),
        boundary=path(decision_boundary(fine).segments).cpu(),
        hyperedges=tuple(path(segments[layer == k]).cpu() for k in range(len(fine.layer_counts))),
        regions=decision_regions(fine),
        outputs=outputs.unflatten(0, (side, side)).cpu(),
        extent=(left, right, bottom, top),
    )


def path(segments: Float[Tensor, "s 2 2"]) -> Float[Tensor, "2 k"]:
    """Segments as one line with a gap, NaN, behind each: thousands are drawn as fast as one."""
    gaps = torch.full_like(segments[:, :1], torch.nan)
    return torch.cat([segments, gaps], 1).flatten(0, 1).T.contiguous()


def decision_regions(subdivision: Subdivision) -> tuple[Tensor, Tensor, Tensor]:
    r"""The cells cut by the decision boundary: corners, their numbers, and the class of each, on the CPU.

    With two outputs $o_1 - o_0$ becomes one more hidden neuron, so the cut is exact. With more, cells are left whole
    and have the class of their middle.
    """
    network = subdivision.network
    if network.widths[-1] != 2:
        classes = network(subdivision.lift(subdivision.middles)).argmax(-1)
        return subdivision.vertices.cpu(), subdivision.counts.cpu(), classes.cpu()
    margin = network.weights[-1][1:] - network.weights[-1][:1], network.biases[-1][1:] - network.biases[-1][:1]
    weights = (*network.weights[:-1], margin[0], torch.ones_like(margin[0][:, :1]))
    biases = (*network.biases[:-1], margin[1], torch.zeros_like(margin[1]))
    cut = subdivide(Mlp(weights, biases), subdivision.window, plane=subdivision.plane)
    return cut.vertices.cpu(), cut.counts.cpu(), cut.pattern[:, -1].long().cpu()
