"""Random problems on the line: the points and labels whose optimum (`theory.kkt.optimum`) is attacked."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.data.gaussians import gaussian
from leakage.runtime import DTYPE

_FLIPPED = 0.2  # share of labels


def _random(count: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, (count,), generator=generator, device=generator.device) - 1


def _blocks(size: int) -> Callable[[int, torch.Generator], Tensor]:
    """Labels that change after every `size` neighbours, with a random first one."""

    def labels(count: int, generator: torch.Generator) -> Tensor:
        blocks = torch.arange(count, device=generator.device) // size
        return _random(1, generator) * (1 - 2 * (blocks % 2))

    return labels


def _flipped(count: int, generator: torch.Generator) -> Tensor:
    """Two halves, with some labels flipped: a problem that can be learned, with noise."""
    flips = torch.rand(count, dtype=torch.float32, generator=generator, device=generator.device) < _FLIPPED
    halves = torch.arange(count, device=generator.device) < count // 2
    return _random(1, generator) * torch.where(halves ^ flips, 1.0, -1.0)


LABEL_LAWS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "random": _random,
    "alternating": _blocks(1),
    "pairs": _blocks(2),
    "triples": _blocks(3),
    "flipped": _flipped,
}
"""Laws of the labels of points on the line, in ascending order of the points."""


def _normal(count: int, generator: torch.Generator) -> Tensor:
    return gaussian((count,), generator=generator).sort().values


def _spaced(count: int, generator: torch.Generator) -> Tensor:
    """One point near the middle of each of `count` equal parts of [-2, 2]: a network of moderate width can fit them."""
    shifts = torch.rand(count, generator=generator, device=generator.device, dtype=DTYPE) / 2 + 0.25
    return 4 * (torch.arange(count, device=generator.device) + shifts) / count - 2


POINT_LAWS: dict[str, Callable[[int, torch.Generator], Tensor]] = {"normal": _normal, "spaced": _spaced}
"""Laws of ascending points on the line."""


def draw_problem(
    law: str, *, count: int, generator: torch.Generator, points: str = "normal"
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Ascending points on the line and their labels.

    Args:
        law: of the labels, a name in `LABEL_LAWS`.
        count: n.
        generator: the source of randomness; its device is the result's.
        points: the law of the points, a name in `POINT_LAWS`.

    Raises:
        ValueError: if a law is unknown or there is no point.
    """
    for name, chosen, laws in (("law", law, LABEL_LAWS), ("points", points, POINT_LAWS)):
        arguments.choice(name, chosen, laws)
    arguments.count("count", count, least=1)
    return POINT_LAWS[points](count, generator), LABEL_LAWS[law](count, generator).to(DTYPE)
