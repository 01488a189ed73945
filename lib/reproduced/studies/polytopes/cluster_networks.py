r"""Small deep networks on Clusters2D, each on a data set of its own, trained as one ensemble and kept at many epochs.

A network whose accuracy on its own points stays below `FITTED` is unfitted: it is counted, but is no evidence for what
trained networks look like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.models import mlp
from leakage.models.mlp import Mlp
from leakage.runtime import DTYPE, stream
from leakage.trainers import ensembles
from leakage.trainers.criteria import Examples
from leakage.trainers.ensembles import Recipe
from leakage.trainers.perceptrons import Perceptrons
from reproduced.studies.polytopes import clusters
from reproduced.studies.polytopes.clusters import Clusters, Layout

FITTED = 0.93  # training accuracy: a network that gets one disc of six pairs wrong, 1/12 of the points, is below


@dataclass(frozen=True)
class ClusterTask:
    """The data, the networks and their training; snapshots are kept in float64, which the geometry needs.

    Attributes:
        dtype: of the training.
    """

    layout: Layout = field(default_factory=Layout)
    hidden: tuple[int, ...] = (25, 25, 25, 25)
    recipe: Recipe = field(default_factory=lambda: Recipe(epochs=80, batch=32, learning_rate=2e-3))
    dtype: torch.dtype = DTYPE


TASK = ClusterTask()
"""The networks of the book: four layers of 25 neurons, as in Figure 7 of Peinemann (2021); data and recipe are ours."""


@dataclass(frozen=True, eq=False)
class Targets:
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
        chosen = self.last if epoch is None else epoch
        return self.snapshots[chosen][model]


def train(
    task: ClusterTask = TASK,
    *,
    models: int,
    seed: int,
    group: int = 0,
    epochs: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
) -> Targets:
    """Train `models` networks, each on its own draw of the data; `seed` and `group` fix everything that is random.

    `epochs` are the snapshots that are kept, all from 0 by default; the last epoch is always kept.
    """
    data = draw_data(task.layout, models=models, seed=seed, group=group, device=device)
    points, labels = (torch.cat([getattr(part, name) for part in data]) for name in ("points", "labels"))
    rows = torch.arange(len(points), device=points.device).view(models, -1)
    start = mlp.initial((models,), (2, *task.hidden, 2), generator=stream(seed, f"cluster networks/{group}", device))
    last = task.recipe.epochs
    kept = range(last + 1) if epochs is None else {*epochs, last}
    snapshots: dict[int, Mlp] = {}
    ensembles.train(
        Perceptrons.of(start.to(task.dtype)),
        Examples((points,), labels),
        rows,
        task.recipe,
        generator=stream(seed, f"cluster batches/{group}", device),
        observe=lambda epoch, networks: snapshots.__setitem__(epoch, networks.to(DTYPE)),
        epochs_observed=sorted(kept),
    )
    right = snapshots[last](points.view(models, -1, 2)).argmax(-1) == labels.view(models, -1)
    return Targets(snapshots, data, right.to(points.dtype).mean(-1))


def draw_data(
    layout: Layout, *, models: int, seed: int, group: int = 0, device: torch.device | str = "cpu"
) -> tuple[Clusters, ...]:
    """The data sets that `train` gives its networks."""
    return tuple(
        clusters.draw(layout, generator=stream(seed, f"clusters/{group}/{model}", device)) for model in range(models)
    )
