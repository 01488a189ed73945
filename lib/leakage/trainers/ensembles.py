r"""Many networks of one shape, trained at the same time on row subsets of one set of examples.

One engine for every kind of network: it shuffles, moves all parameters with one fused optimiser step, lets an observer
look. What differs is an `Ensemble`: `MlpEnsemble` are fully connected networks whose gradient is
written out, `Modules` networks of any module, differentiated automatically. Precision and device are theirs.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from tqdm import tqdm

from leakage.trainers.criteria import Evaluation, Examples

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes the first input of a batch, (models, b, ...), anew each time."""


E = TypeVar("E", bound="Ensemble")


@runtime_checkable
class Ensemble(Protocol):
    """Networks of one shape, stacked along a first dimension, as the engine needs them."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """What training changes, in place."""
        ...

    def __len__(self) -> int: ...

    def clone(self: E) -> E:
        """The same networks in memory of their own."""
        ...

    def gradients(self, batch: Examples) -> Sequence[Tensor]:
        """The gradient of every network's mean loss on a batch of its own, (models, b, ...): one tensor a parameter.

        With the strides of the parameter, or else a fused optimiser would mix up its numbers.
        """
        ...

    def evaluate(self, examples: Examples) -> Evaluation:
        """What every network makes of every example: (models, n), judged in float64."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How an ensemble is trained: cross-entropy on mini-batches, every network shuffling its own rows each epoch.

    Attributes:
        epochs: passes over the rows.
        batch: points in a step; the last one of an epoch takes what is left.
        learning_rate: of the optimiser.
        optimiser: a name in `OPTIMISERS`.
        momentum: of `sgd`.
        weight_decay: an L2 penalty, added to the gradient.
    """

    epochs: int
    batch: int
    learning_rate: float = 1e-3
    optimiser: str = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0


OPTIMISERS: Mapping[str, Callable[..., Optimizer]] = {"adam": Adam, "sgd": SGD}
"""PyTorch's own. They act on single numbers, so stacked networks move as separate ones do."""


def train(
    ensemble: E,
    examples: Examples,
    rows: Int[Tensor, "models m"],
    recipe: Recipe,
    *,
    generator: torch.Generator,
    orders: Sequence[Int[Tensor, "models m"]] | None = None,
    augment: Augment | None = None,
    observe: Callable[[int, E], Any] | None = None,
    observed_epochs: Sequence[int] | None = None,
    description: str | None = None,
) -> E:
    r"""Train each network on its rows to a small mean loss.

    Args:
        ensemble: the initial networks; they are left as they are.
        examples: those of all networks.
        rows: which examples each network is trained on; all have equally many, and no network has one twice.
        recipe: epochs, batches, optimiser.
        generator: shuffles the rows, and is given to `augment`.
        orders: the rows of each epoch as they are gone through, where streams of the caller's have shuffled them; this lets
            networks that do not belong together be trained together.
        augment: changes the first input of a batch anew each time.
        observe: called with the number of epochs passed and a copy of the networks; see `Recorder`.
        observed_epochs: when; 0 is before training. All from 1 on by default.
        description: text of a progress bar; none by default.
    """
    observed = _epochs_to_observe(observed_epochs, recipe)
    state = ensemble.clone()
    parameters = list(state.parameters)
    own = {"momentum": recipe.momentum} if recipe.momentum else {}  # Adam has none
    optimiser = OPTIMISERS[recipe.optimiser](
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True, **own
    )
    if observe is not None and 0 in observed:
        observe(0, state.clone())
    hidden = description is None or bool(os.environ.get("LEAKAGE_QUIET"))
    for epoch in tqdm(range(1, recipe.epochs + 1), desc=description, unit="epoch", disable=hidden):
        order = shuffle_rows(rows, generator=generator) if orders is None else orders[epoch - 1]
        for batch in order.split(recipe.batch, dim=-1):
            asked = examples[batch]
            if augment is not None:
                asked = Examples((augment(asked.inputs[0], generator), *asked.inputs[1:]), asked.targets)
            for tensor, slope in zip(parameters, state.gradients(asked), strict=True):
                tensor.grad = slope
            optimiser.step()
        if observe is not None and epoch in observed:
            observe(epoch, state.clone())
    return state.clone()


def shuffle_rows(rows: Int[Tensor, "models m"], *, generator: torch.Generator) -> Int[Tensor, "models m"]:
    """One epoch: every network's rows in an order of its own."""
    drawn = torch.rand(rows.shape, dtype=torch.float32, generator=generator, device=rows.device)
    if drawn.device.type != "cpu":
        return rows.gather(-1, drawn.argsort(-1))
    # The draws are multiples of 2^-24, and NumPy sorts whole numbers in a third of the time.
    keys = (drawn * 2**24).long() * 2**32 + torch.arange(rows.shape[-1])
    return rows.gather(-1, torch.from_numpy(np.sort(keys.numpy(), -1)) & (2**32 - 1))


@dataclass(eq=False)
class Recorder(Generic[E]):
    """An observer for `train`: keeps what `measure` makes of the networks at each observed epoch.

    Attributes:
        measure: gives tensors by name.
        epochs: the epochs seen.
        seen: what was measured, one dictionary an epoch.
    """

    measure: Callable[[E], dict[str, Tensor]]
    epochs: list[int] = field(default_factory=list)
    seen: list[dict[str, Tensor]] = field(default_factory=list)

    def __call__(self, epoch: int, networks: E) -> None:
        self.epochs.append(epoch)
        self.seen.append(self.measure(networks))

    def stack(self) -> dict[str, Tensor]:
        """Each measured tensor with the epochs as a new first dimension, and `epochs`."""
        found = {name: torch.stack([seen[name] for seen in self.seen]) for name in self.seen[0]}
        device = next(iter(found.values())).device
        return found | {"epochs": torch.tensor(self.epochs, device=device)}


def _epochs_to_observe(epochs: Sequence[int] | None, recipe: Recipe) -> frozenset[int]:
    return frozenset(range(1, recipe.epochs + 1) if epochs is None else epochs)
