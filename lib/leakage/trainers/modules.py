r"""Networks of any one module as an ensemble that can be trained: differentiated automatically.

The slower sibling of `trainers.perceptrons` for networks whose gradient is not written out: `torch.func` maps the
module over stacked parameters. The module is a form and never changed: its parameters are not read and may be on the
`meta` device. Every network has running means of its own, where there is batch normalisation.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.dropout import _DropoutNd

from leakage import arguments
from leakage.models.initialisation import Stack
from leakage.trainers.criteria import Criterion, Evaluation, Examples, concatenate

_CHUNK = 250  # examples evaluated at once
ROUTES = ("auto", "loop", "vmap")


class ModuleEnsemble:
    r"""A stack of networks: an `ensembles.Ensemble` that minimises $\sum_i \ell_i / \sum_i a_i$ over a batch.

    $\ell_i$ are the losses of the criterion and $a_i$ the numbers of answers.

    Args:
        module: the form of the networks, without dropout.
        stack: their parameters and buffers.
        criterion: `criteria.classification`, or another function of outputs and targets.
        route: `loop` computes one network after the other, `vmap` several at once, `auto` chooses: `loop` on a CPU,
            where large stacks miss the cache, and `vmap` elsewhere. Both differ by rounding only.
        together: networks at once on the route `vmap`, for large ones; all by default.

    Raises:
        ValueError: if names or shapes do not fit, the module has dropout, or a setting is out of range.
    """

    def __init__(
        self, module: nn.Module, stack: Stack, *, criterion: Criterion, route: str = "auto", together: int | None = None
    ) -> None:
        _check(module, stack)
        arguments.choice("route", route, ROUTES)
        if together is not None:
            arguments.count("together", together, least=1)
        self.form, self.stack, self.criterion, self.together = copy.deepcopy(module), stack, criterion, together
        self.alone = route == "loop" or (route == "auto" and self.parameters[0].device.type == "cpu")

    @property
    def parameters(self) -> list[Tensor]:
        """Of the stack, in the module's order."""
        return list(self.stack.parameters.values())

    def __len__(self) -> int:
        return len(self.stack)

    def clone(self) -> "ModuleEnsemble":
        """See `Ensemble.clone`."""
        self.stack.check_finite()
        same = copy.copy(self)  # the form holds nothing but its mode, which is set before each use
        same.stack = self.stack.clone()
        return same

    def gradients(self, batch: Examples) -> list[Tensor]:
        """See `Ensemble.gradients`; running means move in place."""
        self.form.train()
        found = [torch.empty_like(tensor) for tensor in self.parameters]  # a fused optimiser wants equal strides
        for group in self._groups():
            leaves = {name: tensor[group].detach().requires_grad_() for name, tensor in self.stack.parameters.items()}
            stack = Stack(leaves, self.stack[group].buffers)
            score = self._score(stack, batch[group], self.criterion, shared=False)
            # The networks share nothing, so the gradient of the sum over them holds the gradient of each.
            total = (score.losses.sum(-1) / score.answers.sum(-1)).sum()
            for tensor, slope in zip(found, torch.autograd.grad(total, list(leaves.values())), strict=True):
                tensor[group] = slope
        return found

    @torch.no_grad()
    def evaluate(self, examples: Examples) -> Evaluation:
        """See `Ensemble.evaluate`; running means stand in for those of a batch.

        Outputs come in the networks' precision and are judged in float64: a float32 loss is 0 below 6e-8, and attacks
        look at its logarithm.
        """
        self.form.eval()

        def precisely(outputs: Tensor, targets: Tensor) -> Evaluation:
            return self.criterion(outputs.double(), targets)

        chunks = (examples[slice(first, first + _CHUNK)] for first in range(0, len(examples), _CHUNK))
        groups = self._groups()
        found = [
            concatenate([self._score(self.stack[group], asked, precisely, shared=True) for group in groups], 0)
            for asked in chunks
        ]
        return concatenate(found, 1)

    def _groups(self) -> list[slice]:
        """Which networks are computed at once."""
        models = len(self)
        size = 1 if self.alone else min(self.together or models, models)
        return [slice(first, min(first + size, models)) for first in range(0, models, size)]

    def _score(self, stack: Stack, asked: Examples, criterion: Criterion, *, shared: bool) -> Evaluation:
        """The scores (models, b) of networks at examples of their own (models, b, ...), or all at the same (b, ...)."""

        def one(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: tuple[Tensor, ...], targets: Tensor
        ) -> Evaluation:
            return criterion(functional_call(self.form, (parameters, buffers), inputs), targets)

        if len(stack) > 1:
            rows = None if shared else 0
            return vmap(one, in_dims=(0, 0, rows, rows))(stack.parameters, stack.buffers, asked.inputs, asked.targets)
        # One network, without the overhead of mapping. A squeezed tensor shares memory, so buffers change in place.
        parameters, buffers = (
            {name: tensor.squeeze(0) for name, tensor in part.items()} for part in (stack.parameters, stack.buffers)
        )
        own = (
            asked if shared else Examples(tuple(tensor.squeeze(0) for tensor in asked.inputs), asked.targets.squeeze(0))
        )
        return Evaluation(*(part.unsqueeze(0) for part in one(parameters, buffers, own.inputs, own.targets)))


def _check(module: nn.Module, stack: Stack) -> None:
    random = [path for path, layer in module.named_modules() if isinstance(layer, _DropoutNd) and layer.p > 0]
    if random:
        raise ValueError(f"`module` must have no dropout, which draws from no stream of ours; got {', '.join(random)}.")
    forms = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    check_stacked("stack", stack.parameters | stack.buffers, forms, len(stack))


def check_stacked(name: str, given: Mapping[str, Tensor], forms: Mapping[str, Tensor], models: int) -> None:
    """Raise `ValueError` unless `given` holds every form by its name, stacked along so many networks."""
    needed = {path: (models, *form.shape) for path, form in forms.items()}
    found = {path: tuple(tensor.shape) for path, tensor in given.items()}
    if wrong := sorted(path for path in {*needed, *found} if needed.get(path) != found.get(path)):
        raise ValueError(
            f"`{name}` must hold each of the tensors of `module`, stacked along {models} networks; "
            f"got wrong shapes of {', '.join(wrong)}."
        )
