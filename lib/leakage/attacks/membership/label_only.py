r"""Attacks that see only predicted labels: robustness to noise, and the decision-based walk of HopSkipJump.

The attacker sees the label that any classifier (`models.classifier`) gives to a point of its choice, and nothing else;
`queries` says how often it asks, for each point. Robustness to noise needs the true label, the walk a pool of other
points. A score is one for each point, larger for likelier members: the share of noisy copies that keep their label, or
the Euclidean distance to another label. What is drawn is drawn once for all points, which are then compared under the
same noise, and whose scores do not depend on their order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments
from leakage.geometry.patterns import check
from leakage.models.classifier import Classifier, check_logits
from leakage.models.mlp import Mlp
from leakage.runtime import DTYPE

_CACHED = 2**17  # numbers of noisy copies looked at together: 1 MiB of float64 stays in the cache
_CHUNK = 2**22  # by classifiers that go on in parts themselves, for which a question is dear: 32 MiB


def _flipped(points: Tensor, copies: int, amount: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    flips = torch.rand((copies, points.shape[1]), generator=generator, device=points.device, dtype=DTYPE)
    turned = (flips < amount).to(points.dtype)
    return lambda part: (part[:, None] - turned).abs_()  # b turned over by s, both 0 or 1, is |b − s|


def _moved(points: Tensor, copies: int, amount: float, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    drawn = torch.randn((copies, points.shape[1]), generator=generator, device=points.device, dtype=DTYPE)
    moves = (amount * drawn).to(points)
    return lambda part: part[:, None] + moves


NOISES: Mapping[str, Callable[[Tensor, int, float, torch.Generator], Callable[[Tensor], Tensor]]] = {
    "flip": _flipped,
    "gaussian": _moved,
}
"""`flip` turns bits over with a probability; `gaussian` adds independent normal noise of a standard deviation."""


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

    Raises:
        ValueError: if there is not one class for each point, the noise is unknown, `flip` meets other values than 0 and
            1 or an amount above 1, an amount is not positive, or there are no points or copies.
    """
    classes = _check(network, points)
    arguments.whole("labels", labels, "t", most=classes - 1, t=len(points))
    arguments.choice("noise", noise, NOISES)
    arguments.count("copies", copies, least=1)
    arguments.number("amount", amount, above=0)
    if noise == "flip" and (amount > 1 or not bool(((points == 0) | (points == 1)).all())):
        raise ValueError("`noise` 'flip' is for bits 0 and 1 and an amount up to 1; take 'gaussian' for other numbers.")
    noisy = NOISES[noise](points, copies, amount, generator)
    few = _together(network, copies * points.shape[1])
    shown = [network(noisy(part).flatten(0, 1)).argmax(-1) for part in points.split(few)]
    return (torch.cat(shown).view(len(points), copies) == labels[:, None]).double().mean(1)


@dataclass(frozen=True)
class Jumps:
    """Sizes of HopSkipJump.

    Attributes:
        iterations: gradient estimates.
        directions: random directions of the first estimate; the t-th has as many times the root of t.
        bisections: queries to find the boundary on a segment.
        halvings: the most queries to find a step that keeps the other label.
    """

    iterations: int = 4
    directions: int = 60
    bisections: int = 14
    halvings: int = 10

    def __post_init__(self) -> None:
        arguments.count("iterations", self.iterations)
        for name in ("directions", "bisections", "halvings"):
            arguments.count(name, getattr(self, name), least=1)

    def batch(self, step: int) -> int:
        """Random directions of one estimate, counted from 1."""
        return round(self.directions * math.sqrt(step))

    @property
    def queries(self) -> int:
        """The most queries for one point, besides those to the pool that all points share."""
        steps = range(1, self.iterations + 1)
        return self.bisections + sum(self.batch(step) + self.halvings + self.bisections for step in steps)


class Found(NamedTuple):
    """Distances to a point of another label; infinite, and not reached, where no point of the pool has another."""

    distances: Float[Tensor, " t"]
    reached: Bool[Tensor, " t"]


def hop_skip_jump(
    network: Classifier,
    points: Float[Tensor, "t d"],
    pool: Float[Tensor, "p d"],
    *,
    jumps: Jumps,
    generator: torch.Generator,
) -> Found:
    r"""An upper bound of the distance to another label from labels alone, for all points at once.

    From the nearest point of another label in the pool: bisect to the boundary; estimate its normal by
    $\hat v = \sum_b (\varphi_b - \bar\varphi) u_b$, $\varphi_b = \pm 1$ the label at $x' + \delta u_b$ on random unit
    directions, $\delta = \lVert x' - x \rVert / d$; step $\lVert x' - x \rVert / \sqrt t$ along it, halved until
    the label stays another; repeat.

    Source: Chen, Jordan and Wainwright (2020), Algorithm 2, for the Euclidean norm. Departures: the first point comes
    from a pool that the attacker owns; the number of bisections is fixed; inputs are not clipped to a box.

    Raises:
        ValueError: if a point or the pool does not fit the network or is missing, or the network is not a single one
            with two classes or more.
    """
    if _check(network, points) < 2:
        raise ValueError("`network` must have two classes or more: with one there is no other label.")
    _check(network, pool, name="pool", like=points)
    own = network(points).argmax(-1)
    apart = torch.cdist(points, pool).masked_fill(own[:, None] == network(pool).argmax(-1), torch.inf)
    reached = apart.isfinite().any(1)
    seek = _Search(network, points, own, jumps)
    place = seek.bisect(torch.where(reached[:, None], pool[apart.argmin(1)], points))
    for step in range(1, jumps.iterations + 1):
        place = seek.bisect(seek.jump(place, step, generator))
    return Found(torch.where(reached, (place - points).norm(dim=-1), torch.inf), reached)


def _check(network: Classifier, points: Tensor, *, name: str = "points", like: Tensor | None = None) -> int:
    """How many classes there are: known of an `Mlp`, and asked of any other classifier at one point."""
    arguments.filled(name, arguments.real(name, points, "t d", like=like))
    if like is not None:
        arguments.tensor(name, points, "t d", d=like.shape[1])
    if not isinstance(network, Mlp):
        return check_logits(network(points[:1]), count=1).shape[1]
    if network.weights[0].ndim != 2:
        raise ValueError(f"`network` must be a single one, got weights {tuple(network.weights[0].shape)}.")
    check(network, points, name=name)
    return network.widths[-1]


def _together(network: Classifier, numbers: int) -> int:
    """Of how many points the copies are asked about at once, given how many numbers they are for one."""
    return max(1, (_CACHED if isinstance(network, Mlp) else _CHUNK) // numbers)


class _Search:
    r"""The steps of HopSkipJump for many points, which all query their own label only.

    All queries lie on lines between points, so that of a network whose first layer is linear $W_1 x$ is multiplied out
    for the ends of the lines, and interpolated for what lies between: the same answers up to rounding.
    """

    def __init__(self, network: Classifier, points: Tensor, own: Tensor, jumps: Jumps) -> None:
        self.network, self.points, self.own, self.jumps = network, points, own, jumps

    def image(self, points: Float[Tensor, "t d"]) -> Float[Tensor, "t k"]:
        """What is interpolated of points or directions."""
        return points @ self.network.weights[0].mT if isinstance(self.network, Mlp) else points

    def labels(self, images: Float[Tensor, "t k"]) -> Int[Tensor, " t"]:
        """Of points with these images, which are used up."""
        network = self.network
        return (network.above(images) if isinstance(network, Mlp) else network(images)).argmax(-1)

    def bisect(self, far: Float[Tensor, "t d"]) -> Float[Tensor, "t d"]:
        """The end with the other label of a short piece of the segment from each point to its far end."""
        low, high = (torch.full_like(far[:, :1], value) for value in (0.0, 1.0))
        start, way = self.image(self.points), self.image(far - self.points)
        for _ in range(self.jumps.bisections):
            middle = (low + high) / 2
            over = (self.labels(start + middle * way) != self.own)[:, None]
            low, high = torch.where(over, low, middle), torch.where(over, middle, high)
        return self.points + high * (far - self.points)

    def jump(self, place: Float[Tensor, "t d"], step: int, generator: torch.Generator) -> Float[Tensor, "t d"]:
        """Along the estimated normal, as far as the label allows; not at all if no step does."""
        normal = self.normal(place, self.jumps.batch(step), generator)
        length = (place - self.points).norm(dim=-1, keepdim=True) / math.sqrt(step)
        start, way = self.image(place), self.image(normal)
        taken = torch.zeros_like(length)
        for _ in range(self.jumps.halvings):
            good = (self.labels(start + length * way) != self.own)[:, None] & (taken == 0)
            taken, length = torch.where(good, length, taken), length / 2
        return torch.where(taken > 0, place + taken * normal, place)

    def normal(self, place: Float[Tensor, "t d"], batch: int, generator: torch.Generator) -> Float[Tensor, "t d"]:
        """The estimated unit normal at each place, from directions that all share."""
        drawn = torch.randn((batch, place.shape[1]), generator=generator, device=place.device, dtype=DTYPE)
        unit = (drawn / drawn.norm(dim=-1, keepdim=True)).to(place)
        width = (place - self.points).norm(dim=-1) / place.shape[1]
        starts, ways = self.image(place), self.image(unit)
        few = _together(self.network, ways.numel())
        asked = (
            torch.addcmul(start[:, None], step[:, None, None], ways).flatten(0, 1)
            for start, step in zip(starts.split(few), width.split(few), strict=True)
        )
        over = torch.cat([self.labels(part) for part in asked]).view(-1, batch) != self.own[:, None]
        sign = 2 * over.to(place.dtype) - 1
        balanced = sign - sign.mean(1, keepdim=True)
        # Where all directions agree, there is no balance to strike: they are taken as they are.
        slope = torch.where(balanced.any(1, keepdim=True), balanced, sign) @ unit
        return slope / slope.norm(dim=-1, keepdim=True)
