r"""Many fully connected classifiers of one shape, trained at the same time on row subsets of one data set.

The networks are the leading dimension of every tensor: a step gathers a batch for each, multiplies batches of matrices
and moves all parameters with one fused optimiser step. That computes what separate PyTorch trainings compute, without
their overhead for each network. Precision and device are those of the networks. `module_ensembles` does the same for
any module; recipes, optimisers and checkpoints are shared.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.nn.functional import one_hot
from torch.optim import SGD, Adam, Optimizer
from tqdm import tqdm

from leakage import arguments
from leakage.models.initialisation import Stack
from leakage.models.mlp import Mlp
from leakage.trainers.ensemble_checkpoints import Checkpoint, Journal, content_key

_LARGEST_EVALUATION = 2**20  # numbers in the widest layer of one evaluated chunk: 4 MiB of float32 stay in the cache


Networks = TypeVar("Networks", Mlp, Stack)


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

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"`optimiser` must be one of {', '.join(OPTIMISERS)}; got {self.optimiser!r}.")
        if self.epochs < 0 or self.batch < 1 or not self.learning_rate > 0:
            raise ValueError(f"`epochs` must not be negative, `batch` and `learning_rate` be positive; got {self}.")
        if not 0 <= self.momentum < 1 or not self.weight_decay >= 0:
            raise ValueError(f"`momentum` must lie in [0, 1) and `weight_decay` not be negative; got {self}.")
        if self.momentum and self.optimiser != "sgd":
            raise ValueError(f"`momentum` belongs to `sgd`, got {self.momentum!r} with {self.optimiser!r}.")


def _adam(parameters: Sequence[Tensor], recipe: Recipe) -> Optimizer:
    return Adam(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)


def _sgd(parameters: Sequence[Tensor], recipe: Recipe) -> Optimizer:
    settings: dict[str, Any] = dict(momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    return SGD(parameters, lr=recipe.learning_rate, fused=True, **settings)


OPTIMISERS: Mapping[str, Callable[[Sequence[Tensor], Recipe], Optimizer]] = {"adam": _adam, "sgd": _sgd}
"""PyTorch's own, with one fused kernel. They act on single numbers, so stacked networks move as separate ones do."""


def optimiser(parameters: Sequence[Tensor], recipe: Recipe) -> Optimizer:
    """The optimiser of a recipe over plain tensors: set their `.grad`, then call `step()`."""
    return OPTIMISERS[recipe.optimiser](list(parameters), recipe)


def train(
    networks: Mlp,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    rows: Int[Tensor, "models m"],
    recipe: Recipe,
    *,
    generator: torch.Generator,
    observe: Callable[[int, Mlp], Any] | None = None,
    epochs_observed: Sequence[int] | None = None,
    checkpoint: Checkpoint | None = None,
    description: str | None = None,
) -> Mlp:
    r"""Train each network on its rows to a small mean cross-entropy $-\log \operatorname{softmax}(o(x))_y$.

    The gradient is written out: $\partial L/\partial o = (\operatorname{softmax}(o) - e_y)/b$ and backwards from there;
    the subgradient of the ReLU at 0 is 0, as in PyTorch.

    Args:
        networks: the initial networks, one leading dimension; they are left as they are.
        features: the points of all networks.
        labels: classes from 0 to the number of outputs - 1.
        rows: which points each network is trained on; all have equally many, and no network has one twice.
        recipe: epochs, batches, optimiser.
        generator: shuffles the rows.
        observe: called with the number of epochs passed and a copy of the networks; see `Recorder`.
        epochs_observed: when; 0 is before training. All from 1 on by default.
        checkpoint: lets an interrupted training go on where it was, with the same result bit for bit. The random
            stream, settings, data and initial networks together name its file; an observer that looks at something
            else needs another folder.
        description: text of a progress bar; none by default.

    Raises:
        ValueError: if shapes or classes do not fit, rows repeat or are out of range, features are not finite, an
            observed epoch is never reached, or a network diverges (seen where it is observed, and at the end).
    """
    check(networks, features, labels, rows)
    observed = epochs_to_observe(epochs_observed, recipe)
    features, targets = features.to(networks.weights[0].dtype), one_hot(labels, networks.widths[-1])
    targets = targets.to(features.dtype)
    state = Mlp(*(tuple(tensor.clone() for tensor in part) for part in (networks.weights, networks.biases)))
    parameters = [*state.weights, *state.biases]
    steps = optimiser(parameters, recipe)
    journal = Journal(
        checkpoint,
        lambda: content_key((recipe, sorted(observed)), [*parameters, features, labels, rows, generator.get_state()]),
        parameters=parameters,
        optimiser=steps,
        generator=generator,
        observe=observe,
    )
    passed = journal.resume()
    if observe is not None and passed == 0 and 0 in observed:
        observe(0, copied(state))
    for epoch in with_progress(passed, recipe.epochs, description):
        for batch in shuffled_batches(rows, recipe.batch, generator=generator):
            for tensor, slope in zip(parameters, _gradient(state, features[batch], targets[batch]), strict=True):
                tensor.grad = slope
            steps.step()
        if observe is not None and epoch in observed:
            observe(epoch, copied(state))
        journal.save(epoch, last=epoch == recipe.epochs)
    return copied(state)


def check(
    networks: Mlp, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], rows: Int[Tensor, "models m"]
) -> None:
    """Raise the errors of `train` that concern networks and data."""
    leading = tuple(networks.weights[0].shape[:-2])
    arguments.tensor("features", features)
    arguments.whole("labels", labels, least=-(2**63))
    if features.ndim != 2 or features.shape[1] != networks.widths[0] or labels.shape != features.shape[:1]:
        raise ValueError(
            f"`features` must be (n, {networks.widths[0]}) and `labels` (n,) for these networks; got "
            f"{tuple(features.shape)} and {tuple(labels.shape)}."
        )
    check_rows(rows, models=leading, points=len(features))
    arguments.real("features", features)
    if int(labels.min()) < 0 or int(labels.max()) >= networks.widths[-1]:
        extremes = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"`labels` must be classes from 0 to {networks.widths[-1] - 1}, got {extremes}.")


def check_rows(rows: Int[Tensor, "models m"], *, models: tuple[int, ...], points: int) -> None:
    """Raise the errors of `train` that concern the rows."""
    arguments.whole("rows", rows, least=-(2**63))
    if rows.ndim != 2 or rows.shape[:1] != models or not rows.numel():
        raise ValueError(f"`rows` must be (models, m) = ({', '.join(map(str, models))}, m), got {tuple(rows.shape)}.")
    if int(rows.min()) < 0 or int(rows.max()) >= points:
        raise ValueError(f"`rows` must number the {points} points from 0, got {int(rows.min())} to {int(rows.max())}.")
    if bool((rows.sort(-1).values.diff(dim=-1) == 0).any()):
        raise ValueError("`rows` must name each point at most once a network, got one twice.")


def shuffled_batches(
    rows: Int[Tensor, "models m"], batch: int, *, generator: torch.Generator
) -> Iterator[Int[Tensor, "models b"]]:
    """One epoch: every network's rows in an order of its own, `batch` at a time; the last may be fewer."""
    order = torch.rand(rows.shape, generator=generator, device=rows.device).argsort(-1)
    yield from rows.gather(-1, order).split(batch, dim=-1)


def copied(networks: Mlp) -> Mlp:
    """The same networks in memory of their own."""
    return Mlp(*(tuple(tensor.detach().clone() for tensor in part) for part in (networks.weights, networks.biases)))


def losses(networks: Mlp, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Float64[Tensor, "models n"]:
    r"""Cross-entropy $\ell = -\log \operatorname{softmax}(o(x))_y$ of every network on every point, in nats.

    The logits come in the networks' precision, the loss from them in float64: a float32 loss is 0 below 6e-8, and
    attacks look at its logarithm.
    """
    return torch.cat([_losses(logits, part) for logits, part in _logits(networks, features, labels)], dim=-1)


def outcomes(
    networks: Mlp, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]
) -> tuple[Float64[Tensor, "models n"], Bool[Tensor, "models n"]]:
    """`losses`, and whether the largest output of every network is not that of the label; from one pass."""
    seen = [(_losses(logits, part), logits.argmax(-1) != part) for logits, part in _logits(networks, features, labels)]
    found, wrong = (torch.cat(parts, dim=-1) for parts in zip(*seen, strict=True))
    return found, wrong


def mistakes(networks: Mlp, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Bool[Tensor, "models n"]:
    """Whether the largest output of every network is not that of the label."""
    return torch.cat([logits.argmax(-1) != part for logits, part in _logits(networks, features, labels)], dim=-1)


@dataclass(eq=False)
class Recorder(Generic[Networks]):
    """An observer for `train`: keeps what `measure` makes of the networks at each observed epoch.

    Attributes:
        measure: gives tensors by name.
        epochs: the epochs seen.
        seen: what was measured, one dictionary an epoch.
    """

    measure: Callable[[Networks], dict[str, Tensor]]
    epochs: list[int] = field(default_factory=list)
    seen: list[dict[str, Tensor]] = field(default_factory=list)

    def __call__(self, epoch: int, networks: Networks) -> None:
        self.epochs.append(epoch)
        self.seen.append(self.measure(networks))

    def stacked(self) -> dict[str, Tensor]:
        """Each measured tensor with the epochs as a new first dimension, and `epochs`.

        Raises:
            ValueError: if no epoch was observed.
        """
        if not self.seen:
            raise ValueError("`Recorder` has seen no epoch: were `epochs_observed` empty, or has nothing been trained?")
        found = {name: torch.stack([seen[name] for seen in self.seen]) for name in self.seen[0]}
        device = next(iter(found.values())).device
        return found | {"epochs": torch.tensor(self.epochs, device=device)}

    def state_dict(self) -> dict[str, Any]:
        """What has been gathered, for a checkpoint."""
        return {"epochs": list(self.epochs), "seen": list(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        self.epochs[:], self.seen[:] = state["epochs"], state["seen"]


def _gradient(
    networks: Mlp, points: Float[Tensor, "models b d"], targets: Float[Tensor, "models b classes"]
) -> list[Tensor]:
    """The gradient of the mean cross-entropy: of all weights, then of all biases."""
    below = [points]
    for weight, bias in zip(networks.weights[:-1], networks.biases[:-1], strict=True):
        below.append(torch.baddbmm(bias.unsqueeze(1), below[-1], weight.mT).clamp_min_(0))
    logits = torch.baddbmm(networks.biases[-1].unsqueeze(1), below[-1], networks.weights[-1].mT)
    push = logits.softmax(-1).sub_(targets).div_(points.shape[1])
    weights, biases = [], []
    for weight, inputs in zip(reversed(networks.weights), reversed(below), strict=True):
        weights.append(push.mT @ inputs)
        biases.append(push.sum(1))
        if inputs is not points:
            push = (push @ weight).mul_(inputs > 0)
    return [*reversed(weights), *reversed(biases)]


def _logits(networks: Mlp, features: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs with their labels, some points at a time."""
    chunk = max(1, _LARGEST_EVALUATION // (len(networks.weights[0]) * max(networks.widths[1:])))
    features = features.to(networks.weights[0].dtype)
    for points, part in zip(features.split(chunk), labels.split(chunk), strict=True):
        yield networks(points), part


def _losses(logits: Float[Tensor, "models n classes"], labels: Int[Tensor, " n"]) -> Float64[Tensor, "models n"]:
    surprise = logits.double().log_softmax(-1)
    return -surprise.gather(-1, labels.expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)


def epochs_to_observe(epochs: Sequence[int] | None, recipe: Recipe) -> frozenset[int]:
    chosen = frozenset(range(1, recipe.epochs + 1) if epochs is None else epochs)
    if any(not 0 <= epoch <= recipe.epochs for epoch in chosen):
        raise ValueError(f"`epochs_observed` must lie between 0 and {recipe.epochs}, got {sorted(chosen)}.")
    return chosen


def with_progress(passed: int, count: int, description: str | None) -> Iterator[int]:
    """The epochs left, with a progress bar where one is described and a page is not being made."""
    hidden = description is None or bool(
        os.environ.get("LEAKAGE_QUIET")
    )  # set while a page is made, see `content_keys`
    yield from tqdm(
        range(passed + 1, count + 1), initial=passed, total=count, desc=description, unit="epoch", disable=hidden
    )
