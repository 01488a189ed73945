r"""Nonlinear least squares on the gradient itself: from an estimate of the batch to the batch, up to rounding.

What is solved are the `equations` of a layer. All starts move at once, each with a damping of its own. Nothing here
draws, and nothing knows how a start was found.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.attacks.gradient_inversion.equations import Equations

CERTIFICATE_THRESHOLD = 1e-10
"""The relative misfit below which a batch explains a gradient in float64: rounding leaves 1e-14, local minima 1e-3 and
more."""
_CERTIFIED = {torch.float32: 1e-5, torch.float64: CERTIFICATE_THRESHOLD}
_LENGTHS = 10.0  # weight of the known lengths, against equations of size 1 for each input: measured, 1 to 100 will do
_DAMPING = (1e-15, 1e-3, 1e8)  # least, first and most
_FACTOR = 10.0  # between the dampings of two steps
_LOOK = 4  # steps between two looks at the misfits: each look waits for the device


def certificate_threshold(dtype: torch.dtype) -> float:
    """The relative misfit below which a batch explains a gradient: `CERTIFICATE_THRESHOLD`, and 1e-5 in float32.

    There rounding leaves 4e-7, and 8e-7 at most in 300 batches of 2 to 8 inputs, whose error was below 2e-5; of a
    (leaky) ReLU 3e-6. In 240 batches from seeds that were not used to set it, all were certified.

    Raises:
        ValueError: if there is no certificate in this precision.
    """
    if dtype not in _CERTIFIED:
        raise ValueError(f"`dtype` must be torch.float32 or torch.float64, got {dtype}.")
    return _CERTIFIED[dtype]


@dataclass(frozen=True, eq=False)
class Solutions:
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


def solve(
    equations: Equations,
    points: Float[Tensor, "s b k"],
    residuals: Float[Tensor, "s b"] | None = None,
    *,
    norm: float | None = None,
    steps: int = 80,
) -> Solutions:
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
    shape, size = points.shape[1:], points[0].numel()

    def parts(unknowns: Tensor) -> tuple[Tensor, Tensor]:
        return unknowns[:, :size].reshape(-1, *shape), unknowns[:, size:]

    unknowns, history = levenberg_marquardt(
        lambda unknowns: _misfits(equations, *parts(unknowns), norm),
        lambda unknowns: _normal(equations, *parts(unknowns), norm),
        torch.cat([points.flatten(1), residuals], dim=1),
        enough=certificate_threshold(points.dtype),
        steps=steps,
    )
    return Solutions(*parts(unknowns), history[-1], history)


def levenberg_marquardt(
    misfits: Callable[[Tensor], Tensor],
    normal: Callable[[Tensor], tuple[Tensor, Tensor]],
    unknowns: Float[Tensor, "s p"],
    *,
    enough: float,
    steps: int,
) -> tuple[Float[Tensor, "s p"], Float[Tensor, "n s"]]:
    r"""The steps of `solve`, from every start, for any least squares.

    Args:
        misfits: $\lVert E \rVert$ of each start, relative to what is to be explained.
        normal: $J^\top J$ and $J^\top E$ of each start.
        unknowns: the starts.
        enough: a misfit below which a start is there, and ends the search once it no longer halves.
        steps: the most steps taken.

    Returns:
        Where the starts have gone, and the misfits before the first step and after every one.
    """
    damping = unknowns.new_full(unknowns.shape[:1], _DAMPING[1])
    left = misfits(unknowns)
    history = [left]
    for step in range(1, steps + 1):
        tried = unknowns + _move(*normal(unknowns), damping)
        found = misfits(tried)
        better = found < left
        unknowns = torch.where(better.unsqueeze(-1), tried, unknowns)
        left = torch.where(better, found, left)
        damping = torch.where(better, damping / _FACTOR, damping * _FACTOR).clamp(_DAMPING[0], _DAMPING[2])
        history.append(left)
        if step % _LOOK == 0 and _settled(history, enough):
            break
    return unknowns, torch.stack(history)


def _settled(history: list[Tensor], enough: float) -> bool:
    """Whether the best misfit is small enough and no longer halves."""
    best, before = float(history[-1].amin()), float(history[-_LOOK].amin())
    return best < enough and best > before / 2


def _stretch(points: Tensor, norm: float) -> Tensor:
    r"""$(\lVert u \rVert^2 - t^2) / (2 t^2)$, the relative error of a length to first order."""
    return (points.square().sum(-1) / norm**2 - 1) / 2


def _misfits(equations: Equations, points: Tensor, residuals: Tensor, norm: float | None) -> Tensor:
    misfits = equations.misfits(points, residuals)
    if norm is None:
        return misfits
    return (misfits.square() + _LENGTHS * _stretch(points, norm).square().mean(-1)).sqrt()


def _normal(equations: Equations, points: Tensor, residuals: Tensor, norm: float | None) -> tuple[Tensor, Tensor]:
    """The normal equations, with those of a known length."""
    matrix, gradient = equations.normal(points, residuals)
    if norm is not None:
        weight = _LENGTHS * equations.target.square().sum() / points.shape[1] / norm**2
        identity = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        lengths = torch.einsum("sib,ik,skc->sibkc", points, identity, points).flatten(3).flatten(1, 2)
        size = points[0].numel()
        matrix[:, :size, :size] += weight * lengths / norm**2
        gradient[:, :size] += weight * (_stretch(points, norm).unsqueeze(-1) * points).flatten(1)
    return matrix, gradient


def _move(matrix: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """The damped step of every start; NaN, which is never better, where the matrix is singular."""
    damped = matrix + torch.diag_embed(damping.unsqueeze(-1) * matrix.diagonal(dim1=-2, dim2=-1))
    factor, failed = torch.linalg.cholesky_ex(damped)
    move = torch.cholesky_solve(-gradient.unsqueeze(-1), factor).squeeze(-1)
    return torch.where((failed == 0).unsqueeze(-1), move, torch.nan)


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
            "directions: no derivative leads anywhere. Use `relu_decoding.decode`."
        )
