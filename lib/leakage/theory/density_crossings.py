"""Where two densities cross, and the total variation distance that follows from the distribution functions there.

Batched over leading dimensions; knows nothing of the laws but a function to evaluate.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

_ROUNDS = 5  # each round divides the bracket of every sign change by `_SPLIT`
_SPLIT = 8


def sign_changes(
    difference: Callable[[Tensor], Tensor], grid: Float[Tensor, "*#batch points"]
) -> Float[Tensor, "*batch crossings"]:
    """Arguments at which `difference` changes sign along `grid`, ascending, padded with +∞."""
    sign = _without_zeros(torch.sign(difference(grid)))
    change = sign[..., 1:] * sign[..., :-1] < 0
    count = max(1, int(change.sum(-1).max()))
    # Stable descending sort of 0/1: the indices of the changes come first, in ascending order.
    where = torch.sort(change.to(torch.int8), dim=-1, descending=True, stable=True).indices[..., :count]
    valid, left = change.gather(-1, where), sign.gather(-1, where)
    low, high = (grid.expand(sign.shape).gather(-1, where + offset) for offset in (0, 1))
    for _ in range(_ROUNDS):
        low, high = _narrow(difference, low, high, left)
    return torch.where(valid, (low + high) / 2, torch.inf).sort(dim=-1).values


def _without_zeros(sign: Tensor) -> Tensor:
    """Each zero replaced by the last sign before it: a root that falls on a point of the grid is a change too."""
    places = torch.arange(sign.shape[-1], device=sign.device)
    return sign.gather(-1, torch.where(sign != 0, places, 0).cummax(dim=-1).values)


def _narrow(difference: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Shrink each bracket of a sign change by a factor of `_SPLIT`; `left` is the sign at its lower end."""
    fractions = torch.linspace(0, 1, _SPLIT + 1, dtype=low.dtype, device=low.device)
    points = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * fractions
    values = difference(points.flatten(-2)).unflatten(-1, (low.shape[-1], _SPLIT + 1))
    same = (torch.sign(values[..., :-1]) == left.unsqueeze(-1)).to(torch.int8)
    # The last point before the first change of sign: the bracket's lower end always counts as one.
    index = same.cumprod(-1).sum(-1).clamp(min=1).sub(1).unsqueeze(-1).long()
    return points.gather(-1, index).squeeze(-1), points.gather(-1, index + 1).squeeze(-1)


def distance_from_gaps(gaps: Float[Tensor, "*batch crossings"]) -> Float[Tensor, "*batch"]:
    r"""Total variation distance from $G = F_0 - F_1$ at the crossings: half the sum of the jumps of G between them.

    G vanishes at both ends of the line. As $G' = 0$ at a crossing, an error of h in its place costs only $O(h^2)$.
    """
    edge = torch.zeros_like(gaps[..., :1])
    return 0.5 * torch.diff(torch.cat([edge, gaps, edge], dim=-1), dim=-1).abs().sum(-1)
