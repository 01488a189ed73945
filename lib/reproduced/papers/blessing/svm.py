r"""Support vector machines with an intercept, trained from their Gram matrices.

A machine's output is $f(x) = \sum_i a_i y_i k(x_i, x) + b$ with labels ±1; an attack looks at the signed distance
$f(x) / \lVert w \rVert$ of a point from the hyperplane. The hard margin is solved exactly, many machines at once. It
needs rows that are linearly independent, as they almost surely are with at least as many features as points; with fewer
features there is the soft margin, by scikit-learn. Leading dimensions are independent machines. Nothing here is random.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Num
from sklearn.svm import SVC
from torch import Tensor

_TOLERANCE = 1e-9  # violations up to this are rounding, in units of the margin, and of the largest a_i
_ROUNDS = 200  # of pivoting; most batches need fewer than 10
_PATIENCE = 4  # rounds without fewer violations before a machine moves one point at a time
_NO_NORM = 1e-6  # share of the dual coefficients' sum below which ‖w‖² is rounding


@dataclass(frozen=True, eq=False)
class Machine:
    r"""Trained machines.

    Attributes:
        dual: $a_i \ge 0$; not zero for the support vectors.
        offset: $b$.
        norm: $\lVert w \rVert$; 0 where the optimum is $w = 0$, up to rounding.
    """

    dual: Float[Tensor, "*b n"]
    offset: Float[Tensor, "*b"]
    norm: Float[Tensor, "*b"]
    labels: Float[Tensor, "*b n"]

    def distances(self, cross: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b k"]:
        r"""Signed distances of k points from the hyperplane, from their inner products with the training points.

        A soft margin with few features may have $w = 0$ and no hyperplane. Its output is b at every point, and all
        distances are infinite with the sign of b, or NaN where b is 0.
        """
        outputs = (cross.mT.to(self.dual) @ (self.dual * self.labels).unsqueeze(-1)).squeeze(-1)
        outputs = torch.where(self.norm.unsqueeze(-1) > 0, outputs, 0.0)
        return (outputs + self.offset.unsqueeze(-1)) / self.norm.unsqueeze(-1)


def hard_margin(gram: Float[Tensor, "*b n n"], labels: Num[Tensor, "*b n"]) -> Machine:
    r"""The separating hyperplane of largest margin, by block pivoting on the set S of support vectors.

    $$ \min_a \tfrac12 a^\top Q a - \mathbf 1^\top a, \quad y^\top a = 0, \; a \ge 0, \qquad
       \begin{pmatrix} Q_{SS} & y_S \\ y_S^\top & 0 \end{pmatrix} \begin{pmatrix} a_S \\ b \end{pmatrix}
       = \begin{pmatrix} \mathbf 1 \\ 0 \end{pmatrix}, \qquad Q_{ij} = y_i y_j K_{ij}. $$

    S begins with all points. Points of S with $a_i < 0$ leave it and others with $y_i f(x_i) < 1$ enter, all at once.
    Where the number of violations has not fallen for some rounds, only the last violation is moved; this terminates.
    The result is that of one linear solve, without a solver's tolerance.

    Source: the algorithm is the principal block pivoting of J. J. Júdice, F. M. Pires (1994), Computers & Operations
    Research 21; Tan et al. (2023), Appendix G.5, train the same machines with scikit-learn and C = 10²⁰.

    Args:
        gram: $K$, positive definite.
        labels: ±1, both present in each training set.
    """
    n, batch = gram.shape[-1], gram.shape[:-2]
    signs = labels.to(gram.dtype).reshape(-1, n)
    quadratic, support = _quadratic(gram, signs), torch.ones_like(signs, dtype=torch.bool)
    dual, offset = torch.zeros_like(signs), torch.zeros_like(signs[:, 0])
    fewest = torch.full_like(offset, n + 1, dtype=torch.int64)
    patience, moving = torch.full_like(fewest, _PATIENCE), torch.arange(len(signs), device=signs.device)
    for _ in range(_ROUNDS):
        part = quadratic if len(moving) == len(signs) else quadratic[moving]
        y, inside = signs[moving], support[moving]
        a, b = _equality_solution(part, y, inside)
        dual[moving], offset[moving] = a, b
        slack = (part @ a.unsqueeze(-1)).squeeze(-1) + b.unsqueeze(-1) * y - 1
        negative = a < -_TOLERANCE * a.abs().amax(-1, keepdim=True)
        wrong = torch.where(inside, negative, slack < -_TOLERANCE)
        count = wrong.sum(-1)
        patience[moving] = torch.where(count < fewest[moving], _PATIENCE, patience[moving] - 1)
        fewest[moving] = torch.minimum(count, fewest[moving])
        order = torch.arange(1, n + 1, device=wrong.device) * wrong
        last = wrong & (order == order.amax(-1, keepdim=True))
        support[moving] = inside ^ torch.where((patience[moving] >= 0).unsqueeze(-1), wrong, last)
        moving = moving[count > 0]
        if not len(moving):
            break
    else:
        raise ArithmeticError(f"pivoting did not end after {_ROUNDS} rounds for {len(moving)} machines.")
    norm = _squared_norm(quadratic, dual).clamp_min(0).sqrt()
    return Machine(dual.reshape(*batch, n), offset.reshape(batch), norm.reshape(batch), signs.reshape(*batch, n))


def soft_margin(gram: Float[Tensor, "*b n n"], labels: Num[Tensor, "*b n"], *, cost: float = 1.0) -> Machine:
    r"""The machine that pays C = `cost` for each unit by which a point misses the margin; see `hard_margin`.

    $$ \min_a \tfrac12 a^\top Q a - \mathbf 1^\top a, \quad y^\top a = 0, \; 0 \le a \le C $$

    The Gram matrix may be singular. At the optimum $\lVert w \rVert^2 = \mathbf 1^\top a - C \sum_i \xi_i$ with the
    slacks ξ; where that difference cancels to rounding, w is 0.

    Source: scikit-learn's `SVC`, which keeps Q in single precision.
    """
    n, batch = gram.shape[-1], gram.shape[:-2]
    signs = labels.double().reshape(-1, n)
    dual, offset = torch.zeros_like(signs), torch.zeros_like(signs[:, 0])
    pairs = zip(gram.double().reshape(-1, n, n).cpu().numpy(), signs.cpu().numpy(), strict=True)
    for index, (kernel, targets) in enumerate(pairs):
        trained = SVC(C=cost, kernel="precomputed", tol=1e-6).fit(kernel, targets)
        support, found = (torch.from_numpy(part).to(dual.device) for part in (trained.support_, trained.dual_coef_[0]))
        dual[index, support.long()] = found.abs()
        offset[index] = float(trained.intercept_[0])
    square, total = _squared_norm(_quadratic(gram.double(), signs), dual), dual.sum(-1)
    norm = torch.where(square > _NO_NORM * total, square, 0.0).sqrt()
    return Machine(dual.reshape(*batch, n), offset.reshape(batch), norm.reshape(batch), signs.reshape(*batch, n))


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
    # An empty S does not determine b; all points then enter it again.
    offset = torch.where(bottom > 0, (signs * ones).sum(-1) / bottom.clamp_min(torch.finfo(bottom.dtype).tiny), 0.0)
    return ones - offset.unsqueeze(-1) * ys, offset


def _quadratic(gram: Float[Tensor, "*b n n"], signs: Float[Tensor, "m n"]) -> Float[Tensor, "m n n"]:
    """$Q_{ij} = y_i y_j K_{ij}$."""
    return gram.reshape(-1, *gram.shape[-2:]) * signs.unsqueeze(-1) * signs.unsqueeze(-2)


def _squared_norm(quadratic: Float[Tensor, "m n n"], dual: Float[Tensor, "m n"]) -> Float[Tensor, " m"]:
    r"""$\lVert w \rVert^2 = a^\top Q a$."""
    return (dual * (quadratic @ dual.unsqueeze(-1)).squeeze(-1)).sum(-1)
