r"""The walk to the decision boundary along a gradient: Peinemann's Algorithm 9, as printed and repaired.

Distances are Euclidean in the input; a walk that never sees another label has distance +inf and `reached` false, and is
never left out. A member is expected to be further from the boundary. Gradients lie in the row space of $W_1$, so the
walk takes place there. Steps have one length, because the gradient of a saturated softmax is nearly 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.geometry.jacobian_norms import frobenius_norm
from leakage.geometry.patterns import smooth
from leakage.geometry.row_space import first_change, row_space
from leakage.models.mlp import Mlp


class Walk(NamedTuple):
    """Where the walks from each point ended.

    Attributes:
        distances: from the point to where the walk last saw the label change; infinite if it never changed.
        reached: whether the label changed.
        changes: how often the label changed.
    """

    distances: Float[Tensor, " t"]
    reached: Bool[Tensor, " t"]
    changes: Int[Tensor, " t"]


@dataclass(frozen=True)
class Steps:
    """How a walk goes.

    Attributes:
        loss: a name in `LOSSES`.
        variant: a name in `VARIANTS`.
        width: length of the first step, in units of the input.
        iterations: number of steps.
    """

    loss: str = "confidence"
    variant: str = "exact"
    width: float = 0.25
    iterations: int = 60


def walk(network: Mlp, points: Float[Tensor, "t d"], steps: Steps) -> Walk:
    r"""Walk from every point up the gradient of a loss until, or as long as, the predicted label changes.

    $$ x \leftarrow x \pm \delta\, \nabla J(x) / \lVert \nabla J(x) \rVert $$

    Source: Peinemann (2021), Algorithm 9. The variants are

    - `printed`: at each change of the label the sign turns, and after the first change δ is halved at each step. For
      `confidence`, J is the loss of the currently predicted label. Its ridge lies *on* the boundary: the walk turns
      round there and climbs away from it on the other side.
    - `start label`: the same, with J = minus the log-confidence of the label at the start, whatever the loss. It falls
      across the boundary and so leads back to it.
    - `exact`: steps of δ until the label has changed; the first change on the last step is found exactly.
    """
    network, basis = row_space(network)
    return VARIANTS[steps.variant](network, (points @ basis).detach(), steps)


Objective = Callable[[Mlp, Tensor, Tensor], Tensor]


def _confidence(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    """Minus the log of the largest posterior: the direction of the confidence's fall, without its saturation."""
    return -network(points).log_softmax(-1).amax(-1)


def _start_confidence(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    return -network(points).log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


def _output(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    return -network(points).norm(dim=-1)


def _weight(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    return frobenius_norm(network, smooth(network, points))


def _bias(network: Mlp, points: Tensor, labels: Tensor) -> Tensor:
    r"""$\lVert b_P \rVert_\infty$ with smooth gates, without the $A_l$ that `patterns.adapted` makes on the way."""
    gates, bias = smooth(network, points), network.biases[0].expand(len(points), -1)
    for gate, weight, shift in zip(gates, network.weights[1:], network.biases[1:], strict=True):
        bias = (gate * bias) @ weight.mT + shift
    return bias.abs().amax(-1)


LOSSES: Mapping[str, Objective] = {"confidence": _confidence, "output": _output, "weight": _weight, "bias": _bias}
r"""The losses J to climb: minus the log-confidence, $-\lVert o \rVert_2$, $\lVert A_P \rVert_F$ and
$\lVert b_P \rVert_\infty$, the last two with $\sigma(z)$ for the pattern (Peinemann 2021, Section 6.3)."""


def _direction(network: Mlp, points: Tensor, labels: Tensor, objective: Objective) -> Float[Tensor, "t d"]:
    """The normalised gradient; zero where there is none."""
    with torch.enable_grad():
        places = points.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(objective(network, places, labels).sum(), places)
    norm = slope.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, slope / norm, 0.0)


def _back_and_forth(network: Mlp, points: Tensor, steps: Steps, objective: Objective) -> Walk:
    start = last = network(points).argmax(-1)
    place, end = points, points
    sign, width = (torch.full_like(points[:, :1], value) for value in (1.0, steps.width))
    changes = torch.zeros_like(start)
    for _ in range(steps.iterations):
        place = place + sign * width * _direction(network, place, start, objective)
        seen = network(place).argmax(-1)
        turned = (seen != last)[:, None]
        sign, end, last = torch.where(turned, -sign, sign), torch.where(turned, place, end), seen
        changes = changes + turned.squeeze(1)
        width = torch.where(changes[:, None] > 0, width / 2, width)
    reached = changes > 0
    return Walk(torch.where(reached, (end - points).norm(dim=-1), torch.inf), reached, changes)


def _printed(network: Mlp, points: Tensor, steps: Steps) -> Walk:
    return _back_and_forth(network, points, steps, LOSSES[steps.loss])


def _start_label(network: Mlp, points: Tensor, steps: Steps) -> Walk:
    return _back_and_forth(network, points, steps, _start_confidence)


def _exact(network: Mlp, points: Tensor, steps: Steps) -> Walk:
    """All steps first, then the first change on each: as many segments at once cost little more than a few.

    Points that have arrived are left out of the steps that follow. One that crosses to another label and back within a
    step goes on, to no effect.
    """
    objective = _start_confidence if steps.loss == "confidence" else LOSSES[steps.loss]
    start = network(points).argmax(-1)
    place, moving, taken = points, torch.arange(len(points), device=points.device), []
    for _ in range(steps.iterations):
        after = place + steps.width * _direction(network, place, start[moving], objective)
        taken.append((moving, place, after))
        goes_on = network(after).argmax(-1) == start[moving]
        moving, place = moving[goes_on], after[goes_on]
        if not len(moving):
            break
    row, before, after = (torch.cat(parts) for parts in zip(*taken, strict=True))
    length = first_change(network, before, after)
    met = length.isfinite().nonzero().squeeze(-1)
    first = torch.full_like(start, len(row)).scatter_reduce(0, row[met], met, "amin")
    reached = first < len(row)
    first = first[reached]
    way = after[first] - before[first]
    share = length[first] / way.norm(dim=-1).clamp_min(torch.finfo(way.dtype).tiny)
    crossing = before[first] + share[:, None] * way
    distances = torch.full_like(points[:, 0], torch.inf)
    distances[reached] = (crossing - points[reached]).norm(dim=-1)
    return Walk(distances, reached, reached.long())


VARIANTS: Mapping[str, Callable[[Mlp, Tensor, Steps], Walk]] = {
    "printed": _printed,
    "start label": _start_label,
    "exact": _exact,
}
