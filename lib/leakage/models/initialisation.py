r"""Many networks of one PyTorch module: their parameters and buffers, stacked, and their random initial values.

Tensors are stacked along a first dimension under the module's own names, as `torch.func.functional_call` takes them.
They are drawn from a generator instead of PyTorch's global one. The module may be on the `meta` device.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakage import draws
from leakage.draws import gaussian


@dataclass(frozen=True, eq=False)
class Stack:
    """Networks of one module: by name what training changes and other tensors, such as running means."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def __getitem__(self, models: slice | int) -> "Stack":
        """Some of the networks, or one without the first dimension, sharing memory with these."""
        return self._each(lambda tensor: tensor[models])

    def clone(self) -> "Stack":
        """The same networks in memory of their own."""
        return self._each(lambda tensor: tensor.detach().clone())

    def check_finite(self) -> None:
        """Raise `ValueError` if a parameter is not finite."""
        broken = [name for name, part in self.parameters.items() if not bool(torch.isfinite(part).all())]
        if broken:
            raise ValueError(f"a network has diverged: {', '.join(broken)} are not finite; lower the `learning_rate`.")

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Stack":
        parts = (self.parameters, self.buffers)
        return Stack(*({name: change(tensor) for name, tensor in part.items()} for part in parts))


def initial(module: nn.Module, models: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Stack:
    r"""`models` networks of the module, on the device of `generator`.

    Linear and convolutional layers get PyTorch's default, weights and biases $U(\pm 1/\sqrt{\text{fan-in}})$;
    normalisations 1 and 0, with running means 0 and variances 1; word vectors $N(0, 1/\text{width})$, PyTorch's being
    too large for vectors that are also output weights.
    """
    parameters, buffers = {}, {}
    for path, layer in module.named_modules():
        for name, form in layer.named_parameters(prefix=path, recurse=False):
            draw = LAYERS.get(type(layer))
            if draw is None:
                raise ValueError(
                    f"`module` has a {type(layer).__name__} at {path!r}; known are "
                    f"{', '.join(kind.__name__ for kind in LAYERS)}. "
                    "`torch.func.stack_module_state` of modules of your own makes a `Stack`."
                )
            drawn = draw(layer, name.rpartition(".")[2], (models, *form.shape), generator)
            parameters[name] = drawn.to(dtype)
        for name, form in layer.named_buffers(prefix=path, recurse=False):
            kind = dtype if form.is_floating_point() else form.dtype
            fill = 1 if name.endswith("running_var") else 0
            buffers[name] = torch.full((models, *form.shape), fill, device=generator.device, dtype=kind)
    return Stack(parameters, buffers)


def _fan_in(layer: nn.Module, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    bound = 1 / math.sqrt(layer.get_parameter("weight")[0].numel())
    uniform = draws.uniform(shape, generator=generator)
    return bound * (2 * uniform - 1)


def _normalisation(layer: nn.Module, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    fill = 1.0 if name == "weight" else 0.0
    return torch.full(shape, fill, device=generator.device, dtype=torch.float64)


LAYERS: Mapping[type[nn.Module], Callable[[nn.Module, str, tuple[int, ...], torch.Generator], Tensor]] = {
    nn.Linear: _fan_in,
    nn.Conv2d: _fan_in,
    nn.BatchNorm1d: _normalisation,
    nn.BatchNorm2d: _normalisation,
    nn.GroupNorm: _normalisation,
    nn.LayerNorm: _normalisation,
    nn.Embedding: lambda layer, name, shape, generator: gaussian(shape, generator=generator) / math.sqrt(shape[-1]),
}
"""How the parameters of each kind of layer are drawn."""
