r"""The interior-point method of the soft margin: machines inside the box, many at a time.

Mehrotra's predictor and corrector, as J. Nocedal and S. J. Wright (2006), Algorithm 16.4, have it. Leading dimensions
are independent machines. Nothing here checks or is random.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_INDEFINITE = 4.0  # times the rounding of a matrix, which is added to its diagonal where it is not positive definite
_CENTRED = 0.2  # of the mean product, which a plain step aims at
_TO_BOUNDARY = 0.995  # share of the way to the nearest bound that an interior step may go


class Barrier:
    r"""Machines inside the box: $Qa + by - \mathbf 1 = s - t$, $y^\top a = 0$, $a s \to 0$, $(C - a) t \to 0$."""

    def __init__(self, quadratic: Tensor, signs: Tensor, box: float) -> None:
        self.quadratic, self.signs, self.box = quadratic, signs, box
        self.dual = torch.full_like(signs, box / 2)
        self.room = self.dual.clone()  # C - a, kept apart: near the ceiling the difference would have no digits
        self.offset = torch.zeros_like(signs[:, 0])
        self.lower, self.upper = torch.ones_like(signs), torch.ones_like(signs)

    def residuals(self) -> tuple[Tensor, Tensor]:
        """What is missing in the first two conditions."""
        force = (self.quadratic @ self.dual.unsqueeze(-1)).squeeze(-1) + self.offset.unsqueeze(-1) * self.signs - 1
        return force - self.lower + self.upper, (self.signs * self.dual).sum(-1)

    def error(self) -> Float[Tensor, " m"]:
        """The largest violation of any condition, complementarity in units of C."""
        force, balance = self.residuals()
        products = torch.maximum(self.dual * self.lower, self.room * self.upper) / self.box
        scale = self.quadratic.diagonal(dim1=-2, dim2=-1).amax(-1) * self.dual.amax(-1) + 1  # of the terms of `force`
        return torch.stack([force.abs().amax(-1) / scale, products.amax(-1), balance.abs() / self.box]).amax(0)

    def advance(self, moving: Bool[Tensor, " m"], *, corrected: bool) -> None:
        """One step of the machines that are `moving`: predictor and corrector, or plainly towards the centre."""
        room = self.room
        factor = self._factor(self.lower / self.dual + self.upper / room)
        below, above = self.dual * self.lower, room * self.upper
        gap = (below + above).mean(-1, keepdim=True) / 2
        if corrected:
            guess = self._direction(factor, below, above)
            length = self._length(*guess).clamp_max(1).unsqueeze(-1)
            step, _, lower, upper = guess
            trial = (self.dual + length * step) * (self.lower + length * lower)
            trial = trial + (room - length * step) * (self.upper + length * upper)
            centre = gap * (trial.mean(-1, keepdim=True) / 2 / gap) ** 3
            move = self._direction(factor, below + step * lower - centre, above - step * upper - centre)
        else:
            move = self._direction(factor, below - _CENTRED * gap, above - _CENTRED * gap)
        length = ((_TO_BOUNDARY * self._length(*move)).clamp_max(1) * moving).unsqueeze(-1)
        self.dual, self.room = self.dual + length * move[0], room - length * move[0]
        self.offset = self.offset + length.squeeze(-1) * move[1]
        self.lower, self.upper = self.lower + length * move[2], self.upper + length * move[3]

    def _factor(self, barrier: Tensor) -> Tensor:
        """Of Q plus the barrier's diagonal; where rounding makes that indefinite, of a little more than it."""
        matrix = self.quadratic + torch.diag_embed(barrier)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if bool(failed.any()):  # a direction may be inexact, for the conditions it shall meet are not
            unit = matrix.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True) * barrier.shape[-1]
            more = _INDEFINITE * torch.finfo(barrier.dtype).eps * unit * (failed > 0).unsqueeze(-1)
            factor = torch.linalg.cholesky(matrix + torch.diag_embed(more.expand_as(barrier)))
        return factor

    def _direction(self, factor: Tensor, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The Newton direction (a, b, s, t) that removes the residuals and the products `below` and `above`."""
        force, balance = self.residuals()
        right = -force - below / self.dual + above / self.room
        plain, turned = torch.cholesky_solve(torch.stack([right, self.signs], dim=-1), factor).unbind(-1)
        offset = ((self.signs * plain).sum(-1) + balance) / (self.signs * turned).sum(-1)
        step = plain - offset.unsqueeze(-1) * turned
        return step, offset, -(below + self.lower * step) / self.dual, -(above - self.upper * step) / self.room

    def _length(self, step: Tensor, _: Tensor, lower: Tensor, upper: Tensor) -> Float[Tensor, " m"]:
        """How far a, C - a, s and t stay non-negative."""
        pairs = ((self.dual, step), (self.room, -step), (self.lower, lower), (self.upper, upper))
        reach = [torch.where(move < 0, -value / move, torch.inf).amin(-1) for value, move in pairs]
        return torch.stack(reach).amin(0)
