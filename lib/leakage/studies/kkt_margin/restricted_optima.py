r"""KKT points on the line that are no optima: the best networks whose neurons have some activation patterns only.

A neuron that is not there meets the KKT conditions whatever the multipliers are. So the optimum over some of the cones
of `theory.kkt.optimum` is a KKT point of the whole problem if each of its neurons meets them, which those with a kink
at a point need not: there $s_{ij}$ must lie in [0, 1]. What does not is left out.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.theory.kkt.cone_program import solve
from leakage.theory.kkt.optimum import Optimum, half_lines, network_of, univariate

_KINK = 1e-5  # |p·x̃| in units of ‖p‖·‖x̃‖
_RESIDUAL = 1e-5  # of the unit vectors u_j
_WORSE = 1e-4  # of the least value: by how much a point exceeds it that counts as no optimum


def elsewhere(
    points: Float[Tensor, " n"], labels: Float[Tensor, " n"], *, share: float, tries: int, generator: torch.Generator
) -> list[Optimum]:
    """KKT points with margin 1 that are no global optima, each the optimum over a random part of the cones.

    Args:
        points: ascending.
        labels: ±1.
        share: of the cones that a try may use, in expectation.
        tries: how many parts are drawn; most fit no network to the labels, or give the global optimum.
        generator: the source of randomness.

    Raises:
        ValueError: if the points do not ascend, or the share is not in (0, 1].
        RuntimeError: as `optimum.univariate`.
    """
    arguments.number("share", share, above=0, most=1)
    if not bool((arguments.real("points", points, "n").diff() > 0).all()):
        raise ValueError("`points` must ascend; sort them.")
    x, y = (values.cpu().double().numpy() for values in (points, labels))
    cones, least, found = half_lines(x), univariate(points, labels).value, []
    for _ in range(tries):
        chosen = (
            (torch.rand(len(cones.signs), dtype=torch.float32, generator=generator, device=generator.device) < share)
            .cpu()
            .numpy()
        )
        if not (cones.active[chosen] & (cones.signs[chosen, None] == y)).any(0).all():
            continue  # somebody has no neuron of his sign
        try:
            weights, signs, multipliers, gap = solve(cones.subset(chosen), y)
        except RuntimeError:  # no certificate: these cones fit no network to the labels
            continue
        if _meets(cones.points, y, weights, signs, multipliers):
            other = network_of(weights, signs, torch.as_tensor(multipliers).to(points), gap)
            found += [other] if other.value > (1 + _WORSE) * least else []
    return found


def _meets(
    points: np.ndarray, labels: np.ndarray, weights: np.ndarray, signs: np.ndarray, multipliers: np.ndarray
) -> bool:
    """Whether each neuron is the sum of what is active on it, with a share in [0, 1] of a point on its kink."""
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
