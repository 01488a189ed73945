"""Which models are trained on which points of a pool, so that a membership attack can be judged fairly.

In complementary pairs every point is a member of exactly half of the models, and an attack on one model learns from the
others *except its partner*: without the target alone, a point's count of members would give the answer away. In
independent subsets (`partner=None`) nothing is given away, and all others are references. Points are numbered by their
position in the pool.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """Models in complementary pairs: model 2i + 1 is trained on what 2i is not.

    Attributes:
        rows: the training points of each model.
        member: whether each model is trained on each point.
        partner: the other model of each model's pair.
    """

    rows: Int[Tensor, "models m"]
    member: Bool[Tensor, "models points"]
    partner: Int[Tensor, " models"]


def complementary_pairs(points: int, models: int, *, generator: torch.Generator) -> Pairs:
    """Random halves of a pool and their complements; both numbers are even."""
    device = generator.device
    order = torch.rand(models // 2, points, dtype=torch.float32, generator=generator, device=device).argsort(-1)
    rows = order.unflatten(-1, (2, points // 2)).flatten(0, 1)
    member = torch.zeros(models, points, dtype=torch.bool, device=device).scatter(-1, rows, True)
    return Pairs(rows, member, _partners(models, device))


def complementary_halves(
    points: int, models: int, *, generator: torch.Generator
) -> tuple[Bool[Tensor, "models points"], Int[Tensor, " models"]]:
    """Members and partners as in `complementary_pairs`, of any number of points: halves may differ by one."""
    device = generator.device
    rank = torch.rand(models // 2, points, dtype=torch.float32, generator=generator, device=device).argsort(-1)
    pair = torch.arange(models // 2, device=device).unsqueeze(-1)
    first = rank < (points + pair % 2) // 2  # the larger half alternates between first and second models
    return torch.stack([first, ~first], dim=1).flatten(0, 1), _partners(models, device)


def _partners(models: int, device: torch.device) -> Int[Tensor, " models"]:
    """1, 0, 3, 2, …"""
    return torch.arange(models, device=device).unflatten(0, (-1, 2)).flip(-1).flatten()


def quarters(points: int, *, size: int, generator: torch.Generator) -> Int[Tensor, "4 size"]:
    """Four disjoint random sets of a pool: a target's members and outsiders, then a shadow model's."""
    return torch.randperm(points, generator=generator, device=generator.device)[: 4 * size].view(4, size)
