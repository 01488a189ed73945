"""Small networks and windows for the tests of the geometry."""

import torch
from torch import Tensor

from leakage.data.gaussians import gaussian
from leakage.models import mlp
from leakage.models.mlp import Mlp
from reproduced.runtime import stream

SQUARE = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
SHAPES = ((2, 9, 2), (2, 6, 5, 2), (2, 5, 4, 3, 3), (2, 4, 4, 4, 4, 2))


def network(widths: tuple[int, ...], seed: int, *, models: tuple[int, ...] = ()) -> Mlp:
    return mlp.initial(models, widths, generator=stream(seed, "network"))


def points(count: int, dimension: int, seed: int = 0) -> Tensor:
    return gaussian((count, dimension), generator=stream(seed, "points"))


def directions(count: int, dimension: int, seed: int = 0) -> Tensor:
    drawn = gaussian((count, dimension), generator=stream(seed, "directions"))
    return drawn / drawn.norm(dim=-1, keepdim=True)


def one_layer(normals: list[list[float]], offsets: list[float], outputs: list[list[float]] | None = None) -> Mlp:
    """A network with these hyperedges."""
    kind = torch.float64
    rows = outputs if outputs is not None else [[1.0] * len(normals), [-1.0] * len(normals)]
    return Mlp(
        (torch.tensor(normals, dtype=kind), torch.tensor(rows, dtype=kind)),
        (torch.tensor(offsets, dtype=kind), torch.zeros(len(rows), dtype=kind)),
    )
