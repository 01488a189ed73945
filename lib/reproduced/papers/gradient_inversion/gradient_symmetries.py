r"""Different batches with one gradient, which no attack on a two-layer network can tell apart.

Each function takes inputs $x_i$ and residuals $r_i = f(x_i) - y_i$ and returns others for which

$$ g_j = \sum_i r_i\, \sigma(w_j^\top x_i), \qquad G_j = \frac1m \sum_i r_i\, \sigma'(w_j^\top x_i)\, x_i $$

are the same, whatever the weights $w_j$. The labels that go with them are $y_i = f(x_i) - r_i$.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.inversion.activations import Activation

Batch = tuple[Float[Tensor, "B d"], Float[Tensor, " B"]]
"""Inputs and residuals."""


def mirror(inputs: Tensor, residuals: Tensor, *, flips: Bool[Tensor, " B"]) -> Batch:
    r"""$(x_i, r_i) \to (-x_i, -r_i)$ for the inputs chosen.

    If $\sigma(-t) = 2c - \sigma(t)$ it leaves every $G_j$ as it is and lowers every $g_j$ by $2c \sum_{i \in
    \text{flips}} r_i$: by nothing for an odd activation, by one constant for the sigmoid.

    Source: our observation; the sign statement of Wang et al., Theorem 5.1, cannot hold for odd activations unless a
    bias breaks the symmetry.
    """
    signs = torch.where(flips, -1.0, 1.0).to(inputs)
    return signs.unsqueeze(-1) * inputs, signs * residuals


def mirror_labels(labels: Float[Tensor, " B"], activation: Activation, *, bias: float) -> Float[Tensor, " B"]:
    r"""The labels $y' = 2(c + b) - y$ that give `mirror` residuals, if $\sum_j a_j = 1$ and the loss is squared."""
    assert activation.centre is not None
    return 2 * (activation.centre + bias) - labels


def rotate(inputs: Tensor, residuals: Tensor, *, angle: float) -> Batch:
    r"""Turn the first two inputs of a quadratic network into each other, with $z_i = \sqrt{|r_i|}\, x_i$:

    $$ (z_1, z_2) \to (z_1 \cos\omega + z_2 \sin\omega,\; z_2 \cos\omega - z_1 \sin\omega) $$

    for residuals of one sign, and $(z_1 \cosh\omega + z_2 \sinh\omega,\; z_2 \cosh\omega + z_1 \sinh\omega)$ for two of
    opposite signs. Both leave $\sum_i r_i x_i x_i^\top$, all that the gradient depends on, as it is.

    Source: Wang et al., Section 5 (only the span can be recovered); the rotations are ours.
    """
    sizes = residuals[:2].abs().sqrt().unsqueeze(-1)
    first, second = sizes * inputs[:2]
    if bool(residuals[0] * residuals[1] > 0):
        same, other, sign = math.cos(angle), math.sin(angle), -1.0
    else:
        same, other, sign = math.cosh(angle), math.sinh(angle), 1.0
    pair = torch.stack([same * first + other * second, same * second + sign * other * first])
    return torch.cat([pair / sizes, inputs[2:]]), residuals


def displace(inputs: Tensor, residuals: Tensor, *, shift: Float[Tensor, " d"]) -> Batch:
    r"""$x_1 \to x_1 + v / r_1$ and $x_2 \to x_2 - v / r_2$ for a linear network, whose gradient is $\sum_i r_i x_i$."""
    moves = torch.stack([shift, -shift]) / residuals[:2].unsqueeze(-1)
    return torch.cat([inputs[:2] + moves, inputs[2:]]), residuals
