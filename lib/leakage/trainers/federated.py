r"""What a client of federated learning returns: the gradient of its batch, by autograd through a real module.

Outputs and labels are one number for each input, and the residual of an input is $r = f(x) - y$, for the logistic loss
$r = \operatorname{sigmoid}(f(x)) - y$ with labels 0 and 1. `Loss.scale` is what divides a gradient so that $\sum_i r_i
\nabla f(x_i)$ is left. Nothing here changes the module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from leakage import arguments


@dataclass(frozen=True)
class Loss:
    r"""A loss of a batch.

    Attributes:
        value: the loss of outputs and labels.
        scale: the constant c of a batch size with $\nabla L = c \sum_i r_i \nabla f(x_i)$.
        logistic: whether $r = \operatorname{sigmoid}(f(x)) - y$, with labels 0 and 1.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    scale: Callable[[int], float]
    logistic: bool = False


LOSSES: Mapping[str, Loss] = {
    "half_sum": Loss(lambda f, y: (f - y).square().sum() / 2, lambda batch: 1.0),
    "sum": Loss(lambda f, y: (f - y).square().sum(), lambda batch: 2.0),
    "mean": Loss(lambda f, y: (f - y).square().mean(), lambda batch: 2.0 / batch),
    "logistic": Loss(lambda f, y: (softplus(f) - y * f).sum(), lambda batch: 1.0, logistic=True),
}
"""Squared error in the three scalings in use, and the sum of the logistic losses."""


def find_loss(name: str) -> Loss:
    """The loss called `name`.

    Raises:
        ValueError: if there is none; the message lists the names.
    """
    return LOSSES[arguments.choice("loss", name, LOSSES)]


def batch_gradient(
    module: nn.Module, inputs: Float[Tensor, "B d"], labels: Float[Tensor, " B"], *, loss: str
) -> dict[str, Tensor]:
    r"""The gradient $\nabla_\theta L$ of one batch, a tensor for each parameter of the module, under its name.

    Args:
        module: gives one output for each input, as (B,) or (B, 1); its parameters and their `.grad` stay as they are.
        inputs: the client's batch.
        labels: one for each input; 0 or 1 for the logistic loss.
        loss: a name in `LOSSES`.
    """
    chosen = find_loss(loss)
    names, parameters = zip(*module.named_parameters(), strict=True)
    with torch.enable_grad():
        try:
            outputs = module(inputs)
        except RuntimeError as error:
            raise ValueError(f"`module` must take `inputs` of shape {tuple(inputs.shape)}: {error}") from error
        if outputs.shape not in (labels.shape, (*labels.shape, 1)):
            raise ValueError(f"`module` must give one output for each input, got {tuple(outputs.shape)}.")
        value = chosen.value(outputs.reshape(labels.shape), labels)
    gradients = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, gradients, strict=True))
