r"""The search for the first boundary on a ray that the thesis prints, to be compared with `geometry.rays`.

Unit steps until something changes, then halved steps back and forth. It sees the ends of its steps only: it may miss an
event that a step jumps over, or take a later event for the first.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.geometry.patterns import joined, pattern
from leakage.models.mlp import Mlp


def _label(network: Mlp, points: Tensor) -> Tensor:
    return network(points).argmax(-1, keepdim=True)


def _row(network: Mlp, points: Tensor) -> Tensor:
    return joined(pattern(network, points))


EVENTS = {"label": _label, "pattern": _row}
"""What the search compares: the predicted class, as in the printed Algorithm 5, or the activation pattern, as in its
text."""


class Bracketed(NamedTuple):
    """The length that the printed search reached, infinite if it met nothing, and whether it met anything."""

    lengths: Float[Tensor, "*b t"]
    met: Bool[Tensor, "*b t"]


def bisection(
    network: Mlp,
    points: Float[Tensor, "*b t d"],
    directions: Float[Tensor, "*b t d"],
    *,
    steps: int,
    event: str = "label",
) -> Bracketed:
    r"""The first boundary point of each ray as Algorithm 5 searches it: unit steps, then halved and turned round.

    Every event that differs from the last one seen turns the direction round; from the first on, the step is halved
    after each move. A unit step may hide several events, of which it then finds any. Without an event the algorithm
    leaves its result undefined; here it is infinite.

    Source: Peinemann (2021), Algorithm 5, lines 5 to 24.
    """
    look = EVENTS[event]
    last = look(network, points)
    place = torch.zeros_like(points[..., 0])
    step, found = torch.ones_like(place), torch.full_like(place, torch.inf)
    for _ in range(steps):
        place = place + step
        seen = look(network, points + place.unsqueeze(-1) * directions)
        changed = (seen != last).any(-1)
        found = torch.where(changed, place, found)
        last = seen
        # The sign of `step` is the direction; it is halved once anything was met.
        step = torch.where(found.isfinite(), step / 2, step) * torch.where(changed, -1.0, 1.0)
    return Bracketed(found, found.isfinite())
