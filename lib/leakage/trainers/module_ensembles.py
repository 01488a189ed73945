r"""Many networks of any one module, trained at the same time on row subsets of one set of examples.

The slower sibling of `trainers.ensembles` for networks whose gradient is not written out: `torch.func` maps the module
over stacked parameters, and automatic differentiation does the rest. Recipes, optimisers, shuffles, observers and
checkpoints are those of `ensembles`. The module is a form and never changed: its parameters are not read and may be on
the `meta` device. Every network has running means of its own, where there is batch normalisation.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.dropout import _DropoutNd

from leakage.models.initialisation import Stack
from leakage.trainers.criteria import Criterion, Examples, Score
from leakage.trainers.ensemble_checkpoints import Checkpoint, Journal, content_key
from leakage.trainers.ensembles import (
    Recipe,
    check_rows,
    epochs_to_observe,
    optimiser,
    shuffled_batches,
    with_progress,
)

_CHUNK = 250  # examples evaluated at once
ROUTES = ("auto", "loop", "vmap")

Augment = Callable[[Tensor, torch.Generator], Tensor]


def train(
    module: nn.Module,
    start: Stack,
    examples: Examples,
    rows: Int[Tensor, "models m"],
    recipe: Recipe,
    *,
    criterion: Criterion,
    generator: torch.Generator,
    augment: Augment | None = None,
    observe: Callable[[int, Any], Any] | None = None,
    epochs_observed: Sequence[int] | None = None,
    checkpoint: Checkpoint | None = None,
    description: str | None = None,
    route: str = "auto",
    together: int | None = None,
) -> Stack:
    r"""Train each network on its rows to a small mean loss, $\sum_i \ell_i / \sum_i a_i$ over a batch.

    $\ell_i$ are the losses of the criterion and $a_i$ the numbers of answers.

    Args:
        module: the form of the networks, without dropout.
        start: the initial networks; left as they are.
        examples: those of all networks.
        rows: which examples each network is trained on; all have equally many, and no network has one twice.
        recipe: epochs, batches, optimiser.
        criterion: `criteria.classes`, `criteria.words`, or another function of outputs and targets.
        generator: shuffles the rows, and is given to `augment`.
        augment: changes the first input of a batch, (models, b, ...), anew each time.
        observe: called with the number of epochs passed and a copy of the networks; see `ensembles.Recorder`.
        epochs_observed: when; 0 is before training. All from 1 on by default.
        checkpoint: lets an interrupted training go on where it was, with the same result bit for bit on a CPU. Recipe,
            data, initial networks, random stream, the module as it prints and the names of criterion and `augment`
            together name its file: a setting of a module of your own must show in its `extra_repr`.
        description: text of a progress bar; none by default.
        route: `loop` computes the gradient of one network after the other, `vmap` of several at once, `auto` chooses:
            `loop` on a CPU, where large stacks miss the cache, and `vmap` elsewhere. They differ by rounding only.
        together: networks at once on the route `vmap`, for large ones; all by default.

    Raises:
        ValueError: if names, shapes or rows do not fit, the module has dropout, a setting is out of range, or a network
            diverges (seen where it is observed, and at the end).
    """
    check(module, start)
    check_rows(rows, models=(len(start),), points=len(examples))
    observed = epochs_to_observe(epochs_observed, recipe)
    groups = _groups(len(start), route=route, together=together, device=rows.device)
    stack, form = start.clone(), copy.deepcopy(module).train()
    parameters = list(stack.parameters.values())
    state = [*parameters, *stack.buffers.values()]
    steps = optimiser(parameters, recipe)
    settings = (recipe, observed, repr(module), _name(criterion), _name(augment))
    journal = Journal(
        checkpoint,
        lambda: content_key(settings, [*state, *examples.tensors, rows, generator.get_state()]),
        parameters=state,
        optimiser=steps,
        generator=generator,
        observe=observe,
    )
    passed = journal.resume()
    if observe is not None and passed == 0 and 0 in observed:
        observe(0, stack.clone())
    for epoch in with_progress(passed, recipe.epochs, description):
        for batch in shuffled_batches(rows, recipe.batch, generator=generator):
            asked = _augmented(examples[batch], augment, generator)
            for group in groups:
                _differentiate(form, stack, asked, criterion, group)
            steps.step()
        if observe is not None and epoch in observed:
            observe(epoch, _finite(stack.clone()))
        journal.save(epoch, last=epoch == recipe.epochs)
    return _finite(stack.clone())


@torch.no_grad()
def scores(
    module: nn.Module,
    stack: Stack,
    examples: Examples,
    *,
    criterion: Criterion,
    route: str = "auto",
    together: int | None = None,
) -> Score:
    r"""What every network makes of every example (models, n), with the running means of batch normalisation.

    Outputs come in the networks' precision and are judged in float64: a float32 loss is 0 below 6e-8, and attacks look
    at its logarithm.

    Raises:
        ValueError: if names or shapes do not fit, or the route is unknown.
    """
    check(module, stack)
    form = copy.deepcopy(module).eval()
    groups = _groups(len(stack), route=route, together=together, device=examples.targets.device)

    def precisely(outputs: Tensor, targets: Tensor) -> Score:
        return criterion(outputs.double(), targets)

    chunks = (examples[slice(first, first + _CHUNK)] for first in range(0, len(examples), _CHUNK))
    found = [
        _joined([_score(form, stack[group], asked, precisely, shared=True) for group in groups], 0) for asked in chunks
    ]
    return _joined(found, 1)


def check(module: nn.Module, stack: Stack) -> None:
    """Raise the errors of `train` that concern the module and the networks."""
    random = [path for path, layer in module.named_modules() if isinstance(layer, _DropoutNd) and layer.p > 0]
    if random:
        raise ValueError(f"`module` must have no dropout, which draws from no stream of ours; got {', '.join(random)}.")
    forms = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    needed = {name: (len(stack), *form.shape) for name, form in forms.items()}
    given = {name: tuple(tensor.shape) for name, tensor in (stack.parameters | stack.buffers).items()}
    if needed != given:
        wrong = sorted(name for name in {*needed, *given} if needed.get(name) != given.get(name))
        raise ValueError(
            "the stack must hold each parameter and buffer of `module`, stacked along models; got wrong shapes of "
            f"{', '.join(wrong)}."
        )


def _groups(models: int, *, route: str, together: int | None, device: torch.device) -> list[slice]:
    """Which networks are computed at once."""
    if route not in ROUTES:
        raise ValueError(f"`route` must be one of {', '.join(ROUTES)}; got {route!r}.")
    if together is not None and together < 1:
        raise ValueError(f"`together` must be at least 1, got {together!r}.")
    alone = route == "loop" or (route == "auto" and device.type == "cpu")
    size = 1 if alone else min(together or models, models)
    return [slice(first, min(first + size, models)) for first in range(0, models, size)]


def _augmented(asked: Examples, augment: Augment | None, generator: torch.Generator) -> Examples:
    if augment is None:
        return asked
    return Examples((augment(asked.inputs[0], generator), *asked.inputs[1:]), asked.targets)


def _differentiate(form: nn.Module, stack: Stack, asked: Examples, criterion: Criterion, group: slice) -> None:
    """Set the gradients of a group of networks, each at its own batch."""
    leaves = {name: tensor[group].detach().requires_grad_() for name, tensor in stack.parameters.items()}
    score = _score(form, Stack(leaves, stack[group].buffers), asked[group], criterion, shared=False)
    # The networks share nothing, so the gradient of the sum over them holds the gradient of each.
    objective = (score.losses.sum(-1) / score.answers.sum(-1)).sum()
    slopes = torch.autograd.grad(objective, list(leaves.values()))
    for tensor, slope in zip(stack.parameters.values(), slopes, strict=True):
        if tensor.grad is None:
            tensor.grad = torch.empty_like(tensor)
        tensor.grad[group] = slope


def _score(form: nn.Module, stack: Stack, asked: Examples, criterion: Criterion, *, shared: bool) -> Score:
    """The scores (models, b) of networks at examples of their own (models, b, ...), or all at the same (b, ...)."""

    def one(
        parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: tuple[Tensor, ...], targets: Tensor
    ) -> Score:
        return criterion(functional_call(form, (parameters, buffers), inputs), targets)

    if len(stack) > 1:
        rows = None if shared else 0
        return vmap(one, in_dims=(0, 0, rows, rows))(stack.parameters, stack.buffers, asked.inputs, asked.targets)
    # One network, without the overhead of mapping. A squeezed tensor shares memory, so buffers change in place.
    parameters, buffers = (
        {name: tensor.squeeze(0) for name, tensor in part.items()} for part in (stack.parameters, stack.buffers)
    )
    own = asked if shared else Examples(tuple(tensor.squeeze(0) for tensor in asked.inputs), asked.targets.squeeze(0))
    return Score(*(part.unsqueeze(0) for part in one(parameters, buffers, own.inputs, own.targets)))


def _joined(parts: Sequence[Score], dimension: int) -> Score:
    return Score(*(torch.cat(field, dimension) for field in zip(*parts, strict=True)))


def _finite(stack: Stack) -> Stack:
    broken = [name for name, tensor in stack.parameters.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise ValueError(f"a network has diverged: {', '.join(broken)} are not finite; lower the `learning_rate`.")
    return stack


def _name(function: Callable[..., Any] | None) -> str:
    """What tells a function from others in a checkpoint's key."""
    return "" if function is None else f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
