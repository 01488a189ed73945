r"""Ridge logistic regressions, trained exactly and in batches, and what they would be with or without one point.

Everything happens in the space of the training points: with $b = X^\top c$ a model is its dual coefficients c, and of
the features only the Gram matrix $K = XX^\top$ matters. The objective is the sum form
$\sum_i [\rho(x_i^\top b) - y_i x_i^\top b] + \frac\mu2 \lVert b \rVert^2$ without an intercept, so μ is `1 / C` of
scikit-learn and λn/p of Tan et al. (2023). Leading dimensions are independent models. Nothing here is random.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from leakage.theory.logistic.prox import curvature, prox
from leakage.trainers.logistic_newton import Newton, factor_of, rest_of


@dataclass(frozen=True, eq=False)
class Fit:
    r"""Trained ridge logistic regressions.

    Attributes:
        gram: $K$, of the training points.
        dual: $c$, with $b = X^\top c$; at the optimum $\mu c_i = y_i - \rho'(f_i)$.
        logits: $f = Kc$, the outputs at the training points.
        ridge: μ.
        residual: $\max_i |y_i - \rho'(f_i) - \mu c_i|$, in units of probability.
        change: the largest change of a logit in the last Newton step; the error left is of the order of its square.
            Infinite where rounding left no step that solves its equation.
        converged: whether that change and the residual are below the tolerance.
        steps: Newton steps taken.
    """

    gram: Float[Tensor, "*b n n"]
    dual: Float[Tensor, "*b n"]
    logits: Float[Tensor, "*b n"]
    ridge: float
    residual: Float[Tensor, "*b"]
    change: Float[Tensor, "*b"]
    converged: Bool[Tensor, "*b"]
    steps: Int[Tensor, "*b"]

    @cached_property
    def factor(self) -> Float[Tensor, "*b n n"]:
        r"""The Cholesky factor of $\mu I + W^{1/2} K W^{1/2}$, $W = \operatorname{diag} \rho''(f)$.

        Found when first asked for: whoever wants outputs only never does, and it costs as much as a Newton step.
        """
        return factor_of(self.gram, self.logits, self.ridge)


class Influence(NamedTuple):
    """The outputs at points of models trained without and with each, alone, and how far the loss moves them (γ)."""

    without: Float[Tensor, "*b k"]
    outputs: Float[Tensor, "*b k"]
    gamma: Float[Tensor, "*b k"]


def fit(
    gram: Float[Tensor, "*b n n"],
    labels: Num[Tensor, "*b n"],
    *,
    ridge: float,
    start: Float[Tensor, "*b n"] | None = None,
    tolerance: float = 1e-4,
    most_steps: int = 100,
) -> Fit:
    r"""Train by Newton's method on the dual coefficients until a step moves no logit by more than `tolerance`.

    $$ \Delta c = (\mu I + WK)^{-1} r = \tfrac1\mu \bigl(r - W^{1/2} B^{-1} W^{1/2} K r\bigr), \qquad
       r = y - \rho'(f) - \mu c, \quad B = \mu I + W^{1/2} K W^{1/2} = LL^\top. $$

    A step is halved until the objective falls. These are the iterates of Newton's method for b, whatever p is. The last
    one is of second order, so the logits are right to about the square of the tolerance. A model that has not arrived
    after `most_steps` is marked in `converged`.

    Where μ is small beside $WK$, the difference $r - W^{1/2} B^{-1} W^{1/2} K r$ cancels. Such a step is found as
    $W^{1/2} B^{-1} W^{-1/2} r$, which is the same and does not, but loses digits where some $W_i$ are small beside
    others. A step counts only if it solves $(\mu I + WK)\,\Delta c = r$; r is computed from margins, where a
    probability near 1 keeps its digits.

    Source: Tan et al. (2023), equation (2), times n; the method is C. E. Rasmussen, C. K. I. Williams (2006), Gaussian
    Processes for Machine Learning, Algorithm 3.1.

    Args:
        gram: $K$, symmetric.
        labels: 0 and 1.
        ridge: μ > 0.
        start: dual coefficients to start from, by default 0.
        tolerance: of the logits.
        most_steps: after which to give up.
    """
    n, batch = gram.shape[-1], gram.shape[:-2]
    state = Newton(gram.reshape(-1, n, n), labels.to(gram.dtype).reshape(-1, n), ridge)
    if start is not None:
        state.dual = start.expand(labels.shape).reshape(-1, n).clone()
    for _ in range(most_steps):
        moving = (state.change > tolerance).nonzero().squeeze(-1)
        if not len(moving):
            break
        state.advance(moving)
    logits = (state.gram @ state.dual.unsqueeze(-1)).squeeze(-1)
    residual = rest_of(state.labels, logits, ridge * state.dual).abs().amax(-1)
    arrived = (state.change <= tolerance) & (residual <= tolerance)
    outcome = (part.reshape(batch) for part in (residual, state.change, arrived, state.steps))
    return Fit(gram, state.dual.reshape(*batch, n), logits.reshape(*batch, n), ridge, *outcome)


def predict_with_point(
    model: Fit,
    cross: Float[Tensor, "*b n k"],
    squares: Float[Tensor, "*#b k"],
    labels: Num[Tensor, "*#b k"],
) -> Influence:
    r"""What each of k new points would be answered if it alone were added to the training set, without training again.

    $$ f_j = \operatorname{Prox}_{\gamma_j \ell(y_j, \cdot)}(k_j^\top c), \qquad
       \gamma_j = \tfrac1\mu \bigl(\lVert x_j \rVert^2 - \lVert L^{-1} W^{1/2} k_j \rVert^2\bigr)
       = x_j^\top (X^\top W X + \mu I)^{-1} x_j. $$

    The weights W of the other points are those before the addition, so the error is of second order in the influence
    of one point. `train_with_point` trains again.

    Source: Tan et al. (2023), Theorem 2 and equation (14), with the γ of the training set at hand instead of its limit.

    Args:
        model: trained without the points.
        cross: $k_j = X x_j$.
        squares: $\lVert x_j \rVert^2$.
        labels: $y_j$, 0 or 1.
    """
    weighted = curvature(model.logits).sqrt().unsqueeze(-1) * cross
    explained = torch.linalg.solve_triangular(model.factor, weighted, upper=False).square().sum(-2)
    gamma = ((squares - explained) / model.ridge).clamp_min(0)
    without = (cross.mT @ model.dual.unsqueeze(-1)).squeeze(-1)
    return Influence(without, prox(without, gamma, labels.to(without.dtype)), gamma)


def train_with_point(
    model: Fit,
    gram: Float[Tensor, "*b n n"],
    labels: Num[Tensor, "*b n"],
    cross: Float[Tensor, "*b n"],
    square: Float[Tensor, "*#b"],
    label: Num[Tensor, "*#b"],
) -> Fit:
    """Train again with one point more, the last; from `predict_with_point`'s answer, which others follow at first."""
    batch = cross.shape[:-1]
    square, label = square.expand(batch).to(gram.dtype), label.expand(batch).to(gram.dtype)
    added = predict_with_point(model, cross.unsqueeze(-1), square.unsqueeze(-1), label.unsqueeze(-1))
    first = (label - torch.sigmoid(added.outputs.squeeze(-1))) / model.ridge
    root = curvature(model.logits).sqrt()
    follow = root * torch.cholesky_solve((root * cross).unsqueeze(-1), model.factor).squeeze(-1)
    border = torch.cat([cross, square.unsqueeze(-1)], dim=-1).unsqueeze(-2)
    return fit(
        torch.cat([torch.cat([gram, cross.unsqueeze(-1)], dim=-1), border], dim=-2),
        torch.cat([labels.to(gram.dtype), label.unsqueeze(-1)], dim=-1),
        ridge=model.ridge,
        start=torch.cat([model.dual - follow * first.unsqueeze(-1), first.unsqueeze(-1)], dim=-1),
    )


def leave_one_out(model: Fit, gram: Float[Tensor, "*b n n"], labels: Num[Tensor, "*b n"]) -> Influence:
    r"""What each training point would be answered by the model trained without it, for all of them from one model.

    $$ h_i = f_i + \gamma_i (\rho'(f_i) - y_i), \qquad \gamma_i = \frac{v_i}{1 - W_i v_i}, \qquad
       v_i = \tfrac1\mu \bigl(K_{ii} - \lVert L^{-1} W^{1/2} K_{\cdot i} \rVert^2\bigr). $$

    $v_i = x_i^\top (X^\top W X + \mu I)^{-1} x_i$, and $1 - W_i v_i = \mu (B^{-1})_{ii}$, which is used since it does
    not cancel. It is Theorem 2 of Tan et al. (2023) read backwards, at finite n; ours.
    """
    root = curvature(model.logits).sqrt()
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(model.factor, identity.expand_as(gram), upper=False)
    explained = (inverse @ (root.unsqueeze(-1) * gram)).square().sum(-2)
    leverage = ((gram.diagonal(dim1=-2, dim2=-1) - explained) / model.ridge).clamp_min(0)
    gamma = leverage / (model.ridge * inverse.square().sum(-2))
    return Influence(model.logits - gamma * model.ridge * model.dual, model.logits, gamma)
