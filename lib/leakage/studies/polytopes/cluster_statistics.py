r"""What the pictures of networks on Clusters2D show, as numbers: one call trains a group of networks and measures them.

Results are dictionaries of tensors with the networks of the group along the axis `models`, for `sweeps.sweep`. All
networks are in them, fitted or not; `fitted` says which are evidence. Nothing here judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakage.data.clusters import Clusters
from leakage.geometry.subdivision import Subdivision
from leakage.geometry.windows import lattice
from leakage.studies.polytopes import cluster_networks
from leakage.studies.polytopes.cluster_networks import TASK, Targets, Task
from leakage.studies.polytopes.densities import by_distance, in_discs
from leakage.studies.polytopes.movement import mean_moves
from leakage.studies.polytopes.norm_ridges import Landscape, elsewhere, gradient_order, ridge, survey


@dataclass(frozen=True)
class Looks:
    """Where and when to look; lengths are in units of the unit square's side.

    Attributes:
        epochs: when cells, components and gradients are looked at, besides the last epoch.
        early: first and last epoch of the early phase of movement.
        late: those of the late phase.
        distances: edges of the bins of distances to the data.
        radius: of the discs in which edges are looked at.
        within: what counts as near the data.
        side: evenly spaced points along one side of the window.
        movement_side: the same, for areas that change their activation.
    """

    epochs: tuple[int, ...] = (*range(13), 20, 40, 60)
    early: tuple[int, int] = (0, 10)
    late: tuple[int, int] = (40, 60)
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


def group(
    number: int,
    *,
    models: int,
    seed: int,
    task: Task = TASK,
    looks: Looks = LOOKS,
    device: torch.device | str = "cpu",
) -> dict[str, Tensor]:
    """Train group `number` of networks and measure all that is said of the pictures: `history`, `portrait`, `motion`.

    Returns:
        `accuracy` and `fitted` (models,), the tensors of the three, and of `speeds`.

    Raises:
        ValueError: as `cluster_targets.train`, or if an epoch to look at is never reached.
    """
    targets = cluster_networks.train(
        task, models=models, seed=seed, group=number, epochs=sorted(looks.kept), device=device
    )
    found = {"accuracy": targets.accuracy, "fitted": targets.fitted}
    found |= history(targets, looks) | portrait(targets, looks) | motion(targets, looks)
    return found | speeds(found, task, looks)


def history(targets: Targets, looks: Looks = LOOKS) -> dict[str, Tensor]:
    """Cells, ridges and hyperedges over the epochs.

    Returns:
        `epochs` (epochs,); `cells`, `components` of the decision boundary and `gradient_order` (epochs, models);
        `edge_lengths`, of all hyperedges of a layer, (epochs, models, layers).
    """
    rows = []
    epochs, device = sorted({*looks.epochs, targets.last}), targets.accuracy.device
    for epoch in epochs:
        views = [survey(network, side=1) for network in _each(targets, epoch)]
        rows.append(
            {
                "cells": torch.tensor([len(view.subdivision) for view in views], device=device),
                "components": torch.tensor([view.boundary.components for view in views], device=device),
                "gradient_order": torch.stack([gradient_order(view.subdivision) for view in views]),
                "edge_lengths": torch.stack([edge_lengths(view.subdivision) for view in views]),
            }
        )
    return {"epochs": torch.tensor(epochs, device=device)} | {
        name: torch.stack([row[name] for row in rows]) for name in rows[0]
    }


def edge_lengths(subdivision: Subdivision) -> Tensor:
    """The total length of the hyperedges of each hidden layer in the window."""
    segments, neurons = subdivision.hyperedges()
    widths = subdivision.network.widths[1:-1]
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    each = lengths.new_zeros(sum(widths)).index_add(0, neurons, lengths)
    return torch.stack([part.sum() for part in each.split(widths)])


def portrait(targets: Targets, looks: Looks = LOOKS) -> dict[str, Tensor]:
    r"""The trained networks: how dense the cells are, how their edges lie, and what is on the decision boundary.

    Returns:
        `cell_counts`, `cell_areas` (models, bins), by distance to the data, and `…_null`, the sums over the data of the
        other networks, which lie by the same law where this network never saw any;
        `gap_…`, `rim_…`, `disc_…` (models,), means over discs in the gaps of the pairs, as close behind them, and all
        over the window, of `length`, `order` and `parallelism`;
        `gap_alignment` (models,) with the direction of each pair's gap, and `…_null` with those of the other networks;
        `ridge`, `ridge_near`, `ridge_null` (models, 3) for $\lVert A_P \rVert_F$, $\lVert b_P \rVert_\infty$,
        $\lVert o \rVert$; the last is the mean over the boundaries of the other networks.
    """
    views = [survey(network, side=looks.side) for network in _each(targets, targets.last)]
    rows = [_likeness(index, views, targets, looks) for index in range(len(views))]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _likeness(index: int, views: list[Landscape], targets: Targets, looks: Looks) -> dict[str, Tensor]:
    view, data = views[index], targets.data[index]
    others = [other for other in range(len(views)) if other != index]
    against = ridge(view, data.points, within=looks.within)
    chance = elsewhere(view, [views[other].boundary for other in others])
    found = {"ridge": against.window, "ridge_near": against.near, "ridge_null": chance.nanmean(0)}
    counted = [
        by_distance(view.subdivision, part.points, edges=looks.distances, lattice=view.points)
        for part in (data, *(targets.data[other] for other in others))
    ]
    for name, tables in zip(("cell_counts", "cell_areas"), zip(*counted, strict=True), strict=True):
        found |= {name: tables[0], f"{name}_null": sum(tables[1:], torch.zeros_like(tables[0]))}
    return found | _edges(view.subdivision, data, [targets.data[other] for other in others], looks.radius)


def _edges(fine: Subdivision, data: Clusters, others: list[Clusters], radius: float) -> dict[str, Tensor]:
    """How hyperedges lie in the gaps of the data, on their far sides, and all over the window."""
    places = {
        "gap": data.middles,
        # As far behind a disc of the data as the middle of the gap is before it, but with nothing on the other side.
        "rim": (2 * data.centres - data.middles.unsqueeze(1)).flatten(0, 1),
        "disc": radius + (1 - 2 * radius) * lattice(_DISCS, device=data.points.device),
    }
    found: dict[str, Tensor] = {}
    for name, centres in places.items():
        discs = in_discs(fine, centres, radius=radius)
        found |= {f"{name}_length": discs.lengths.mean(), f"{name}_order": discs.order.nanmean()}
        found[f"{name}_parallelism"] = discs.parallelism.nanmean()
    found["gap_alignment"] = in_discs(fine, data.middles, radius=radius).alignment(data.walls).nanmean()
    chance = [in_discs(fine, other.middles, radius=radius).alignment(other.walls) for other in others]
    found["gap_alignment_null"] = (
        torch.cat(chance).nanmean() if chance else torch.full_like(found["gap_length"], torch.nan)
    )
    return found


_DISCS = 14  # discs of reference along one side of the window: at a radius of 0.05 they cover it about once and a half


def motion(targets: Targets, looks: Looks = LOOKS) -> dict[str, Tensor]:
    """The area that changes its activation in one epoch, early and late: `movement.mean_moves` of both phases.

    Returns:
        `early_…` and `late_…` (models, layers) for `both`, `own` and `upstream`.
    """
    points = lattice(looks.movement_side, device=targets.accuracy.device)
    found: dict[str, Tensor] = {}
    for phase, (first, last) in (("early", looks.early), ("late", looks.late)):
        mean = mean_moves(targets.snapshots, points, first=first, last=last)
        found |= {f"{phase}_{name}": share for name, share in mean._asdict().items()}
    return found


def per_network(measured: dict[str, Tensor], looks: Looks = LOOKS) -> dict[str, Tensor]:
    r"""The numbers that the claims are about, one for each network, from what `group` or `pooled` gives.

    Returns:
        All (models,): `near_to_far`, the logarithm of cells per area closer than 0.03 to the data over those at 0.1 or
        more, and `near_to_far_null`; `gap_parallelism_gain` over discs all over the window, `gap_length_ratio` and
        `rim_length_ratio` to them; `coalescence`, the logarithm of the least number of cells in epochs 1 to 5 over that
        at epoch 0; `growth`, final cells over initial ones; `early_order`, the mean of the gradients' order in epochs 1
        to 5; `final_order`; `early_components`, the largest number in epochs 1 to 5; `final_components`;
        `early_depth`, `late_depth`, the logarithm of the area that layer H moves over that of layer 1, `…_own_depth` if
        each layer moves alone, and `…_speed_gain` of the area per length; `early_inherited`, `late_inherited`, for
        layer H the logarithm of the area moved by the layers before it over that moved by itself.

    Raises:
        ValueError: if the distances 0.03 and 0.1, or the epochs 0 to 5, were not looked at.
    """
    epochs = measured["epochs"].tolist()
    if not {*range(6)} <= {*epochs} or not {_NEAR, _FAR} <= {*looks.distances}:
        raise ValueError(f"`looks` must hold epochs 0 to 5 and distances {_NEAR} and {_FAR}, got {looks}.")
    near, far = looks.distances.index(_NEAR), looks.distances.index(_FAR)
    found: dict[str, Tensor] = {}
    for suffix in ("", "_null"):
        counts, areas = measured[f"cell_counts{suffix}"], measured[f"cell_areas{suffix}"]
        inner, outer = (counts[:, part].sum(1) / areas[:, part].sum(1) for part in (slice(near), slice(far, None)))
        found[f"near_to_far{suffix}"] = (inner / outer).log()
    found["gap_parallelism_gain"] = measured["gap_parallelism"] - measured["disc_parallelism"]
    found |= {f"{name}_length_ratio": measured[f"{name}_length"] / measured["disc_length"] for name in ("gap", "rim")}
    cells, order, components = (measured[name] for name in ("cells", "gradient_order", "components"))
    first = [epochs.index(epoch) for epoch in range(1, 6)]
    found |= {
        "coalescence": (cells[first].amin(0) / cells[epochs.index(0)]).log(),
        "growth": cells[-1] / cells[epochs.index(0)],
        "early_order": order[first].mean(0),
        "final_order": order[-1],
        "early_components": components[first].amax(0),
        "final_components": components[-1],
    }
    for phase in ("early", "late"):
        both, own, upstream = (measured[f"{phase}_{name}"] for name in ("both", "own", "upstream"))
        found[f"{phase}_depth"] = (both[:, -1] / both[:, 0]).log()
        found[f"{phase}_own_depth"] = (own[:, -1] / own[:, 0]).log()
        speed = measured[f"{phase}_speed"]
        found[f"{phase}_speed_gain"] = (speed[:, -1] / speed[:, 0]).log()
        found[f"{phase}_inherited"] = (upstream[:, -1] / own[:, -1]).log()
    return found


_NEAR, _FAR = 0.03, 0.1  # what near and far from the data mean, in units of the square's side


def speeds(measured: dict[str, Tensor], task: Task = TASK, looks: Looks = LOOKS) -> dict[str, Tensor]:
    """How fast hyperedges move: the area they sweep in one epoch per length of hyperedge.

    The length is the mean over the observed epochs of the phase.

    Args:
        measured: what `history` and `motion` give.
        task: for the number of neurons.
        looks: for the phases.

    Returns:
        `early_speed`, `late_speed`, and `…_own_speed` if only the layer itself moves; (models, layers), in units of
        the window's side per epoch; NaN where a layer has no hyperedge in the window.

    Raises:
        ValueError: if no epoch of a phase was looked at.
    """
    neurons = measured["accuracy"].new_tensor(task.hidden)
    found: dict[str, Tensor] = {}
    for phase, (first, last) in (("early", looks.early), ("late", looks.late)):
        seen = (measured["epochs"] >= first) & (measured["epochs"] <= last)
        if not bool(seen.any()):
            raise ValueError(f"`looks` must look at an epoch between {first} and {last}, got {looks.epochs}.")
        length = measured["edge_lengths"][seen].mean(0) / neurons
        found[f"{phase}_speed"] = measured[f"{phase}_both"] / length
        found[f"{phase}_own_speed"] = measured[f"{phase}_own"] / length
    return found


def _each(targets: Targets, epoch: int) -> list:
    return [targets.network(model, epoch=epoch) for model in range(len(targets.data))]


def pooled(groups: Sequence[dict[str, Tensor]], *, only_fitted: bool = True) -> dict[str, Tensor]:
    """Several groups as one, along the axis of models; by default without the networks that are unfitted.

    Raises:
        ValueError: if there is no group.
    """
    if not groups:
        raise ValueError("`groups` must be at least one.")
    kept = torch.cat([part["fitted"] for part in groups])
    found = {"epochs": groups[0]["epochs"]}
    for name in groups[0].keys() - found.keys():
        axis = 1 if name in _OVER_EPOCHS else 0
        joined = torch.cat([part[name] for part in groups], dim=axis)
        found[name] = joined.index_select(axis, kept.nonzero().squeeze(-1)) if only_fitted else joined
    return found


_OVER_EPOCHS = frozenset({"cells", "components", "gradient_order", "edge_lengths"})
