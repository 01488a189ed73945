r"""Statements of theory and of the thesis about activation polytopes, measured: each function is one experiment.

Comparisons with slower methods, which take time, are in `studies.polytopes.other_algorithms`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.geometry import rays
from leakage.geometry.distances import inscribed_radius
from leakage.geometry.patterns import Gates, adapted, joined, pattern, read_out
from leakage.geometry.polygons import fans, following, in_use
from leakage.geometry.subdivision import Subdivision, subdivide
from leakage.models.mlp import Mlp
from reproduced.studies.polytopes import ray_cuts
from reproduced.studies.polytopes.printed_search import bisection

_ON_EDGE = 1e-12  # a point this far outside of an edge of length one is on it, to rounding
_MISSED = 1e-9  # an affine form that is further off than this does not give the neuron's height: rounding is 1e-15
_ALMOST = 1 - 1e-6  # of the way to the next hyperedge
_SAME = 1e-6  # lengths that differ by more are not those of one crossing: 60 halvings of a unit step leave 1e-18


class Identities(NamedTuple):
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


def identities(network: Mlp, points: Float[Tensor, "t d"]) -> Identities:
    """The errors of Theorem 3.2, Lemma 3.4 and Algorithms 1 to 3 of Peinemann (2021) at points."""
    gates, heights = pattern(network, points), network.preactivations(points)
    weights, biases = adapted(network, gates)
    linear = [(weight @ points.unsqueeze(-1)).squeeze(-1) for weight in weights]
    errors = [(a + c - z).abs().max() for a, c, z in zip(linear, biases, heights, strict=True)]
    printed = zip(linear[:-1], printed_biases(network, gates), heights[:-1], strict=True)
    misses = [((a + c - z).abs() > _MISSED).to(points.dtype).mean() for a, c, z in printed]
    slope, offset = read_out(network, gates)
    gap = (slope - _jacobian(network, points)).abs().max()
    # Almost as far as the nearest hyperedge, in the direction of the next point.
    away = torch.nn.functional.normalize(points.roll(1, 0) - points, dim=-1)
    there = points + _ALMOST * inscribed_radius(network, points).unsqueeze(-1) * away
    elsewhere = ((slope @ there.unsqueeze(-1)).squeeze(-1) + offset - network(there)).abs().max()
    return Identities(torch.stack(errors).max(), gap, elsewhere, torch.stack(misses))


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


def _jacobian(network: Mlp, points: Float[Tensor, "t d"]) -> Float[Tensor, "t classes d"]:
    """The Jacobian at each point by automatic differentiation of the sum over points, one output at a time."""
    given = points.detach().requires_grad_()
    totals = network(given).sum(0)
    rows = [torch.autograd.grad(total, given, retain_graph=True)[0] for total in totals]
    return torch.stack(rows, 1)


def strays(fine: Subdivision, points: Float[Tensor, "t 2"]) -> int:
    """How many points of the window lie outside of the polygon of their pattern in a forward pass, up to rounding."""
    cells = fine.locate(points)
    corners, counts = fine.vertices[cells], fine.counts[cells]
    along, away = following(corners, counts) - corners, points.unsqueeze(1) - corners
    left = along[..., 0] * away[..., 1] - along[..., 1] * away[..., 0]
    return int(((cells < 0) | (left < -_ON_EDGE).any(-1)).sum())


class Refinement(NamedTuple):
    """How the layers refine each other's cells.

    Attributes:
        counts: how many cells the first l layers make.
        error: for each l, the largest difference in area between such a cell and the final cells in it; infinite if
            some cell is no union of final cells.
    """

    counts: Int[Tensor, " layers"]
    error: Float[Tensor, " layers"]


def refinement(network: Mlp, fine: Subdivision) -> Refinement:
    """Whether every cell of the first l layers, subdivided alone, is a union of the final cells `fine`.

    Then every boundary of an earlier layer is one of the final boundaries: later layers cut, and never merge.
    """
    widths, errors = network.widths[1:-1], []
    for layer in range(1, len(widths) + 1):
        coarse = subdivide(network, fine.window, plane=fine.plane, layers=layer)
        prefixes, place = torch.unique(fine.pattern[:, : sum(widths[:layer])], dim=0, return_inverse=True)
        own, order = torch.unique(coarse.pattern, dim=0, return_inverse=True)
        if not torch.equal(prefixes, own):  # noqa: TID251  integers
            errors.append(torch.full_like(fine.areas[0], torch.inf))
            continue
        summed = torch.zeros_like(coarse.areas).index_add(0, place, fine.areas)
        errors.append((summed[order] - coarse.areas).abs().max())
    return Refinement(torch.tensor(fine.layer_counts, device=fine.counts.device), torch.stack(errors))


class Invariants(NamedTuple):
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


def invariants(fine: Subdivision) -> Invariants:
    """The invariants of a subdivision, measured."""
    middles = fine.lift(fine.middles)
    rows = joined(pattern(fine.network, middles))
    outputs = (fine.maps[..., :2] @ fine.middles.unsqueeze(-1)).squeeze(-1) + fine.maps[..., 2]
    whole = fans(fine.window.unsqueeze(0))[1].sum()
    return Invariants(
        smallest_area=float(fine.areas.min()),
        area_error=float((fine.areas.sum() / whole - 1).abs()),
        repeated_patterns=len(fine) - len(torch.unique(fine.pattern, dim=0)),
        wrong_patterns=int((rows != fine.pattern).any(-1).sum()),
        map_error=float((outputs - fine.network(middles)).abs().max()),
        sharpest_turn=float(_turns(fine.vertices, fine.counts).min()),
    )


def _turns(vertices: Float[Tensor, "k v 2"], corners: Int[Tensor, " k"]) -> Float[Tensor, " turns"]:
    """The cross product of every two edges in a row, of all polygons: negative at a reflex corner."""
    edges = following(vertices, corners) - vertices
    ahead = following(edges, corners)
    cross = edges[..., 0] * ahead[..., 1] - edges[..., 1] * ahead[..., 0]
    return cross[in_use(corners, vertices.shape[1])]


class RayReadings(NamedTuple):
    """One event on each ray by the exact methods and by the printed search; infinite where a method finds none.

    Attributes:
        walked: by following the ray from polytope to polytope.
        cut: by cutting the ray layer by layer.
        searched: by Algorithm 5 as printed.
    """

    walked: Float[Tensor, " t"]
    cut: Float[Tensor, " t"]
    searched: Float[Tensor, " t"]

    @property
    def disagreement(self) -> Float[Tensor, ""]:
        """The largest difference between the exact methods; infinite if only one of them finds an event."""
        both = self.walked.isfinite() & self.cut.isfinite()
        one = self.walked.isfinite() != self.cut.isfinite()
        gap = torch.where(both, (self.walked - self.cut).abs(), 0.0)
        return torch.where(one, torch.inf, gap).max()

    @property
    def missed(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds nothing, whether or not there is something."""
        return self.searched.isinf()

    @property
    def overlooked(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds nothing although there is something within its reach."""
        return self.missed & self.walked.isfinite()

    @property
    def wrong(self) -> Bool[Tensor, " t"]:
        """Rays on which the search finds something that is not the first event."""
        return ~self.missed & ((self.searched - self.walked).abs() > _SAME)


def first_label_changes(
    network: Mlp, points: Float[Tensor, "t d"], directions: Float[Tensor, "t d"], *, steps: int
) -> RayReadings:
    """Where each ray first changes its label, up to `steps` units of length: as far as the search can see."""
    search = bisection(network, points, directions, steps=steps, event="label")
    walked = rays.label_change(network, points, directions, until=float(steps))
    cut = ray_cuts.label_change_by_breaks(network, points, directions, until=float(steps))
    return RayReadings(walked, cut, search.lengths)


def first_crossings(
    network: Mlp, points: Float[Tensor, "t d"], directions: Float[Tensor, "t d"], *, steps: int
) -> RayReadings:
    """Where each ray first leaves its activation polytope, up to `steps` units of length."""
    search = bisection(network, points, directions, steps=steps, event="pattern")
    walked = rays.walk(network, points, directions, crossings=1).lengths[..., 0]
    breaks = ray_cuts.all_breaks(network, points, directions, until=float(steps)).lengths
    cut = torch.nn.functional.pad(breaks, (0, 1), value=torch.inf)[..., 0]
    return RayReadings(torch.where(walked <= steps, walked, torch.inf), cut, search.lengths)
