r"""Clusters2D, networks trained on it, and what their pictures show as numbers.

The data are pairs of discs of opposite classes in the unit square, a small gap apart; the networks are small and deep,
each on a data set of its own, trained as one ensemble and kept at many epochs. A network whose accuracy on its own
points stays below `FITTED` is counted, but is no evidence for what trained networks look like.

Results are named tuples of tensors, with the networks of a group along the axis `models`, fitted or not. The numbers
that claims compare are those of `summarise_networks`; densities, counts and speeds are compared by logarithms, so that
the mean over networks is the mean of a ratio.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from leakage.draws import uniform
from leakage.metrics.estimates import Estimate, median_interval
from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from leakage.trainers import ensembles
from leakage.trainers.ensembles import Examples, MlpEnsemble, Recipe
from reproduced.papers.polytopes import windows
from reproduced.papers.polytopes.decision_boundary import decision_boundary
from reproduced.papers.polytopes.subdivision import Subdivision, subdivide_networks
from reproduced.papers.polytopes.windows import Activity, Densities, Discs, Norms, Ridge, SampledWindow, unit_square
from reproduced.runtime import Run, map_tensors, move

# ── the data ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Layout:
    """How many discs there are and how they lie.

    Attributes:
        pairs: K, pairs of discs.
        points: n, points in each disc.
        radius: r of the discs, in units of the square's side.
        gap: g, between the two discs of a pair; twice this separates discs of different pairs.
    """

    pairs: int = 6
    points: int = 60
    radius: float = 0.04
    gap: float = 0.02

    @property
    def spread(self) -> float:
        """The distance between the centres of a pair, 2r + g."""
        return 2 * self.radius + self.gap


LAYOUT = Layout()
"""The data of the book."""
_PROPOSALS = 10_000  # pairs proposed for one data set


class Clusters(NamedTuple):
    """A data set in float64, disc after disc, the first of each pair of class 0; `centres` are those of the discs."""

    points: Float[Tensor, "n 2"]
    labels: Int[Tensor, " n"]
    centres: Float[Tensor, "pairs 2 2"]

    @property
    def middles(self) -> Float[Tensor, "pairs 2"]:
        """The middle of each pair's gap."""
        return self.centres.mean(1)

    @property
    def axes(self) -> Float[Tensor, "pairs 2"]:
        """The unit vector of each pair from class 0 to class 1."""
        across = self.centres[:, 1] - self.centres[:, 0]
        return across / across.norm(dim=-1, keepdim=True)

    @property
    def walls(self) -> Float[Tensor, "pairs 2"]:
        """The unit vector along each pair's gap, a quarter turn from its axis."""
        return self.axes.flip(-1) * self.axes.new_tensor([-1.0, 1.0])


def draw_clusters(layout: Layout = LAYOUT, *, generator: torch.Generator) -> Clusters:
    r"""One data set of Clusters2D.

    Pairs are proposed with middle $m \sim U[0,1]^2$ and direction $u = (\cos\theta, \sin\theta)$,
    $\theta \sim U[0, 2\pi)$, and have their centres at $m \mp (r + g/2)\,u$. A pair is placed if its discs lie in the
    unit square and at least 2g, edge to edge, from all discs placed before. Points are uniform on their discs, at
    radius $r\sqrt U$.

    Source: Peinemann (2021), Section 4.2, which describes the data in words; numbers and law are ours.
    """
    x, y, turn = uniform((3, _PROPOSALS), generator=generator)
    middles, half = torch.stack([x, y], -1), layout.spread / 2 * _unit_vector(turn)
    proposed = torch.stack([middles - half, middles + half], 1)
    proposed = proposed[((proposed >= layout.radius) & (proposed <= 1 - layout.radius)).all(-1).all(-1)]
    placed: list[Tensor] = []
    while len(placed) < layout.pairs:
        # All that come too close to the one placed are rejected at once: the first of the rest is placed next.
        placed.append(proposed[0])
        distances = (proposed[1:].unsqueeze(2) - placed[-1]).norm(dim=-1)
        proposed = proposed[1:][(distances >= 2 * layout.radius + 2 * layout.gap).flatten(1).all(1)]
    centres, shape = torch.stack(placed), (layout.pairs, 2, layout.points)
    share, turn = uniform((2, *shape), generator=generator)
    offsets = layout.radius * share.sqrt().unsqueeze(-1) * _unit_vector(turn)
    labels = torch.arange(2).view(1, 2, 1).expand(shape)
    return Clusters((centres.unsqueeze(2) + offsets).flatten(0, 2), labels.flatten(), centres)


def _unit_vector(turn: Tensor) -> Tensor:
    angles = 2 * math.pi * turn
    return torch.stack([angles.cos(), angles.sin()], -1)


class LayoutCheck(NamedTuple):
    """What the definition promises of every data set.

    Attributes:
        spread_error: the largest difference between the distance of a pair's centres and 2r + g.
        opposite_gap: the smallest distance between points of opposite classes, at least g.
        imbalance: points of class 1 minus points of class 0.
        outside: points outside of the unit square.
    """

    spread_error: float
    opposite_gap: float
    imbalance: int
    outside: int


def check_layout(data: Clusters, layout: Layout = LAYOUT) -> LayoutCheck:
    """The properties of a data set, measured."""
    across = (data.centres[:, 1] - data.centres[:, 0]).norm(dim=-1)
    # Differences, not the matrix product that large inputs would get: it loses half of the digits.
    between = torch.cdist(
        data.points[data.labels == 0], data.points[data.labels == 1], compute_mode="donot_use_mm_for_euclid_dist"
    )
    return LayoutCheck(
        spread_error=float((across - layout.spread).abs().max()),
        opposite_gap=float(between.min()),
        imbalance=int((2 * data.labels - 1).sum()),
        outside=int(((data.points < 0) | (data.points > 1)).any(-1).sum()),
    )


# ── the networks ─────────────────────────────────────────────────────────────────────────────────────────────────────

FITTED = 0.93  # training accuracy: a network that gets one disc of six pairs wrong, 1/12 of the points, is below


@dataclass(frozen=True)
class ClusterTask:
    """The data, the networks and their training in `dtype`; snapshots are kept in float64, which the geometry needs.

    The defaults are the networks of the book: four layers of 25 neurons, as in Figure 7 of Peinemann (2021); data and
    recipe are ours.
    """

    layout: Layout = LAYOUT
    hidden: tuple[int, ...] = (25, 25, 25, 25)
    recipe: Recipe = field(default_factory=lambda: Recipe(epochs=80, batch=32, learning_rate=2e-3))
    dtype: torch.dtype = DTYPE


@dataclass(frozen=True, eq=False)
class ClusterNetworks:
    """Networks in training.

    Attributes:
        snapshots: all networks after each kept number of epochs, 0 being before training.
        data: the data set of each network.
        accuracy: of each network on its data, after the last epoch.
    """

    snapshots: dict[int, Mlp]
    data: tuple[Clusters, ...]
    accuracy: Float[Tensor, " models"]

    @property
    def fitted(self) -> Bool[Tensor, " models"]:
        """Which networks count as fitted."""
        return self.accuracy >= FITTED

    @property
    def last(self) -> int:
        """The number of epochs of the last snapshot."""
        return max(self.snapshots)

    def network(self, model: int, *, epoch: int | None = None) -> Mlp:
        """One network, at the end or after `epoch` epochs."""
        return self.snapshots[self.last if epoch is None else epoch][model]


def train_networks(
    task: ClusterTask, *, models: int, run: Run, group: int = 0, epochs: Sequence[int] | None = None
) -> ClusterNetworks:
    """Train `models` networks, each on its own draw of the data; `run.seed` and `group` fix everything random.

    `epochs` are the snapshots that are kept, all from 0 by default; the last epoch is always kept.
    """
    data = tuple(
        draw_clusters(task.layout, generator=run.stream(f"clusters/{group}/{model}")) for model in range(models)
    )
    points, labels = torch.cat([part.points for part in data]), torch.cat([part.labels for part in data])
    rows = torch.arange(len(points)).view(models, -1)
    start = mlp.initial((models,), (2, *task.hidden, 2), generator=run.stream(f"cluster networks/{group}"))
    begun, last = MlpEnsemble.from_mlp(start.to(task.dtype)), task.recipe.epochs
    device = run.device_for("networks", task.recipe.batch * sum(part.numel() for part in begun.parameters))
    snapshots: dict[int, Mlp] = {}
    ensembles.train(
        *move((begun, Examples((points,), labels), rows), device),
        task.recipe,
        generator=run.stream(f"cluster batches/{group}"),
        observe=lambda epoch, networks: snapshots.__setitem__(epoch, move(networks.to(DTYPE), "cpu")),
        observed_epochs=sorted(range(last + 1) if epochs is None else {*epochs, last}),
    )
    right = snapshots[last](points.view(models, -1, 2)).argmax(-1) == labels.view(models, -1)
    return ClusterNetworks(snapshots, data, right.to(points.dtype).mean(-1))


# ── what their pictures show ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class MeasurementPlan:
    """Where and when networks are measured; lengths are in units of the unit square's side.

    Attributes:
        epochs: when cells, components and gradients are measured, besides the last epoch.
        early: first and last epoch of the early phase of movement.
        late: first and last epoch of the late phase.
        distances: edges of the bins of distances to the data.
        radius: of the discs in which edges are measured.
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
    def kept_epochs(self) -> list[int]:
        """All epochs whose snapshots are needed."""
        first, second = (range(begin, end + 1) for begin, end in (self.early, self.late))
        return sorted({*self.epochs, *first, *second})


class History(NamedTuple):
    """Over the epochs: numbers of cells and of pieces of the boundary, order of gradients, length of hyperedges."""

    cells: Int[Tensor, "*epochs models"]
    components: Int[Tensor, "*epochs models"]
    gradient_order: Float[Tensor, "*epochs models"]
    edge_lengths: Float[Tensor, "*epochs models layers"]


class FinalState(NamedTuple):
    r"""The trained networks: how dense the cells are, how their edges lie, and the norms on the decision boundary.

    Attributes:
        own: cells by distance to the data.
        other: the same for the data of the other networks, summed: they have the same law, but this network never saw
            them.
        gap: hyperedges in the gaps of the pairs; this and the next two are means over discs.
        rim: hyperedges as close behind the discs of a pair, where there are no classes to separate.
        window: hyperedges all over the window.
        alignment: of hyperedges in the gaps with the direction of each pair's gap.
        other_alignment: the same in the gaps of the other networks' data.
        ridge: norms on the decision boundary.
        other_ridge: the mean over the boundaries of the other networks.
        activity: near the data and far from them.
        other_activity: the same for the data of the other networks, summed.
    """

    own: Densities
    other: Densities
    gap: Discs
    rim: Discs
    window: Discs
    alignment: Float[Tensor, "*b"]
    other_alignment: Float[Tensor, "*b"]
    ridge: Ridge
    other_ridge: Norms
    activity: Activity
    other_activity: Activity


class Motion(NamedTuple):
    """How hyperedges move in one epoch, as means over the epochs of a phase.

    Attributes:
        both: the area that changes its activation; see `windows.FlippedAreas` for this and the next two.
        own: the same if only the layer itself is updated.
        upstream: the same if only the layers before it are updated.
        speed: the area swept per length of hyperedge, in units of the window's side per epoch; NaN where a layer has no
            hyperedge in the window. The length is the mean over the epochs of the phase that were measured.
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
    fitted: Bool[Tensor, " models"]
    history: History
    final: FinalState
    early: Motion
    late: Motion


class Movement(NamedTuple):
    """How hyperedges of a group of networks move: the parts of `Group` that say so."""

    fitted: Bool[Tensor, " models"]
    early: Motion
    late: Motion


def measure_group(number: int, *, models: int, run: Run, task: ClusterTask, plan: MeasurementPlan) -> Group:
    """Train group `number` of networks and measure them."""
    networks = train_networks(task, models=models, run=run, group=number, epochs=plan.kept_epochs)
    epochs = sorted({*plan.epochs, networks.last})
    history = _measure_history(networks, epochs)
    motions = (_measure_motion(networks, epochs, history, phase, plan) for phase in (plan.early, plan.late))
    final = _measure_final_state(networks, plan)
    return Group(torch.tensor(epochs), networks.fitted, history, final, *motions)


def measure_beginning(number: int, *, models: int, run: Run, task: ClusterTask) -> History:
    """The history of group `number` from epoch 0 to 5, without further training."""
    short = replace(task, recipe=replace(task.recipe, epochs=5))
    networks = train_networks(short, models=models, run=run, group=number, epochs=range(6))
    return _measure_history(networks, range(6))


def measure_movement(number: int, *, models: int, run: Run, task: ClusterTask, plan: MeasurementPlan) -> Movement:
    """Train group `number` and measure the motion of both phases, with the lengths at the ends of each phase."""
    networks = train_networks(task, models=models, run=run, group=number, epochs=plan.kept_epochs)
    ends = sorted({*plan.early, *plan.late})
    history = _measure_history(networks, ends)
    motions = (_measure_motion(networks, ends, history, phase, plan) for phase in (plan.early, plan.late))
    return Movement(networks.fitted, *motions)


Pooled = TypeVar("Pooled", Group, Movement)


def concatenate_groups(groups: Sequence[Pooled], *, only_fitted: bool = True) -> Pooled:
    """Several groups as one, along the axis of models; by default without the networks that are unfitted."""
    fitted = torch.cat([part.fitted for part in groups])
    kept = (fitted if only_fitted else torch.ones_like(fitted)).nonzero().squeeze(-1)

    def merge(name: str) -> Any:
        parts = [getattr(part, name) for part in groups]
        if name == "epochs":
            return parts[0]
        axis = int(name == "history")  # epochs come first there
        return map_tensors(lambda *own: torch.cat(own, axis).index_select(axis, kept), *parts)

    return type(groups[0])(*(merge(name) for name in groups[0]._fields))


def _measure_history(networks: ClusterNetworks, epochs: Sequence[int]) -> History:
    """Cells, ridges and hyperedges at these epochs."""
    rows = []
    for epoch in epochs:
        all_cells = subdivide_networks(networks.snapshots[epoch], unit_square())
        rows.append(
            History(
                cells=torch.tensor([len(cells) for cells in all_cells]),
                components=torch.tensor([decision_boundary(cells).components for cells in all_cells]),
                gradient_order=torch.stack([windows.gradient_order(cells) for cells in all_cells]),
                edge_lengths=torch.stack([_edge_lengths(cells) for cells in all_cells]),
            )
        )
    return map_tensors(lambda *parts: torch.stack(parts), *rows)


def _edge_lengths(cells: Subdivision) -> Float[Tensor, " layers"]:
    """The total length of the hyperedges of each hidden layer in the window."""
    segments, neurons = cells.hyperedges()
    widths = cells.network.widths[1:-1]
    lengths = (segments[:, 1] - segments[:, 0]).norm(dim=-1)
    each = lengths.new_zeros(sum(widths)).index_add(0, neurons, lengths)
    return torch.stack([part.sum() for part in each.split(widths)])


def _measure_motion(
    networks: ClusterNetworks, epochs: Sequence[int], history: History, phase: tuple[int, int], plan: MeasurementPlan
) -> Motion:
    """How hyperedges move from the first to the last epoch of a phase."""
    first, last = phase
    within = torch.tensor([first <= epoch <= last for epoch in epochs])
    points, snapshots = windows.lattice(plan.movement_side), networks.snapshots
    steps = [windows.flipped_areas(snapshots[one], snapshots[one + 1], points) for one in range(first, last)]
    flipped = map_tensors(lambda *parts: torch.stack(parts).mean(0), *steps)
    neurons = networks.accuracy.new_tensor(snapshots[networks.last].widths[1:-1])
    length = history.edge_lengths[within].mean(0) / neurons
    return Motion(*flipped, speed=flipped.both / length, own_speed=flipped.own / length)


_DISCS = 14  # discs of reference along one side of the window: at a radius of 0.05 they cover it about once and a half


def _measure_final_state(networks: ClusterNetworks, plan: MeasurementPlan) -> FinalState:
    """What there is to see of the networks after the last epoch."""
    all_cells = subdivide_networks(networks.snapshots[networks.last], unit_square())
    views = [windows.sample_window(cells, side=plan.side) for cells in all_cells]
    pairs, found = list(zip(networks.data, views, strict=True)), []
    for index, (data, view) in enumerate(pairs):
        found.append(_measure_view(view, data, [*pairs[:index], *pairs[index + 1 :]], plan))
    return map_tensors(lambda *parts: torch.stack(parts), *found)


def _measure_view(
    view: SampledWindow, data: Clusters, others: Sequence[tuple[Clusters, SampledWindow]], plan: MeasurementPlan
) -> FinalState:
    """One network, beside the data and the boundaries of the others."""
    sets = [data, *(other for other, _ in others)]
    own, *strange = (
        windows.densities(view.cells, part.points, edges=plan.distances, points=view.points) for part in sets
    )
    active, *active_elsewhere = (
        windows.activity(view.cells, part.points, near=_NEAR, far=_FAR, points=view.points) for part in sets
    )
    gaps = [windows.hyperedges_in_discs(view.cells, part.middles, radius=plan.radius) for part in sets]
    aligned = [discs.alignment(part.walls) for discs, part in zip(gaps, sets, strict=True)]
    # As far behind a disc of the data as the middle of the gap is before it, but with nothing on the other side.
    behind = (2 * data.centres - data.middles.unsqueeze(1)).flatten(0, 1)
    everywhere = plan.radius + (1 - 2 * plan.radius) * windows.lattice(_DISCS)
    rim, window = (
        windows.hyperedges_in_discs(view.cells, centres, radius=plan.radius) for centres in (behind, everywhere)
    )
    chance = windows.other_ridges(view, [other.boundary for _, other in others])
    mean = partial(map_tensors, lambda part: part.nanmean(0))
    add = partial(map_tensors, lambda like, *parts: sum(parts, torch.zeros_like(like)))
    return FinalState(
        own=own,
        other=add(own, *strange),
        gap=mean(gaps[0]),
        rim=mean(rim),
        window=mean(window),
        alignment=aligned[0].nanmean(),
        other_alignment=torch.cat(aligned[1:]).nanmean() if others else torch.full_like(aligned[0][0], torch.nan),
        ridge=windows.ridge(view, data.points, within=plan.within),
        other_ridge=Norms(*torch.stack([*chance], -1).nanmean(0)),
        activity=active,
        other_activity=add(active, *active_elsewhere),
    )


# ── the numbers that claims compare ──────────────────────────────────────────────────────────────────────────────────

_NEAR, _FAR = 0.03, 0.1  # distances from the data that count as near and far, in units of the square's side


class NetworkSummary(NamedTuple):
    """One number for each network.

    Attributes:
        near_to_far: the logarithm of cells per area closer than 0.03 to the data over those at 0.1 or more.
        other_near_to_far: the same for the data of the other networks.
        parallelism_gain: the parallelism of hyperedges in the gaps minus that all over the window.
        gap_length_ratio: hyperedge per area in the gaps over that all over the window.
        rim_length_ratio: the same behind the discs.
        activity: the logarithm of the change of the gradient per area closer than 0.03 to the data over that at 0.1 or
            more, as in `windows.Activity`.
        other_activity: the same for the data of the other networks.
        length: the same of the length of hyperedges.
        growth: the logarithm of the final number of cells over that at epoch 0.
        early_order: the mean of the gradients' order in epochs 1 to 5.
        final_order: the gradients' order at the end.
        early_components: the largest number of pieces of the boundary in epochs 1 to 5.
        final_components: the number of pieces at the end.
    """

    near_to_far: Float[Tensor, " models"]
    other_near_to_far: Float[Tensor, " models"]
    parallelism_gain: Float[Tensor, " models"]
    gap_length_ratio: Float[Tensor, " models"]
    rim_length_ratio: Float[Tensor, " models"]
    activity: Float[Tensor, " models"]
    other_activity: Float[Tensor, " models"]
    length: Float[Tensor, " models"]
    growth: Float[Tensor, " models"]
    early_order: Float[Tensor, " models"]
    final_order: Float[Tensor, " models"]
    early_components: Real[Tensor, " models"]
    final_components: Real[Tensor, " models"]


def summarise_networks(group: Group, plan: MeasurementPlan) -> NetworkSummary:
    """The numbers of every network of a group, which was measured in epochs 0 to 5 and at distances 0.03 and 0.1."""
    epochs, final, history = group.epochs.tolist(), group.final, group.history
    near, far = plan.distances.index(_NEAR), plan.distances.index(_FAR)
    begun, first = epochs.index(0), [epochs.index(epoch) for epoch in range(1, 6)]
    return NetworkSummary(
        *(
            (cells.per_area(0, near) / cells.per_area(far, len(plan.distances))).log()
            for cells in (final.own, final.other)
        ),
        parallelism_gain=final.gap.parallelism - final.window.parallelism,
        gap_length_ratio=final.gap.lengths / final.window.lengths,
        rim_length_ratio=final.rim.lengths / final.window.lengths,
        activity=final.activity.near_to_far("change"),
        other_activity=final.other_activity.near_to_far("change"),
        length=final.activity.near_to_far("length"),
        growth=(history.cells[-1] / history.cells[begun]).log(),
        early_order=history.gradient_order[first].mean(0),
        final_order=history.gradient_order[-1],
        early_components=history.components[first].amax(0),
        final_components=history.components[-1],
    )


class FirstEpochs(NamedTuple):
    """How the training of each network begins.

    Attributes:
        first_cells: the logarithm of the mean number of cells in epochs 1 to 3 over that at epoch 0.
        initial_order: the gradients' order before training.
        early_order: the mean of the gradients' order in epochs 1 to 5.
        one_piece: whether the boundary has one piece at the ends of epochs 1 and 2.
    """

    first_cells: Float[Tensor, " models"]
    initial_order: Float[Tensor, " models"]
    early_order: Float[Tensor, " models"]
    one_piece: Bool[Tensor, " models"]


def summarise_first_epochs(history: History) -> FirstEpochs:
    """The numbers of every network of a history whose first six epochs are 0 to 5."""
    cells, components, order = history.cells[:6], history.components[:6], history.gradient_order[:6]
    return FirstEpochs(
        first_cells=(cells[1:4].double().mean(0) / cells[0]).log(),
        initial_order=order[0],
        early_order=order[1:].mean(0),
        one_piece=(components[1:3] == 1).all(0),
    )


_LARGEST = 1e9  # in place of an infinite ratio


def last_to_first_ratios(measure: str, *, motions: Mapping[str, Motion]) -> dict[str, Estimate]:
    """For each phase, the median over networks of `measure` in the last layer over that in the first; conservative.

    A network counts as 1 if neither layer moves, or if one of them has no hyperedge in the window. If only one layer
    stands still the ratio is 0 or infinity, which a median bears and a mean of logarithms does not.

    `measure` is a field of `Motion`, or `carried`, which compares what moves the last layer: the area moved by the
    layers before it over the area moved by itself.
    """
    found = {}
    for phase, motion in motions.items():
        if measure == "carried":
            ratio = motion.upstream[:, -1] / motion.own[:, -1]
        else:
            ratio = getattr(motion, measure)[:, -1] / getattr(motion, measure)[:, 0]
        found[phase] = median_interval(torch.where(ratio.isnan(), 1.0, ratio).clamp(max=_LARGEST))
    return found
