r"""Nonlinear least squares on the gradient itself: from an estimate of the batch to the batch, up to rounding.

A gradient gives equations in the points $u_i$ and residuals $r_i$ of the batch, with one row $v_j$ for each neuron:

$$ \sum_i r_i\, \sigma'(v_j^\top u_i)\, u_i = c_j \quad (\text{hidden layer}), \qquad
   \sum_i r_i\, \sigma(v_j^\top u_i) = g_j \quad (\text{output layer}) . $$

For the hidden layer, coordinates in the span V of the batch leave B numbers to each point: $v_j = V^\top w_j$ and
$c_j = m V^\top G_j$. Points are rows, the first axis holds independent starts, and all of them move at once. Nothing
here draws, and nothing knows how a start was found.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.observation import Observation
from leakage.models.activations import Activation

CERTIFIED = 1e-10
"""The relative misfit below which a batch explains a gradient in float64: rounding leaves 1e-14, local minima 1e-3 and
more."""
_CERTIFIED = {torch.float32: 1e-5, torch.float64: CERTIFIED}
EQUATIONS_PER_UNKNOWN = 25
"""Neurons for each input that are enough for the hidden layer's equations; the others only cost time."""
_LENGTHS = 10.0  # weight of the known lengths, against equations of size 1 for each input: measured, 1 to 100 will do
_DAMPING = (1e-15, 1e-3, 1e8)  # least, first and most
_FACTOR = 10.0  # between the dampings of two steps
_LOOK = 4  # steps between two looks at the misfits: each look waits for the device
_RIDGE = 1e-12  # of the mean square: keeps two equal columns from breaking a linear fit


def certified(dtype: torch.dtype) -> float:
    """The relative misfit below which a batch explains a gradient: `CERTIFIED`, and 1e-5 in float32.

    There rounding leaves 4e-7, and 8e-7 at most in 300 batches of 2 to 8 inputs, whose error was below 2e-5; of a
    (leaky) ReLU 3e-6. In 240 batches from seeds that were not used to set it, all were certified.

    Raises:
        ValueError: if there is no certificate in this precision.
    """
    if dtype not in _CERTIFIED:
        raise ValueError(f"`dtype` must be torch.float32 or torch.float64, got {dtype}.")
    return _CERTIFIED[dtype]


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

    def residuals(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b"]:
        """The residuals that fit best, given the points."""
        gram, right = self.linear(points)
        ridge = _RIDGE * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        ridge = ridge.clamp_min(torch.finfo(gram.dtype).tiny)  # points without any say get no residual
        return torch.linalg.solve(gram + torch.diag_embed(ridge.expand_as(right)), right)

    def signed(self, points: Float[Tensor, "s b k"]) -> Float[Tensor, "s b k"]:
        r"""The points with signs chosen by one linear fit of both $u_i$ and $-u_i$: the one with more weight stays."""
        one, other = self.residuals(torch.cat([points, -points], dim=1)).abs().chunk(2, dim=1)
        return torch.where((one >= other).unsqueeze(-1), points, -points)


class HiddenEquations(Equations):
    r"""$\sum_i r_i\, \sigma'(v_j^\top u_i)\, u_i = c_j$, with as many numbers in each as a point has."""

    @classmethod
    def of(
        cls, observation: Observation, basis: Float[Tensor, "d k"], *, neurons: int | None = None
    ) -> "HiddenEquations":
        r"""The equations of G in a basis V that spans the batch, of the first `neurons` or of all.

        Raises:
            ValueError: if the observation has no `hidden` or `basis` has not d rows.
        """
        if observation.hidden is None:
            raise ValueError("`observation` must have `hidden`, the gradient of the hidden weights; got None.")
        arguments.real("basis", basis, "d k", like=observation.weights, d=observation.weights.shape[1])
        gradient = len(observation.weights) * observation.hidden[:neurons] @ basis
        return cls(observation.activation, observation.weights[:neurons] @ basis, gradient)

    def error(self, points: Float[Tensor, "s b k"], residuals: Float[Tensor, "s b"]) -> Float[Tensor, "s n k"]:
        slopes = self._derivatives(points, order=1)[0]
        return (slopes * residuals.unsqueeze(-2)) @ points - self.target

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
        matrix = _assembled(moved.flatten(3).flatten(1, 2), mixed.flatten(1, 2), (slopes.mT @ slopes) * overlap)
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


@dataclass(frozen=True, eq=False)
class Polished:
    r"""Where the starts have gone.

    Attributes:
        points: $u_i$ as rows, for each start.
        residuals: $r_i$.
        misfits: how far each start's batch is from the equations, relative to their right sides. A known length adds
            its own error, so that a batch of other lengths fits no better.
        history: the misfits before the first step and after every one.
    """

    points: Float[Tensor, "s b k"]
    residuals: Float[Tensor, "s b"]
    misfits: Float[Tensor, " s"]
    history: Float[Tensor, "steps s"]


def polish(
    equations: Equations,
    points: Float[Tensor, "s b k"],
    residuals: Float[Tensor, "s b"] | None = None,
    *,
    norm: float | None = None,
    steps: int = 80,
) -> Polished:
    r"""Levenberg-Marquardt for all unknowns, from every start.

    $$ \bigl( J^\top J + \lambda \operatorname{diag} J^\top J \bigr)\, \delta = -J^\top E , $$

    λ starts at $10^{-3}$, falls tenfold after a step that lowers the misfit and grows tenfold after one that does not
    and is taken back. A known length t adds the equations $\kappa\, (\lVert u_i \rVert^2 - t^2) / (2 t^2) = 0$, with
    $\kappa^2 = 10 \lVert c \rVert^2 / B$: they vanish at the batch and keep random starts from growing without end.
    It ends when the best start is at rounding level, or after `steps`.

    Source: not in Wang et al.; the damping is that of Marquardt (1963).

    Args:
        equations: what is to be solved.
        points: the starts.
        residuals: likewise; fitted to the points by linear least squares where not given.
        norm: t, the length of every point; `None` leaves the lengths free.
        steps: the most steps taken.

    Raises:
        ValueError: if `points` or `residuals` are not (starts, B, k) and (starts, B), finite and of the equations'
            dtype and device, `norm` or `steps` is not positive, or the activation has a piecewise constant derivative.
    """
    _check(equations, points, residuals, norm, steps)
    if residuals is None:
        residuals = equations.residuals(points)
    damping = points.new_full(points.shape[:1], _DAMPING[1])
    misfits = _misfits(equations, points, residuals, norm)
    history = [misfits]
    for step in range(1, steps + 1):
        move = _step(equations, points, residuals, norm, damping)
        tried = points + move[:, : points[0].numel()].view_as(points), residuals + move[:, points[0].numel() :]
        found = _misfits(equations, *tried, norm)
        better = found < misfits
        points = torch.where(better[:, None, None], tried[0], points)
        residuals = torch.where(better[:, None], tried[1], residuals)
        misfits = torch.where(better, found, misfits)
        damping = torch.where(better, damping / _FACTOR, damping * _FACTOR).clamp(_DAMPING[0], _DAMPING[2])
        history.append(misfits)
        if step % _LOOK == 0 and _settled(history):
            break
    return Polished(points, residuals, misfits, torch.stack(history))


def _settled(history: list[Tensor]) -> bool:
    """Whether the best misfit is certified and no longer halves."""
    best, before = float(history[-1].amin()), float(history[-_LOOK].amin())
    return best < certified(history[-1].dtype) and best > before / 2


def _stretch(points: Tensor, norm: float) -> Tensor:
    r"""$(\lVert u \rVert^2 - t^2) / (2 t^2)$, the relative error of a length to first order."""
    return (points.square().sum(-1) / norm**2 - 1) / 2


def _misfits(equations: Equations, points: Tensor, residuals: Tensor, norm: float | None) -> Tensor:
    misfits = equations.misfits(points, residuals)
    if norm is None:
        return misfits
    return (misfits.square() + _LENGTHS * _stretch(points, norm).square().mean(-1)).sqrt()


def _step(equations: Equations, points: Tensor, residuals: Tensor, norm: float | None, damping: Tensor) -> Tensor:
    """The damped step of every start; NaN, which is never better, where the matrix is singular."""
    matrix, gradient = equations.normal(points, residuals)
    if norm is not None:
        weight = _LENGTHS * equations.target.square().sum() / points.shape[1] / norm**2
        identity = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        lengths = torch.einsum("sib,ik,skc->sibkc", points, identity, points).flatten(3).flatten(1, 2)
        size = points[0].numel()
        matrix[:, :size, :size] += weight * lengths / norm**2
        gradient[:, :size] += weight * (_stretch(points, norm).unsqueeze(-1) * points).flatten(1)
    damped = matrix + torch.diag_embed(damping.unsqueeze(-1) * matrix.diagonal(dim1=-2, dim2=-1))
    factor, failed = torch.linalg.cholesky_ex(damped)
    move = torch.cholesky_solve(-gradient.unsqueeze(-1), factor).squeeze(-1)
    return torch.where((failed == 0).unsqueeze(-1), move, torch.nan)


def _assembled(points: Tensor, mixed: Tensor, residuals: Tensor) -> Tensor:
    """A symmetric matrix from its blocks."""
    return torch.cat([torch.cat([points, mixed], dim=-1), torch.cat([mixed.mT, residuals], dim=-1)], dim=-2)


def _check(equations: Equations, points: Tensor, residuals: Tensor | None, norm: float | None, steps: int) -> None:
    arguments.real("points", points, "starts B k", like=equations.rows, k=equations.rows.shape[1])
    arguments.filled("points", points)
    if residuals is not None:
        starts, batch = points.shape[:2]
        arguments.real("residuals", residuals, "starts B", like=points, starts=starts, B=batch)
    if norm is not None:
        arguments.number("norm", norm, above=0)
    arguments.count("steps", steps, least=1)
    if equations.activation.degree == 1:
        raise ValueError(
            f"`equations` of {equations.activation.name} are piecewise linear in the residuals and constant in "
            "directions: no derivative leads anywhere. Use `patterns.decode`."
        )
