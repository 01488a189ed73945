r"""Newton's method for many ridge logistic regressions at once, on their dual coefficients.

`logistic_regression` says what is minimised and by which steps. A step takes a Cholesky factor, in float32 as long as
such steps solve their equation: that takes half as long, and what is left of a step the next one makes good.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from leakage.theory.logistic.prox import curvature

_NOT_POSITIVE = (
    "`gram` must be positive semi-definite, to less than `ridge` = {!r}: is it a Gram matrix, and is the ridge above "
    "its rounding?"
)
_ENOUGH = 1e-4  # share of the promised decrease of the objective that a step must bring
_HALVINGS = 40
_SOLVED = 1e-3  # share of the right-hand side that a Newton step may leave
_ROUNDING = 1e-12  # of the objective: what its rounding may hide of a decrease


class Newton:
    """A batch of models on their way to the optimum."""

    def __init__(self, gram: Tensor, labels: Tensor, ridge: float) -> None:
        self.gram, self.labels, self.ridge = gram, labels, ridge
        self.coarse: Tensor | None = gram.float()
        self.dual = torch.zeros_like(labels)
        self.change = torch.full_like(labels[:, 0], torch.inf)
        self.steps = torch.zeros(len(labels), dtype=torch.int64, device=labels.device)

    def advance(self, moving: Int[Tensor, " m"]) -> None:
        """One Newton step of the models numbered `moving`."""
        everyone = len(moving) == len(self.labels)
        gram = self.gram if everyone else self.gram[moving]
        labels, dual = self.labels[moving], self.dual[moving]
        logits = (gram @ dual.unsqueeze(-1)).squeeze(-1)
        rest = rest_of(labels, logits, self.ridge * dual)
        root = curvature(logits).sqrt()
        step, turn, solved = self._step(gram, self._coarse(gram, moving), rest, root, dual)
        if not bool(solved.all()):
            self.coarse = None
            step, turn, solved = self._step(gram, gram, rest, root, dual)
        length = self._length(labels, logits, dual, step, turn).unsqueeze(-1)
        self.dual[moving] = dual + length * step
        # A shortened step never counts as an arrival, and neither does one that rounding made.
        self.change[moving] = torch.where((length < 1) | ~solved.unsqueeze(-1), torch.inf, turn.abs()).amax(-1)
        self.steps[moving] += 1

    def _coarse(self, gram: Tensor, moving: Int[Tensor, " m"]) -> Tensor:
        """The Gram matrices of those that move in float32, whose factor takes half as long, while that will do."""
        if self.coarse is None:
            return gram
        return self.coarse if len(moving) == len(self.labels) else self.coarse[moving]

    def _step(
        self, gram: Tensor, factored: Tensor, rest: Tensor, root: Tensor, dual: Tensor
    ) -> tuple[Tensor, Tensor, Bool[Tensor, " m"]]:
        """A Newton step by a factor of `factored`, how far it turns the logits, and whether it solves its equation."""
        factor, failed = _cholesky(factored, root.to(factored), self.ridge)
        if bool(failed.any()) and factored is gram:
            raise ValueError(_NOT_POSITIVE.format(self.ridge))

        def solve(right: Tensor) -> Tensor:
            return torch.cholesky_solve(right.unsqueeze(-1).to(factor), factor).squeeze(-1).to(right)

        def turned(step: Tensor) -> Tensor:
            return (gram @ step.unsqueeze(-1)).squeeze(-1)

        step = (rest - root * solve(root * turned(rest))) / self.ridge
        turn = turned(step)
        solved = self._solved(step, turn, rest, root, dual)
        if bool(solved.all()):
            return step, turn, solved
        other = (root * solve(rest / root.clamp_min(torch.finfo(root.dtype).tiny))).nan_to_num()
        step = torch.where(solved.unsqueeze(-1), step, other)
        turn = torch.where(solved.unsqueeze(-1), turn, turned(other))
        return step, turn, self._solved(step, turn, rest, root, dual)

    def _solved(self, step: Tensor, turn: Tensor, rest: Tensor, root: Tensor, dual: Tensor) -> Bool[Tensor, " m"]:
        """Whether a step solves its equation, up to a share of its right-hand side or to the rounding of that."""
        wrong = (rest - self.ridge * step - root.square() * turn).abs().amax(-1)
        rounding = torch.finfo(rest.dtype).eps * (self.ridge * dual).abs().amax(-1)
        return wrong <= _SOLVED * rest.abs().amax(-1) + rounding

    def _length(self, labels: Tensor, logits: Tensor, dual: Tensor, step: Tensor, turn: Tensor) -> Tensor:
        """1, 1/2, 1/4, …: the first share of the step that lowers the objective."""
        slope = -(rest_of(labels, logits, self.ridge * dual) * turn).sum(-1)
        length = torch.ones_like(slope)
        before = self._objective(labels, logits, dual)
        for _ in range(_HALVINGS):
            share = length.unsqueeze(-1)
            after = self._objective(labels, logits + share * turn, dual + share * step)
            fine = after <= before + _ENOUGH * length * slope + _ROUNDING * (1 + before.abs())
            if bool(fine.all()):
                break
            length = torch.where(fine, length, length / 2)
        return length

    def _objective(self, labels: Tensor, logits: Tensor, dual: Tensor) -> Tensor:
        return (softplus(logits, threshold=40.0) - labels * logits + self.ridge / 2 * dual * logits).sum(-1)


def rest_of(labels: Float[Tensor, "*b n"], logits: Tensor, pull: Tensor) -> Float[Tensor, "*b n"]:
    r"""$y - \rho'(f) - \mu c$: a probability near the label's own keeps its digits."""
    sign = 2 * labels - 1
    return sign * torch.sigmoid(-sign * logits) - pull


def factor_of(gram: Float[Tensor, "*b n n"], logits: Float[Tensor, "*b n"], ridge: float) -> Float[Tensor, "*b n n"]:
    r"""The Cholesky factor of $\mu I + W^{1/2} K W^{1/2}$, $W = \operatorname{diag} \rho''(f)$.

    Raises:
        ValueError: if there is none.
    """
    factor, failed = _cholesky(gram, curvature(logits).sqrt(), ridge)
    if bool(failed.any()):
        raise ValueError(_NOT_POSITIVE.format(ridge))
    return factor


def _cholesky(gram: Tensor, root: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of B, with the roots of W, and where there is none."""
    matrix = gram * root.unsqueeze(-1)
    matrix *= root.unsqueeze(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(ridge)
    return torch.linalg.cholesky_ex(matrix)
