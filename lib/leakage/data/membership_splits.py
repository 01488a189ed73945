"""Which models are trained on which points of a pool, so that a membership attack can be judged fairly.

In complementary pairs every point is a member of exactly half of the models, and an attack on one model learns from the
others *except its partner*: without the target alone, a point's count of members would give the answer away. In
independent subsets (`partner=None`) nothing is given away, and all others are references. Numbers are positions in the
pool. Nothing here reads a data set or trains.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from leakage import arguments, blocks


@dataclass(frozen=True, eq=False)
class Pairs:
    """Models in complementary pairs: model 2i + 1 is trained on what 2i is not.

    Attributes:
        rows: the training points of each model.
        member: whether a point is one of them.
        partner: the other model of each model's pair.
    """

    rows: Int[Tensor, "models m"]
    member: Bool[Tensor, "models points"]
    partner: Int[Tensor, " models"]


def complementary_pairs(points: int, models: int, *, generator: torch.Generator) -> Pairs:
    """Random halves of a pool and their complements, on the device of the generator.

    Raises:
        ValueError: if `points` or `models` is not an even number from 2 on.
    """
    points, models = arguments.count("points", points, least=2), arguments.count("models", models, least=2)
    for name, value in (("points", points), ("models", models)):
        if value % 2:
            raise ValueError(f"`{name}` must be even, got {value!r}: halves and pairs have no rest.")
    device = generator.device
    order = torch.rand(models // 2, points, dtype=torch.float32, generator=generator, device=device).argsort(-1)
    rows = order.unflatten(-1, (2, points // 2)).flatten(0, 1)
    member = torch.zeros(models, points, dtype=torch.bool, device=device).scatter(-1, rows, True)
    # 1, 0, 3, 2, …
    partner = torch.arange(models, device=device).unflatten(0, (-1, 2)).flip(-1).flatten()
    return Pairs(rows, member, partner)


def complementary_halves(
    points: int, models: int, *, generator: torch.Generator
) -> tuple[Bool[Tensor, "models points"], Int[Tensor, " models"]]:
    """Members and partners as in `complementary_pairs`, of any number of points: halves may differ by one.

    Raises:
        ValueError: if `points` is below 2, or `models` is not an even number from 2 on.
    """
    points, models = arguments.count("points", points, least=2), arguments.count("models", models, least=2)
    if models % 2:
        raise ValueError(f"`models` must be even, got {models!r}: each model has a partner.")
    device = generator.device
    rank = torch.rand(models // 2, points, dtype=torch.float32, generator=generator, device=device).argsort(-1)
    pair = torch.arange(models // 2, device=device).unsqueeze(-1)
    first = rank < (points + pair % 2) // 2  # the larger half goes round
    member = torch.stack([first, ~first], dim=1).flatten(0, 1)
    return member, torch.arange(models, device=device).unflatten(0, (-1, 2)).flip(-1).flatten()


def quarters(points: int, *, size: int, generator: torch.Generator) -> Int[Tensor, "4 size"]:
    """Four disjoint random sets of a pool: a target's members and outsiders, then a shadow model's.

    Raises:
        ValueError: if the pool does not hold four sets of `size` points, at least 1.
    """
    points = arguments.count("points", points, least=4)
    size = arguments.count("size", size, least=1, most=points // 4)
    order = torch.randperm(points, generator=generator, device=generator.device)
    return order[: 4 * size].view(4, size)


def check_design(
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None,
    *,
    least: int = 1,
    target: int | None = None,
) -> None:
    """Refuse a design that does not fit: `check_pairs`, or without partners one with fewer than two other models.

    Raises:
        ValueError: if shapes do not fit, a target is no model, there are too few references, or as `check_pairs`.
    """
    arguments.filled("member", arguments.truth("member", member, "models points"))
    if target is not None:
        arguments.count("target", target, most=len(member) - 1)
    if partner is not None:
        check_pairs(member, partner, least=least)
    elif len(member) < 3:
        raise ValueError(f"`member` must have two models or more besides the target, got {len(member)} in all.")


def check_pairs(member: Bool[Tensor, "models points"], partner: Int[Tensor, " models"], *, least: int = 1) -> None:
    """Refuse a design from which an attack that leaves target and partner out could not learn, or would learn too much.

    Args:
        member: who was trained on what.
        partner: each model's partner.
        least: how many members and outsiders of each point every attack needs besides target and partner.

    Raises:
        ValueError: if shapes do not fit, partners are not mutual or not complementary, or a count is too small.
    """
    arguments.truth("member", member, "models points")
    partner = arguments.whole("partner", partner, "models", most=len(member) - 1, models=len(member)).long()
    arguments.filled("member", member)
    models = torch.arange(len(partner), device=partner.device)
    if bool((partner == models).any()) or not torch.equal(partner[partner], models):  # noqa: TID251  integers
        raise ValueError(f"`partner` must pair each model with another one, mutually; got {partner.tolist()}.")
    parts = [member[:, part] for part in blocks.of(member.shape)]
    if not all(bool((part ^ part[partner]).all()) for part in parts):
        raise ValueError(
            "`member` must be complementary within pairs: with any other rest, the count of members among the models "
            "left tells who was one; draw it with `complementary_pairs`."
        )
    inside = torch.cat([part.sum(0) for part in parts]) - 1  # of each pair one is in and one is out
    fewest = int(torch.minimum(inside, len(partner) - 2 - inside).min())
    if fewest < least:
        raise ValueError(
            f"`member` must leave each point {least} members and {least} outsiders besides target and partner, "
            f"got {fewest}; train at least {2 * least + 2} models."
        )
