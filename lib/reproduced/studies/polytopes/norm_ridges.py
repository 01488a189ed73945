r"""Do norms rise or fall along the decision boundary? Exact probabilities that compare it with the window.

$\lVert A_P \rVert_F$ and $\lVert b_P \rVert_\infty$ are constant on cells, so a point uniform in length on the boundary
takes each value with the length of the boundary in such cells, and a point uniform in the window with their area. The
norm of the output varies within a cell and is compared at evenly spaced points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.geometry.boundary import Boundary, decision_boundary
from leakage.geometry.subdivision import Subdivision
from reproduced.studies.polytopes.densities import nearest
from reproduced.studies.polytopes.windows import along, lattice

_SAME = 1e-7  # norms closer than this, in units of the largest, are equal: 0 comes out as the root of rounding, 1e-8


def exceeds(
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
class Landscape:
    """A subdivision of the unit square with its decision boundary, and both at evenly spaced points.

    Attributes:
        points: evenly spaced; those that lie on a hyperedge to rounding are left out.
        cells: the cell of each point.
        outputs: the norm of the output at each point.
    """

    subdivision: Subdivision
    boundary: Boundary
    points: Float[Tensor, "t 2"]
    cells: Int[Tensor, " t"]
    outputs: Float[Tensor, " t"]

    def norms(self, points: Float[Tensor, "k 2"]) -> Float[Tensor, "3 k"]:
        r"""$\lVert A_P \rVert_F$, $\lVert b_P \rVert_\infty$ and $\lVert o \rVert_2$ at points.

        Points that lie on a hyperedge, to rounding, are left out.
        """
        cells = self.subdivision.locate(points)
        points, cells = points[cells >= 0], cells[cells >= 0]
        return torch.stack([*self.of_cells(cells), self.subdivision.network(points).norm(dim=-1)])

    def of_cells(self, cells: Int[Tensor, " k"]) -> Float[Tensor, "2 k"]:
        """The first two norms in these cells."""
        return torch.stack([self.subdivision.weight_norms, self.subdivision.bias_norms])[:, cells]


def survey(fine: Subdivision, *, side: int = 200) -> Landscape:
    """The landscape of the subdivided unit square at `side` × `side` points."""
    points = lattice(side, device=fine.vertices.device)
    cells = fine.locate(points)
    points, cells = points[cells >= 0], cells[cells >= 0]
    return Landscape(fine, decision_boundary(fine), points, cells, fine.network(points).norm(dim=-1))


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


def ridge(landscape: Landscape, data: Float[Tensor, "n 2"], *, within: float, count: int = 4000) -> Ridge:
    """Compare the decision boundary with the window, and with its part closer than `within` to the training points.

    The output is read at `count` points on the boundary.
    """
    boundary, fine = landscape.boundary, landscape.subdivision
    if not len(boundary):
        none = Norms(*landscape.points.new_full((3,), torch.nan))
        return Ridge(none, none)
    close = nearest(landscape.points, data) < within
    ours = landscape.of_cells(boundary.cells)
    outputs = fine.network(along(boundary.segments, count)).norm(dim=-1)
    window = [
        exceeds(values, reference, first_weights=boundary.lengths, second_weights=fine.areas)
        for values, reference in zip(ours, (fine.weight_norms, fine.bias_norms), strict=True)
    ]
    near = [
        exceeds(values, reference, first_weights=boundary.lengths)
        for values, reference in zip(ours, landscape.of_cells(landscape.cells[close]), strict=True)
    ]
    window.append(exceeds(outputs, landscape.outputs))
    near.append(exceeds(outputs, landscape.outputs[close]))
    return Ridge(Norms(*window), Norms(*near))


def elsewhere(landscape: Landscape, curves: Sequence[Boundary], *, count: int = 2000) -> Norms:
    """By chance: the probabilities of `ridge.window` on the boundaries of other networks; NaN without a boundary."""
    fine = landscape.subdivision
    rows = []
    for curve in curves:
        if not len(curve):
            rows.append(landscape.points.new_full((3,), torch.nan))
            continue
        weight, bias, output = landscape.norms(along(curve.segments, count))
        pairs = ((weight, fine.weight_norms), (bias, fine.bias_norms))
        exact = [exceeds(values, reference, second_weights=fine.areas) for values, reference in pairs]
        rows.append(torch.stack([*exact, exceeds(output, landscape.outputs)]))
    return Norms(*(torch.stack(rows) if rows else landscape.points.new_zeros((0, 3))).unbind(-1))


def gradient_order(subdivision: Subdivision) -> Float[Tensor, ""]:
    r"""How far the gradients of $g = o_1 - o_0$ in the window are along one line: 1 if all are, 0 if isotropic.

    $$ q = \frac{\lambda_1 - \lambda_2}{\lambda_1 + \lambda_2}, \qquad
       \lambda \text{ of } \sum_P |P|\, \nabla g_P \nabla g_P^\top . $$

    The matrix is the average gradient outer product. One straight ridge has q = 1.
    """
    slopes = subdivision.margin_gradients
    matrix = (slopes * subdivision.areas.unsqueeze(-1)).mT @ slopes
    # The eigenvalues of a 2 × 2 matrix are trace/2 ± the root of its deviator.
    deviator = torch.hypot(matrix[0, 0] - matrix[1, 1], 2 * matrix[0, 1])
    return deviator / matrix.trace()
