r"""How far a batch that explains a gradient can be from the one that made it.

Let $E = 0$ be the equations in the unknowns θ, J their Jacobian and e what is left of them. To first order the batch is
off by no more than the pseudoinverse makes of what rounding left in the gradient,

$$ \lVert \hat x_i - x_i \rVert \le 4\, \eta \left( \lVert (J^+)_{x_i} \rVert
   + \frac{\lVert M \rVert}{\sigma_{\min}(\Delta)} \lVert \tilde x_i \rVert \right), \qquad
   \eta = \max(\lVert e \rVert, \varepsilon), $$

with ε the rounding unit of the gradient, relative to its size: the second part is what rounding turns the span by.
Another batch with the same gradient is out of its sight; what is known of such batches is said in words.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.attacks.gradient_inversion.least_squares import certificate_threshold
from leakage.attacks.gradient_inversion.observation import Reconstruction
from leakage.attacks.gradient_inversion.own_modules.equations import ModuleEquations
from leakage.attacks.gradient_inversion.own_modules.first_layer import FirstLayer

_SAFETY = 4.0  # of the bound to first order: 0.18 of it was the most in 304 batches certified, of 850 random modules
_LEAST_DIGITS = 1e-2  # a bound beyond this share of an input certifies nothing
_LEAST_ALIVE = 2  # neurons, or one input is whatever its one row says


@dataclass(frozen=True, eq=False, kw_only=True)
class ModuleReconstruction(Reconstruction):
    r"""A batch from a module's gradient, and what is known of it.

    `residuals` are $\rho_i = \partial L / \partial f(x_i)$, a row of k numbers for each input; `labels` are classes
    (whole numbers) for the cross-entropy. All else is in float64.

    Attributes:
        route: how it was found.
        bound: no input is further than this from the true one, in its own units; infinite where nothing is known.
        certified: whether the batch explains every gradient that was given up to its rounding, the bound leaves two
            digits of every input, and no other inputs are known to have the same. It takes `batch` for true.
    """

    route: str
    bound: float
    certified: bool


def of_one(first: FirstLayer, found: Float[Tensor, "1 d"]) -> tuple[float, float]:
    r"""Misfit and bound of a single input of a biased layer, $\lVert E \rVert \sqrt{1 + \lVert x \rVert^2} /
    \lVert \partial L / \partial c \rVert$ with the safety of the others."""
    rows = first.rows
    slopes = rows[:, -1]
    left = float((rows[:, :-1] - slopes.unsqueeze(-1) * found).norm() / rows.norm())
    noise = max(left, torch.finfo(first.precision).eps) * float(rows.norm())
    alive = int((slopes != 0).sum())
    if alive < min(_LEAST_ALIVE, len(rows)):
        return left, math.inf
    return left, _SAFETY * noise * math.sqrt(1 + float(found.square().sum())) / float(slopes.norm())


def of_several(equations: ModuleEquations, unknowns: Float[Tensor, " p"], *, lengths: bool = False) -> float:
    """The bound on the error of every input of a batch that solves the equations, and has known `lengths` or not."""
    first = equations.first
    jacobian = equations.jacobian(unknowns)
    if lengths:
        points = unknowns[: equations.batch**2].reshape(equations.batch, -1)
        radial = torch.block_diag(*(points / points.square().sum(1, keepdim=True)))
        jacobian = torch.cat([jacobian, torch.nn.functional.pad(radial, (0, jacobian.shape[1] - radial.shape[1]))])
    if len(jacobian) < len(unknowns):
        return math.inf
    scale = jacobian.norm(dim=0)  # unknowns have units of their own
    if not bool((scale > 0).all() & scale.isfinite().all()):
        return math.inf
    left, sizes, right = torch.linalg.svd(jacobian / scale, full_matrices=False)
    if not float(sizes[-1]) > len(jacobian) * torch.finfo(sizes.dtype).eps * float(sizes[0]):
        return math.inf
    inverse = (right.mT / sizes) @ left.mT / scale.unsqueeze(-1)
    inputs, residuals = equations.inputs(unknowns), equations.residuals(unknowns)
    width = equations.directions.shape[1]
    blocks = inverse[: width * equations.batch].unflatten(0, (equations.batch, width))
    amplified = torch.linalg.matrix_norm(blocks, ord=2) if width else blocks.new_zeros(equations.batch)
    slopes = first.slopes(inputs, residuals)
    full = inputs
    if first.biased:
        full = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    misfit = float((slopes.mT @ full - first.rows).norm() / first.rows.norm())
    noise = max(misfit, float(equations.error(unknowns).norm()), torch.finfo(first.precision).eps)
    turned = first.rows.norm() / torch.linalg.svdvals(slopes)[-1] * full.norm(dim=-1)
    return _SAFETY * noise * float((amplified + turned).max())


def explained(first: FirstLayer, inputs: Float[Tensor, "B d"], residuals: Float[Tensor, "B k"]) -> float:
    """The largest relative distance, over the layers that were given, between their gradient and that of the batch.

    Each parameter counts by its own size, but one that is small beside the largest counts by that one's.
    """
    simulated = first.simulated(inputs, residuals)
    largest = max(float(part.norm()) for part in first.gradient.values())
    worst = 0.0
    for name, part in first.gradient.items():
        size = max(float(part.norm()), _LEAST_DIGITS * largest)
        worst = max(worst, float((simulated[name] - part).norm()) / size)
    return worst if math.isfinite(worst) else math.inf


def holds(first: FirstLayer, inputs: Float[Tensor, "B d"], misfit: float, bound: float) -> bool:
    """Whether misfit and bound certify the batch."""
    least = float(inputs.norm(dim=-1).min())
    return misfit < certificate_threshold(first.precision) and bound <= _LEAST_DIGITS * least
