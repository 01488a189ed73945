"""The window of Clusters2D, and points spread evenly over it or along a boundary in it.

Where a share of an area or of a length has no closed form, it is a mean over these points: nothing is random, and the
error falls with the spacing. Everything is float64.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.runtime import DTYPE

_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def corners(*, device: torch.device | str = "cpu") -> Float[Tensor, "4 2"]:
    """The corners of the unit square, counter-clockwise: a window for `subdivision.subdivide`."""
    return torch.tensor(_CORNERS, dtype=DTYPE, device=device)


def box(low: tuple[float, float], high: tuple[float, float], *, device: torch.device | str = "cpu") -> Tensor:
    """The corners (4, 2) of the upright box between its lower left and its upper right corner."""
    ends = torch.tensor([low, high], dtype=DTYPE, device=device)
    return ends[0] + corners(device=device) * (ends[1] - ends[0])


def lattice(side: int, *, device: torch.device | str = "cpu") -> Float[Tensor, "t 2"]:
    """The middles of `side` × `side` equal squares that tile the unit square, row after row from below."""
    steps = (torch.arange(side, dtype=DTYPE, device=device) + 0.5) / side
    return torch.stack([steps.repeat(side), steps.repeat_interleave(side)], -1)


def along(segments: Float[Tensor, "s 2 2"], count: int) -> Float[Tensor, "count 2"]:
    """`count` points at equal distances along segments put end to end."""
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    ends = lengths.cumsum(0)
    places = (torch.arange(count, dtype=ends.dtype, device=ends.device) + 0.5) / count * ends[-1]
    chosen = torch.searchsorted(ends, places).clamp_max(len(ends) - 1)
    share = ((places - ends[chosen]) / lengths[chosen] + 1).unsqueeze(-1)
    start, end = segments[chosen].unbind(1)
    return start + share * (end - start)
