r"""The gradient of one early weight as a sum over paths, and the formula that the thesis prints.

Networks of three layers of two neurons each, a ReLU after every layer and no biases, as in Figure 10 of Peinemann
(2021). `weights[..., l, i, j]` is $w^{(l)}_{ij}$, from neuron i to neuron j. The gradient is that of
$\mathcal L = \sum_i (o_i - y_i)^2$ with respect to $w^{(0)}_{22}$.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class EarlyGradient(NamedTuple):
    r"""$\partial\mathcal L / \partial w^{(0)}_{22}$ in four ways.

    Attributes:
        automatic: by automatic differentiation.
        paths: the sum over all paths from the weight to the outputs.
        charitable: the printed formula, each $\Phi'$ a diagonal Jacobian whose two indices are suppressed, and
            $w^{(1)}_{l2}$ the weight to l from 2.
        one_order: the same, but with $w^{(1)}_{l2}$ from l to 2, the order of all other weights.
    """

    automatic: Float[Tensor, "*b"]
    paths: Float[Tensor, "*b"]
    charitable: Float[Tensor, "*b"]
    one_order: Float[Tensor, "*b"]


def early_gradient(
    weights: Float[Tensor, "*b 3 2 2"], inputs: Float[Tensor, "*b 2"], targets: Float[Tensor, "*b 2"]
) -> EarlyGradient:
    r"""The gradient with respect to $w^{(0)}_{22}$, for many networks at once.

    $$ \frac{\partial\mathcal L}{\partial w^{(0)}_{22}} = x_2\, \Phi'^{(0)}_2 \sum_i 2 (o_i - y_i)\, \Phi'^{(2)}_i
       \sum_k w^{(2)}_{ki}\, \Phi'^{(1)}_k\, w^{(1)}_{2k} $$

    Source: Peinemann (2021), Section 5.4. It prints
    $\sum_i 2(o_i - y_i) \sum_j \Phi'^{(2)} \sum_k w^{(2)}_{kj} \Phi'^{(1)} \sum_l w^{(1)}_{l2} \Phi'^{(0)} \nu^{(0)}_2$
    with $\nu^{(0)}$ the input.
    """
    outputs, slopes = _forward(weights, inputs)
    error = 2 * (outputs - targets)
    second, third = weights[..., 1, :, :], weights[..., 2, :, :]
    start = inputs[..., 1] * slopes[0][..., 1]
    paths = torch.einsum("...i,...i,...ki,...k,...k->...", error, slopes[2], third, slopes[1], second[..., 1, :])
    jacobians = torch.diag_embed(slopes[2]), torch.diag_embed(slopes[1])
    printed = "...i,...ij,...kj,...kl,...l->..."
    charitable = torch.einsum(printed, error, jacobians[0], third, jacobians[1], second[..., 1, :])
    one_order = torch.einsum(printed, error, jacobians[0], third, jacobians[1], second[..., :, 1])
    automatic = _automatic(weights, inputs, targets)[..., 0, 1, 1]
    return EarlyGradient(automatic, start * paths, start * charitable, start * one_order)


def _forward(weights: Tensor, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The outputs, and the slope Φ' of every ReLU, layer by layer."""
    slopes = []
    for weight in weights.unbind(-3):
        heights = (inputs.unsqueeze(-2) @ weight).squeeze(-2)
        slopes.append((heights > 0).to(heights.dtype))
        inputs = heights.relu()
    return inputs, slopes


def _automatic(weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each network's loss; networks do not see each other, so the sum of all losses will do."""
    leaf = weights.detach().requires_grad_()
    loss = (_forward(leaf, inputs)[0] - targets).square().sum()
    return torch.autograd.grad(loss, leaf)[0]
