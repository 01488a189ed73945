r"""Federated learning: the networks that a server sends to its clients, and the gradient that a client returns.

A two-layer client computes

$$ f(x) = \sum_{j \le m} a_j\, \sigma(w_j^\top x) + b , \qquad a_j = \frac1m , $$

with trainable $w_j$ (`hidden`) and $a_j$ (`outputs`) and an output bias b that the server fixes. Outputs and labels are
one number for each input. The residual of an input is $r = f(x) - y$, for the logistic loss
$r = \operatorname{sigmoid}(f(x)) - y$ with labels 0 and 1. Nothing here is random, and nothing trains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss, softplus

from leakage.inversion import activations
from leakage.inversion.activations import Activation
from leakage.precision import DTYPE


class Client(nn.Module):
    """A two-layer client with copies of the `weights` $w_j$, in rows, and an `activation` of `ACTIVATIONS`."""

    bias: Tensor

    def __init__(self, weights: Float[Tensor, "m d"], *, activation: str, bias: float = 0.0) -> None:
        super().__init__()
        self.activation = activations.activation(activation)
        self.hidden = nn.Parameter(weights.detach().clone())
        self.outputs = nn.Parameter(weights.new_full(weights.shape[:1], 1 / weights.shape[0]))
        self.register_buffer("bias", weights.new_tensor(bias))

    def forward(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
        """One output for each input."""
        return self.activation(inputs @ self.hidden.mT) @ self.outputs + self.bias


class DeepStack(nn.Module):
    r"""A two-layer client on top of `depth - 1` layers that lose nothing of the input.

    The `plain` stack repeats $h \leftarrow \sigma(h)$ from $h = x$. The `paired` stack starts from $h = (x, -x)$, and
    its last layer reads $(h_+ - h_-)/\text{gain}$, with the gain of `stack_gain`: in both cases the client is the
    two-layer one with these weights, at `stack_features(x)` instead of x. `depth` is the number of hidden layers, at
    least 2; the rows of `weights` have length d also in the paired stack.
    """

    def __init__(
        self, weights: Float[Tensor, "m d"], *, activation: str, depth: int, kind: str = "paired", bias: float = 0.0
    ) -> None:
        super().__init__()
        self.kind = kind
        self.depth = depth  # in hidden layers, that of the client included
        self.activation = activations.activation(activation)
        identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        first, last = identity, weights
        if kind == "paired":
            gain = stack_gain(self.activation, depth=depth)
            first, last = torch.cat([identity, -identity]), torch.cat([weights, -weights], dim=1) / gain
        wide_identity = torch.eye(first.shape[0], dtype=weights.dtype, device=weights.device)
        self.identities = nn.ParameterList([first, *(wide_identity.clone() for _ in range(depth - 2))])
        self.top = Client(last, activation=activation, bias=bias)

    def forward(self, inputs: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
        """One output for each input."""
        for layer in self.identities:
            inputs = self.activation(inputs @ layer.mT)
        return self.top(inputs)


def iterate(function: Activation, t: Tensor, *, times: int) -> Tensor:
    r"""$\sigma(\sigma(\dots\sigma(t)))$, entry by entry."""
    for _ in range(times):
        t = function(t)
    return t


@cache  # called at every step of a search
def stack_gain(function: Activation, *, depth: int) -> float:
    r"""The slope at 0 of $\varphi(t) = \sigma^k(t) - \sigma^k(-t)$, where $\sigma^k$ repeats $\sigma$ depth − 1 times.

    $$ \text{gain} = 2 \prod_{i < k} \sigma'(\sigma^i(0)) , \qquad
       \text{or } \sigma^k(1) - \sigma^k(-1) \text{ for } \sigma \text{ homogeneous of degree 1.} $$
    """
    times = depth - 1
    if function.homogeneity == 1:
        one = torch.ones(1, dtype=DTYPE)
        return float(iterate(function, one, times=times) - iterate(function, -one, times=times))
    if not function.monotone:
        raise ValueError(f"`activation` must increase for a paired stack, got {function.name!r}: its pairs can meet.")
    value, gain = torch.zeros(1, dtype=DTYPE), 2.0
    for _ in range(times):
        value, slope = function.derivatives(value, order=1)
        gain *= float(slope)
    if not gain >= torch.finfo(DTYPE).tiny:
        raise ValueError(f"`depth` must be smaller: after {depth} layers of {function.name} the gain is 0.")
    return gain


def stack_features(inputs: Float[Tensor, "B d"], function: Activation, *, depth: int, kind: str) -> Tensor:
    r"""The inputs of the two-layer client on top: $\sigma^k(x)$, or $\varphi(x)/\text{gain}$ in a paired stack."""
    times = depth - 1
    if kind == "plain":
        return iterate(function, inputs, times=times)
    paired = iterate(function, inputs, times=times) - iterate(function, -inputs, times=times)
    return paired / stack_gain(function, depth=depth)


@dataclass(frozen=True)
class Loss:
    r"""A loss of a batch.

    Attributes:
        scale: from the batch size to the c in $\nabla L = c \sum_i r_i \nabla f(x_i)$.
        logistic: whether $r = \operatorname{sigmoid}(f(x)) - y$, with labels 0 and 1.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    scale: Callable[[int], float]
    logistic: bool = False


LOSSES: Mapping[str, Loss] = {
    "half_sum": Loss(lambda f, y: (f - y).square().sum() / 2, lambda batch: 1.0),
    "sum": Loss(lambda f, y: (f - y).square().sum(), lambda batch: 2.0),
    "mse_loss": Loss(mse_loss, lambda batch: 2.0 / batch),
    "logistic": Loss(lambda f, y: (softplus(f) - y * f).sum(), lambda batch: 1.0, logistic=True),
    "binary_cross_entropy_with_logits": Loss(
        binary_cross_entropy_with_logits, lambda batch: 1.0 / batch, logistic=True
    ),
}
"""Squared error in the three scalings in use, and the sum and the mean of the logistic losses. The two means have the
names that PyTorch gives them."""


def batch_gradient(
    module: nn.Module, inputs: Float[Tensor, "B d"], labels: Float[Tensor, " B"], *, loss: str
) -> dict[str, Tensor]:
    r"""The gradient $\nabla_\theta L$ of one batch, a tensor for each parameter of the module, under its name.

    The module gives one output for each input, as (B,) or (B, 1); its parameters and their `.grad` do not change.
    """
    names, parameters = zip(*module.named_parameters(), strict=True)
    with torch.enable_grad():
        value = LOSSES[loss].value(module(inputs).reshape(labels.shape), labels)
    gradients = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, gradients, strict=True))
