r"""The equations that a gradient gives for its batch, and their solution by nonlinear least squares.

With one row $v_j$ for each neuron, points $u_i$ and residuals $r_i$,

$$ \sum_i r_i\, \sigma'(v_j^\top u_i)\, u_i = c_j \quad (\text{hidden layer}), \qquad
   \sum_i r_i\, \sigma(v_j^\top u_i) = g_j \quad (\text{output layer}) . $$

For the hidden layer, coordinates in the span V of the batch leave B numbers to each point: $v_j = V^\top w_j$ and
$c_j = m V^\top G_j$. Points are rows, and the first axis contains independent starts, each with its own damping.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.inversion.activations import Activation
from leakage.inversion.observation import Observation

EQUATIONS_PER_UNKNOWN = 25
"""Neurons for each input that are enough for the hidden layer's equations; more only cost time."""
CERTIFICATE_THRESHOLD = 1e-10
"""The relative misfit below which a batch explains a gradient in float64: rounding leaves 1e-14, local minima 1e-3 and
more."""
_SINGLE_THRESHOLD = 1e-5
_RIDGE = 1e-12  # of the mean square: keeps two equal columns from breaking a linear fit
_LENGTH_WEIGHT = 10.0  # of the known lengths, beside equations of size 1 for each input: measured, 1 to 100 will do
_DAMPING = (1e-15, 1e-3, 1e8)  # least, first and most
_DAMPING_FACTOR = 10.0  # between the dampings of two steps
_CHECK_EVERY = 4  # steps between two checks of the misfits: each waits for the device


@dataclass(frozen=True, eq=False)
class Equations(ABC):
    r"""The equations of one layer.

    Attributes:
        rows: $v_j$.
        target: $c_j$ or $g_j$.
    """

    activation: Activation
    rows: Float[Tensor, "n k"]
    target: Float[Tensor, "n ..."]

    @abstractmethod
    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n ..."]:
        """E, the left sides of the equations less the right ones."""

    @abstractmethod
    def residual_equations(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        """The normal matrix and the right side of the linear least squares for the residuals, given the points."""

    @abstractmethod
    def normal_equations(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""$J^\top J$ and $J^\top E$ for all unknowns, points first."""

    def misfits(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, " s"]:
        r"""$\lVert E \rVert / \lVert c \rVert$ of each start."""
        return self.error(points, residuals).flatten(1).norm(dim=1) / self.target.norm()

    def misfit(self, points: Float[Tensor, "b k"], residuals: Float[Tensor, " b"]) -> float:
        r"""$\lVert E \rVert / \lVert c \rVert$ of one batch."""
        return float(self.misfits(points.unsqueeze(0), residuals.unsqueeze(0)))

    def fit_residuals(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b"]:
        """The residuals that fit best, given the points."""
        gram, right = self.residual_equations(points)
        ridge = _RIDGE * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        ridge = ridge.clamp_min(torch.finfo(gram.dtype).tiny)  # points without influence get no residual
        return torch.linalg.solve(gram + torch.diag_embed(ridge.expand_as(right)), right)

    def choose_signs(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b k"]:
        r"""The points with signs from one linear fit of $u_i$ and $-u_i$: the one with the larger residual stays."""
        one, other = self.fit_residuals(torch.cat([points, -points], dim=1)).abs().chunk(2, dim=1)
        return torch.where((one >= other).unsqueeze(-1), points, -points)


class HiddenEquations(Equations):
    """The equations of the hidden layer, with as many numbers in each as a point has."""

    @classmethod
    def from_observation(
        cls, observation: Observation, basis: Float[Tensor, "d k"] | None = None, *, neurons: int | None = None
    ) -> "HiddenEquations":
        r"""The equations of G in a basis V that spans the batch, or in all coordinates; of the first `neurons`."""
        assert observation.hidden is not None
        rows, gradient = observation.weights[:neurons], observation.hidden[:neurons]
        if basis is not None:
            rows, gradient = rows @ basis, gradient @ basis
        return cls(observation.activation, rows, len(observation.weights) * gradient)

    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n k"]:
        slopes = self._derivatives(points, order=1)[0]
        return (slopes * residuals.unsqueeze(-2)) @ points - self.target

    def residual_equations(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        slopes = self._derivatives(points, order=1)[0]
        return (slopes.mT @ slopes) * (points @ points.mT), (slopes * (self.target @ points.mT)).sum(-2)

    def normal_equations(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""The normal equations, without forming the Jacobian.

        With $P_{ji} = \sigma'$ (`slopes`), $S_{ji} = r_i \sigma'$ (`scaled`) and $K_{j,ib} = r_i \sigma''\, v_{jb}$
        (`kernel`) its columns are $\partial E_{ja}/\partial u_{ib} = S_{ji} \delta_{ab} + K_{j,ib}\, u_{ia}$ and
        $P_{ji} u_{ia}$, so that every block of $J^\top J$ is a product of two of them, times inner products of points.
        """
        slopes, curves = self._derivatives(points, order=2)
        scale, products, sides = residuals.unsqueeze(-2), points @ points.mT, points.shape[-2:]
        scaled, curved = scale * slopes, scale * curves
        kernel = (curved.unsqueeze(-1) * self.rows.unsqueeze(-2)).flatten(-2)
        identity = torch.eye(points.shape[-1], dtype=points.dtype, device=points.device)
        crossed = torch.einsum("sikc,skb->sibkc", (scaled.mT @ kernel).unflatten(-1, sides), points)
        squared = (kernel.mT @ kernel).unflatten(-1, sides).unflatten(-3, sides) * products[:, :, None, :, None]
        point_block = torch.einsum("sik,bc->sibkc", scaled.mT @ scaled, identity) + squared
        point_block = point_block + crossed + crossed.permute(0, 3, 4, 1, 2)
        mixed_block = torch.einsum("sik,skb->sibk", scaled.mT @ slopes, points)
        mixed_block = mixed_block + (kernel.mT @ slopes).unflatten(-2, sides) * products.unsqueeze(-2)
        mixed_block = mixed_block.flatten(1, 2)
        left = torch.cat([point_block.flatten(3).flatten(1, 2), mixed_block.mT], dim=1)
        matrix = torch.cat([left, torch.cat([mixed_block, (slopes.mT @ slopes) * products], dim=1)], dim=2)
        error = scaled @ points - self.target
        along = error @ points.mT
        by_points = scaled.mT @ error + (curved * along).mT @ self.rows
        return matrix, torch.cat([by_points.flatten(1), (slopes * along).sum(-2)], dim=1)

    def _derivatives(self, points: Tensor, *, order: int) -> tuple[Tensor, ...]:
        return self.activation.derivatives(self.rows @ points.mT, order=order)[1:]


class OutputEquations(Equations):
    r"""The equations of the output layer, one number for each neuron, with points in $\R^d$."""

    @classmethod
    def from_observation(cls, observation: Observation) -> "OutputEquations":
        assert observation.outputs is not None
        return cls(observation.activation, observation.weights, observation.outputs)

    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n"]:
        return (self.activation(self.rows @ points.mT) @ residuals.unsqueeze(-1)).squeeze(-1) - self.target

    def residual_equations(self, points: Float[Tensor, "s b k"]) -> tuple[Float[Tensor, "s b b"], Float[Tensor, "s b"]]:
        values = self.activation(self.rows @ points.mT)
        return values.mT @ values, self.target @ values

    def normal_equations(
        self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]
    ) -> tuple[Float[Tensor, "s p p"], Float[Tensor, "s p"]]:
        r"""The columns of the Jacobian are $r_i\, \sigma'(w_j^\top x_i)\, w_{jb}$ and $\sigma(w_j^\top x_i)$."""
        values, slopes = self.activation.derivatives(self.rows @ points.mT, order=1)
        error = (values @ residuals.unsqueeze(-1)).squeeze(-1) - self.target
        by_points = ((residuals.unsqueeze(-2) * slopes).unsqueeze(-1) * self.rows.unsqueeze(-2)).flatten(-2)
        jacobian = torch.cat([by_points, values], dim=-1)
        return jacobian.mT @ jacobian, (error.unsqueeze(-2) @ jacobian).squeeze(-2)


def certificate_threshold(dtype: torch.dtype) -> float:
    """The relative misfit below which a batch explains a gradient: `CERTIFICATE_THRESHOLD`, and 1e-5 in float32.

    In float32 rounding leaves 8e-7 at most in 300 batches of 2 to 8 inputs, and 3e-6 for a (leaky) ReLU.
    """
    return _SINGLE_THRESHOLD if dtype == torch.float32 else CERTIFICATE_THRESHOLD


@dataclass(frozen=True, eq=False)
class Solutions:
    r"""Where the search from each start ended.

    Attributes:
        misfits: the distance of each start's batch from the equations, relative to their right sides. A known length
            adds its own error, so that a batch of other lengths fits no better.
        history: the misfits before the first step and after every step.
    """

    points: Float[Tensor, "s b k"]
    residuals: Float[Tensor, "s b"]
    misfits: Float[Tensor, " s"]
    history: Float[Tensor, "steps s"]


def solve(
    equations: Equations,
    points: Float[Tensor, "s b k"],
    residuals: Float[Tensor, "s b"] | None = None,
    *,
    norm: float | None = None,
    steps: int = 80,
) -> Solutions:
    r"""Levenberg-Marquardt for points and residuals, from every start.

    $$ \bigl( J^\top J + \lambda \operatorname{diag} J^\top J \bigr)\, \delta = -J^\top E , $$

    λ starts at $10^{-3}$. It falls tenfold after a step that lowers the misfit; a step that does not is undone, and λ
    grows tenfold. A known length t adds the equations $\kappa\, (\lVert u_i \rVert^2 - t^2) / (2 t^2) = 0$, with
    $\kappa^2 = 10 \lVert c \rVert^2 / B$: they vanish at the batch and keep random starts from growing without end.
    The search ends when the best start is at rounding level, or after `steps`.

    Source: not in Wang et al.; the damping is that of Marquardt (1963).

    Args:
        equations: of an activation that is not piecewise linear, as otherwise no derivative leads to the batch.
        norm: t; `None` leaves the lengths free.
    """
    if residuals is None:
        residuals = equations.fit_residuals(points)
    shape, size = points.shape[1:], points[0].numel()

    def split(unknowns: Tensor) -> tuple[Tensor, Tensor]:
        return unknowns[:, :size].reshape(-1, *shape), unknowns[:, size:]

    unknowns, history = levenberg_marquardt(
        lambda unknowns: _misfits(equations, *split(unknowns), norm),
        lambda unknowns: _normal_equations(equations, *split(unknowns), norm),
        torch.cat([points.flatten(1), residuals], dim=1),
        enough=certificate_threshold(points.dtype),
        steps=steps,
    )
    return Solutions(*split(unknowns), history[-1], history)


def levenberg_marquardt(
    misfits: Callable[[Tensor], Tensor],
    normal_equations: Callable[[Tensor], tuple[Tensor, Tensor]],
    unknowns: Float[Tensor, "s p"],
    *,
    enough: float,
    steps: int,
) -> tuple[Float[Tensor, "s p"], Float[Tensor, "n s"]]:
    r"""The steps of `solve` for any least squares: the unknowns where each start ends, and the misfits of all steps.

    Misfits are $\lVert E \rVert$ relative to the right side. The search ends once the best is below `enough` and no
    longer halves.
    """
    damping = unknowns.new_full(unknowns.shape[:1], _DAMPING[1])
    current = misfits(unknowns)
    history = [current]
    for step in range(1, steps + 1):
        tried = unknowns + _damped_step(*normal_equations(unknowns), damping)
        found = misfits(tried)
        better = found < current
        unknowns = torch.where(better.unsqueeze(-1), tried, unknowns)
        current = torch.where(better, found, current)
        damping = torch.where(better, damping / _DAMPING_FACTOR, damping * _DAMPING_FACTOR)
        damping = damping.clamp(_DAMPING[0], _DAMPING[2])
        history.append(current)
        if step % _CHECK_EVERY == 0:
            best, before = float(history[-1].amin()), float(history[-_CHECK_EVERY].amin())
            if before / 2 < best < enough:
                break
    return unknowns, torch.stack(history)


def _length_errors(points: Tensor, norm: float) -> Tensor:
    r"""$(\lVert u \rVert^2 - t^2) / (2 t^2)$, the relative error of a length to first order."""
    return (points.square().sum(-1) / norm**2 - 1) / 2


def _misfits(equations: Equations, points: Tensor, residuals: Tensor, norm: float | None) -> Tensor:
    misfits = equations.misfits(points, residuals)
    if norm is None:
        return misfits
    return (misfits.square() + _LENGTH_WEIGHT * _length_errors(points, norm).square().mean(-1)).sqrt()


def _normal_equations(
    equations: Equations, points: Tensor, residuals: Tensor, norm: float | None
) -> tuple[Tensor, Tensor]:
    """The normal equations, with those of a known length."""
    matrix, gradient = equations.normal_equations(points, residuals)
    if norm is not None:
        weight = _LENGTH_WEIGHT * equations.target.square().sum() / points.shape[1] / norm**2
        identity = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        lengths = torch.einsum("sib,ik,skc->sibkc", points, identity, points).flatten(3).flatten(1, 2)
        size = points[0].numel()
        matrix[:, :size, :size] += weight * lengths / norm**2
        gradient[:, :size] += weight * (_length_errors(points, norm).unsqueeze(-1) * points).flatten(1)
    return matrix, gradient


def _damped_step(matrix: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """The damped step of every start; NaN, which is never better, where the matrix is singular."""
    damped = matrix + torch.diag_embed(damping.unsqueeze(-1) * matrix.diagonal(dim1=-2, dim2=-1))
    factor, failed = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve(-gradient.unsqueeze(-1), factor).squeeze(-1)
    return torch.where((failed == 0).unsqueeze(-1), step, torch.nan)
