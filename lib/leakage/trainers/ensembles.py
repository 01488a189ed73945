r"""Many networks of one shape, trained at the same time on row subsets of one set of examples.

`train` shuffles, takes the steps of the optimiser and calls an observer. It trains any `Ensemble`: a `MlpEnsemble` of
fully connected networks, whose gradient is written out for all of them at once, or a `ModuleEnsemble` of any PyTorch
module, differentiated automatically. Precision and device are those of the ensemble.
"""

import copy
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, one_hot, softplus
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import SGD, Adam, Optimizer
from tqdm import tqdm

from leakage import draws
from leakage.models.initialisation import Stack
from leakage.models.mlp import Mlp

_LARGEST_LAYER = 2**20  # numbers in the widest layer of one evaluated chunk: 4 MiB of float32 stay in the cache
_EXAMPLES_AT_ONCE = 125  # examples that a module evaluates at once


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs of networks and their targets: as many rows in every tensor."""

    inputs: tuple[Shaped[Tensor, "n ..."], ...]
    targets: Int[Tensor, "n ..."]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Tensor | slice | int) -> "Examples":
        """These rows of every tensor."""
        return Examples(tuple(_select(tensor, rows) for tensor in self.inputs), _select(self.targets, rows))


def _select(tensor: Tensor, rows: Tensor | slice | int) -> Tensor:
    """`tensor[rows]`; `index_select` takes a third of the time, a tenth of an ensemble's training."""
    if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
        return tensor[rows]
    return tensor.index_select(0, rows.flatten()).unflatten(0, rows.shape)


class ExampleLosses(NamedTuple):
    """Losses and mistakes of networks on examples.

    Attributes:
        losses: cross-entropies in nats, summed over the answers that an example asks for.
        wrong: how many of these answers are wrong.
        answers: how many there are: one for a classifier, one for each word for a translator.
    """

    losses: Float[Tensor, "*models b"]
    wrong: Int[Tensor, "*models b"]
    answers: Int[Tensor, "*models b"]


def concatenate(parts: Iterable[ExampleLosses]) -> ExampleLosses:
    """The losses of several chunks of examples as one."""
    return ExampleLosses(*(torch.cat(field, -1) for field in zip(*parts, strict=True)))


def cross_entropies(
    logits: Float[Tensor, "*b k"], targets: Int[Tensor, "*b"]
) -> tuple[Float64[Tensor, "*b"], Bool[Tensor, "*b"]]:
    r"""Losses and mistakes, $\ell = \log(1 + e^{r - o_y})$ with $r = \log \sum_{j \ne y} e^{o_j}$; without a gradient.

    The sum r is taken in the precision of the logits and the rest in float64, so that no loss is rounded to 0: a
    float32 softmax rounds losses below 6e-8, and attacks look at their logarithm. An output that equals the largest of
    the others is a mistake.
    """
    own = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    others = logits.scatter(-1, targets.unsqueeze(-1), -math.inf)
    largest = others.amax(-1)
    rest = others.sub_(largest.unsqueeze(-1)).exp_().sum(-1).log()  # r is their sum; `logsumexp` would copy `others`
    losses = softplus(largest.double() + rest.double() - own.double(), threshold=40)
    return losses, largest >= own


E = TypeVar("E", bound="Ensemble")


@runtime_checkable
class Ensemble(Protocol):
    """Networks of one shape, stacked along a first dimension."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The tensors that training changes, in place."""
        ...

    def __len__(self) -> int: ...

    def clone(self: E) -> E:
        """The same networks in memory of their own; raises `ValueError` if one has diverged."""
        ...

    def gradients(self, batch: Examples) -> Sequence[Tensor]:
        """The gradient of every network's mean loss on a batch of its own, (models, b, ...): one tensor a parameter.

        It has the strides of the parameter: a fused optimiser would mix up its numbers otherwise.
        """
        ...

    def compute_losses(self, examples: Examples) -> ExampleLosses:
        """Losses and mistakes of every network on every example, (models, n), in float64."""
        ...


class MlpEnsemble(Mlp):
    """Fully connected networks with one leading dimension, an `Ensemble` of classifiers.

    Examples have one input, the points (n, d), and classes from 0 to the number of outputs - 1 as targets. Points are
    taken in the precision of the networks.
    """

    @classmethod
    def from_mlp(cls, networks: Mlp) -> "MlpEnsemble":
        """These networks, in the same memory."""
        return cls(networks.weights, networks.biases)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, then all biases."""
        return [*self.weights, *self.biases]

    def __len__(self) -> int:
        return len(self.weights[0])

    def clone(self) -> "MlpEnsemble":
        return MlpEnsemble.from_mlp(self.each(lambda tensor: tensor.detach().clone()))

    def gradients(self, batch: Examples) -> list[Tensor]:
        inputs, signals = backpropagate(self, batch.inputs[0].to(self.weights[0].dtype), batch.targets)
        mean = [signal / len(batch.targets[0]) for signal in signals]
        weights = [signal.mT @ below for signal, below in zip(mean, inputs, strict=True)]
        return [*weights, *(signal.sum(-2) for signal in mean)]

    def compute_losses(self, examples: Examples) -> ExampleLosses:
        (points,), dtype = examples.inputs, self.weights[0].dtype
        chunk = max(1, _LARGEST_LAYER // (len(self) * max(self.widths[1:])))
        parts = []
        for asked, classes in zip(points.split(chunk), examples.targets.split(chunk), strict=True):
            targets = classes.expand(len(self), -1)
            losses, wrong = cross_entropies(self(asked.to(dtype)), targets)
            parts.append(ExampleLosses(losses, wrong.long(), torch.ones_like(targets)))
        return concatenate(parts)


def backpropagate(
    networks: Mlp, points: Float[Tensor, "... b d"], targets: Int[Tensor, "... b"]
) -> tuple[list[Tensor], list[Tensor]]:
    r"""Inputs $a^{l-1}$ and signals $\delta_l = \partial\ell/\partial z^l$ of every layer, one row for each example.

    $$ \delta_{H+1} = \operatorname{softmax}(o) - e_y, \qquad
       \delta_l = (W_{l+1}^\top \delta_{l+1}) \odot [z^l > 0] $$

    The gradient of an example's cross-entropy by $(W_l, b_l)$ is $\delta_l (a^{l-1}, 1)^\top$. The subgradient of the
    ReLU at 0 is 0, as in PyTorch.
    """
    inputs = [points]
    for weight, bias in zip(networks.weights[:-1], networks.biases[:-1], strict=True):
        inputs.append(_affine(inputs[-1], weight, bias).clamp_min_(0))
    logits = _affine(inputs[-1], networks.weights[-1], networks.biases[-1])
    signals = [logits.softmax(-1).sub_(one_hot(targets, logits.shape[-1]))]
    for weight, below in zip(reversed(networks.weights[1:]), reversed(inputs[1:]), strict=True):
        signals.append((signals[-1] @ weight).mul_(below > 0))
    return inputs, signals[::-1]


def _affine(points: Float[Tensor, "... b i"], weight: Float[Tensor, "... o i"], bias: Tensor) -> Tensor:
    """Points times weights plus biases; `einsum` multiplies points that networks share with all weights at once."""
    return torch.einsum("...bi,...oi->...bo", points, weight).add_(bias.unsqueeze(-2))


class ModuleEnsemble:
    """Classifiers of one PyTorch module that gives logits, an `Ensemble`.

    Every network has running means of its own where there is batch normalisation. The module's own parameters are not
    read and may be on the `meta` device.

    Args:
        module: the architecture, without dropout, which would draw from PyTorch's global stream.
        batched: compute all networks in one call (`torch.func.vmap`) instead of one after the other; they differ by
            rounding only. By default on a GPU only: on a CPU large networks are faster one by one, in the cache.
    """

    def __init__(self, module: nn.Module, stack: Stack, *, batched: bool | None = None) -> None:
        random = [path for path, layer in module.named_modules() if isinstance(layer, _DropoutNd) and layer.p > 0]
        if random:
            raise ValueError(f"`module` must have no dropout, which draws from the global stream; got {random}.")
        self.module, self.stack = copy.deepcopy(module), stack
        self.batched = self.parameters[0].device.type != "cpu" if batched is None else batched

    @property
    def parameters(self) -> list[Tensor]:
        """Of the stack, in the module's order."""
        return list(self.stack.parameters.values())

    def __len__(self) -> int:
        return len(self.stack)

    def clone(self) -> "ModuleEnsemble":
        self.stack.check_finite()
        return ModuleEnsemble(self.module, self.stack.clone(), batched=self.batched)

    def gradients(self, batch: Examples) -> list[Tensor]:
        """Running means change in place."""
        self.module.train()
        found = [torch.empty_like(tensor) for tensor in self.parameters]
        for index in self._groups():
            part = self.stack[index]
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in part.parameters.items()}
            # The networks share nothing, so the gradient of the sum over them holds the gradient of each.
            total = self._apply(cross_entropy, Stack(leaves, part.buffers), batch[index]).sum()
            for tensor, slope in zip(found, torch.autograd.grad(total, list(leaves.values())), strict=True):
                tensor[index] = slope
        return found

    @torch.no_grad()
    def compute_losses(self, examples: Examples) -> ExampleLosses:
        """With running means."""
        self.module.eval()

        def judge(logits: Tensor, targets: Tensor) -> ExampleLosses:
            losses, wrong = cross_entropies(logits, targets)
            return ExampleLosses(losses, wrong.long(), torch.ones_like(targets))

        chunks = [
            examples[slice(first, first + _EXAMPLES_AT_ONCE)] for first in range(0, len(examples), _EXAMPLES_AT_ONCE)
        ]
        found = [
            concatenate(self._apply(judge, self.stack[index], chunk, shared=True) for chunk in chunks)
            for index in self._groups()
        ]
        return found[0] if self.batched else ExampleLosses(*(torch.stack(part) for part in zip(*found, strict=True)))

    def _groups(self) -> Iterable[int | slice]:
        """Indices of the networks that are computed at once."""
        return [slice(None)] if self.batched else range(len(self))

    def _apply(
        self, judge: Callable[[Tensor, Tensor], Any], stack: Stack, examples: Examples, *, shared: bool = False
    ) -> Any:
        """`judge` the logits of one network, or of all on examples of their own, or on `shared` ones."""

        def one(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: tuple[Tensor, ...], targets: Tensor
        ) -> Any:
            return judge(functional_call(self.module, (parameters, buffers), inputs, strict=True), targets)

        function = vmap(one, in_dims=(0, 0, None, None) if shared else 0) if self.batched else one
        return function(stack.parameters, stack.buffers, examples.inputs, examples.targets)


@dataclass(frozen=True)
class Recipe:
    """How an ensemble is trained: cross-entropy on mini-batches, every network shuffling its own rows each epoch.

    Attributes:
        batch: examples in a step; the last step of an epoch takes the rest.
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
    orders: Sequence[Int[Tensor, "models _"]] | None = None,
    observe: Callable[[int, E], Any] | None = None,
    observed_epochs: Iterable[int] | None = None,
    description: str | None = None,
) -> E:
    """Minimise each network's mean loss on its rows; the initial `ensemble` is not changed.

    Args:
        rows: which examples each network is trained on.
        generator: shuffles the rows.
        orders: the shuffled rows of each epoch, for callers with streams of their own: networks of several experiments
            can then be trained together. Or those of parts of epochs, which then count as epochs.
        observe: called with the number of epochs passed and a copy of the networks.
        observed_epochs: after which epochs, 0 being before training; by default after each.
        description: text of a progress bar; none by default.
    """
    observed = frozenset(range(1, recipe.epochs + 1) if observed_epochs is None else observed_epochs)
    state = ensemble.clone()
    parameters = list(state.parameters)
    momentum = {"momentum": recipe.momentum} if recipe.momentum else {}  # Adam has none
    optimiser = OPTIMISERS[recipe.optimiser](
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True, **momentum
    )
    if observe is not None and 0 in observed:
        observe(0, state.clone())
    hidden = description is None or bool(os.environ.get("LEAKAGE_QUIET"))
    for epoch in tqdm(range(1, recipe.epochs + 1), desc=description, unit="epoch", disable=hidden):
        order = shuffle_rows(rows, generator=generator) if orders is None else orders[epoch - 1]
        for batch in order.split(recipe.batch, dim=-1):
            for tensor, slope in zip(parameters, state.gradients(examples[batch]), strict=True):
                tensor.grad = slope
            optimiser.step()
        if observe is not None and epoch in observed:
            observe(epoch, state.clone())
    return state.clone()


def shuffle_rows(rows: Int[Tensor, "models m"], *, generator: torch.Generator) -> Int[Tensor, "models m"]:
    """Every network's rows in a random order of its own."""
    drawn = draws.uniform(rows.shape, generator=generator, like=rows, dtype=torch.float32)
    return rows.gather(-1, drawn.argsort(dim=-1, stable=True))
