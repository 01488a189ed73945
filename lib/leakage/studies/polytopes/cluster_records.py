"""What is looked at in networks on Clusters2D, and the tables of what was seen.

Each table is a named tuple of tensors, with the networks of a group along the axis `models`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.studies.polytopes.densities import Densities
from leakage.studies.polytopes.norm_ridges import Norms, Ridge


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
    """Cells, ridges and hyperedges over the epochs that were looked at.

    Attributes:
        cells: how many there are.
        components: connected pieces of the decision boundary.
        gradient_order: see `norm_ridges.gradient_order`.
        edge_lengths: of all hyperedges of a layer.
    """

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
    r"""The trained networks: how dense the cells are, how their edges lie, and what is on the decision boundary.

    Attributes:
        own: cells by distance to the data.
        other: the sums over the data of the other networks, which lie by the same law where this network never saw any.
        gap: hyperedges in the gaps of the pairs.
        rim: as close behind the discs of a pair, where nothing has to be told apart.
        window: all over the window.
        alignment: of hyperedges in the gaps with the direction of each pair's gap.
        other_alignment: with the directions of the other networks' gaps, in these.
        ridge: on the decision boundary.
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
        upstream: if only the layers before it are.
        speed: the area swept per length of hyperedge, in units of the window's side per epoch; NaN where a layer has no
            hyperedge in the window. The length is the mean over the epochs of the phase that were looked at.
        own_speed: if only the layer itself moves.
    """

    both: Float[Tensor, "models layers"]
    own: Float[Tensor, "models layers"]
    upstream: Float[Tensor, "models layers"]
    speed: Float[Tensor, "models layers"]
    own_speed: Float[Tensor, "models layers"]


class Group(NamedTuple):
    """All that is measured of one group of networks.

    Attributes:
        epochs: those of `history`.
        accuracy: of each network on its own data.
        fitted: whether that counts as fitted.
        history: over the epochs.
        portrait: after the last epoch.
        early: motion in the early phase.
        late: in the late one.
    """

    epochs: Int[Tensor, " epochs"]
    accuracy: Float[Tensor, " models"]
    fitted: Bool[Tensor, " models"]
    history: History
    portrait: Portrait
    early: Motion
    late: Motion


class Movement(NamedTuple):
    """How hyperedges of a group of networks move, without all else; the parts are those of `Group`."""

    fitted: Bool[Tensor, " models"]
    early: Motion
    late: Motion
