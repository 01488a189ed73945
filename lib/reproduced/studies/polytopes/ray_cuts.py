r"""The second exact way to the crossings and label changes of `geometry.rays`, which shares no step with it.

A ray is cut layer by layer, at all its crossings at once, where `geometry.rays` follows it from polytope to polytope.
Directions are unit vectors.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.geometry.rays import LEVEL
from leakage.models.mlp import Mlp


class Breaks(NamedTuple):
    """All crossings up to a length, ascending, and the neurons that flip there; padded with infinity and -1."""

    lengths: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]


def all_breaks(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, until: float
) -> Breaks:
    r"""Every hyperedge on $0 < t \le$ `until`, by cutting the ray layer by layer.

    Between the breaks of the layers before, the heights $z^l$ are affine in t: a change of sign between two
    neighbouring breaks is one crossing, at $t_0 + (t_1 - t_0)\, z_0 / (z_0 - z_1)$.
    """
    ends = torch.tensor([0.0, until], dtype=points.dtype, device=points.device)
    grid = ends.expand(*points.shape[:-1], 2)
    owners = torch.full_like(grid, -1, dtype=torch.int64)
    before = 0
    for layer, width in enumerate(network.widths[1:-1]):
        heights = _along(network, points, directions, grid)[layer]
        lengths, neurons = _crossings(grid, heights)
        grid, order = torch.cat([grid, lengths], -1).sort(dim=-1, stable=True)
        owners = torch.cat([owners, torch.where(neurons >= 0, neurons + before, -1)], -1).gather(-1, order)
        # Padding sits on the last point of the grid, where pieces have no length and nothing can cross.
        grid, before = grid.clamp_max(until), before + width
    return _trim(grid, owners)


def _along(network: Mlp, points: Tensor, directions: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
    """The heights of all layers (…, t, grid, n_l) at the points of the grid on each ray."""
    places = points.unsqueeze(-2) + grid.unsqueeze(-1) * directions.unsqueeze(-2)
    return tuple(z.unflatten(-2, grid.shape[-2:]) for z in network.preactivations(places.flatten(-3, -2)))


def _crossings(grid: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths and neurons of the changes of activity between neighbours of the grid, padded to the longest ray."""
    low, high = heights[..., :-1, :], heights[..., 1:, :]
    change = (low > 0) != (high > 0)
    left, step = grid[..., :-1].unsqueeze(-1), grid.diff(dim=-1).unsqueeze(-1)
    places = torch.where(change, left + step * low / (low - high), torch.inf).flatten(-2)
    neurons = torch.arange(heights.shape[-1], device=grid.device).expand_as(change).flatten(-2)
    most = int(change.flatten(-2).sum(-1).max())
    lengths, slots = places.topk(most, dim=-1, largest=False, sorted=True)
    return lengths, torch.where(lengths.isfinite(), neurons.gather(-1, slots), -1)


def _trim(grid: Tensor, owners: Tensor) -> Breaks:
    """The places of the grid that have an owner, ascending, padded to the longest ray."""
    lengths, order = torch.where(owners >= 0, grid, torch.inf).sort(dim=-1, stable=True)
    most = int((owners >= 0).sum(-1).max())
    return Breaks(lengths[..., :most], owners.gather(-1, order)[..., :most])


def label_change_by_breaks(
    network: Mlp, points: Float[Tensor, "*b t d"], directions: Float[Tensor, "*b t d"], *, until: float
) -> Float[Tensor, "*b t"]:
    """The length at which each ray first changes its label, from the outputs at `all_breaks`."""
    breaks = all_breaks(network, points, directions, until=until).lengths.clamp_max(until)
    ends = torch.zeros_like(points[..., :1]), torch.full_like(points[..., :1], until)
    grid = torch.cat([ends[0], breaks, ends[1]], -1)
    outputs = _along(network, points, directions, grid)[-1]
    label = outputs[..., :1, :].argmax(-1, keepdim=True).expand(*outputs.shape[:-1], 1)
    lead = outputs.gather(-1, label) - outputs
    lead = lead.masked_fill(lead.abs() <= LEVEL * outputs.abs().amax((-2, -1), keepdim=True), 0.0)
    low, high = lead[..., :-1, :], lead[..., 1:, :]
    left, step = grid[..., :-1].unsqueeze(-1), grid.diff(dim=-1).unsqueeze(-1)
    lower = torch.arange(outputs.shape[-1], device=outputs.device) < label[..., 1:, :]
    places = torch.where(high < 0, left + step * (low / (low - high)).clamp_min(0), torch.inf)
    places = torch.where(lower & (low == 0) & (high == 0), left, places)
    places = torch.where(step > LEVEL * until, places, torch.inf)
    return places.flatten(-2).amin(-1)
