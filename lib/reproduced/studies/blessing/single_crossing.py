r"""Whether the densities of one point's output with and without the point cross once, checked on a fine grid.

`output_law.sample_attack` relies on it. Here are the numbers that could contradict it: the advantage as an integral
over outputs, and the distribution functions and the ratio along a grid of outputs, which is a new last dimension.
Nothing is random.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from leakage import blocks
from leakage.theory.logistic.output_law import OutputLaw, densities
from leakage.theory.logistic.prox import curvature, inverse_prox, prox, side

_TAIL = 9.0
_TINY = 1e-290  # below it log(1 + u)/u is 1 to the last digit, and u has few digits
_NODES = 4001


class SingleRoot(NamedTuple):
    """Numbers that a second crossing would change, along the grid of one point.

    `excess` is `positive_variation` - `largest_gap`, zero for one crossing. `least_increase` is the smallest step of
    S/a along the grid, relative to the size of S/a: at least 0 up to rounding, if S/a increases.
    """

    positive_variation: Float[Tensor, "*b"]
    largest_gap: Float[Tensor, "*b"]
    excess: Float[Tensor, "*b"]
    least_increase: Float[Tensor, "*b"]


def integrated_advantage(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = 4 * _NODES
) -> Float[Tensor, "*b"]:
    r"""The advantage of the best attacker as printed: $\int \max\{f_{\text{member}} - f_{\text{outsider}}, 0\}\,dz$.

    Source: Tan et al. (2023), (7) and (68). By the trapezoidal rule on `output_grid`; the kink where the densities
    cross leaves an error of the order of the step squared. `sample_attack` gives the same exactly.
    """
    grid = output_grid(law, teacher=teacher, label=label, nodes=nodes)
    outsider, member = densities(law, grid, teacher=teacher, label=label)
    return torch.trapezoid((member - outsider).clamp_min(0), grid, dim=-1)


def single_root(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = _NODES
) -> SingleRoot:
    r"""The difference between the likelihood ratio and the best single threshold, point by point.

    The advantage of the likelihood ratio is the positive variation of the gap D of the two distribution functions
    along the outputs, that of the best threshold is $\max \lvert D \rvert$: they agree if the ratio crosses 1 once. It
    does so because S/a increases, where

    $$ \frac Sa = p\,\frac{\log(1 + u)}u + \frac{2(z - m) - a}{2\sigma^2}, \quad p = \rho'(z), \quad
       u = \gamma p(1 - p) . $$

    Not in the paper, which attacks with the likelihood ratio. Points are taken in blocks, to bound the memory of grids.
    """
    sided = side(label).to(law.alpha) * teacher
    whole = torch.broadcast_tensors(law.alpha, law.sigma, law.gamma, law.kappa, sided)
    flat = [each.reshape(-1) for each in whole]
    found = []
    for part in blocks.of_rows((len(flat[0]), 2 * nodes)):
        *of_law, of_teacher = (each[part] for each in flat)
        found.append(_single_root(OutputLaw(*of_law), of_teacher, nodes))
    return SingleRoot(*(torch.cat(parts).reshape(whole[0].shape) for parts in zip(*found, strict=True)))


def _single_root(law: OutputLaw, teacher: Tensor, nodes: int) -> SingleRoot:
    """`single_root` of points with label 1; a point with label 0 is the mirror image of one with the teacher -Z."""
    mean, one = law.alpha * teacher, torch.ones_like(teacher)
    grid = output_grid(law, teacher=teacher, label=one, nodes=nodes)
    wide, mean = law.unsqueeze(), mean[..., None]
    before = inverse_prox(grid, wide.gamma, one[..., None])
    # The gap in the upper tail, the one in which members lie: 1 - F keeps its digits there.
    gaps = torch.special.ndtr((mean - before) / wide.sigma) - torch.special.ndtr((mean - grid) / wide.sigma)
    bend = wide.gamma * curvature(grid)
    first = torch.sigmoid(grid) * torch.where(bend > _TINY, torch.log1p(bend) / bend.clamp_min(_TINY), 1.0)
    scale, pull = 2 * wide.sigma.square(), wide.gamma * torch.sigmoid(-grid)
    second = (2 * (grid - mean) - pull) / scale
    # The rounding of a difference is in units of its terms.
    size = first.abs() + (2 * grid.abs() + 2 * mean.abs() + pull) / scale
    steps = (first + second).diff(dim=-1) / torch.maximum(size[..., 1:], size[..., :-1])
    variation, largest = _variation(gaps)
    return SingleRoot(variation, largest, variation - largest, steps.amin(-1))


def variation_excess(gaps: Float[Tensor, "*b grid"]) -> Float[Tensor, "*b"]:
    r"""The advantage that several thresholds have over one: 0 for laws whose densities cross once.

    It is the positive variation of `gaps`, a difference of distribution functions along a grid, minus its largest size.
    """
    variation, largest = _variation(gaps)
    return variation - largest


def output_grid(
    law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"], nodes: int = _NODES
) -> Float[Tensor, "*b grid"]:
    """Ascending outputs that are dense where either law has mass: a grid of equal steps for each law, merged."""
    mean = law.alpha * teacher
    steps = torch.linspace(-_TAIL, _TAIL, nodes, dtype=mean.dtype, device=mean.device)
    fresh = mean[..., None] + law.sigma[..., None] * steps
    seen = prox(fresh, law.gamma[..., None], label[..., None])
    return torch.cat(torch.broadcast_tensors(fresh, seen), dim=-1).sort(dim=-1).values


def _variation(gaps: Tensor) -> tuple[Tensor, Tensor]:
    edge = torch.zeros_like(gaps[..., :1])
    steps = torch.cat([edge, gaps, edge], dim=-1).diff(dim=-1)
    return steps.clamp_min(0).sum(-1), gaps.abs().amax(-1)
