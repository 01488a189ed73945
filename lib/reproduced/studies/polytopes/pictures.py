r"""What a picture of a subdivided window shows, as arrays for `figures.polygons` and `Axes.plot`.

Everything but the output norm is exact: polygons with one value each, and segments. Coordinates are those of the
window.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.geometry.boundary import decision_boundary
from leakage.geometry.subdivision import Plane, Subdivision, subdivide
from leakage.models.mlp import Mlp


@dataclass(frozen=True, eq=False)
class Picture:
    r"""A window with all that is drawn in it, on the CPU, computed when it is asked for.

    Attributes:
        fine: the window's cells, on any device.
        side: points of the output's picture along one side.
    """

    fine: Subdivision
    side: int

    def __len__(self) -> int:
        return len(self.fine)

    @property
    def vertices(self) -> Float[Tensor, "cells v 2"]:
        """Corners of the cells."""
        return self.fine.vertices.cpu()

    @property
    def counts(self) -> Int[Tensor, " cells"]:
        """How many corners each cell has."""
        return self.fine.counts.cpu()

    @property
    def areas(self) -> Float[Tensor, " cells"]:
        """Of the cells."""
        return self.fine.areas.cpu()

    @property
    def weight_norms(self) -> Float[Tensor, " cells"]:
        r"""$\lVert A_P \rVert_F$ of each cell."""
        return self.fine.weight_norms.cpu()

    @property
    def bias_norms(self) -> Float[Tensor, " cells"]:
        r"""$\lVert b_P \rVert_\infty$ of each cell."""
        return self.fine.bias_norms.cpu()

    @cached_property
    def boundary(self) -> Float[Tensor, "2 k"]:
        """The decision boundary as x and y of one line with gaps: `ax.plot(*picture.boundary)`."""
        return path(decision_boundary(self.fine).segments).cpu()

    @cached_property
    def hyperedges(self) -> tuple[Float[Tensor, "2 _"], ...]:
        """The same for the hyperedges of each hidden layer; those of the first l draw the cells of l layers."""
        segments, neurons = self.fine.hyperedges()
        ends = torch.tensor(self.fine.network.widths[1:-1], device=neurons.device).cumsum(0)
        layer = torch.bucketize(neurons, ends, right=True)
        return tuple(path(segments[layer == k]).cpu() for k in range(len(self.fine.layer_counts)))

    @cached_property
    def regions(self) -> tuple[Tensor, Tensor, Tensor]:
        """Corners of the cells cut by the decision boundary, their numbers of corners, and their classes."""
        return decision_regions(self.fine)

    @cached_property
    def outputs(self) -> Float[Tensor, "side side"]:
        r"""$\lVert o \rVert_2$ at evenly spaced points of the window's box, row after row from below."""
        fine, side = self.fine, self.side
        low, high = fine.window.amin(0), fine.window.amax(0)
        steps = (torch.arange(side, dtype=low.dtype, device=low.device) + 0.5) / side
        grid = torch.stack([steps.expand(side, side), steps.unsqueeze(-1).expand(side, side)], -1)
        outputs = fine.network(fine.lift((low + grid * (high - low)).flatten(0, 1))).norm(dim=-1)
        return outputs.unflatten(0, (side, side)).cpu()

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of that box, as `Axes.imshow` wants it, with `origin="lower"`."""
        left, bottom, right, top = (float(v) for v in (*self.fine.window.amin(0), *self.fine.window.amax(0)))
        return left, right, bottom, top


def picture(
    network: Mlp,
    window: Float[Tensor, "w 2"],
    *,
    plane: Plane | None = None,
    side: int = 240,
) -> Picture:
    """Everything that the book draws of one network, in float64, in one convex window, which may lie on a plane."""
    return Picture(subdivide(network, window, plane=plane), side)


def path(segments: Float[Tensor, "s 2 2"]) -> Float[Tensor, "2 k"]:
    """Segments as one line with a gap, NaN, behind each, which is drawn much faster."""
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
