r"""The convex program behind `optimum`: the shortest neurons, one from each cone, that give every point its margin.

$$ \min \sum_c \lVert p_c \rVert \quad\text{subject to}\quad
   y_i \sum_{c \ni i} \sigma_c\, p_c^\top \tilde x_i \ge 1, \quad p_c \in C_c $$

A neuron is written in the rays of its cone, with amounts $\alpha \ge 0$. What each ray gives at each point is then at
least 0, and no digits are lost where points are close together. All of this is NumPy, on the CPU.
"""

# pyright: reportAttributeAccessIssue=false
# clarabel is a compiled module without stubs.

import math
from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse
from scipy.optimize import nnls

_SOLVER_TOLERANCE = 1e-12  # often out of reach; what counts is the gap that is measured afterwards
_WIDEST_GAP = 1e-6
_DEAD = 1e-3  # of the margin, for ‖p‖·max‖x̃‖: a bound of what a neuron gives; live ones have 1e-2 and more
_ROUNDS = 5  # two nearly always


@dataclass(frozen=True, eq=False)
class Cones:
    """Cones of weights: points (n, r), who is active (c, n), the rays (c, g, r), the sign of the output (c,)."""

    points: np.ndarray
    active: np.ndarray
    rays: np.ndarray
    signs: np.ndarray

    @classmethod
    def of_both_signs(cls, points: np.ndarray, active: np.ndarray, rays: np.ndarray) -> "Cones":
        """Every cone once for either sign of the output weight."""
        return cls(points, np.tile(active, (2, 1)), np.tile(rays, (2, 1, 1)), np.repeat([1.0, -1.0], len(rays)))

    def subset(self, chosen: np.ndarray) -> "Cones":
        return Cones(self.points, self.active[chosen], self.rays[chosen], self.signs[chosen])

    def values(self) -> np.ndarray:
        """(c, g, n): what a neuron along each ray gives at each point, at least 0 by the definition of the cone."""
        return np.clip(self.rays @ self.points.T, 0, None) * self.active[:, None]

    def weights(self, amounts: np.ndarray) -> np.ndarray:
        """(c, r): the neurons with `amounts` (c, g) of the rays."""
        return (amounts[:, None] @ self.rays)[:, 0]


def solve(cones: Cones, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights (k, r) and signs (k,) of live neurons with margin 1, multipliers (n,), relative gap.

    An interior point leaves a little of every neuron. So the program is solved again with the cones in use only, in
    units in which its optimum is about 1, until all that are left are in use.
    """
    reach = np.linalg.norm(cones.points, axis=1).max()
    unit = scale = math.sqrt(np.square(cones.points).sum() / len(labels))
    used, duals = cones, []
    for _ in range(_ROUNDS):
        amounts, multipliers = _program(used, labels, scale)
        duals.append(_feasible_dual(cones, labels, multipliers))
        norms = np.linalg.norm(used.weights(amounts), axis=1)
        live = norms * reach > _DEAD
        if live.all() or not live.any():
            break
        used, amounts, scale = used.subset(live), amounts[live], unit / math.sqrt(norms.sum())
    weights, primal = feasible(cones.points, labels, used.weights(amounts), used.signs)
    multipliers, dual = max(duals, key=lambda pair: pair[1])
    gap = 1 - dual / primal
    if not gap <= _WIDEST_GAP:
        raise RuntimeError(f"the solver left a relative duality gap of {gap:.1e}: are two points too close?")
    return weights, used.signs, multipliers, gap


def feasible(
    points: np.ndarray, labels: np.ndarray, weights: np.ndarray, signs: np.ndarray
) -> tuple[np.ndarray, float]:
    """`weights` (k, r) scaled to margin 1, and their value; infinite where they do not fit all labels."""
    margin = (labels * (np.clip(points @ weights.T, 0, None) @ signs)).min()
    if not margin > 0:
        return weights, math.inf
    return weights / margin, float(np.linalg.norm(weights, axis=1).sum() / margin)


def _program(cones: Cones, labels: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
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
    kinds = [clarabel.NonnegativeConeT(len(labels) + count * rays)] + [clarabel.SecondOrderConeT(1 + size)] * count
    costs = np.tile(np.eye(1 + rays)[0], count)
    nothing = sparse.csc_matrix((len(costs), len(costs)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _SOLVER_TOLERANCE
    solution = clarabel.DefaultSolver(nothing, costs, rows, bounds, kinds, settings).solve()
    found = np.array(solution.x).reshape(count, 1 + rays)[:, 1:] / scale
    return np.clip(found, 0, None), np.clip(np.array(solution.z)[: len(labels)] / scale, 0, None)


def _feasible_dual(cones: Cones, labels: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, float]:
    r"""`multipliers` scaled so that $|\sum_i \lambda_i y_i [p^\top \tilde x_i]_+| \le 1$ for all unit p, and their sum.

    The largest value in a cone is the length of the projection of $\pm\sum \lambda_i y_i \tilde x_i$ onto it, over the
    points that are active there.
    """
    targets = cones.signs[:, None] * ((cones.active * (labels * multipliers)) @ cones.points)
    projections = [nnls(rays.T, target)[0] @ rays for rays, target in zip(cones.rays, targets, strict=True)]
    strongest = np.linalg.norm(projections, axis=1).max()
    if not strongest > 0:
        return multipliers, -math.inf
    return multipliers / strongest, float(multipliers.sum() / strongest)
