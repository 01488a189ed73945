r"""Ridge logistic regressions, trained exactly and in batches, and their outputs with or without one point.

A model with the weights $b = X^\top c$ is stored as its dual coefficients c, so that only the Gram matrix $K = XX^\top$
of the features is needed. The objective is the sum
$\sum_i [\rho(x_i^\top b) - y_i x_i^\top b] + \frac\mu2 \lVert b \rVert^2$ with $\rho(t) = \log(1 + e^t)$ and without an
intercept, so μ is `1 / C` of scikit-learn and λn/p of Tan et al. (2023). Leading dimensions are independent models.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor
from torch.nn.functional import softplus

from reproduced.papers.blessing.proximal_operator import curvature, prox

_TOLERANCE = 1e-4  # of the change of a logit and of the residual
_LEAST_DECREASE = 1e-4  # share of the promised decrease of the objective that a step must bring
_HALVINGS = 40
_STEP_TOLERANCE = 1e-3  # largest residual of a Newton step's equation, as a share of its right-hand side
_ROUNDING = 1e-12  # of the objective: a decrease below it may be rounding


@dataclass(frozen=True, eq=False)
class Fit:
    r"""Trained ridge logistic regressions.

    Attributes:
        dual: $c$, with $b = X^\top c$; at the optimum $\mu c_i = y_i - \rho'(f_i)$.
        logits: $f = Kc$, the outputs at the training points.
        residual: $\max_i |y_i - \rho'(f_i) - \mu c_i|$, in units of probability.
        change: the largest change of a logit in the last Newton step; the error left is of the order of its square.
            Infinite where rounding left no step that solves its equation.
        converged: whether that change and the residual are below the tolerance.
    """

    gram: Float[Tensor, "*b n n"]
    dual: Float[Tensor, "*b n"]
    logits: Float[Tensor, "*b n"]
    ridge: float
    residual: Float[Tensor, "*b"]
    change: Float[Tensor, "*b"]
    converged: Bool[Tensor, "*b"]

    @cached_property
    def factor(self) -> Float[Tensor, "*b n n"]:
        r"""The Cholesky factor of $\mu I + W^{1/2} K W^{1/2}$, $W = \operatorname{diag} \rho''(f)$.

        It costs as much as a Newton step, so it is computed only when something asks for it.
        """
        return _cholesky(self.gram, curvature(self.logits).sqrt(), self.ridge)


class Influence(NamedTuple):
    r"""The outputs at each point of models trained without and with that point, and its γ (`predict_with_point`)."""

    without: Float[Tensor, "*b k"]
    outputs: Float[Tensor, "*b k"]
    gamma: Float[Tensor, "*b k"]


def fit(
    gram: Float[Tensor, "*b n n"],
    labels: Num[Tensor, "*b n"],
    *,
    ridge: float,
    start: Float[Tensor, "*b n"] | None = None,
    most_steps: int = 100,
) -> Fit:
    r"""Train by Newton's method on the dual coefficients until a step moves no logit by more than 1e-4.

    $$ \Delta c = (\mu I + WK)^{-1} r = \tfrac1\mu \bigl(r - W^{1/2} B^{-1} W^{1/2} K r\bigr), \qquad
       r = y - \rho'(f) - \mu c, \quad B = \mu I + W^{1/2} K W^{1/2} = LL^\top. $$

    A step is halved until the objective falls. These are the iterates of Newton's method for b, however many features
    there are. It converges quadratically, so the logits are right to about 1e-8. `converged` is
    False for a model that has not arrived after `most_steps`.

    Where μ is small beside $WK$, the difference $r - W^{1/2} B^{-1} W^{1/2} K r$ cancels. Such a step is computed as
    $W^{1/2} B^{-1} W^{-1/2} r$, which is the same and does not cancel, but loses digits where some $W_i$ are small
    beside others. A step counts only if it solves $(\mu I + WK)\,\Delta c = r$; r is computed from margins, where a
    probability near 1 keeps its digits.

    Source: Tan et al. (2023), equation (2), times n; the method is C. E. Rasmussen, C. K. I. Williams (2006), Gaussian
    Processes for Machine Learning, Algorithm 3.1.

    Args:
        gram: $K$, positive semi-definite up to less than μ.
        labels: 0 and 1.
        ridge: μ > 0.
        start: dual coefficients to start from, by default 0.
    """
    n, batch = gram.shape[-1], gram.shape[:-2]
    grams, targets = gram.reshape(-1, n, n), labels.to(gram.dtype).reshape(-1, n)
    dual = torch.zeros_like(targets) if start is None else start.expand(labels.shape).reshape(-1, n).clone()
    change = torch.full_like(targets[:, 0], torch.inf)
    for _ in range(most_steps):
        moving = (change > _TOLERANCE).nonzero().squeeze(-1)
        if not len(moving):
            break
        moving_grams = grams if len(moving) == len(grams) else grams[moving]
        dual[moving], change[moving] = _newton_step(moving_grams, targets[moving], dual[moving], ridge)
    logits = _product(grams, dual)
    residual = _residual(targets, logits, ridge * dual).abs().amax(-1)
    converged = (change <= _TOLERANCE) & (residual <= _TOLERANCE)
    diagnostics = (part.reshape(batch) for part in (residual, change, converged))
    return Fit(gram, dual.reshape(*batch, n), logits.reshape(*batch, n), ridge, *diagnostics)


def require_convergence(model: Fit) -> Fit:
    """The models, unless one of them did not converge: no mean leaves one out."""
    if not bool(model.converged.all()):
        worst = float(model.change[~model.converged].max())
        raise ArithmeticError(
            f"{int((~model.converged).sum())} of {model.converged.numel()} models did not converge: the last step "
            f"moved a logit by {worst:.3g}; is the ridge μ = {model.ridge:.3g} too small for double precision?"
        )
    return model


def predict_with_point(
    model: Fit,
    cross: Float[Tensor, "*b n k"],
    squares: Float[Tensor, "*#b k"],
    labels: Num[Tensor, "*#b k"],
) -> Influence:
    r"""The output at each of k new points if it alone were added to the training set, without training again.

    $$ f_j = \operatorname{Prox}_{\gamma_j \ell(y_j, \cdot)}(k_j^\top c), \qquad
       \gamma_j = \tfrac1\mu \bigl(\lVert x_j \rVert^2 - \lVert L^{-1} W^{1/2} k_j \rVert^2\bigr)
       = x_j^\top (X^\top W X + \mu I)^{-1} x_j. $$

    The weights W of the other points are those before the addition, so the error is of second order in the influence
    of one point. `train_with_point` trains again.

    Source: Tan et al. (2023), Theorem 2 and equation (14), with the γ of the training set at hand instead of its limit.

    Args:
        cross: $k_j = X x_j$.
        squares: $\lVert x_j \rVert^2$.
    """
    weighted = curvature(model.logits).sqrt().unsqueeze(-1) * cross
    explained = torch.linalg.solve_triangular(model.factor, weighted, upper=False).square().sum(-2)
    gamma = ((squares - explained) / model.ridge).clamp_min(0)
    without = (cross.mT @ model.dual.unsqueeze(-1)).squeeze(-1)
    return Influence(without, prox(without, gamma, labels.to(without.dtype)), gamma)


def train_with_point(
    model: Fit,
    labels: Num[Tensor, "*b n"],
    cross: Float[Tensor, "*b n"],
    square: Float[Tensor, "*#b"],
    label: Num[Tensor, "*#b"],
) -> Fit:
    r"""Train again with one more point, which comes last in the result.

    Newton's method starts at the new coefficient of `predict_with_point` and at the others, changed to first order.
    `labels` are those of the model's training points; the other arguments are those of `predict_with_point`.
    """
    gram, batch = model.gram, cross.shape[:-1]
    square, label = square.expand(batch).to(gram.dtype), label.expand(batch).to(gram.dtype)
    added = predict_with_point(model, cross.unsqueeze(-1), square.unsqueeze(-1), label.unsqueeze(-1))
    new_dual = (label - torch.sigmoid(added.outputs.squeeze(-1))) / model.ridge
    root = curvature(model.logits).sqrt()
    response = root * _solve(model.factor, root * cross)
    border = torch.cat([cross, square.unsqueeze(-1)], dim=-1).unsqueeze(-2)
    return fit(
        torch.cat([torch.cat([gram, cross.unsqueeze(-1)], dim=-1), border], dim=-2),
        torch.cat([labels.to(gram.dtype), label.unsqueeze(-1)], dim=-1),
        ridge=model.ridge,
        start=torch.cat([model.dual - response * new_dual.unsqueeze(-1), new_dual.unsqueeze(-1)], dim=-1),
    )


def leave_one_out(model: Fit) -> Influence:
    r"""The output at each training point of the model trained without it, for all of them from one model.

    $$ h_i = f_i + \gamma_i (\rho'(f_i) - y_i), \qquad \gamma_i = \frac{v_i}{1 - W_i v_i}, \qquad
       v_i = \tfrac1\mu \bigl(K_{ii} - \lVert L^{-1} W^{1/2} K_{\cdot i} \rVert^2\bigr). $$

    $v_i = x_i^\top (X^\top W X + \mu I)^{-1} x_i$, and $1 - W_i v_i = \mu (B^{-1})_{ii}$, which is used since it does
    not cancel. It is Theorem 2 of Tan et al. (2023) read backwards, at finite n; ours.
    """
    gram, root = model.gram, curvature(model.logits).sqrt()
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(model.factor, identity.expand_as(gram), upper=False)
    explained = (inverse @ (root.unsqueeze(-1) * gram)).square().sum(-2)
    leverage = ((gram.diagonal(dim1=-2, dim2=-1) - explained) / model.ridge).clamp_min(0)
    gamma = leverage / (model.ridge * inverse.square().sum(-2))
    return Influence(model.logits - gamma * model.ridge * model.dual, model.logits, gamma)


def _newton_step(
    gram: Float[Tensor, "m n n"], labels: Float[Tensor, "m n"], dual: Float[Tensor, "m n"], ridge: float
) -> tuple[Float[Tensor, "m n"], Float[Tensor, " m"]]:
    """The coefficients after one step, and the largest change of a logit (see `Fit`)."""
    logits = _product(gram, dual)
    residual, root = _residual(labels, logits, ridge * dual), curvature(logits).sqrt()
    factor = _cholesky(gram, root, ridge)

    def solves_equation(step: Tensor, logit_step: Tensor) -> Bool[Tensor, " m"]:
        """Whether a step solves its equation, up to a share of its right-hand side or to the rounding of that."""
        error = (residual - ridge * step - root.square() * logit_step).abs().amax(-1)
        rounding = torch.finfo(dual.dtype).eps * (ridge * dual).abs().amax(-1)
        return error <= _STEP_TOLERANCE * residual.abs().amax(-1) + rounding

    step = (residual - root * _solve(factor, root * _product(gram, residual))) / ridge
    logit_step = _product(gram, step)
    solved = solves_equation(step, logit_step)
    if not bool(solved.all()):  # the difference has cancelled
        alternative = (root * _solve(factor, residual / root.clamp_min(torch.finfo(root.dtype).tiny))).nan_to_num()
        step = torch.where(solved.unsqueeze(-1), step, alternative)
        logit_step = torch.where(solved.unsqueeze(-1), logit_step, _product(gram, alternative))
        solved = solves_equation(step, logit_step)
    length = _step_length(labels, logits, dual, step, logit_step, ridge)
    # A shortened step, or one that does not solve its equation, does not count as convergence.
    change = torch.where((length < 1) | ~solved, torch.inf, logit_step.abs().amax(-1))
    return dual + length.unsqueeze(-1) * step, change


def _step_length(
    labels: Tensor, logits: Tensor, dual: Tensor, step: Tensor, logit_step: Tensor, ridge: float
) -> Float[Tensor, " m"]:
    """1, 1/2, 1/4, …: the first share of the step that lowers the objective."""

    def objective(logits: Tensor, dual: Tensor) -> Tensor:
        return (softplus(logits, threshold=40.0) - labels * logits + ridge / 2 * dual * logits).sum(-1)

    slope = -(_residual(labels, logits, ridge * dual) * logit_step).sum(-1)
    length, before = torch.ones_like(slope), objective(logits, dual)
    for _ in range(_HALVINGS):
        share = length.unsqueeze(-1)
        after = objective(logits + share * logit_step, dual + share * step)
        falls = after <= before + _LEAST_DECREASE * length * slope + _ROUNDING * (1 + before.abs())
        if bool(falls.all()):
            break
        length = torch.where(falls, length, length / 2)
    return length


def _residual(labels: Float[Tensor, "*b n"], logits: Tensor, penalty: Tensor) -> Float[Tensor, "*b n"]:
    r"""$y - \rho'(f) - \mu c$ with `penalty` $\mu c$, without loss of digits where $\rho'(f)$ is near y."""
    sign = 2 * labels - 1
    return sign * torch.sigmoid(-sign * logits) - penalty


def _cholesky(gram: Float[Tensor, "*b n n"], root: Float[Tensor, "*b n"], ridge: float) -> Float[Tensor, "*b n n"]:
    r"""The Cholesky factor of $B = \mu I + W^{1/2} K W^{1/2}$, with the root of W."""
    matrix = gram * root.unsqueeze(-1) * root.unsqueeze(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed.any()):
        raise ValueError(
            f"`gram` must be positive semi-definite, to less than `ridge` = {ridge!r}: is it a Gram matrix, and is the "
            "ridge above its rounding?"
        )
    return factor


def _product(matrix: Float[Tensor, "*b n n"], vector: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _solve(factor: Float[Tensor, "*b n n"], vector: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    return torch.cholesky_solve(vector.unsqueeze(-1), factor).squeeze(-1)
