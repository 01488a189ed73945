r"""Activation patterns and the affine map that every neuron computes on one activation polytope.

A pattern is a tuple of gates, one tensor (…, t, n_l) for each hidden layer: $s^l_i = 1$ where neuron i of layer l is
active at the point, 0 where it is not. Whatever takes gates also takes numbers between 0 and 1 (`smooth_pattern`), and is then
differentiable. A neuron exactly on its hyperedge counts as inactive. Nothing here searches: points in, algebra out.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage import arguments
from leakage.models.mlp import Mlp

Gates = tuple[Tensor, ...]
"""One tensor (…, t, n_l) for each hidden layer: booleans, or floats from 0 to 1."""


def activation_pattern(network: Mlp, points: Float[Tensor, "*b t d"]) -> tuple[Bool[Tensor, "*b t n"], ...]:
    r"""$s^l_i(x) = 1[z^l_i(x) > 0]$, which neurons of each hidden layer are active.

    Source: Peinemann (2021), Definition 3.3 and Algorithm 1.

    Raises:
        TypeError: if the points are no tensor.
        ValueError: if a point is not finite, or has another dimension than the network's input or another dtype.
    """
    check(network, points)
    return tuple(layer > 0 for layer in network.preactivations(points)[:-1])


def smooth_pattern(network: Mlp, points: Float[Tensor, "*b t d"], *, sharpness: float = 1.0) -> tuple[Tensor, ...]:
    r"""$\sigma(\beta z^l)$ in place of the pattern, so that what follows from it has a gradient.

    Source: Peinemann (2021), Section 6.3, which has $\beta = 1$. The network itself keeps its ReLUs.

    Raises:
        ValueError: if the sharpness β is not positive, or as in `activation_pattern`.
    """
    arguments.number("sharpness", sharpness, above=0)
    check(network, points)
    return tuple(torch.sigmoid(sharpness * layer) for layer in network.preactivations(points)[:-1])


def layer_maps(
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


def output_map(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t classes d"], Float[Tensor, "*b t classes"]]:
    r"""$A_P$ and $b_P$ of the function $M_P(x) = A_P x + b_P$ that the network is on each polytope.

    Source: Peinemann (2021), Theorem 3.2; by its Lemma 3.4 $A_P$ is the Jacobian.

    Raises:
        ValueError: as in `layer_maps`.
    """
    weights, biases = layer_maps(network, gates)
    shape = gates[0].shape[:-1] if gates else biases[-1].shape[:-1]
    return weights[-1].expand(*shape, -1, -1), biases[-1].expand(*shape, -1)


def join_layers(gates: Gates) -> Tensor:
    """(…, t, N): the gates of all hidden layers in one row, the order in which neurons are counted from 0 to N - 1."""
    return torch.cat(gates, dim=-1)


def split_layers(network: Mlp, row: Tensor) -> Gates:
    """The gates of each layer from rows (…, t, N) of all neurons; undoes `join_layers`."""
    return row.split(network.widths[1:-1], dim=-1)


def check(network: Mlp, points: Float[Tensor, "*b t d"], *, least: int = 0, name: str = "points") -> None:
    """Raise the errors of `activation_pattern`, and `ValueError` for fewer than `least` points; `name` is that of the argument."""
    arguments.real(name, points, "*b t d", d=network.widths[0], like=network.weights[0])
    if points.shape[-2] < least:
        raise ValueError(f"`{name}` must be at least {least}, got shape {tuple(points.shape)}.")


def check_gates(network: Mlp, gates: Gates) -> None:
    """Raise the errors of `layer_maps`."""
    given, needed = [gate.shape[-1] for gate in gates], list(network.widths[1:-1])
    if given != needed or len({gate.shape[:-1] for gate in gates}) > 1:
        shapes = [tuple(gate.shape) for gate in gates]
        raise ValueError(f"`gates` must be (…, t, n_l) for hidden layers of {needed} neurons, got {shapes}.")


class RowSpace(NamedTuple):
    """A network over the row space of its first weight, and the basis Q; `points @ basis` are its points."""

    network: Mlp
    basis: Float[Tensor, "*b d r"]

    def project(self, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t r"]:
        """`points @ basis`, and the points themselves where the basis is the identity."""
        return points if self.basis.shape[-2] == self.basis.shape[-1] else points @ self.basis


def row_space(network: Mlp) -> RowSpace:
    r"""Write $W_1 = F Q^\top$ with $r = \min(d, n_1)$ orthonormal columns of Q.

    Distances within the row space, predictions, $\lVert A_P \rVert_F$ and $b_P$ are the same in u and in x.

    Returns:
        The network of u, exact up to rounding. With no more inputs than neurons it is the network itself, and Q = I.
    """
    first = network.weights[0]
    neurons, inputs = first.shape[-2:]
    if inputs <= neurons:
        return RowSpace(network, torch.eye(inputs, dtype=first.dtype, device=first.device))
    basis, triangle = torch.linalg.qr(first.mT)
    return RowSpace(Mlp((triangle.mT.contiguous(), *network.weights[1:]), network.biases), basis)


def output_jacobian(network: Mlp, gates: Gates) -> Float[Tensor, "*b t classes d"]:
    r"""$A_P$, multiplied from the outputs down: $(W_{H+1} D_H) W_H \cdots D_1 W_1$.

    `geometry.polytopes.output_map` multiplies from the inputs up and knows all neurons on the way. From the outputs down
    no product is larger than classes × neurons, which is what a step of `deepfool` can afford for each point.
    """
    product = network.weights[-1].unsqueeze(-3)
    for gate, weight in zip(reversed(gates), reversed(network.weights[:-1]), strict=True):
        product = (product * gate.to(weight.dtype).unsqueeze(-2)) @ weight.unsqueeze(-3)
    return product


def gram_factors(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n r"], ...]:
    r"""$F_l$ with $F_l F_l^\top = G_l$, the Gram matrix of the adapted weights of each hidden layer.

    $$ F_1 F_1^\top = W_1 W_1^\top, \qquad F_{l+1} = W_{l+1} D_l F_l \quad\Longrightarrow\quad
       G_{l+1} = W_{l+1} D_l G_l D_l W_{l+1}^\top. $$

    Those of the first layer have one row for all points.

    Raises:
        ValueError: if the gates do not fit the hidden layers.
    """
    check_gates(network, gates)
    found = [row_space(network).network.weights[0].unsqueeze(-3)]
    for gate, weight in zip(gates[:-1], network.weights[1:-1], strict=True):
        found.append(weight.unsqueeze(-3) @ (gate.to(weight.dtype).unsqueeze(-1) * found[-1]))
    return tuple(found)


def jacobian_norm(network: Mlp, gates: Gates) -> Float[Tensor, "*b t"]:
    r"""$\lVert A_P \rVert_F$ on the polytope of each pattern, differentiable in smooth gates.

    $$ \lVert A_P \rVert_F^2 = \operatorname{tr} G_{H+1} = \lVert W_{H+1} D_H F_H \rVert_F^2, \qquad
       \text{and } s^\top K s,\; K = (W_2^\top W_2) \circ (W_1 W_1^\top), \text{ with one hidden layer.} $$

    Source: the norm of Peinemann (2021), Section 4.4.2; the recursion is ours. Squares of products of weights must be
    numbers: between 1e-150 and 1e150 (1e-18 and 1e18 in single precision) they are.

    Raises:
        ValueError: if the network has no hidden layer, or as in `gram_factors`.
    """
    if not gates:
        raise ValueError("`network` must have a hidden layer; without one, A_P is its only weight.")
    weights, last = network.weights, gates[-1].to(network.weights[-1].dtype)
    if len(gates) == 1:  # K is shared by all points: no matrix for any single one
        check_gates(network, gates)
        kernel = (weights[1].mT @ weights[1]) * (weights[0] @ weights[0].mT)
        square = ((last @ kernel) * last).sum(-1)
    else:
        factor = last.unsqueeze(-1) * gram_factors(network, gates)[-1]
        square = (weights[-1].unsqueeze(-3) @ factor).square().sum((-2, -1))
    # The root has no slope at 0, and rounding may lead just below it.
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt() * (square > 0)


def gradient_norms(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n"], ...]:
    r"""$\lVert w^*_i \rVert$ of the neurons of each hidden layer: the lengths of the rows of $F_l$.

    Exactly 0 where no active path leads from the input to the neuron.

    Raises:
        ValueError: as in `gram_factors`.
    """
    return tuple(factor.norm(dim=-1) for factor in gram_factors(network, gates))


class NearestHyperedges(NamedTuple):
    """The hyperedges nearest to each point, in ascending order: distance, and the neuron counted through all layers."""

    distances: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]


def hyperedge_distances(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t N"]:
    r"""$|z_i(x)| / \lVert w^*_i \rVert$ of all N hidden neurons, in the order of the layers.

    This is the distance to the hyperplane that neuron i has on the polytope of x. The smallest is the distance to the
    boundary of the polytope, the others may be to hyperplanes beyond it. Infinite where $w^*_i = 0$. Squares of weights
    must be numbers: between 1e-150 and 1e150 (1e-18 and 1e18 in single precision) they are.

    Raises:
        ValueError: if a point is not finite or does not fit the network, or the network has no hidden layer.
    """
    check(network, points)
    heights = network.preactivations(points)[:-1]
    if not heights:
        raise ValueError("`network` must have a hidden layer: without one there is no boundary.")
    norms = gradient_norms(network, tuple(height > 0 for height in heights))
    # A neuron with w* = 0 never flips on this polytope, even where its constant value is 0.
    ratios = [
        torch.where(norm > 0, height.abs() / norm, torch.inf) for height, norm in zip(heights, norms, strict=True)
    ]
    return join_layers(tuple(ratios))


def nearest_hyperedges(network: Mlp, points: Float[Tensor, "*b t d"], *, count: int = 1) -> NearestHyperedges:
    r"""The `count` smallest of `hyperedge_distances`; the first is the inscribed radius $r(x) = \min_i$ of them.

    The neuron closest to a point in the sense of Algorithm 5 of Peinemann (2021) is `neurons[..., 0]`. The paper takes
    the smallest $|z_i|$ instead, which is the closest hyperedge only where all $\lVert w^*_i \rVert$ are equal.

    Raises:
        ValueError: if there are fewer than `count` neurons, or as in `hyperedge_distances`.
    """
    found = hyperedge_distances(network, points)
    arguments.check_count("count", count, least=1, most=found.shape[-1])
    values, neurons = found.topk(count, dim=-1, largest=False, sorted=True)
    return NearestHyperedges(values, neurons)


def inscribed_radius(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t"]:
    r"""$r(x) = \min_i |z_i(x)| / \lVert w^*_i \rVert$, the radius of the largest ball around x inside its polytope.

    Raises:
        ValueError: as in `hyperedge_distances`.
    """
    return hyperedge_distances(network, points).amin(-1)
