r"""What a subdivided window shows: pictures of it, and the numbers behind what one sees in them.

How dense cells are and how their edges lie, near the data and away from them; whether norms rise along the decision
boundary; how far the hyperedges move in training. Where a share of an area or of a length has no closed form, it is a
mean over evenly spaced points: nothing is random, and the error falls with the spacing. Everything is float64, in
coordinates of the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from reproduced.papers.polytopes.decision_boundary import Boundary, decision_boundary
from reproduced.papers.polytopes.subdivision import Subdivision, subdivide

# ── points ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def unit_square() -> Float[Tensor, "4 2"]:
    """The corners of the unit square, counter-clockwise: a window for `subdivision.subdivide`."""
    return torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=DTYPE)


def box_corners(low: tuple[float, float], high: tuple[float, float]) -> Float[Tensor, "4 2"]:
    """The corners of the upright box between its lower left and its upper right corner."""
    ends = torch.tensor([low, high], dtype=DTYPE)
    return ends[0] + unit_square() * (ends[1] - ends[0])


def lattice(side: int) -> Float[Tensor, "t 2"]:
    """The middles of `side` × `side` equal squares that tile the unit square, row after row from below."""
    steps = (torch.arange(side, dtype=DTYPE) + 0.5) / side
    return torch.stack([steps.repeat(side), steps.repeat_interleave(side)], -1)


def points_along(segments: Float[Tensor, "s 2 2"], count: int) -> Float[Tensor, "count 2"]:
    """`count` points at equal distances along segments put end to end."""
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    ends = lengths.cumsum(0)
    places = (torch.arange(count, dtype=ends.dtype) + 0.5) / count * ends[-1]
    chosen = torch.searchsorted(ends, places).clamp_max(len(ends) - 1)
    share = ((places - ends[chosen]) / lengths[chosen] + 1).unsqueeze(-1)
    start, end = segments[chosen].unbind(1)
    return start + share * (end - start)


_TABLE = 2**16  # numbers in the largest table of distances: it stays in the cache


def nearest_distance(points: Float[Tensor, "t 2"], data: Float[Tensor, "n 2"]) -> Float[Tensor, " t"]:
    """The distance from each point to the nearest of the data."""
    across, along = data.mT
    found = []
    for part in points.split(max(1, _TABLE // len(data))):  # of squares: `torch.cdist` takes every root
        first, second = part[:, :1] - across, part[:, 1:] - along
        found.append(first.square_().addcmul_(second, second).amin(1))
    return torch.cat(found).sqrt_()


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Picture:
    r"""What is drawn of a window: arrays for `figures.polygons` and `Axes.plot`.

    Everything but the output's norm is exact: polygons with one value each, and segments.

    Attributes:
        cells: those of the window.
        side: points of the output's picture along one side.
    """

    cells: Subdivision
    side: int = 240

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def polygons(self) -> tuple[Float[Tensor, "cells v 2"], Int[Tensor, " cells"]]:
        """Corners of the cells, and how many each cell has."""
        return self.cells.vertices, self.cells.counts

    @cached_property
    def boundary(self) -> Float[Tensor, "2 k"]:
        """The decision boundary as x and y of one line with gaps: `ax.plot(*picture.boundary)`."""
        return join_segments(decision_boundary(self.cells).segments)

    @cached_property
    def hyperedges(self) -> tuple[Float[Tensor, "2 _"], ...]:
        """The same for the hyperedges of each hidden layer; those of the first l draw the cells of l layers."""
        segments, neurons = self.cells.hyperedges()
        ends = torch.tensor(self.cells.network.widths[1:-1]).cumsum(0)
        layer = torch.bucketize(neurons, ends, right=True)
        return tuple(join_segments(segments[layer == k]) for k in range(len(self.cells.layer_counts)))

    @cached_property
    def regions(self) -> tuple[Tensor, Tensor, Tensor]:
        """Corners of the cells cut by the decision boundary, their numbers of corners, and their classes.

        With two outputs the difference of both becomes one more hidden neuron, so the cut is exact. With more, cells
        are left whole and have the class of their middle.
        """
        cells, network = self.cells, self.cells.network
        if network.widths[-1] != 2:
            classes = network(cells.lift(cells.centres)).argmax(-1)
            return *self.polygons, classes
        margin = network.weights[-1][1:] - network.weights[-1][:1], network.biases[-1][1:] - network.biases[-1][:1]
        weights = (*network.weights[:-1], margin[0], torch.ones_like(margin[0][:, :1]))
        biases = (*network.biases[:-1], margin[1], torch.zeros_like(margin[1]))
        cut = subdivide(Mlp(weights, biases), cells.window, plane=cells.plane)
        return cut.vertices, cut.counts, cut.pattern[:, -1].long()

    @cached_property
    def outputs(self) -> Float[Tensor, "side side"]:
        r"""$\lVert o \rVert_2$ at evenly spaced points of the window's box, row after row from below."""
        low, high = self.cells.window.amin(0), self.cells.window.amax(0)
        points = low + lattice(self.side) * (high - low)
        outputs = self.cells.network(self.cells.lift(points)).norm(dim=-1)
        return outputs.unflatten(0, (self.side, self.side))

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of that box, as `Axes.imshow` wants it, with `origin="lower"`."""
        left, bottom, right, top = (float(v) for v in (*self.cells.window.amin(0), *self.cells.window.amax(0)))
        return left, right, bottom, top


def join_segments(segments: Float[Tensor, "s 2 2"]) -> Float[Tensor, "2 k"]:
    """Segments as one line with a gap, NaN, behind each, which is drawn much faster."""
    gaps = torch.full_like(segments[:, :1], torch.nan)
    return torch.cat([segments, gaps], 1).flatten(0, 1).T.contiguous()


# ── density of cells and direction of hyperedges ─────────────────────────────────────────────────────────────────────


class Densities(NamedTuple):
    """Cells by their distance to the nearest data point.

    Attributes:
        counts: cells whose middle is that far.
        areas: of the part of the window that is that far.
    """

    counts: Int[Tensor, "*b bins"]
    areas: Float[Tensor, "*b bins"]

    def per_area(self, first: int, last: int) -> Float[Tensor, "*b"]:
        """Cells per area in the bins from `first` to before `last`; NaN where there is no area."""
        return self.counts[..., first:last].sum(-1) / self.areas[..., first:last].sum(-1)


def densities(
    cells: Subdivision, data: Float[Tensor, "n 2"], *, edges: Sequence[float], points: Float[Tensor, "t 2"]
) -> Densities:
    """Numbers of cells and areas between the distances `edges`, which ascend from 0; the last bin has no end.

    The `points` stand for equal parts of the window.
    """
    steps = torch.tensor(edges, dtype=data.dtype)
    counts, shares = (
        torch.bincount(torch.searchsorted(steps, nearest_distance(places, data), right=True) - 1, minlength=len(steps))
        for places in (cells.centres, points)
    )
    return Densities(counts, shares / len(points) * cells.areas.sum())


class Activity(NamedTuple):
    r"""How much a network changes its gradient near the data and far from them: one number for each of the two.

    Attributes:
        change: $\sum_e \ell_e \lVert A_P - A_{P'} \rVert_F$ over the pieces of hyperedge, of lengths $\ell_e$ and
            between cells P and P', whose middles are near, or far.
        length: $\sum_e \ell_e$ of these pieces.
        area: of the part of the window that is near, or far.
    """

    change: Float[Tensor, "*b 2"]
    length: Float[Tensor, "*b 2"]
    area: Float[Tensor, "*b 2"]

    def near_to_far(self, part: str) -> Float[Tensor, "*b"]:
        """The logarithm of `change` or `length` per area near the data over that far from them."""
        per_area = (getattr(self, part) / self.area).log()
        return per_area[..., 0] - per_area[..., 1]


def activity(
    cells: Subdivision, data: Float[Tensor, "n 2"], *, near: float, far: float, points: Float[Tensor, "t 2"]
) -> Activity:
    """The activity closer to the data than `near`, and at `far` or more; `points` stand for equal parts of the window.

    Source: "there is less activity of the model when moving away from training data", Peinemann (2021), Section 5.1;
    the measure is ours.
    """
    segments, _ = cells.hyperedges()
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    edges, places = (nearest_distance(where, data) for where in (segments.mean(1), points))
    change, length, area = (
        torch.stack([amount[distance < near].sum(), amount[distance >= far].sum()])
        for amount, distance in (
            (lengths * cells.gradient_jumps, edges),
            (lengths, edges),
            ((cells.areas.sum() / len(points)).expand(len(points)), places),
        )
    )
    return Activity(change, length, area)


class Discs(NamedTuple):
    r"""Pieces of hyperedge in discs. A direction is a line without arrow, so its angle is doubled: $e^{2i\theta}$.

    Attributes:
        lengths: their length $L = \sum_e \ell_e$ per area of the disc.
        directions: real and imaginary part of $\sum_e \ell_e e^{2i\theta_e} / L$.
        parallelism: the mean of $\cos 2(\theta_e - \theta_f)$ over pairs of pieces of different neurons, weighted by
            $\ell_e \ell_f$: 1 if all are parallel, 0 in the mean if directions are independent, however few they are.
    """

    lengths: Float[Tensor, " discs"]
    directions: Float[Tensor, "discs 2"]
    parallelism: Float[Tensor, " discs"]

    def alignment(self, axes: Float[Tensor, "#discs 2"]) -> Float[Tensor, " discs"]:
        r"""The mean of $\cos 2(\theta_e - \phi)$ with a direction of each disc, or of all: 1 along it, -1 across."""
        return (self.directions * _doubled_angle(axes)).sum(-1)


def hyperedges_in_discs(cells: Subdivision, centres: Float[Tensor, "discs 2"], *, radius: float) -> Discs:
    """Length and directions of the hyperedges inside discs, clipped exactly; NaN for directions where there is none."""
    segments, neurons = cells.hyperedges()
    inside = _clipped_lengths(segments, centres, radius)
    turned = _doubled_angle(segments[:, 1] - segments[:, 0])
    total = inside.sum(-1)
    vectors = inside @ turned
    # Pieces of one neuron are one line, bent at most: pairs of them say nothing about parallelism.
    size = (len(centres), cells.pattern.shape[1])
    own_length = inside.new_zeros(size).index_add(1, neurons, inside)
    own = [inside.new_zeros(size).index_add(1, neurons, inside * part) for part in turned.unbind(-1)]
    pairs = total.square() - own_length.square().sum(-1)
    agreeing = vectors.square().sum(-1) - sum(part.square().sum(-1) for part in own)
    parallelism = torch.where(pairs > _ROUNDING * total.square(), agreeing / pairs, torch.nan)
    return Discs(total / (torch.pi * radius**2), vectors / total.unsqueeze(-1), parallelism)


_ROUNDING = 1e-12  # pairs of a single neuron sum to 0 up to this share


def _clipped_lengths(
    segments: Float[Tensor, "s 2 2"], centres: Float[Tensor, "discs 2"], radius: float
) -> Float[Tensor, "discs s"]:
    """The length of each segment inside each disc: between the roots of a quadratic, cut to the segment."""
    along = segments[:, 1] - segments[:, 0]
    length = along.norm(dim=-1)
    unit = along / length.clamp_min(torch.finfo(length.dtype).tiny).unsqueeze(-1)
    offset = segments[:, 0] - centres.unsqueeze(1)
    middle = -(offset * unit).sum(-1)
    across = (offset[..., 0] * unit[:, 1] - offset[..., 1] * unit[:, 0]).square()
    half = (radius**2 - across).clamp_min(0).sqrt()
    low, high = (middle - half).clamp_min(0), torch.minimum(middle + half, length)
    return (high - low).clamp_min(0)


def _doubled_angle(directions: Float[Tensor, "k 2"]) -> Float[Tensor, "k 2"]:
    r"""$e^{2i\theta}$ of vectors at angle θ; 0 for the vector 0."""
    x, y = directions.unbind(-1)
    square = (x.square() + y.square()).clamp_min(torch.finfo(x.dtype).tiny)
    return torch.stack([x.square() - y.square(), 2 * x * y], -1) / square.unsqueeze(-1)


# ── norms on the decision boundary ───────────────────────────────────────────────────────────────────────────────────

_SAME = 1e-7  # norms closer than this, in units of the largest, are equal: 0 comes out as the root of rounding, 1e-8


def probability_larger(
    first: Float[Tensor, " m"],
    second: Float[Tensor, " n"],
    *,
    first_weights: Float[Tensor, " m"] | None = None,
    second_weights: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    r"""$P(X > Y) + \tfrac12 P(X = Y)$ for independent X and Y with these values and weights (equal ones by default).

    Values that differ by rounding are equal: otherwise rounding would decide where a norm is constant over many cells.
    NaN if one of the two has no weight.
    """
    ours = torch.ones_like(first) if first_weights is None else first_weights
    theirs = torch.ones_like(second) if second_weights is None else second_weights
    values, order = second.sort()
    below = torch.cat([theirs.new_zeros(1), theirs[order].cumsum(0)])
    sizes = torch.cat([first.new_zeros(1), first.abs(), second.abs()])
    same = _SAME * sizes[sizes.isfinite()].max()
    ends = (torch.searchsorted(values, first + (same if side else -same), right=side) for side in (False, True))
    share = torch.stack([below[end] for end in ends]).mean(0)
    return (ours @ share) / (ours.sum() * theirs.sum())


@dataclass(frozen=True, eq=False)
class SampledWindow:
    r"""The subdivided unit square with its decision boundary, and both at evenly spaced points.

    $\lVert A_P \rVert_F$ and $\lVert b_P \rVert_\infty$ are constant on cells, so a point uniform in length on the
    boundary takes each value with the length of the boundary in such cells, and a point uniform in the window with
    their area: exactly. The norm of the output varies within a cell and is compared at the points.

    Attributes:
        points: evenly spaced; those that lie on a hyperedge to rounding are left out.
        cell_of: the cell of each point.
        outputs: the norm of the output at each point.
    """

    cells: Subdivision
    boundary: Boundary
    points: Float[Tensor, "t 2"]
    cell_of: Int[Tensor, " t"]
    outputs: Float[Tensor, " t"]

    @property
    def norms(self) -> Float[Tensor, "2 cells"]:
        r"""$\lVert A_P \rVert_F$ and $\lVert b_P \rVert_\infty$ of each cell."""
        return torch.stack([self.cells.weight_norms, self.cells.bias_norms])


def sample_window(cells: Subdivision, *, side: int = 200) -> SampledWindow:
    """The subdivided unit square at `side` × `side` points."""
    points, cell_of = _off_hyperedges(cells, lattice(side))
    return SampledWindow(cells, decision_boundary(cells), points, cell_of, cells.network(points).norm(dim=-1))


def _off_hyperedges(cells: Subdivision, points: Float[Tensor, "t 2"]) -> tuple[Tensor, Tensor]:
    """The points that do not lie on a hyperedge to rounding, and the cell of each."""
    cell_of = cells.locate(points)
    return points[cell_of >= 0], cell_of[cell_of >= 0]


class Norms(NamedTuple):
    r"""One number for each norm: $\lVert A_P \rVert_F$, $\lVert b_P \rVert_\infty$ and $\lVert o \rVert_2$."""

    weights: Float[Tensor, "*b"]
    biases: Float[Tensor, "*b"]
    output: Float[Tensor, "*b"]


class Ridge(NamedTuple):
    """Probabilities that the boundary has the larger norm; NaN where there is no boundary.

    Attributes:
        window: against a point uniform in the window.
        near: against a point uniform near the data.
    """

    window: Norms
    near: Norms


def ridge(view: SampledWindow, data: Float[Tensor, "n 2"], *, within: float) -> Ridge:
    """Compare the decision boundary with the window, and with its part closer than `within` to the training points.

    The output is read at 4000 points on the boundary.
    """
    boundary, cells = view.boundary, view.cells
    if not len(boundary):
        none = Norms(*view.points.new_full((3,), torch.nan))
        return Ridge(none, none)
    close = nearest_distance(view.points, data) < within
    outputs = cells.network(points_along(boundary.segments, 4000)).norm(dim=-1)
    lengths = {"first_weights": boundary.lengths}
    window = [
        *(probability_larger(norm[boundary.cells], norm, **lengths, second_weights=cells.areas) for norm in view.norms),
        probability_larger(outputs, view.outputs),
    ]
    near = [
        *(probability_larger(norm[boundary.cells], norm[view.cell_of[close]], **lengths) for norm in view.norms),
        probability_larger(outputs, view.outputs[close]),
    ]
    return Ridge(Norms(*window), Norms(*near))


def other_ridges(view: SampledWindow, boundaries: Sequence[Boundary]) -> Norms:
    """By chance: the probabilities of `Ridge.window` on the boundaries of other networks; NaN without a boundary."""
    rows = []
    for boundary in boundaries:
        if not len(boundary):
            rows.append(view.points.new_full((3,), torch.nan))
            continue
        points, cell_of = _off_hyperedges(view.cells, points_along(boundary.segments, 2000))
        exact = [probability_larger(norm[cell_of], norm, second_weights=view.cells.areas) for norm in view.norms]
        outputs = view.cells.network(points).norm(dim=-1)
        rows.append(torch.stack([*exact, probability_larger(outputs, view.outputs)]))
    return Norms(*(torch.stack(rows) if rows else view.points.new_zeros((0, 3))).unbind(-1))


def gradient_order(cells: Subdivision) -> Float[Tensor, ""]:
    r"""How far the gradients of $g = o_1 - o_0$ in the window are along one line: 1 if all are, 0 if isotropic.

    $$ q = \frac{\lambda_1 - \lambda_2}{\lambda_1 + \lambda_2}, \qquad
       \lambda \text{ of } \sum_P |P|\, \nabla g_P \nabla g_P^\top . $$

    The matrix is the average gradient outer product. One straight ridge has q = 1.
    """
    slopes = cells.margin_gradients
    matrix = (slopes * cells.areas.unsqueeze(-1)).mT @ slopes
    # The eigenvalues of a 2 × 2 matrix are trace/2 ± the root of its deviator.
    deviator = torch.hypot(matrix[0, 0] - matrix[1, 1], 2 * matrix[0, 1])
    return deviator / matrix.trace()


# ── movement of hyperedges ───────────────────────────────────────────────────────────────────────────────────────────


class FlippedAreas(NamedTuple):
    """The area that hyperedges sweep: shares of the area where a neuron's state changes, as means over each layer.

    Attributes:
        both: if all layers are updated.
        own: if only the layer itself is updated.
        upstream: if only the layers before it are updated; 0 for the first layer.
    """

    both: Float[Tensor, "*b layers"]
    own: Float[Tensor, "*b layers"]
    upstream: Float[Tensor, "*b layers"]


def flipped_areas(before: Mlp, after: Mlp, points: Float[Tensor, "t d"]) -> FlippedAreas:
    r"""The areas flipped by an update from `before` to `after`, as means over points that stand for an area.

    With activations $a$ of the old and $a'$ of the new network, layer l's states are read off four heights,
    $W_l a^{l-1} + b_l$ (old), $W'_l a'^{l-1} + b'_l$ (both), $W'_l a^{l-1} + b'_l$ (own) and $W_l a'^{l-1} + b_l$
    (upstream).

    Source: the question is Section 5.4 of Peinemann (2021), the split is ours.
    """

    def heights(network: Mlp, layer: int, below: Tensor) -> Tensor:
        return below @ network.weights[layer].mT + network.biases[layer].unsqueeze(-2)

    old = new = points
    found: list[list[Tensor]] = []
    for layer in range(len(before.weights) - 1):
        start, end = heights(before, layer, old), heights(after, layer, new)
        own, upstream = heights(after, layer, old), heights(before, layer, new)
        on = start > 0
        flips = [((height > 0) != on).sum((-2, -1)) for height in (end, own, upstream)]
        found.append([count.to(points.dtype) / on.shape[-2:].numel() for count in flips])
        old, new = start.clamp_min(0), end.clamp_min(0)
    return FlippedAreas(*(torch.stack(layers, -1) for layers in zip(*found, strict=True)))
