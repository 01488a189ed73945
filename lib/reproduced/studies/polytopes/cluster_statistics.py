r"""What the pictures of networks on Clusters2D show, as numbers: one call trains a group of networks and measures them.

Results are named tuples of tensors, with the networks of the group along the axis `models`. All networks are in them,
fitted or not; `fitted` says which are evidence. The numbers that the claims compare are in `cluster_contrasts`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.geometry.boundary import decision_boundary
from leakage.geometry.subdivision import Subdivision, subdivide_networks
from reproduced.studies.polytopes import cluster_networks
from reproduced.studies.polytopes.cluster_networks import TASK, ClusterTask, Targets
from reproduced.studies.polytopes.densities import Densities, Discs, by_distance, in_discs
from reproduced.studies.polytopes.movement import mean_moves
from reproduced.studies.polytopes.norm_ridges import Landscape, Norms, Ridge, elsewhere, gradient_order, ridge, survey
from reproduced.studies.polytopes.windows import corners, lattice


@dataclass(frozen=True)
class Looks:
    """Where and when to look; lengths are in units of the unit square's side.

    Attributes:
        epochs: when cells, components and gradients are looked at, besides the last epoch.
        early: first and last epoch of the early phase of movement.
        late: first and last epoch of the late phase.
        distances: edges of the bins of distances to the data.
        radius: of the discs in which edges are looked at.
        within: the distance that counts as near the data.
        side: how many evenly spaced points there are along one side of the window.
        movement_side: the same, for areas that change their activation.
    """

    epochs: tuple[int, ...] = (*range(7), 8, 10, 20, 40, 60)
    early: tuple[int, int] = (0, 10)
    late: tuple[int, int] = (50, 60)
    distances: tuple[float, ...] = (0.0, 0.015, 0.03, 0.06, 0.1, 0.15, 0.2)
    radius: float = 0.05
    within: float = 0.05
    side: int = 200
    movement_side: int = 64

    @property
    def kept(self) -> set[int]:
        """All epochs whose snapshots are needed."""
        phases = (range(first, last + 1) for first, last in (self.early, self.late))
        return {*self.epochs}.union(*phases)


LOOKS = Looks()
"""Where the book looks."""


class History(NamedTuple):
    """Over the epochs: numbers of cells and of pieces of the boundary, order of gradients, length of hyperedges."""

    cells: Int[Tensor, "*epochs models"]
    components: Int[Tensor, "*epochs models"]
    gradient_order: Float[Tensor, "*epochs models"]
    edge_lengths: Float[Tensor, "*epochs models layers"]


class Edges(NamedTuple):
    """How hyperedges lie in discs, as means over the discs of each network; see `densities.Discs`."""

    length: Float[Tensor, "*b"]
    order: Float[Tensor, "*b"]
    parallelism: Float[Tensor, "*b"]


class Portrait(NamedTuple):
    r"""The trained networks: how dense the cells are, how their edges lie, and the norms on the decision boundary.

    Attributes:
        own: cells by distance to the data.
        other: the same for the data of the other networks, summed: they have the same law, but this network never saw
            them.
        gap: hyperedges in the gaps of the pairs.
        rim: hyperedges as close behind the discs of a pair, where there are no classes to separate.
        window: hyperedges all over the window.
        alignment: of hyperedges in the gaps with the direction of each pair's gap.
        other_alignment: the same in the gaps of the other networks' data.
        ridge: norms on the decision boundary.
        other_ridge: the mean over the boundaries of the other networks.
    """

    own: Densities
    other: Densities
    gap: Edges
    rim: Edges
    window: Edges
    alignment: Float[Tensor, "*b"]
    other_alignment: Float[Tensor, "*b"]
    ridge: Ridge
    other_ridge: Norms


class Motion(NamedTuple):
    """How hyperedges move in one epoch, as means over the epochs of a phase.

    Attributes:
        both: the area that changes its activation; see `movement.Moves` for this and the next two.
        own: the same if only the layer itself is updated.
        upstream: the same if only the layers before it are updated.
        speed: the area swept per length of hyperedge, in units of the window's side per epoch; NaN where a layer has no
            hyperedge in the window. The length is the mean over the epochs of the phase that were looked at.
        own_speed: the same if only the layer itself is updated.
    """

    both: Float[Tensor, "models layers"]
    own: Float[Tensor, "models layers"]
    upstream: Float[Tensor, "models layers"]
    speed: Float[Tensor, "models layers"]
    own_speed: Float[Tensor, "models layers"]


class Group(NamedTuple):
    """All that is measured of one group of networks: over `epochs`, after the last one, and in two phases of motion."""

    epochs: Int[Tensor, " epochs"]
    accuracy: Float[Tensor, " models"]
    fitted: Bool[Tensor, " models"]
    history: History
    portrait: Portrait
    early: Motion
    late: Motion


class Movement(NamedTuple):
    """How hyperedges of a group of networks move: the parts of `Group` that say so."""

    fitted: Bool[Tensor, " models"]
    early: Motion
    late: Motion


def group(
    number: int,
    *,
    models: int,
    seed: int,
    task: ClusterTask = TASK,
    looks: Looks = LOOKS,
    device: torch.device | str = "cpu",
) -> Group:
    """Train group `number` of networks and measure them."""
    targets = cluster_networks.train(
        task, models=models, seed=seed, group=number, epochs=sorted(looks.kept), device=device
    )
    epochs = sorted({*looks.epochs, targets.last})
    seen = history(targets, epochs)
    early, late = (
        motion(targets, epochs, seen, phase, side=looks.movement_side) for phase in (looks.early, looks.late)
    )
    noted = torch.tensor(epochs, device=targets.accuracy.device)
    return Group(noted, targets.accuracy, targets.fitted, seen, portrait(targets, looks), early, late)


def history(targets: Targets, epochs: Sequence[int]) -> History:
    """Cells, ridges and hyperedges at these epochs."""
    device, rows = targets.accuracy.device, []
    for epoch in epochs:
        fines = subdivide_networks(targets.snapshots[epoch], corners(device=device))
        rows.append(
            History(
                cells=torch.tensor([len(fine) for fine in fines], device=device),
                components=torch.tensor([decision_boundary(fine).components for fine in fines], device=device),
                gradient_order=torch.stack([gradient_order(fine) for fine in fines]),
                edge_lengths=torch.stack([edge_lengths(fine) for fine in fines]),
            )
        )
    return _together(rows, torch.stack)


def beginning(
    number: int, *, models: int, seed: int, task: ClusterTask = TASK, device: torch.device | str = "cpu"
) -> History:
    """The history of group `number` from epoch 0 to 5, without further training."""
    short = replace(task, recipe=replace(task.recipe, epochs=5))
    targets = cluster_networks.train(short, models=models, seed=seed, group=number, epochs=range(6), device=device)
    return history(targets, range(6))


def movement(
    number: int, *, models: int, seed: int, task: ClusterTask, looks: Looks = LOOKS, device: torch.device | str = "cpu"
) -> Movement:
    """Train group `number` and measure the motion of both phases, with the lengths at the ends of each phase."""
    phases = (looks.early, looks.late)
    epochs = sorted({*looks.kept, *looks.early, *looks.late})
    targets = cluster_networks.train(task, models=models, seed=seed, group=number, epochs=epochs, device=device)
    ends = sorted({*looks.early, *looks.late})
    seen = history(targets, ends)
    return Movement(targets.fitted, *(motion(targets, ends, seen, phase, side=looks.movement_side) for phase in phases))


def moved(parts: Sequence[Movement], *, only_fitted: bool = True) -> Movement:
    """Several groups as one, by default without the networks that are unfitted."""
    whole = _together(parts, torch.cat)
    kept = whole.fitted if only_fitted else torch.ones_like(whole.fitted)
    return _together([whole], lambda tensors: tensors[0][kept])


def edge_lengths(subdivision: Subdivision) -> Float[Tensor, " layers"]:
    """The total length of the hyperedges of each hidden layer in the window."""
    segments, neurons = subdivision.hyperedges()
    widths = subdivision.network.widths[1:-1]
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    each = lengths.new_zeros(sum(widths)).index_add(0, neurons, lengths)
    return torch.stack([part.sum() for part in each.split(widths)])


def portrait(targets: Targets, looks: Looks = LOOKS) -> Portrait:
    """The portrait of the networks after the last epoch."""
    fines = subdivide_networks(targets.snapshots[targets.last], corners(device=targets.accuracy.device))
    views = [survey(fine, side=looks.side) for fine in fines]
    return _together([_likeness(index, views, targets, looks) for index in range(len(views))], torch.stack)


def _likeness(index: int, views: list[Landscape], targets: Targets, looks: Looks) -> Portrait:
    """The portrait of one network."""
    view, data = views[index], targets.data[index]
    others = [other for other in range(len(views)) if other != index]
    strangers = [targets.data[other] for other in others]
    chance = elsewhere(view, [views[other].boundary for other in others])
    own, *tables = (
        by_distance(view.subdivision, part.points, edges=looks.distances, lattice=view.points)
        for part in (data, *strangers)
    )
    sums = (sum(parts, torch.zeros_like(of)) for of, *parts in zip(own, *tables, strict=True))
    # As far behind a disc of the data as the middle of the gap is before it, but with nothing on the other side.
    behind = (2 * data.centres - data.middles.unsqueeze(1)).flatten(0, 1)
    everywhere = looks.radius + (1 - 2 * looks.radius) * lattice(_DISCS, device=data.points.device)
    seen = [in_discs(view.subdivision, part.middles, radius=looks.radius) for part in (data, *strangers)]
    aligned = [discs.alignment(part.walls) for discs, part in zip(seen, (data, *strangers), strict=True)]
    return Portrait(
        own=own,
        other=Densities(*sums),
        gap=_edges(seen[0]),
        rim=_edges(in_discs(view.subdivision, behind, radius=looks.radius)),
        window=_edges(in_discs(view.subdivision, everywhere, radius=looks.radius)),
        alignment=aligned[0].nanmean(),
        other_alignment=torch.cat(aligned[1:]).nanmean() if others else torch.full_like(aligned[0][0], torch.nan),
        ridge=ridge(view, data.points, within=looks.within),
        other_ridge=Norms(*torch.stack([*chance], -1).nanmean(0)),
    )


def _edges(discs: Discs) -> Edges:
    return Edges(discs.lengths.mean(), discs.order.nanmean(), discs.parallelism.nanmean())


_DISCS = 14  # discs of reference along one side of the window: at a radius of 0.05 they cover it about once and a half


def motion(targets: Targets, epochs: Sequence[int], seen: History, phase: tuple[int, int], *, side: int) -> Motion:
    """How hyperedges move from the first to the last epoch of a phase, on `side` × `side` points."""
    first, last = phase
    within = [first <= epoch <= last for epoch in epochs]
    moved = mean_moves(targets.snapshots, lattice(side, device=targets.accuracy.device), first=first, last=last)
    neurons = targets.accuracy.new_tensor(targets.snapshots[targets.last].widths[1:-1])
    length = seen.edge_lengths[torch.tensor(within, device=neurons.device)].mean(0) / neurons
    return Motion(*moved, speed=moved.both / length, own_speed=moved.own / length)


def _together(parts: Sequence[Any], join: Callable[[list[Tensor]], Tensor]) -> Any:
    """One named tuple of several of one kind: tensors joined, tuples within them likewise."""
    if isinstance(parts[0], Tensor):
        return join([*parts])
    return type(parts[0])(*(_together(fields, join) for fields in zip(*parts, strict=True)))


def pooled(groups: Sequence[Group], *, only_fitted: bool = True) -> Group:
    """Several groups as one, along the axis of models; by default without the networks that are unfitted."""
    fitted = torch.cat([part.fitted for part in groups])
    kept = (fitted if only_fitted else torch.ones_like(fitted)).nonzero().squeeze(-1)

    def chosen(field: str, axis: int = 0) -> Any:
        parts = [getattr(part, field) for part in groups]
        return _together(parts, lambda tensors: torch.cat(tensors, axis).index_select(axis, kept))

    rest = {field: chosen(field) for field in Group._fields if field not in ("epochs", "history")}
    return Group(epochs=groups[0].epochs, history=chosen("history", 1), **rest)
