r"""The global optimum of the maximum-margin problem of two-layer networks, by convex programming.

Neurons with one activation pattern and one sign of the output weight merge into one, so the problem
$\min \tfrac12\lVert\theta\rVert^2$ subject to $y_i \Phi(\theta; x_i) \ge 1$ at any sufficient width is

$$ \min \sum_c \lVert p_c \rVert \quad\text{subject to}\quad
   y_i \sum_{c \ni i} \sigma_c\, p_c^\top \tilde x_i \ge 1, \quad p_c \in C_c, \qquad \tilde x = (x, 1), $$

with one closed cone $C_c$ for each pattern and $\sigma_c = \pm 1$. A solution is a network with
$(w_c, b_c) = p_c / \sqrt{\lVert p_c \rVert}$ and $v_c = \sigma_c \sqrt{\lVert p_c \rVert}$; the multipliers of the
constraints are those of the KKT conditions. Margins are 1.

In the program a neuron is a sum of the rays of its cone with amounts $\alpha \ge 0$. Each ray contributes at least 0 at
each point, so no digits are lost where points are close together.
"""

# pyright: reportAttributeAccessIssue=false
# clarabel is a compiled module without stubs.

import itertools
import math
from dataclasses import dataclass

import clarabel
import numpy as np
import torch
from jaxtyping import Float, Real
from scipy import sparse
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.two_layer import TwoLayer

_IDLE = 1e-6  # multipliers below this share of their sum count as 0
_ROUNDING = 1e-10  # of a gap
_SOLVER_TOLERANCE = 1e-12  # often out of reach; the gap is measured afterwards
_WIDEST_GAP = 1e-6
_DEAD = 1e-3  # of the margin: neurons with ‖p‖·max‖x̃‖ below it are dropped; live ones have 1e-2 and more
_ROUNDS = 5  # two nearly always


@dataclass(frozen=True, eq=False)
class Optimum:
    """A network of least norm with margin 1, its multipliers, and the certificate that it is one.

    Attributes:
        model: the network; several of its neurons may share a kink, to within about 1e-5.
        multipliers: $λ_i ≥ 0$, feasible for the dual problem, so that their sum is at most the least $½‖θ‖²$.
        gap: $1 - Σλ_i / ½‖θ‖²$, computed from the network and the multipliers alone.
    """

    model: TwoLayer
    multipliers: Float[Tensor, " n"]
    gap: float

    @property
    def value(self) -> Float[Tensor, ""]:
        r"""The least $\tfrac12\lVert\theta\rVert^2$."""
        return self.model.squared_norm() / 2


def optimum_on_line(points: Float[Tensor, " n"], labels: Real[Tensor, " n"]) -> Optimum:
    r"""The optimum for distinct numbers with labels ±1, in any order.

    A neuron on the line is active on one side of its kink, so that $2n - 1$ patterns occur. Two rays span each cone:
    the neurons with their kink at either end of a gap between neighbours.
    """
    if len(points) == 1:
        return optimum_of_independent_points(points[:, None], labels)
    order = points.argsort()
    x, y = _to_array(points[order]), _to_array(labels[order])
    weights, signs, multipliers, gap = _solve_on_line(x, y)
    inverse = order.argsort()
    return optimum_of_neurons(weights, signs, torch.from_numpy(multipliers)[inverse], gap)


def optimum_of_independent_points(points: Float[Tensor, "n d"], labels: Real[Tensor, " n"]) -> Optimum:
    r"""The optimum for at most 8 points whose $(x_i, 1)$ are linearly independent, in any dimension.

    Every pattern of signs then occurs, and in the coordinates of a Cholesky factor of $K = XX^\top + 1$ each cone is an
    orthant up to a linear map.
    """
    extended = np.column_stack([_to_array(points), np.ones(len(points))])
    gram = extended @ extended.T
    factor = np.linalg.cholesky(gram)
    reduced, signs, multipliers, gap = solve_cone_program(_orthants(factor), _to_array(labels))
    weights = np.linalg.solve(factor.T, reduced.T).T @ extended
    return optimum_of_neurons(weights, signs, torch.from_numpy(multipliers), gap)


def single_neuron_optimum(
    point: Float[Tensor, " d"], *, label: float, margin: float = 1.0
) -> tuple[TwoLayer, Float[Tensor, ""]]:
    r"""The one KKT point of one neuron and one example, and its multiplier.

    $$ v = y \sqrt{m / \lVert\tilde x\rVert}, \qquad (w, b) = y v\, \tilde x / \lVert\tilde x\rVert,
       \qquad \lambda = 1 / \lVert\tilde x\rVert $$

    Source: Smorodinsky et al., Theorem 4.1, which states that the network determines x; the closed form is ours.
    """
    extended = torch.cat([point, torch.ones_like(point[:1])])
    norm = extended.norm()
    output = label * (margin / norm).sqrt()
    hidden = label * output * extended / norm
    return TwoLayer(hidden[None, :-1], hidden[None, -1], output[None]), 1 / norm


def optimum_of_neurons(weights: np.ndarray, signs: np.ndarray, multipliers: Tensor, gap: float) -> Optimum:
    """The balanced network, $\\lVert (w, b) \\rVert = |v|$, of neurons p_c and their signs."""
    outputs = np.sqrt(np.linalg.norm(weights, axis=1))
    hidden = torch.from_numpy(weights / outputs[:, None])
    return Optimum(TwoLayer(hidden[:, :-1], hidden[:, -1], torch.from_numpy(signs * outputs)), multipliers, gap)


@dataclass(frozen=True, eq=False)
class Cones:
    """Cones of weights: points (n, r), activity (c, n), the rays (c, g, r), the sign of the output (c,)."""

    points: np.ndarray
    active: np.ndarray
    rays: np.ndarray
    signs: np.ndarray

    @classmethod
    def with_both_signs(cls, points: np.ndarray, active: np.ndarray, rays: np.ndarray) -> "Cones":
        """Every cone once for either sign of the output weight."""
        return cls(points, np.tile(active, (2, 1)), np.tile(rays, (2, 1, 1)), np.repeat([1.0, -1.0], len(rays)))

    def subset(self, chosen: np.ndarray) -> "Cones":
        return Cones(self.points, self.active[chosen], self.rays[chosen], self.signs[chosen])

    def values(self) -> np.ndarray:
        """(c, g, n): the output of a neuron along each ray at each point, at least 0 by definition of the cone."""
        return np.clip(self.rays @ self.points.T, 0, None) * self.active[:, None]

    def weights(self, amounts: np.ndarray) -> np.ndarray:
        """(c, r): the neurons with `amounts` (c, g) of the rays."""
        return (amounts[:, None] @ self.rays)[:, 0]


def cones_on_line(x: np.ndarray) -> Cones:
    """The cones of sorted points on the line: kinks in the gaps, on either side, and outside of all points."""
    extended = np.column_stack([x, np.ones_like(x)])
    right = np.column_stack([np.ones_like(x), -x]) / np.linalg.norm(extended, axis=1, keepdims=True)
    gaps = np.stack([right[:-1], right[1:]], axis=1)  # kink at either end of a gap, active to the right of it
    everywhere = np.stack([right[0], -right[-1]])[None]
    after = np.arange(len(x)) > np.arange(len(x) - 1)[:, None]
    active = np.concatenate([after, ~after, np.ones((1, len(x)), dtype=bool)])
    return Cones.with_both_signs(extended, active, np.concatenate([gaps, -gaps, everywhere]))


def _orthants(factor: np.ndarray) -> Cones:
    """The cones of all sign patterns of `factor` @ p."""
    patterns = np.array(list(itertools.product([1.0, -1.0], repeat=len(factor))))
    edges = np.linalg.inv(factor).T
    edges /= np.linalg.norm(edges, axis=1, keepdims=True)
    return Cones.with_both_signs(factor, patterns > 0, patterns[:, :, None] * edges)


def _solve_on_line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """`solve_cone_program`, and again without the points that have no multiplier, if that is certified as well.

    Such a point splits the cone of a neuron whose kink is near it, and an interior-point method can hardly separate the
    two parts. Without the point there is one cone; the gap shows whether the point is still fitted.
    """
    cones = cones_on_line(x)
    weights, signs, multipliers, gap = solve_cone_program(cones, y)
    has_multiplier = multipliers > _IDLE * multipliers.sum()
    if has_multiplier.all() or has_multiplier.sum() < 2:
        return weights, signs, multipliers, gap
    new_weights, new_signs, new_multipliers, _ = solve_cone_program(cones_on_line(x[has_multiplier]), y[has_multiplier])
    new_weights, value = scale_to_margin(cones.points, y, new_weights, new_signs)
    new_gap = 1 - new_multipliers.sum() / value
    if not new_gap <= 2 * gap + _ROUNDING:
        return weights, signs, multipliers, gap
    multipliers = np.zeros_like(multipliers)
    multipliers[has_multiplier] = new_multipliers
    return new_weights, new_signs, multipliers, new_gap


def solve_cone_program(cones: Cones, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights (k, r) and signs (k,) of live neurons with margin 1, multipliers (n,), relative duality gap.

    An interior point leaves a little of every neuron. So the program is solved again with the cones in use only, in
    units in which its optimum is about 1, until all remaining cones are in use.
    """
    reach = np.linalg.norm(cones.points, axis=1).max()
    unit = scale = math.sqrt(np.square(cones.points).sum() / len(labels))
    used, duals = cones, []
    for _ in range(_ROUNDS):
        amounts, multipliers = _solve_once(used, labels, scale)
        duals.append(_feasible_dual(cones, labels, multipliers))
        norms = np.linalg.norm(used.weights(amounts), axis=1)
        live = norms * reach > _DEAD
        if live.all() or not live.any():
            break
        used, amounts, scale = used.subset(live), amounts[live], unit / math.sqrt(norms.sum())
    weights, primal = scale_to_margin(cones.points, labels, used.weights(amounts), used.signs)
    multipliers, dual = max(duals, key=lambda pair: pair[1])
    gap = 1 - dual / primal
    if not gap <= _WIDEST_GAP:
        raise RuntimeError(f"the solver left a relative duality gap of {gap:.1e}: are two points too close?")
    return weights, used.signs, multipliers, gap


def scale_to_margin(
    points: np.ndarray, labels: np.ndarray, weights: np.ndarray, signs: np.ndarray
) -> tuple[np.ndarray, float]:
    """`weights` (k, r) scaled to margin 1, and their value; infinite where they do not fit all labels."""
    margin = (labels * (np.clip(points @ weights.T, 0, None) @ signs)).min()
    if not margin > 0:
        return weights, math.inf
    return weights / margin, float(np.linalg.norm(weights, axis=1).sum() / margin)


def _solve_once(cones: Cones, labels: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Amounts (c, g) of every ray and multipliers (n,), solved in units of `scale`.

    The variables of a neuron are a bound t of its norm and its amounts α, with ‖αR‖ ≤ t.
    """
    count, rays, size = cones.rays.shape
    signed = cones.values() / scale * cones.signs[:, None, None] * labels
    margins = np.concatenate([np.zeros_like(signed[:, :1]), signed], axis=1).reshape(-1, len(labels)).T
    amounts = sparse.kron(sparse.eye(count), np.eye(1 + rays)[1:])
    block = np.zeros((count, 1 + size, 1 + rays))
    block[:, 0, 0], block[:, 1:, 1:] = 1, cones.rays.transpose(0, 2, 1)
    rows = -sparse.vstack([sparse.csr_matrix(margins), amounts, sparse.block_diag(list(block))]).tocsc()
    rows.eliminate_zeros()
    bounds = np.zeros(rows.shape[0])
    bounds[: len(labels)] = -1
    cone_types = [clarabel.NonnegativeConeT(len(labels) + count * rays)] + [clarabel.SecondOrderConeT(1 + size)] * count
    costs = np.tile(np.eye(1 + rays)[0], count)
    no_quadratic_costs = sparse.csc_matrix((len(costs), len(costs)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _SOLVER_TOLERANCE
    solution = clarabel.DefaultSolver(no_quadratic_costs, costs, rows, bounds, cone_types, settings).solve()
    found = np.array(solution.x).reshape(count, 1 + rays)[:, 1:] / scale
    return np.clip(found, 0, None), np.clip(np.array(solution.z)[: len(labels)] / scale, 0, None)


def _feasible_dual(cones: Cones, labels: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, float]:
    r"""`multipliers` scaled so that $|\sum_i \lambda_i y_i [p^\top \tilde x_i]_+| \le 1$ for all unit p, and their sum.

    The largest value in a cone is the length of the projection of $\pm\sum \lambda_i y_i \tilde x_i$ onto it, over the
    points that are active there. SciPy's `nnls`, which would project, may return what is no projection (its issue
    25389).
    """
    targets = cones.signs[:, None] * ((cones.active * (labels * multipliers)) @ cones.points)
    strongest = lengths_of_projections(cones.rays, targets).max()
    if not strongest > 0:
        return multipliers, -math.inf
    return multipliers / strongest, float(multipliers.sum() / strongest)


def lengths_of_projections(rays: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(c,): the length of each target's projection onto the cone of independent rays, (c, g, r) with g at most 8.

    It is the projection onto the span of a face, with amounts of its rays that are not negative. Of all faces with such
    amounts it is the longest, for every one is at most $p^\\top t$ of its own direction p, which is in the cone.
    """
    longest, count = np.zeros(len(rays)), rays.shape[1]
    for face in itertools.chain.from_iterable(itertools.combinations(range(count), k + 1) for k in range(count)):
        basis, triangle = np.linalg.qr(rays[:, face].transpose(0, 2, 1))
        inner = targets[:, None] @ basis
        amounts = np.linalg.solve(triangle, inner.transpose(0, 2, 1))[..., 0]
        lengths = np.linalg.norm(inner[:, 0], axis=1)
        longest = np.where((amounts >= 0).all(1), np.maximum(longest, lengths), longest)
    return longest


def _to_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(DTYPE).numpy()
