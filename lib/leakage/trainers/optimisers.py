r"""Adam and SGD by PyTorch's fused kernels, for tensors whose gradients are in hand.

They take the steps of `torch.optim` bit for bit. That loads a compiler first, a second of every process, and its
bookkeeping costs a small network as much as its step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in PyTorch


@runtime_checkable
class Optimiser(Protocol):
    """Moves parameters in place, and can give away its memory and take it back."""

    def step(self, gradients: Sequence[Tensor]) -> None: ...

    def state_dict(self) -> dict[str, list[Tensor]]: ...

    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None: ...


class _Optimiser:
    """What both have: the parameters and, under a name, tensors that are remembered from step to step."""

    memory: dict[str, list[Tensor]]

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.settings: dict[str, Any] = dict(
            lr=lr, weight_decay=weight_decay, maximize=False, grad_scale=None, found_inf=None
        )
        kinds = [(tensor.dtype, tensor.device) for tensor in self.parameters]  # a kernel takes those of one kind
        self.groups = [[place for place, one in enumerate(kinds) if one == kind] for kind in dict.fromkeys(kinds)]

    def _like(self) -> list[Tensor]:
        return [torch.zeros_like(tensor) for tensor in self.parameters]

    def state_dict(self) -> dict[str, list[Tensor]]:
        """What is remembered, in the same memory."""
        return self.memory

    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Go on from what `state_dict` gave."""
        for name, tensors in self.memory.items():
            for tensor, stored in zip(tensors, state[name], strict=True):
                tensor.copy_(stored)


class Adam(_Optimiser):
    """Kingma and Ba (2015), with an L2 penalty added to the gradient."""

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.settings |= dict(amsgrad=False, beta1=_BETAS[0], beta2=_BETAS[1], eps=_EPSILON)
        counts = [torch.zeros((), dtype=torch.float32, device=tensor.device) for tensor in self.parameters]
        self.memory = {"means": self._like(), "squares": self._like(), "steps": counts}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move every parameter by its gradient, which has the parameter's strides."""
        means, squares, steps = self.memory.values()
        torch._foreach_add_(steps, 1)
        for group in self.groups:
            parts = ([part[place] for place in group] for part in (self.parameters, gradients, means, squares))
            torch._fused_adam_(*parts, [], [steps[place] for place in group], **self.settings)


class Sgd(_Optimiser):
    """Gradient descent, with `momentum` as in PyTorch: the memory is momentum times itself plus the gradient."""

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float, momentum: float = 0.0) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.settings |= dict(momentum=momentum, dampening=0.0, nesterov=False, is_first_step=False)
        self.memory = {"momenta": self._like() if momentum else []}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """As `Adam.step`."""
        momenta = self.memory["momenta"]
        for group in self.groups:
            parts = ([part[place] for place in group] for part in (self.parameters, gradients))
            torch._fused_sgd_(*parts, [momenta[place] for place in group] if momenta else [], **self.settings)


OPTIMISERS: Mapping[str, Callable[..., Optimiser]] = {"adam": Adam, "sgd": Sgd}
"""By name. They act on single numbers, so stacked networks move as separate ones do."""
