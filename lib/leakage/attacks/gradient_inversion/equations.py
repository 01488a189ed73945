r"""What a gradient says of a batch: equations in its points and residuals, with their normal equations.

With one row $v_j$ for each neuron, points $u_i$ and residuals $r_i$,

$$ \sum_i r_i\, \sigma'(v_j^\top u_i)\, u_i = c_j \quad (\text{hidden layer}), \qquad
   \sum_i r_i\, \sigma(v_j^\top u_i) = g_j \quad (\text{output layer}) . $$

For the hidden layer, coordinates in the span V of the batch leave B numbers to each point: $v_j = V^\top w_j$ and
$c_j = m V^\top G_j$. Points are rows, and the first axis holds independent starts. Nothing here draws or searches.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.models.activations import Activation

EQUATIONS_PER_UNKNOWN = 25
"""Neurons for each input that are enough for the hidden layer's equations; the others only cost time."""
_RIDGE = 1e-12  # of the mean square: keeps two equal columns from breaking a linear fit


@dataclass(frozen=True, eq=False)
class Equations(ABC):
    r"""What a gradient says of a batch.

    Attributes:
        activation: $\sigma$.
        rows: $v_j$.
        target: $c_j$ or $g_j$.
    """

    activation: Activation
    rows: Float[Tensor, "n k"]
    target: Float[Tensor, "n ..."]

    @abstractmethod
    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n ..."]:
        """The left sides of the equations less the right ones."""

    @abstractmethod
    def linear(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        """The normal matrix and right side of the least squares for the residuals, given the points."""

    @abstractmethod
    def normal(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""$J^\top J$ and $J^\top E$ for all unknowns, points first."""

    def misfits(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, " s"]:
        r"""$\lVert E \rVert / \lVert c \rVert$ of each start."""
        return self.error(points, residuals).flatten(1).norm(dim=1) / self.target.norm()

    def misfit(self, points: Float[Tensor, "b k"], residuals: Float[Tensor, " b"]) -> float:
        """That of one batch."""
        return float(self.misfits(points.unsqueeze(0), residuals.unsqueeze(0)))

    def residuals(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b"]:
        """The residuals that fit best, given the points."""
        gram, right = self.linear(points)
        ridge = _RIDGE * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        ridge = ridge.clamp_min(torch.finfo(gram.dtype).tiny)  # points without any say get no residual
        return torch.linalg.solve(gram + torch.diag_embed(ridge.expand_as(right)), right)

    def choose_signs(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b k"]:
        r"""The points with signs chosen by one linear fit of both $u_i$ and $-u_i$: the one with more weight stays."""
        one, other = self.residuals(torch.cat([points, -points], dim=1)).abs().chunk(2, dim=1)
        return torch.where((one >= other).unsqueeze(-1), points, -points)


class HiddenEquations(Equations):
    r"""$\sum_i r_i\, \sigma'(v_j^\top u_i)\, u_i = c_j$, with as many numbers in each as a point has."""

    @classmethod
    def of(
        cls, observation: Observation, basis: Float[Tensor, "d k"] | None = None, *, neurons: int | None = None
    ) -> "HiddenEquations":
        r"""The equations of G in a basis V that spans the batch, or in all coordinates; of the first `neurons` or all.

        Raises:
            ValueError: if the observation has no `hidden` or `basis` has not d rows.
        """
        if observation.hidden is None:
            raise ValueError("`observation` must have `hidden`, the gradient of the hidden weights; got None.")
        rows, gradient = observation.weights[:neurons], observation.hidden[:neurons]
        if basis is not None:
            arguments.real("basis", basis, "d k", like=rows, d=rows.shape[1])
            rows, gradient = rows @ basis, gradient @ basis
        return cls(observation.activation, rows, len(observation.weights) * gradient)

    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n k"]:
        slopes = self._derivatives(points, order=1)[0]
        return ((slopes * residuals.unsqueeze(-2)) @ points).sub_(self.target)

    def linear(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        slopes = self._derivatives(points, order=1)[0]
        return (slopes.mT @ slopes) * (points @ points.mT), (slopes * (self.target @ points.mT)).sum(-2)

    def normal(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""The normal equations of the Jacobian, without the Jacobian.

        With $S_{ji} = r_i \sigma'$, $P_{ji} = \sigma'$ and $K_{j,ib} = r_i \sigma''\, v_{jb}$ its columns are
        $\partial E_{ja}/\partial u_{ib} = S_{ji} \delta_{ab} + K_{j,ib}\, u_{ia}$ and $P_{ji} u_{ia}$, so that every
        block of $J^\top J$ is a product of two of them, times inner products of points.
        """
        slopes, curves = self._derivatives(points, order=2)
        strength, overlap = residuals.unsqueeze(-2), points @ points.mT
        pull, bend = strength * slopes, strength * curves
        turn = (bend.unsqueeze(-1) * self.rows.unsqueeze(-2)).flatten(-2)
        error = pull @ points - self.target
        identity = torch.eye(points.shape[-1], dtype=points.dtype, device=points.device)
        sides = points.shape[-2:]
        crossed = torch.einsum("sikc,skb->sibkc", (pull.mT @ turn).unflatten(-1, sides), points)
        turned = (turn.mT @ turn).unflatten(-1, sides).unflatten(-3, sides)
        moved = (
            torch.einsum("sik,bc->sibkc", pull.mT @ pull, identity)
            + (crossed + crossed.permute(0, 3, 4, 1, 2))
            + turned * overlap[:, :, None, :, None]
        )
        mixed = torch.einsum("sik,skb->sibk", pull.mT @ slopes, points)
        mixed = mixed + (turn.mT @ slopes).unflatten(-2, sides) * overlap.unsqueeze(-2)
        along = error @ points.mT
        gradient = pull.mT @ error + (bend * along).mT @ self.rows
        mixed = mixed.flatten(1, 2)
        left = torch.cat([moved.flatten(3).flatten(1, 2), mixed.mT], dim=1)
        matrix = torch.cat([left, torch.cat([mixed, (slopes.mT @ slopes) * overlap], dim=1)], dim=2)
        return matrix, torch.cat([gradient.flatten(1), (slopes * along).sum(-2)], dim=1)

    def _derivatives(self, points: Tensor, *, order: int) -> tuple[Tensor, ...]:
        return self.activation.derivatives(self.rows @ points.mT, order=order)[1:]


class OutputEquations(Equations):
    r"""$\sum_i r_i\, \sigma(w_j^\top x_i) = g_j$, one number for each neuron, with points in $\R^d$."""

    @classmethod
    def of(cls, observation: Observation) -> "OutputEquations":
        """The equations of g.

        Raises:
            ValueError: if the observation has no `outputs`.
        """
        if observation.outputs is None:
            raise ValueError("`observation` must have `outputs`, the gradient of the output weights; got None.")
        return cls(observation.activation, observation.weights, observation.outputs)

    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n"]:
        return (self.activation(self.rows @ points.mT) @ residuals.unsqueeze(-1)).squeeze(-1) - self.target

    def linear(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        values = self.activation(self.rows @ points.mT)
        return values.mT @ values, self.target @ values

    def normal(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""The columns of the Jacobian are $r_i\, \sigma'(w_j^\top x_i)\, w_{jb}$ and $\sigma(w_j^\top x_i)$."""
        values, slopes = self.activation.derivatives(self.rows @ points.mT, order=1)
        error = (values @ residuals.unsqueeze(-1)).squeeze(-1) - self.target
        turn = ((residuals.unsqueeze(-2) * slopes).unsqueeze(-1) * self.rows.unsqueeze(-2)).flatten(-2)
        columns = torch.cat([turn, values], dim=-1)
        return columns.mT @ columns, (error.unsqueeze(-2) @ columns).squeeze(-2)
