r"""Attacks that see only predicted labels: robustness to noise, and the decision-based walk of HopSkipJump.

The attacker sees the label that any classifier (`models.classifier`) gives to a point of its choice. All points share
the same random draws, so they are compared under the same noise, in any order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage import draws
from leakage.models.classifier import Classifier, check_logits
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE

_CACHED = 2**17  # numbers of noisy copies in one query to an `Mlp`: 1 MiB of float64 stays in the cache
_NUMBERS_IN_QUERY = 2**22  # in one query to another classifier, where each query may be slow: 32 MiB


def _flip_bits(points: Tensor, copies: int, amount: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    flips = draws.uniform((copies, points.shape[1]), generator=generator, like=points, dtype=DTYPE)
    flipped = (flips < amount).to(points.dtype)
    return lambda part: (part[:, None] - flipped).abs_()  # bit b flipped by s is |b − s|


def _add_normal(points: Tensor, copies: int, amount: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    drawn = draws.gaussian((copies, points.shape[1]), generator=generator, like=points, dtype=DTYPE)
    moves = (amount * drawn).to(points)
    return lambda part: part[:, None] + moves


NOISES: Mapping[str, Callable[[Tensor, int, float, torch.Generator], Callable[[Tensor], Tensor]]] = {
    "flip": _flip_bits,
    "gaussian": _add_normal,
}
"""`flip` flips bits with probability `amount`; `gaussian` adds independent normal noise of that standard deviation."""


def noise_robustness(
    network: Classifier,
    points: Float[Tensor, "t d"],
    labels: Int[Tensor, " t"],
    *,
    amount: float,
    copies: int,
    generator: torch.Generator,
    noise: str = "flip",
) -> Float[Tensor, " t"]:
    """The share of noisy copies of each point that get its true label: one query each.

    Source: Choquette-Choo et al. (2021), Section 3.3 (random noise).
    """
    if noise == "flip" and (amount > 1 or not bool(((points == 0) | (points == 1)).all())):
        raise ValueError("`noise` 'flip' is for bits 0 and 1 and an amount up to 1; take 'gaussian' for other numbers.")
    add_noise = NOISES[noise](points, copies, amount, generator)
    parts = points.split(_points_per_query(network, copies * points.shape[1]))
    predicted = torch.cat([_predict(network, add_noise(part).flatten(0, 1)) for part in parts])
    return (predicted.view(len(points), copies) == labels[:, None]).double().mean(1)


@dataclass(frozen=True)
class HopSkipJumpSettings:
    """How many steps and queries HopSkipJump takes.

    Attributes:
        directions: random directions of the first estimate; the t-th takes √t times as many.
        bisections: queries to find the boundary on a segment.
        halvings: the most queries to find a step that keeps the other label.
    """

    iterations: int = 4
    directions: int = 60
    bisections: int = 14
    halvings: int = 10

    def directions_at(self, step: int) -> int:
        """Random directions of one estimate, counted from 1."""
        return round(self.directions * math.sqrt(step))

    @property
    def queries(self) -> int:
        """The most queries for one point, besides those to the pool that all points share."""
        steps = range(1, self.iterations + 1)
        return self.bisections + sum(self.directions_at(step) + self.halvings + self.bisections for step in steps)


def hop_skip_jump(
    network: Classifier,
    points: Float[Tensor, "t d"],
    pool: Float[Tensor, "p d"],
    *,
    settings: HopSkipJumpSettings | None = None,
    generator: torch.Generator,
) -> Float[Tensor, " t"]:
    r"""An upper bound of each distance to another label from labels alone; infinite if no point of the pool has one.

    From the nearest point of another label in the pool: bisect to the boundary; estimate its normal by
    $\hat v = \sum_b (\varphi_b - \bar\varphi) u_b$, $\varphi_b = \pm 1$ the label at $x' + \delta u_b$ on random unit
    directions, $\delta = \lVert x' - x \rVert / d$; step $\lVert x' - x \rVert / \sqrt t$ along it, halved until
    the label stays another; repeat.

    Source: Chen, Jordan and Wainwright (2020), Algorithm 2, for the Euclidean norm. Departures: the first point comes
    from a pool that the attacker owns; the number of bisections is fixed; inputs are not clipped to a box.
    """
    settings = settings or HopSkipJumpSettings()
    own = _predict(network, points)
    gaps = torch.cdist(points, pool).masked_fill(own[:, None] == _predict(network, pool), torch.inf)
    reached = gaps.isfinite().any(1)
    search = _Search(network, points, own, settings)
    boundary = search.bisect(torch.where(reached[:, None], pool[gaps.argmin(1)], points))
    for step in range(1, settings.iterations + 1):
        boundary = search.bisect(search.jump(boundary, step, generator))
    return torch.where(reached, (boundary - points).norm(dim=-1), torch.inf)


def _predict(network: Classifier, points: Float[Tensor, "t d"]) -> Int[Tensor, " t"]:
    return check_logits(network(points), count=len(points)).argmax(-1)


def _points_per_query(network: Classifier, numbers: int) -> int:
    """How many points one query takes, if all copies of one point hold so many numbers."""
    return max(1, (_CACHED if isinstance(network, Mlp) else _NUMBERS_IN_QUERY) // numbers)


class _Search:
    r"""The steps of HopSkipJump for many points at once.

    All queries lie on lines between points. So for an `Mlp`, $W_1 x$ is computed for the ends of the lines and
    interpolated between them: the same answers up to rounding.
    """

    def __init__(self, network: Classifier, points: Tensor, own: Tensor, settings: HopSkipJumpSettings) -> None:
        self.network, self.points, self.own, self.settings = network, points, own, settings

    def image(self, points: Float[Tensor, "t d"]) -> Float[Tensor, "t k"]:
        """$W_1 x$ of points or directions, or themselves if the classifier is no `Mlp`."""
        return points @ self.network.weights[0].mT if isinstance(self.network, Mlp) else points

    def labels(self, images: Float[Tensor, "t k"]) -> Int[Tensor, " t"]:
        """The labels of points with these images, which may be overwritten."""
        network = self.network
        return (network.above(images) if isinstance(network, Mlp) else network(images)).argmax(-1)

    def bisect(self, far: Float[Tensor, "t d"]) -> Float[Tensor, "t d"]:
        """The point just beyond the boundary on the segment from each point to a far end with another label."""
        low, high = (torch.full_like(far[:, :1], value) for value in (0.0, 1.0))
        start, direction = self.image(self.points), self.image(far - self.points)
        for _ in range(self.settings.bisections):
            middle = (low + high) / 2
            other_label = (self.labels(start + middle * direction) != self.own)[:, None]
            low, high = torch.where(other_label, low, middle), torch.where(other_label, middle, high)
        return self.points + high * (far - self.points)

    def jump(self, boundary: Float[Tensor, "t d"], step: int, generator: torch.Generator) -> Float[Tensor, "t d"]:
        """A step along the estimated normal that keeps the other label; none if no length does."""
        normal = self.normal(boundary, self.settings.directions_at(step), generator)
        length = (boundary - self.points).norm(dim=-1, keepdim=True) / math.sqrt(step)
        start, direction = self.image(boundary), self.image(normal)
        taken = torch.zeros_like(length)
        for _ in range(self.settings.halvings):
            keeps_other_label = (self.labels(start + length * direction) != self.own)[:, None] & (taken == 0)
            taken, length = torch.where(keeps_other_label, length, taken), length / 2
        return torch.where(taken > 0, boundary + taken * normal, boundary)

    def normal(self, boundary: Float[Tensor, "t d"], batch: int, generator: torch.Generator) -> Float[Tensor, "t d"]:
        """The estimated unit normal at each boundary point, from random directions that all share."""
        drawn = draws.gaussian((batch, boundary.shape[1]), generator=generator, like=boundary, dtype=DTYPE)
        unit = (drawn / drawn.norm(dim=-1, keepdim=True)).to(boundary)
        width = (boundary - self.points).norm(dim=-1) / boundary.shape[1]
        starts, directions = self.image(boundary), self.image(unit)
        chunk = _points_per_query(self.network, directions.numel())
        queries = (
            torch.addcmul(start[:, None], step[:, None, None], directions).flatten(0, 1)
            for start, step in zip(starts.split(chunk), width.split(chunk), strict=True)
        )
        other_label = torch.cat([self.labels(part) for part in queries]).view(-1, batch) != self.own[:, None]
        sign = 2 * other_label.to(boundary.dtype) - 1
        balanced = sign - sign.mean(1, keepdim=True)
        # Where all directions agree, the balanced signs are 0, and the signs themselves are taken.
        slope = torch.where(balanced.any(1, keepdim=True), balanced, sign) @ unit
        return slope / slope.norm(dim=-1, keepdim=True)
