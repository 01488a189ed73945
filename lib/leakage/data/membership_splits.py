"""Draw which models are trained on which points of a pool, for a fair test of membership attacks.

In complementary pairs exactly half of the models are trained on each point. An attack on one model may use the others
*except its partner*: with the partner, the number of other models trained on a point would reveal whether the target
was. In independent subsets (`partner=None` in `TrainedModels`) this number reveals nothing, and an attack may use all
other models. Points are numbered by their position in the pool.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from leakage import draws


@dataclass(frozen=True, eq=False)
class Pairs:
    """A split of the pool for every model, in pairs: model 2i + 1 is trained on the points that model 2i is not.

    `rows` are the indices of each model's training points.
    """

    rows: Int[Tensor, "models m"]
    member: Bool[Tensor, "models points"]
    partner: Int[Tensor, " models"]


def complementary_pairs(points: int, models: int, *, generator: torch.Generator) -> Pairs:
    """Random halves of a pool and their complements; `points` and `models` must be even."""
    device = generator.device
    order = draws.uniform((models // 2, points), generator=generator, dtype=torch.float32).argsort(-1)
    rows = order.unflatten(-1, (2, points // 2)).flatten(0, 1)
    member = torch.zeros(models, points, dtype=torch.bool, device=device).scatter(-1, rows, True)
    return Pairs(rows, member, _partners(models, device))


def complementary_masks(
    points: int, models: int, *, generator: torch.Generator
) -> tuple[Bool[Tensor, "models points"], Int[Tensor, " models"]]:
    """`member` and `partner` of `complementary_pairs`, also for odd `points`, where halves differ by one point."""
    device = generator.device
    rank = draws.uniform((models // 2, points), generator=generator, dtype=torch.float32).argsort(-1)
    pair = torch.arange(models // 2, device=device).unsqueeze(-1)
    first = rank < (points + pair % 2) // 2  # if odd, the larger half goes to the first and the second model in turn
    return torch.stack([first, ~first], dim=1).flatten(0, 1), _partners(models, device)


def _partners(models: int, device: torch.device) -> Int[Tensor, " models"]:
    """The partner of each model: 1, 0, 3, 2, …"""
    return torch.arange(models, device=device).unflatten(0, (-1, 2)).flip(-1).flatten()


def target_and_shadow_sets(points: int, *, size: int, generator: torch.Generator) -> Int[Tensor, "4 size"]:
    """Four disjoint random sets of `size` points: members and outsiders of a target, then those of a shadow model."""
    return draws.permutation(points, generator=generator)[: 4 * size].view(4, size)
