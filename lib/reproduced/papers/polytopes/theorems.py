r"""Statements of theory and of the thesis about activation polytopes, measured: each function is one experiment.

Adapted parameters describe the network; cells are convex, tile the window and refine from layer to layer; a network has
so many cells; the gradient of an early weight is a sum over paths.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.draws import gaussian
from leakage.membership.polytopes import (
    Gates,
    activation_pattern,
    inscribed_radius,
    join_layers,
    layer_maps,
    output_map,
)
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.models.mlp import Mlp
from reproduced.papers.polytopes.polygons import at_next_corner, is_corner, triangle_fans
from reproduced.papers.polytopes.subdivision import Subdivision, subdivide, subdivide_networks
from reproduced.papers.polytopes.windows import box_corners
from reproduced.runtime import stream

# ── adapted parameters ───────────────────────────────────────────────────────────────────────────────────────────────

_MISSED = 1e-9  # an affine form that is further off than this does not give the neuron's height: rounding is 1e-15
_ALMOST = 1 - 1e-6  # of the way to the next hyperedge


class AdaptedParameterErrors(NamedTuple):
    r"""How exactly adapted parameters describe a network at points.

    Attributes:
        height_error: the largest $|A_l x + c_l - z^l(x)|$ of all layers.
        jacobian_error: the largest difference between $A_P$ and the Jacobian by automatic differentiation.
        elsewhere_error: the largest difference between $A_P x' + b_P$ and the network at another point x' of the
            polytope of x.
        printed_misses: for each hidden layer, the share of neurons and points where Algorithm 3 as printed is off.
    """

    height_error: Float[Tensor, ""]
    jacobian_error: Float[Tensor, ""]
    elsewhere_error: Float[Tensor, ""]
    printed_misses: Float[Tensor, " layers"]


def adapted_parameter_errors(network: Mlp, points: Float[Tensor, "t d"]) -> AdaptedParameterErrors:
    """The errors of Theorem 3.2, Lemma 3.4 and Algorithms 1 to 3 of Peinemann (2021) at points."""
    gates, heights = activation_pattern(network, points), network.preactivations(points)
    weights, biases = layer_maps(network, gates)
    linear = [(weight @ points.unsqueeze(-1)).squeeze(-1) for weight in weights]
    errors = [(a + c - z).abs().max() for a, c, z in zip(linear, biases, heights, strict=True)]
    printed = zip(linear[:-1], printed_biases(network, gates), heights[:-1], strict=True)
    misses = [((a + c - z).abs() > _MISSED).to(points.dtype).mean() for a, c, z in printed]
    slope, offset = output_map(network, gates)
    leaf = points.detach().requires_grad_()
    rows = [torch.autograd.grad(total, leaf, retain_graph=True)[0] for total in network(leaf).sum(0)]
    gap = (slope - torch.stack(rows, 1)).abs().max()
    # Almost as far as the nearest hyperedge, in the direction of the next point.
    away = torch.nn.functional.normalize(points.roll(1, 0) - points, dim=-1)
    there = points + _ALMOST * inscribed_radius(network, points).unsqueeze(-1) * away
    elsewhere = ((slope @ there.unsqueeze(-1)).squeeze(-1) + offset - network(there)).abs().max()
    return AdaptedParameterErrors(torch.stack(errors).max(), gap, elsewhere, torch.stack(misses))


def printed_biases(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n"], ...]:
    r"""The biases by Algorithm 3 as printed, for the hidden layers: from the second on, not the adapted biases.

    $$ \hat c_1 = b_1, \qquad \hat c_{l+1} = D_{l+1} W_{l+1} \hat c_l + b_{l+1} $$

    It sets rows of the layer itself to 0 where `patterns.adapted` sets those of the layer before, and never those of
    the first layer: inactive neurons pass their bias on.

    Source: Peinemann (2021), Algorithm 3.
    """
    first = gates[0].shape[:-1] if gates else ()
    found = [network.biases[0].unsqueeze(-2).expand(*first, -1)]
    for gate, weight, bias in zip(gates[1:], network.weights[1:-1], network.biases[1:-1], strict=True):
        found.append(gate.to(weight.dtype) * (found[-1] @ weight.mT) + bias.unsqueeze(-2))
    return tuple(found)


# ── cells of a window ────────────────────────────────────────────────────────────────────────────────────────────────

_ON_EDGE = 1e-12  # a point this far outside of an edge of length one is on it, to rounding


class SubdivisionCheck(NamedTuple):
    """What theory promises of every subdivision: convex cells that tile the window, one for each pattern.

    Attributes:
        smallest_area: positive.
        area_error: |sum of areas / area of the window - 1|, rounding.
        repeated_patterns: cells minus distinct patterns, 0.
        wrong_patterns: cells whose pattern is not that of the network at their middle, 0.
        map_error: largest |affine map - network| at the middles, rounding.
        sharpest_turn: smallest cross product of two edges in a row, not below rounding where all cells are convex.
    """

    smallest_area: float
    area_error: float
    repeated_patterns: int
    wrong_patterns: int
    map_error: float
    sharpest_turn: float


def check_subdivision(cells: Subdivision) -> SubdivisionCheck:
    """The invariants of a subdivision, measured."""
    middles = cells.lift(cells.centres)
    rows = join_layers(activation_pattern(cells.network, middles))
    outputs = (cells.maps[..., :2] @ cells.centres.unsqueeze(-1)).squeeze(-1) + cells.maps[..., 2]
    whole = triangle_fans(cells.window.unsqueeze(0))[1].sum()
    edges = at_next_corner(cells.vertices, cells.counts) - cells.vertices
    turns = _cross(edges, at_next_corner(edges, cells.counts))[is_corner(cells.counts, cells.vertices.shape[1])]
    return SubdivisionCheck(
        smallest_area=float(cells.areas.min()),
        area_error=float((cells.areas.sum() / whole - 1).abs()),
        repeated_patterns=len(cells) - len(torch.unique(cells.pattern, dim=0)),
        wrong_patterns=int((rows != cells.pattern).any(-1).sum()),
        map_error=float((outputs - cells.network(middles)).abs().max()),
        sharpest_turn=float(turns.min()),
    )


def _cross(first: Tensor, second: Tensor) -> Tensor:
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def count_strays(cells: Subdivision, points: Float[Tensor, "t 2"]) -> int:
    """How many points of the window lie outside of the polygon of their pattern in a forward pass, up to rounding."""
    own = cells.locate(points)
    corners = cells.vertices[own]
    left = _cross(at_next_corner(corners, cells.counts[own]) - corners, points.unsqueeze(1) - corners)
    return int(((own < 0) | (left < -_ON_EDGE).any(-1)).sum())


class Refinement(NamedTuple):
    """How the layers refine each other's cells.

    Attributes:
        counts: how many cells the first l layers make.
        error: for each l, the largest difference in area between such a cell and the final cells in it; infinite if
            some cell is no union of final cells.
    """

    counts: Int[Tensor, " layers"]
    error: Float[Tensor, " layers"]


def refinement(network: Mlp, cells: Subdivision) -> Refinement:
    """Whether every cell of the first l layers, subdivided alone, is a union of the final cells.

    Then every boundary of an earlier layer is one of the final boundaries: later layers cut, and never merge.
    """
    widths, errors = network.widths[1:-1], []
    for layer in range(1, len(widths) + 1):
        coarse = subdivide(network, cells.window, plane=cells.plane, layers=layer)
        prefixes, place = torch.unique(cells.pattern[:, : sum(widths[:layer])], dim=0, return_inverse=True)
        own, order = torch.unique(coarse.pattern, dim=0, return_inverse=True)
        if not torch.equal(prefixes, own):  # noqa: TID251  integers
            errors.append(torch.full_like(cells.areas[0], torch.inf))
            continue
        summed = torch.zeros_like(coarse.areas).index_add(0, place, cells.areas)
        errors.append((summed[order] - coarse.areas).abs().max())
    return Refinement(torch.tensor(cells.layer_counts), torch.stack(errors))


# ── numbers of cells ─────────────────────────────────────────────────────────────────────────────────────────────────

REACH = 100.0
"""Half the side of the window, in units of the biases: beyond it one-layer networks have 1 to 5 % of their cells."""


def he_networks(widths: Sequence[int], networks: int, *, generator: torch.Generator) -> Mlp:
    r"""Networks with weights $N(0, 2/n_{l-1})$, which keep the heights' size from layer to layer, and biases $N(0, 1)$.

    Multiplying all biases by a number stretches all cells by it, so the window is given in units of the biases.
    """
    layers = list(itertools.pairwise(widths))
    weights = [gaussian((networks, out, into), generator=generator) * (2 / into) ** 0.5 for into, out in layers]
    biases = [gaussian((networks, out), generator=generator) for _, out in layers]
    return Mlp(tuple(weights), tuple(biases))


class CellCounts(NamedTuple):
    """Numbers of cells of random networks of one shape, `neurons` in all hidden layers."""

    cells: Int[Tensor, " networks"]
    neurons: int

    @property
    def ratio(self) -> Estimate:
        """The mean number of cells over $N^2/2$, with its interval over networks."""
        return mean_interval(self.cells.double() / (self.neurons**2 / 2))


def count_cells(hidden: Sequence[int], *, networks: int, seed: int, reach: float = REACH) -> CellCounts:
    r"""The numbers of cells of random networks with these hidden layers in the square $[-r, r]^2$.

    N lines in general position make $1 + N + \binom N2$ cells, and the average over random networks of any depth is of
    the order $N^2/2$ (Hanin and Rolnick 2019), far from the bound $2^N$.
    """
    generator = stream(seed, f"cells/{'-'.join(map(str, hidden))}")
    models = he_networks((2, *hidden, 2), networks, generator=generator)
    window = box_corners((-reach, -reach), (reach, reach))
    cells = torch.tensor([len(found) for found in subdivide_networks(models, window)])
    return CellCounts(cells, sum(hidden))


def count_missed_patterns(network: Mlp) -> int:
    r"""How many of the $2^N$ activation patterns a network of one hidden layer misses at the points made for them.

    For the pattern s the point is $W_1^+ (2 s - 1 - b_1)$. With at most as many neurons as inputs and independent rows
    of $W_1$, every neuron then has height 1 or -1.
    """
    (weight, _), (bias, _) = network.weights, network.biases
    wanted = torch.cartesian_prod(*[torch.tensor([False, True])] * len(weight))
    wanted = wanted.view(-1, len(weight))
    points = (2 * wanted.to(weight.dtype) - 1 - bias) @ torch.linalg.pinv(weight).T
    return int((join_layers(activation_pattern(network, points)) != wanted).any(-1).sum())


# ── the gradient of an early weight ──────────────────────────────────────────────────────────────────────────────────


class EarlyGradient(NamedTuple):
    r"""$\partial\mathcal L / \partial w^{(0)}_{22}$ in four ways.

    Attributes:
        automatic: by automatic differentiation.
        paths: the sum over all paths from the weight to the outputs.
        printed_from_2_to_l: the printed formula, each $\Phi'$ a diagonal Jacobian whose two indices are suppressed, and
            $w^{(1)}_{l2}$ the weight to l from 2.
        printed_from_l_to_2: the same, but with $w^{(1)}_{l2}$ from l to 2, the order of all other weights.
    """

    automatic: Float[Tensor, "*b"]
    paths: Float[Tensor, "*b"]
    printed_from_2_to_l: Float[Tensor, "*b"]
    printed_from_l_to_2: Float[Tensor, "*b"]


def early_gradient(
    weights: Float[Tensor, "*b 3 2 2"], inputs: Float[Tensor, "*b 2"], targets: Float[Tensor, "*b 2"]
) -> EarlyGradient:
    r"""The gradient of $\mathcal L = \sum_i (o_i - y_i)^2$ with respect to $w^{(0)}_{22}$, for many networks at once.

    $$ \frac{\partial\mathcal L}{\partial w^{(0)}_{22}} = x_2\, \Phi'^{(0)}_2 \sum_i 2 (o_i - y_i)\, \Phi'^{(2)}_i
       \sum_k w^{(2)}_{ki}\, \Phi'^{(1)}_k\, w^{(1)}_{2k} $$

    Networks have three layers of two neurons each, a ReLU after every layer and no biases, as in Figure 10;
    `weights[..., l, i, j]` is $w^{(l)}_{ij}$, from neuron i to neuron j.

    Source: Peinemann (2021), Section 5.4. It prints
    $\sum_i 2(o_i - y_i) \sum_j \Phi'^{(2)} \sum_k w^{(2)}_{kj} \Phi'^{(1)} \sum_l w^{(1)}_{l2} \Phi'^{(0)} \nu^{(0)}_2$
    with $\nu^{(0)}$ the input.
    """
    outputs, slopes = _forward(weights, inputs)
    error = 2 * (outputs - targets)
    second, third = weights[..., 1, :, :], weights[..., 2, :, :]
    start = inputs[..., 1] * slopes[0][..., 1]
    paths = torch.einsum("...i,...i,...ki,...k,...k->...", error, slopes[2], third, slopes[1], second[..., 1, :])
    printed, jacobians = "...i,...ij,...kj,...kl,...l->...", [torch.diag_embed(slope) for slope in slopes]
    printed_from_2_to_l = torch.einsum(printed, error, jacobians[2], third, jacobians[1], second[..., 1, :])
    printed_from_l_to_2 = torch.einsum(printed, error, jacobians[2], third, jacobians[1], second[..., :, 1])
    leaf = weights.detach().requires_grad_()
    # Networks do not see each other, so the sum of all losses will do.
    (slope,) = torch.autograd.grad((_forward(leaf, inputs)[0] - targets).square().sum(), leaf)
    return EarlyGradient(slope[..., 0, 1, 1], start * paths, start * printed_from_2_to_l, start * printed_from_l_to_2)


def _forward(weights: Tensor, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The outputs, and the slope Φ' of every ReLU, layer by layer."""
    slopes = []
    for weight in weights.unbind(-3):
        heights = (inputs.unsqueeze(-2) @ weight).squeeze(-2)
        slopes.append((heights > 0).to(heights.dtype))
        inputs = heights.relu()
    return inputs, slopes
