r"""Activation patterns and the affine map that every neuron computes on one activation polytope.

A pattern is a tuple of gates, one tensor (…, t, n_l) for each hidden layer: $s^l_i = 1$ where neuron i of layer l is
active at the point, 0 where it is not. Whatever takes gates also takes numbers between 0 and 1 (`smooth`), and is then
differentiable. A neuron exactly on its hyperedge counts as inactive. Nothing here searches: points in, algebra out.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage import arguments
from leakage.models.mlp import Mlp

Gates = tuple[Tensor, ...]
"""One tensor (…, t, n_l) for each hidden layer: booleans, or floats from 0 to 1."""


def pattern(network: Mlp, points: Float[Tensor, "*b t d"]) -> tuple[Bool[Tensor, "*b t n"], ...]:
    r"""$s^l_i(x) = 1[z^l_i(x) > 0]$, which neurons of each hidden layer are active.

    Source: Peinemann (2021), Definition 3.3 and Algorithm 1.

    Raises:
        TypeError: if the points are no tensor.
        ValueError: if a point is not finite, or has another dimension than the network's input or another dtype.
    """
    check(network, points)
    return tuple(layer > 0 for layer in network.preactivations(points)[:-1])


def smooth(network: Mlp, points: Float[Tensor, "*b t d"], *, sharpness: float = 1.0) -> tuple[Tensor, ...]:
    r"""$\sigma(\beta z^l)$ in place of the pattern, so that what follows from it has a gradient.

    Source: Peinemann (2021), Section 6.3, which has $\beta = 1$. The network itself keeps its ReLUs.

    Raises:
        ValueError: if the sharpness β is not positive, or as in `pattern`.
    """
    arguments.check_number("sharpness", sharpness, above=0)
    check(network, points)
    return tuple(torch.sigmoid(sharpness * layer) for layer in network.preactivations(points)[:-1])


def adapted(
    network: Mlp, gates: Gates
) -> tuple[tuple[Float[Tensor, "*b t n d"], ...], tuple[Float[Tensor, "*b t n"], ...]]:
    r"""Adapted weights and biases of all layers on the polytope of each pattern, the outputs last.

    $$ A_1 = W_1, \quad c_1 = b_1, \qquad A_{l+1} = W_{l+1} D_l A_l, \quad
       c_{l+1} = W_{l+1} D_l c_l + b_{l+1}, \qquad D_l = \operatorname{diag}(s^l), $$

    so that $z^l(x) = A_l x + c_l$ for every x of the polytope.

    Source: Peinemann (2021), Algorithm 2 and the prose on adapted biases.

    Returns:
        The $A_l$ and the $c_l$. Those of the first layer do not depend on the pattern and have one row for all points.

    Raises:
        ValueError: if the gates do not fit the hidden layers.
    """
    check_gates(network, gates)
    weights, biases = [network.weights[0].unsqueeze(-3)], [network.biases[0].unsqueeze(-2)]
    for gate, weight, bias in zip(gates, network.weights[1:], network.biases[1:], strict=True):
        open_ = gate.to(weight.dtype)
        weights.append(weight.unsqueeze(-3) @ (open_.unsqueeze(-1) * weights[-1]))
        biases.append((open_ * biases[-1]) @ weight.mT + bias.unsqueeze(-2))
    return tuple(weights), tuple(biases)


def read_out(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t classes d"], Float[Tensor, "*b t classes"]]:
    r"""$A_P$ and $b_P$ of the function $M_P(x) = A_P x + b_P$ that the network is on each polytope.

    Source: Peinemann (2021), Theorem 3.2; by its Lemma 3.4 $A_P$ is the Jacobian.

    Raises:
        ValueError: as in `adapted`.
    """
    weights, biases = adapted(network, gates)
    shape = gates[0].shape[:-1] if gates else biases[-1].shape[:-1]
    return weights[-1].expand(*shape, -1, -1), biases[-1].expand(*shape, -1)


def joined(gates: Gates) -> Tensor:
    """(…, t, N): the gates of all hidden layers in one row, the order in which neurons are counted from 0 to N - 1."""
    return torch.cat(gates, dim=-1)


def split(network: Mlp, row: Tensor) -> Gates:
    """The gates of each layer from rows (…, t, N) of all neurons; undoes `joined`."""
    return row.split(network.widths[1:-1], dim=-1)


def check(network: Mlp, points: Float[Tensor, "*b t d"], *, least: int = 0, name: str = "points") -> None:
    """Raise the errors of `pattern`, and `ValueError` for fewer than `least` points; `name` is that of the argument."""
    arguments.check_real(name, points, "*b t d", d=network.widths[0], like=network.weights[0])
    if points.shape[-2] < least:
        raise ValueError(f"`{name}` must be at least {least}, got shape {tuple(points.shape)}.")


def check_gates(network: Mlp, gates: Gates) -> None:
    """Raise the errors of `adapted`."""
    given, needed = [gate.shape[-1] for gate in gates], list(network.widths[1:-1])
    if given != needed or len({gate.shape[:-1] for gate in gates}) > 1:
        shapes = [tuple(gate.shape) for gate in gates]
        raise ValueError(f"`gates` must be (…, t, n_l) for hidden layers of {needed} neurons, got {shapes}.")
