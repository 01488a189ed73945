r"""Support vector machines with an intercept, trained exactly and in batches from their Gram matrices.

A machine answers $f(x) = \sum_i a_i y_i k(x_i, x) + b$ with labels ±1; what it says of a point is its signed distance
$f(x) / \lVert w \rVert$ from the hyperplane. The hard margin needs rows that are linearly independent, as they are
almost surely with at least as many features as points; below that there is the soft margin. Leading dimensions are
independent machines. Nothing here is random.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from leakage.trainers.interior_point import Barrier

_ROUNDS = 200  # of pivoting; most batches need fewer than 10
_PATIENCE = 4  # rounds without fewer violations before a machine moves one point at a time
_BARRIER_STEPS = 100
_QUICK_STEPS = 25  # after which those that go round in circles take plain steps: the corrector has no guarantee
_CANCELLED = 1e-6  # of the terms of a sum of products; less than that has lost six of its digits
_BETTER = 1e-6  # of an objective; the solver leaves a tenth of that


@dataclass(frozen=True, eq=False)
class Machine:
    r"""Trained machines.

    Attributes:
        dual: $a_i \ge 0$; not zero for the support vectors.
        offset: $b$.
        norm: $\lVert w \rVert$; 0 where the optimum is $w = 0$ as far as the solver can tell.
        labels: $y_i$, ±1.
        residual: $\max_i |a_i - \min(\max(a_i - s_i, 0), C)|$ with the slack $s_i = y_i f(x_i) - 1$: 0 at the optimum
            only.
    """

    dual: Float[Tensor, "*b n"]
    offset: Float[Tensor, "*b"]
    norm: Float[Tensor, "*b"]
    labels: Float[Tensor, "*b n"]
    residual: Float[Tensor, "*b"]

    def distances(self, cross: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b k"]:
        r"""Signed distances of k points from the hyperplane, from their inner products with the training points.

        A machine with $w = 0$ has no hyperplane, which is common for a soft margin with few features: it says b of
        every point, and all distances are infinite with the sign of b; NaN where b is 0.
        """
        outputs = (cross.mT.to(self.dual) @ (self.dual * self.labels).unsqueeze(-1)).squeeze(-1)
        outputs = torch.where(self.norm.unsqueeze(-1) > 0, outputs, 0.0)
        return (outputs + self.offset.unsqueeze(-1)) / self.norm.unsqueeze(-1)


def hard_margin(gram: Float[Tensor, "*b n n"], labels: Num[Tensor, "*b n"], *, tolerance: float = 1e-9) -> Machine:
    r"""The separating hyperplane of largest margin, by block pivoting on the set S of support vectors.

    $$ \min_a \tfrac12 a^\top Q a - \mathbf 1^\top a, \quad y^\top a = 0, \; a \ge 0, \qquad
       \begin{pmatrix} Q_{SS} & y_S \\ y_S^\top & 0 \end{pmatrix} \begin{pmatrix} a_S \\ b \end{pmatrix}
       = \begin{pmatrix} \mathbf 1 \\ 0 \end{pmatrix}, \qquad Q_{ij} = y_i y_j K_{ij}. $$

    S begins with all points. Points of S with $a_i < 0$ leave it and others with $y_i f(x_i) < 1$ enter, all at once;
    where the number of violations has not fallen for some rounds, only the last of them moves, which ends. The answer
    is that of one linear solve, without a solver's tolerance.

    Source: the algorithm is the principal block pivoting of J. J. Júdice, F. M. Pires (1994), Computers & Operations
    Research 21; Tan et al. (2023), Appendix G.5, train the same machines with scikit-learn and C = 10²⁰.

    Args:
        gram: $K$, positive definite.
        labels: ±1, both present in each training set.
        tolerance: violations up to this are rounding, in units of the margin, and of the largest $a_i$.

    Raises:
        ValueError: if the Gram matrix is not positive definite; then the labels may not be separable.
        ArithmeticError: if the pivoting does not end.
    """
    target = labels.to(gram.dtype)
    n, batch = gram.shape[-1], gram.shape[:-2]
    flat, signs = gram.reshape(-1, n, n), target.reshape(-1, n)
    state = _Pivots(flat * signs.unsqueeze(-1) * signs.unsqueeze(-2), signs, tolerance)
    for _ in range(_ROUNDS):
        moving = state.violations.nonzero().squeeze(-1)
        if not len(moving):
            break
        state.advance(moving)
    else:
        raise ArithmeticError(
            f"pivoting did not end after {_ROUNDS} rounds for {len(moving)} machines; "
            f"raise `tolerance` from {tolerance!r}."
        )
    return _machine(state.quadratic, signs, state.dual, state.offset, None, batch)


def soft_margin(
    gram: Float[Tensor, "*b n n"], labels: Num[Tensor, "*b n"], *, cost: float = 1.0, tolerance: float = 1e-12
) -> Machine:
    r"""The machine that pays $C$ = `cost` for each unit of a margin missed, by a primal-dual interior-point method.

    The dual of `hard_margin` with $0 \le a_i \le C$. The Gram matrix may be singular: Mehrotra's predictor and
    corrector solve with $Q$ plus a positive diagonal. Steps end when all optimality conditions hold to `tolerance`,
    those of $a$ in units of $C$: so w is right to some `tolerance` · C · max ‖z‖, and a very large C is better taken
    for infinite, by `hard_margin`.

    Source: J. Nocedal, S. J. Wright (2006), Numerical Optimization, Algorithm 16.4; the problem is scikit-learn's `SVC`
    with a linear kernel.

    Raises:
        ArithmeticError: if the conditions are not met after 100 steps, or C is so large that they leave w open.
    """
    target, gram = labels.double(), gram.double()  # single precision has no conditions of 1e-12
    n, batch = gram.shape[-1], gram.shape[:-2]
    signs = target.reshape(-1, n)
    barrier = Barrier(gram.reshape(-1, n, n) * signs.unsqueeze(-1) * signs.unsqueeze(-2), signs, cost)
    for number in range(_BARRIER_STEPS):
        moving = ~(barrier.error() <= tolerance)  # NaN has not arrived
        if not bool(moving.any()):
            break
        barrier.advance(moving, corrected=number < _QUICK_STEPS)
    else:
        raise ArithmeticError(
            f"the optimality conditions are off by {float(barrier.error().max()):.3g} after 100 steps."
        )
    machine = _machine(barrier.quadratic, signs, barrier.dual, barrier.offset, cost, batch)
    unknown = tolerance * cost * gram.diagonal(dim1=-2, dim2=-1).amax(-1).sqrt()
    if bool(((machine.norm > 0) & (machine.norm < unknown)).any()):
        raise ArithmeticError(
            f"with `cost` = {cost:g} the conditions do not tell w from 0; lower it, or use hard_margin where the "
            "labels can be separated."
        )
    return machine


class _Pivots:
    """Machines on their way to the support vectors of the hard margin."""

    def __init__(self, quadratic: Tensor, signs: Tensor, tolerance: float) -> None:
        self.quadratic, self.signs, self.tolerance = quadratic, signs, tolerance
        self.support = torch.ones_like(signs, dtype=torch.bool)
        self.dual, self.offset = torch.zeros_like(signs), torch.zeros_like(signs[:, 0])
        count = torch.full_like(self.offset, signs.shape[-1] + 1, dtype=torch.int64)
        self.fewest, self.violations, self.patience = count, count.clone(), torch.full_like(count, _PATIENCE)

    def advance(self, moving: Int[Tensor, " m"]) -> None:
        """Solve for the present sets, and let the points that violate the conditions change sides."""
        everyone = len(moving) == len(self.signs)
        quadratic = self.quadratic if everyone else self.quadratic[moving]
        signs, support = self.signs[moving], self.support[moving]
        dual, offset = _equality_solution(quadratic, signs, support)
        slack = (quadratic @ dual.unsqueeze(-1)).squeeze(-1) + offset.unsqueeze(-1) * signs - 1
        negative = dual < -self.tolerance * dual.abs().amax(-1, keepdim=True)
        wrong = torch.where(support, negative, slack < -self.tolerance)
        self.dual[moving], self.offset[moving] = dual, offset
        self.violations[moving] = wrong.sum(-1)
        self.support[moving] = support ^ self._flips(moving, wrong)

    def _flips(self, moving: Tensor, wrong: Bool[Tensor, "m n"]) -> Bool[Tensor, "m n"]:
        """All violations while their number falls or patience lasts, else the last one only."""
        count = self.violations[moving]
        fewer = count < self.fewest[moving]
        patience = torch.where(fewer, _PATIENCE, self.patience[moving] - 1)
        self.fewest[moving] = torch.where(fewer, count, self.fewest[moving])
        self.patience[moving] = patience
        order = torch.arange(1, wrong.shape[-1] + 1, device=wrong.device) * wrong
        last = wrong & (order == order.amax(-1, keepdim=True))
        return torch.where((patience >= 0).unsqueeze(-1), wrong, last)


def _equality_solution(quadratic: Tensor, signs: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """a and b with $Q_{SS} a_S + b y_S = 1$, $y_S^T a_S = 0$, and a = 0 outside S: one Cholesky factor each."""
    inside = support.to(quadratic.dtype)
    # Outside S the matrix is the identity and the right-hand sides are 0, so that all sets have one shape.
    masked = quadratic * inside.unsqueeze(-1) * inside.unsqueeze(-2) + torch.diag_embed(1 - inside)
    sides = torch.stack([inside, inside * signs], dim=-1)
    factor, failed = torch.linalg.cholesky_ex(masked)
    if bool(failed.any()):
        raise ValueError(
            "`gram` must be positive definite: with fewer features than points, or repeated points, the labels may not "
            "be separable; use soft_margin, or add features."
        )
    ones, ys = torch.cholesky_solve(sides, factor).unbind(-1)
    bottom = (signs * ys).sum(-1)
    # An empty S says nothing of b; all points then enter it again.
    offset = torch.where(bottom > 0, (signs * ones).sum(-1) / bottom.clamp_min(torch.finfo(bottom.dtype).tiny), 0.0)
    return ones - offset.unsqueeze(-1) * ys, offset


def _machine(
    quadratic: Tensor, signs: Tensor, dual: Tensor, offset: Tensor, cost: float | None, batch: torch.Size
) -> Machine:
    """The machines with their norm and how far they are from optimal."""
    pull, square = _pull(quadratic, dual)
    slack = pull + offset.unsqueeze(-1) * signs - 1
    projected = (dual - slack).clamp(0, cost)
    n = signs.shape[-1]
    return Machine(
        dual.reshape(*batch, n),
        offset.reshape(batch),
        _norm(dual, square, slack, signs, cost).reshape(batch),
        signs.reshape(*batch, n),
        (dual - projected).abs().amax(-1).reshape(batch),
    )


def _pull(quadratic: Tensor, dual: Tensor) -> tuple[Float[Tensor, "m n"], Float[Tensor, " m"]]:
    r"""$Qa$ and $a^\top Q a = \lVert w \rVert^2$, for large a by way of w.

    With a large C a short w is the difference of long vectors, and their products with Q cancel to its square: what
    they round away is of the size $a^\top |Q| a$. In the eigenvectors of Q, w itself is the difference.
    """
    pull = (quadratic @ dual.unsqueeze(-1)).squeeze(-1)
    square = (dual * pull).sum(-1)
    terms = (dual.abs() * (quadratic.abs() @ dual.abs().unsqueeze(-1)).squeeze(-1)).sum(-1)
    short = square < _CANCELLED * terms
    if bool(short.any()):
        values, vectors = torch.linalg.eigh(quadratic[short])
        rounding = torch.finfo(values.dtype).eps * values.shape[-1] * values[:, -1:]
        root = torch.where(values > rounding, values, 0.0).sqrt()
        w = root * (vectors.mT @ dual[short].unsqueeze(-1)).squeeze(-1)
        pull[short] = (vectors @ (root * w).unsqueeze(-1)).squeeze(-1)
        square[short] = w.square().sum(-1)
    return pull, square


def _norm(dual: Tensor, square: Tensor, slack: Tensor, signs: Tensor, cost: float | None) -> Float[Tensor, " m"]:
    r"""$\lVert w \rVert$, or 0 where the solver cannot tell w from 0.

    The objective $P(w, b) = \frac12 \lVert w \rVert^2 + C \sum_i (-s_i)_+$ is strongly convex in w, so that the optimum
    $w^*$ is as near as $\frac12 \lVert w - w^* \rVert^2 \le P - D$, with the dual objective
    $D = \mathbf 1^\top a - \frac12 \lVert w \rVert^2$. Where w itself is as near to 0, nothing speaks against
    $w^* = 0$, unless it is clearly better than every $w = 0$, which costs $2 C$ for each point of the smaller class.
    Rounding of the terms of P and D counts to their gap.
    """
    square = square.clamp_min(0)
    if cost is None:  # a margin is finite, so that a separating w is not 0
        return square.sqrt()
    missed, mass = cost * (-slack).clamp_min(0).sum(-1), dual.sum(-1)
    rounding = torch.finfo(dual.dtype).eps * dual.shape[-1] * (missed + mass)
    gap = (square + missed - mass).clamp_min(0) + rounding
    plain = 2 * cost * torch.minimum((signs > 0).sum(-1), (signs < 0).sum(-1)).to(dual.dtype)
    worse = square / 2 + missed > (1 - _BETTER) * plain
    return torch.where((square <= 2 * gap) & worse, 0.0, square.sqrt())
