r"""Random problems on the line, whose optimum (`max_margin`) is attacked, and KKT points that are no optima."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakage.draws import gaussian, integers, uniform
from leakage.precision import DTYPE
from reproduced.papers.kkt_margin.max_margin import (
    Cones,
    Optimum,
    cones_on_line,
    optimum_of_neurons,
    optimum_on_line,
    solve_cone_program,
)

_FLIPPED = 0.2  # share of labels
_KINK = 1e-5  # |p·x̃| in units of ‖p‖·‖x̃‖
_RESIDUAL = 1e-5  # of the unit vectors u_j
_WORSE = 1e-4  # share of the least value by which a KKT point must exceed it to count as no optimum


def _random(count: int, generator: torch.Generator) -> Tensor:
    return 2.0 * integers(2, (count,), generator=generator) - 1


def _blocks(size: int) -> Callable[[int, torch.Generator], Tensor]:
    """Labels that change after every `size` neighbours, with a random first one."""

    def labels(count: int, generator: torch.Generator) -> Tensor:
        blocks = torch.arange(count) // size
        return _random(1, generator) * (1 - 2 * (blocks % 2))

    return labels


def _flipped(count: int, generator: torch.Generator) -> Tensor:
    """Two halves, with some labels flipped: a problem that can be learned, with noise."""
    flips = uniform((count,), generator=generator, dtype=torch.float32) < _FLIPPED
    halves = torch.arange(count) < count // 2
    return _random(1, generator) * torch.where(halves ^ flips, 1.0, -1.0)


LABEL_LAWS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "random": _random,
    "alternating": _blocks(1),
    "pairs": _blocks(2),
    "triples": _blocks(3),
    "flipped": _flipped,
}
"""Laws of the labels of points on the line, in ascending order of the points."""


def draw_problem(
    law: str, *, count: int, generator: torch.Generator, spaced: bool = False
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """`count` ascending points on the line and their labels, by a law of `LABEL_LAWS`.

    The points are normal or, if `spaced`, one each near the middle of equal parts of [-2, 2], which a network of
    moderate width can fit.
    """
    if spaced:
        shifts = uniform((count,), generator=generator) / 2 + 0.25
        points = 4 * (torch.arange(count) + shifts) / count - 2
    else:
        points = gaussian((count,), generator=generator).sort().values
    return points, LABEL_LAWS[law](count, generator).to(DTYPE)


def draw_scattered_problem(
    count: int, *, generator: torch.Generator
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """`count` ascending points with heavy tails, a random scale and a random shift, and coin flips for labels.

    Points are those of Student's law with three degrees of freedom, times $e^{0.8 Z}$, plus $1.5 Z'$.
    """
    tails = gaussian((count,), generator=generator) / gaussian((3, count), generator=generator).square().mean(0).sqrt()
    scale, shift = gaussian((2,), generator=generator)
    return (tails * (0.8 * scale).exp() + 1.5 * shift).sort().values, _random(count, generator).to(DTYPE)


def restricted_optima(
    points: Float[Tensor, " n"], labels: Float[Tensor, " n"], *, share: float, tries: int, generator: torch.Generator
) -> list[Optimum]:
    r"""KKT points with margin 1 that are no global optima, each the optimum over a random `share` of the cones.

    A neuron that is absent meets the KKT conditions whatever the multipliers are. So the optimum over some of the cones
    of `max_margin.Cones` is a KKT point of the whole problem if each of its neurons meets them. Neurons with a kink
    at a point need not: there $s_{ij}$ must lie in [0, 1]. Optima that fail this are left out. Most of the `tries` fit
    no network to the labels, or give the global optimum. Points ascend.
    """
    cones, y = cones_on_line(points.double().numpy()), labels.double().numpy()
    least, found = optimum_on_line(points, labels).value, []
    for _ in range(tries):
        draws = uniform((len(cones.signs),), generator=generator, dtype=torch.float32)
        other = _kkt_point(cones.subset((draws < share).numpy()), y)
        found += [other] if other is not None and other.value > (1 + _WORSE) * least else []
    return found


def ramp_flat_ramp() -> tuple[Float[Tensor, " 4"], Float[Tensor, " 4"], Optimum]:
    r"""Four points, their labels and their optimum, which has three linear pieces: a ramp, a flat piece and a ramp.

    $$ \Phi(x) = 1 - \tfrac43 \bigl( [x - \tfrac12]_+ + [-x - \tfrac12]_+ \bigr), \qquad
       x = -2, -\tfrac12, \tfrac12, 2, \quad y = -1, 1, 1, -1 $$

    The flat piece is on the margin and one neuron is active on all points, yet neither Theorem 4.2 nor Theorem 4.3 of
    Smorodinsky et al. has a case, the two outer pieces counted or not.
    """
    points = torch.tensor([-2, -0.5, 0.5, 2], dtype=DTYPE)
    labels = torch.tensor([-1, 1, 1, -1], dtype=DTYPE)
    return points, labels, optimum_on_line(points, labels)


def _kkt_point(cones: Cones, labels: np.ndarray) -> Optimum | None:
    """The optimum over the cones if it is a KKT point of the whole problem; none if it is not, or fits no labels."""
    if not (cones.active & (cones.signs[:, None] == labels)).any(0).all():
        return None  # some point has no active neuron of its sign
    try:
        weights, signs, multipliers, gap = solve_cone_program(cones, labels)
    except RuntimeError:  # no certificate: these cones fit no network to the labels
        return None
    if not _meets_conditions(cones.points, labels, weights, signs, multipliers):
        return None
    return optimum_of_neurons(weights, signs, torch.as_tensor(multipliers), gap)


def _meets_conditions(
    points: np.ndarray, labels: np.ndarray, weights: np.ndarray, signs: np.ndarray, multipliers: np.ndarray
) -> bool:
    """Whether each neuron is the sum of its active points, plus a share in [0, 1] of each point on its kink."""
    pulls = (multipliers * labels)[:, None] * points
    for weight, sign in zip(weights, signs, strict=True):
        unit = weight / np.linalg.norm(weight)
        heights = points @ unit / np.linalg.norm(points, axis=1)
        rest = sign * unit - pulls[heights > _KINK].sum(0)
        for at in np.flatnonzero((np.abs(heights) <= _KINK) & (multipliers > 0)):
            rest = rest - np.clip(rest @ pulls[at] / (pulls[at] @ pulls[at]), 0, 1) * pulls[at]
        if np.linalg.norm(rest) > _RESIDUAL:
            return False
    return True
