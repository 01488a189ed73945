r"""The equations that the first layer's gradient gives for a batch, through the module itself.

The rows of M span the $\tilde x_i = (x_i, 1)$ exactly (`first_layer`, `span`), so that $\tilde x_i = V u_i$, where the
last coordinate 1 leaves $u_i = u_0 + N t_i$ with B - 1 numbers to each input. Since the $\rho_i$ are unknowns, neither
loss nor labels need be known:

$$ \sum_i \delta_i(t_i, \rho_i)\, u_i^\top = M V, \qquad \sum_i \rho_i = \frac{\partial L}{\partial c_\text{out}} . $$

Derivatives are those of autograd, so that the layers above may be any. Without a bias all B numbers of $u_i$ are free.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.inversion import span
from leakage.inversion.nonlinear_least_squares import EQUATIONS_PER_UNKNOWN, levenberg_marquardt
from leakage.inversion.own_modules.first_layer import FirstLayer, NoRoute, describe

_AT_ONCE = 16  # starts whose derivatives are in memory together
_LEAST_BIAS = 1e-12  # of the last coordinate in the span: below it the bias determines no lengths
_GRAM_RIDGE = 1e-14


@dataclass(frozen=True, eq=False)
class ModuleEquations:
    r"""The equations of one gradient.

    Attributes:
        basis: V.
        origin: $u_0$, or 0 without a bias.
        directions: N as columns, orthonormal.
        neurons: how many of the neurons are used.
        target: $M V$ of these neurons.
        sizes: the norms of the right sides, to which errors are relative: of `target`, and of the sum of the $\rho_i$.
    """

    first: FirstLayer
    basis: Float[Tensor, "n B"]
    origin: Float[Tensor, " B"]
    directions: Float[Tensor, "B f"]
    neurons: int
    target: Float[Tensor, "m B"]
    sizes: tuple[Tensor, Tensor]

    @classmethod
    def from_first_layer(cls, first: FirstLayer, *, batch: int, generator: torch.Generator) -> "ModuleEquations":
        """The equations of a batch of this size; a `NoRoute` is raised if there are fewer than unknowns."""
        basis = span.from_rows(first.rows, batch=batch, generator=generator).basis
        last = basis[-1]
        if first.biased and float(last.norm()) <= _LEAST_BIAS:
            raise NoRoute(f"`gradient` of the bias of {first.name!r} must not be 0 beside that of its weights.")
        origin, directions = torch.zeros_like(last), torch.eye(batch, dtype=basis.dtype, device=basis.device)
        if first.biased:
            origin = last / last.square().sum()
            directions = torch.linalg.svd(last.unsqueeze(0)).Vh[1:].mT
        with warnings.catch_warnings():  # PyTorch's first use of forward mode loads what PyTorch itself deprecates
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.func.jvp(torch.tanh, (last,), (last,))
        width = first.layer.out_features
        unknowns = directions.numel() + batch * first.output_count
        if width * batch < unknowns:
            raise NoRoute(
                f"`module` must have {math.ceil(unknowns / batch)} neurons in {first.name!r} for {batch} inputs and"
                f" {first.output_count} outputs, got {width}: only the span of the inputs is determined, for which"
                f" there is `span.from_rows`; seen: {describe(first.network)}."
            )
        neurons = min(width, EQUATIONS_PER_UNKNOWN * (batch + first.output_count))
        target = first.rows[:neurons] @ basis
        total = first.gradient[first.readout] if first.readout is not None else target.new_zeros(1)
        sizes = target.norm(), total.norm().clamp_min(torch.finfo(total.dtype).tiny)
        return cls(first, basis, origin, directions, neurons, target, sizes)

    @property
    def batch(self) -> int:
        return self.basis.shape[1]

    def inputs(self, unknowns: Float[Tensor, " p"]) -> Float[Tensor, "B d"]:
        """$x_i$ of one start."""
        return self._inputs_at(self._points(unknowns))

    def residuals(self, unknowns: Float[Tensor, " p"]) -> Float[Tensor, "B k"]:
        r"""$\rho_i$ of one start."""
        return unknowns[self.batch * self.directions.shape[1] :].reshape(self.batch, self.first.output_count)

    def error(self, unknowns: Float[Tensor, " p"]) -> Float[Tensor, " e"]:
        """The left sides less the right ones, each layer relative to its right side."""
        points, residuals = self._points(unknowns), self.residuals(unknowns)
        return self._subtract_target(self._left_side(points, residuals), residuals)

    def linearise(self, unknowns: Float[Tensor, " p"]) -> tuple[Float[Tensor, " e"], Float[Tensor, "e p"]]:
        r"""`error` and its Jacobian, of which the columns of $\rho$ need no derivative, as it is linear in them."""
        points, residuals = self._points(unknowns), self.residuals(unknowns)
        size = self.batch * self.directions.shape[1]
        unit = torch.eye(size, dtype=unknowns.dtype, device=unknowns.device)
        tangents = unit.reshape(size, self.batch, self.directions.shape[1]) @ self.directions.mT

        def derivative(tangent: Tensor) -> tuple[Tensor, Tensor]:
            side, slope, *_ = torch.func.jvp(lambda moved: self._left_side(moved, residuals), (points,), (tangent,))
            return side, slope

        sides, slopes = torch.func.vmap(derivative)(tangents)
        left = self._subtract_target(sides[0], residuals)
        by_points = (slopes / self.sizes[0]).flatten(1).mT
        by_points = torch.cat([by_points, by_points.new_zeros(len(left) - len(by_points), size)])
        return left, torch.cat([by_points, self._residual_columns(unknowns)], dim=1)

    def start_at(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, " p"]:
        r"""The unknowns at these inputs, with the $\rho_i$ that fit best."""
        points = self.first.with_bias(inputs) @ self.basis
        return self.fit_residuals(((points - self.origin) @ self.directions).unsqueeze(0))[0][0]

    def fit_residuals(self, free: Float[Tensor, "s B f"]) -> tuple[Float[Tensor, "s p"], Float[Tensor, " s"]]:
        r"""Starts at these $t_i$, with the $\rho_i$ that fit best, and their misfits."""

        def fit(point: Tensor) -> tuple[Tensor, Tensor]:
            none = torch.cat([point.flatten(), point.new_zeros(self.batch * self.first.output_count)])
            left, slopes = self.error(none), self._residual_columns(none)
            gram = slopes.mT @ slopes
            ridge = (_GRAM_RIDGE * gram.diagonal().mean()).clamp_min(torch.finfo(gram.dtype).tiny)
            eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            found = torch.linalg.solve(gram + ridge * eye, -slopes.mT @ left)
            return torch.cat([point.flatten(), found]), (left + slopes @ found).norm()

        return torch.func.vmap(fit, chunk_size=_AT_ONCE)(free)

    def solve(self, starts: Float[Tensor, "s p"], *, enough: float, steps: int) -> tuple[Float[Tensor, " p"], float]:
        """The best solution by `nonlinear_least_squares.levenberg_marquardt` from these starts, and its misfit."""

        def normal_equations(unknowns: Tensor) -> tuple[Tensor, Tensor]:
            left, slopes = self.linearise(unknowns)
            return slopes.mT @ slopes, slopes.mT @ left

        ends, history = levenberg_marquardt(
            torch.func.vmap(lambda unknowns: self.error(unknowns).norm(), chunk_size=_AT_ONCE),
            torch.func.vmap(normal_equations, chunk_size=_AT_ONCE),
            starts,
            enough=enough,
            steps=steps,
        )
        last = history[-1].nan_to_num(torch.inf)
        best = int(last.argmin())
        return ends[best], float(last[best])

    def _residual_columns(self, unknowns: Tensor) -> Tensor:
        r"""The derivatives of `error` by the $\rho_i$."""
        slopes = self.first.output_slopes(self.inputs(unknowns))[..., : self.neurons]
        parts = [torch.einsum("icj,ib->jbic", slopes, self._points(unknowns)).flatten(2).flatten(0, 1) / self.sizes[0]]
        if self.first.readout is not None:
            unit = torch.eye(self.first.output_count, dtype=unknowns.dtype, device=unknowns.device)
            parts.append(unit.repeat(1, self.batch) / self.sizes[1])
        return torch.cat(parts)

    def _left_side(self, points: Tensor, residuals: Tensor) -> Tensor:
        return self.first.slopes(self._inputs_at(points), residuals)[:, : self.neurons].mT @ points

    def _subtract_target(self, side: Tensor, residuals: Tensor) -> Tensor:
        parts = [((side - self.target) / self.sizes[0]).flatten()]
        if self.first.readout is not None:
            parts.append((residuals.sum(0) - self.first.gradient[self.first.readout]) / self.sizes[1])
        return torch.cat(parts)

    def _inputs_at(self, points: Tensor) -> Tensor:
        return (points @ self.basis.mT)[:, : self.first.layer.in_features]

    def _points(self, unknowns: Tensor) -> Tensor:
        free = unknowns[: self.batch * self.directions.shape[1]].reshape(self.batch, -1)
        return self.origin + free @ self.directions.mT
