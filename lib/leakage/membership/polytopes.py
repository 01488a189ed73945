r"""The activation polytope of a point: pattern, affine map, norms of that map, and the distance to the boundary.

A pattern is a tuple of gates, one tensor (…, t, n_l) for each hidden layer: $s^l_i = 1$ where neuron i of layer l is
active at the point, 0 where it is not. The *hyperedge* of a neuron is where its pre-activation is 0, a bent hyperplane;
there it counts as inactive. All functions of gates also take numbers between 0 and 1 (`smooth_pattern`) and are then
differentiable. Squares of products of weights must not overflow: weights between 1e-150 and 1e150 (1e-18 and 1e18 in
single precision) are safe.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.models.mlp import Mlp

Gates = tuple[Tensor, ...]
"""One tensor (…, t, n_l) for each hidden layer: booleans, or floats from 0 to 1."""


def activation_pattern(network: Mlp, points: Float[Tensor, "*b t d"]) -> tuple[Bool[Tensor, "*b t n"], ...]:
    r"""$s^l_i(x) = 1[z^l_i(x) > 0]$, which neurons of each hidden layer are active.

    Source: Peinemann (2021), Definition 3.3 and Algorithm 1.
    """
    return tuple(layer > 0 for layer in network.preactivations(points)[:-1])


def smooth_pattern(network: Mlp, points: Float[Tensor, "*b t d"], *, sharpness: float = 1.0) -> tuple[Tensor, ...]:
    r"""$\sigma(\beta z^l)$ in place of the pattern, which gives functions of it a gradient.

    Source: Peinemann (2021), Section 6.3, which has $\beta = 1$. The network itself keeps its ReLUs.
    """
    return tuple(torch.sigmoid(sharpness * layer) for layer in network.preactivations(points)[:-1])


def join_layers(gates: Gates) -> Tensor:
    """(…, t, N): the gates of all hidden layers in one row, in the order in which neurons are numbered from 0."""
    return torch.cat(gates, dim=-1)


def split_layers(network: Mlp, row: Tensor) -> Gates:
    """The gates of each layer from rows (…, t, N) of all neurons; the inverse of `join_layers`."""
    return row.split(network.widths[1:-1], dim=-1)


def layer_maps(
    network: Mlp, gates: Gates
) -> tuple[tuple[Float[Tensor, "*b t n d"], ...], tuple[Float[Tensor, "*b t n"], ...]]:
    r"""The affine map $z^l(x) = A_l x + c_l$ of every layer on the polytope of each pattern, the outputs last.

    $$ A_1 = W_1, \quad c_1 = b_1, \qquad A_{l+1} = W_{l+1} D_l A_l, \quad
       c_{l+1} = W_{l+1} D_l c_l + b_{l+1}, \qquad D_l = \operatorname{diag}(s^l). $$

    Those of the first layer do not depend on the pattern and have one row for all points.

    Source: Peinemann (2021), Algorithm 2 and the prose on adapted biases. The $A_l$ are its adapted weights.
    """
    weights, biases = [network.weights[0].unsqueeze(-3)], [network.biases[0].unsqueeze(-2)]
    for gate, weight, bias in zip(gates, network.weights[1:], network.biases[1:], strict=True):
        active = gate.to(weight.dtype)
        weights.append(weight.unsqueeze(-3) @ (active.unsqueeze(-1) * weights[-1]))
        biases.append((active * biases[-1]) @ weight.mT + bias.unsqueeze(-2))
    return tuple(weights), tuple(biases)


def output_map(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t classes d"], Float[Tensor, "*b t classes"]]:
    r"""$A_P$ and $b_P$ of the function $M_P(x) = A_P x + b_P$ that the network is on each polytope.

    Source: Peinemann (2021), Theorem 3.2; by its Lemma 3.4 $A_P$ is the Jacobian.
    """
    weights, biases = layer_maps(network, gates)
    shape = gates[0].shape[:-1] if gates else biases[-1].shape[:-1]
    return weights[-1].expand(*shape, -1, -1), biases[-1].expand(*shape, -1)


def output_jacobian(network: Mlp, gates: Gates) -> Float[Tensor, "*b t classes d"]:
    r"""$A_P$, multiplied from the outputs down: $(W_{H+1} D_H) W_H \cdots D_1 W_1$.

    No product is larger than classes × neurons. `output_map` multiplies from the inputs up and has the maps of all
    layers on the way.
    """
    product = network.weights[-1].unsqueeze(-3)
    for gate, weight in zip(reversed(gates), reversed(network.weights[:-1]), strict=True):
        product = (product * gate.to(weight.dtype).unsqueeze(-2)) @ weight.unsqueeze(-3)
    return product


class RowSpace(NamedTuple):
    """A network over the row space of its first weight, and the basis Q of that space."""

    network: Mlp
    basis: Float[Tensor, "*b d r"]


def row_space(network: Mlp) -> RowSpace:
    r"""The same network with no more inputs than its first layer has neurons.

    The network sees a point only through $W_1 x$. With $W_1 = F Q^\top$, $Q^\top Q = I$, it is a network of
    $u = Q^\top x$ with the first weight F and $r = \min(d, n_1)$ inputs. Predictions, $\lVert A_P \rVert_F$ and $b_P$
    are those of x, and so are distances between points that differ within the row space of $W_1$. All gradients lie
    there; random directions do not. With no more inputs than neurons it is the network itself, and Q = I.
    """
    first = network.weights[0]
    neurons, inputs = first.shape[-2:]
    if inputs <= neurons:
        return RowSpace(network, torch.eye(inputs, dtype=first.dtype, device=first.device))
    basis, triangle = torch.linalg.qr(first.mT)
    return RowSpace(Mlp((triangle.mT.contiguous(), *network.weights[1:]), network.biases), basis)


def gram_factors(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n r"], ...]:
    r"""$F_l$ with $F_l F_l^\top = G_l$, the Gram matrix of the rows of $A_l$ (`layer_maps`), of each hidden layer.

    $$ F_1 F_1^\top = W_1 W_1^\top, \qquad F_{l+1} = W_{l+1} D_l F_l \quad\Longrightarrow\quad
       G_{l+1} = W_{l+1} D_l G_l D_l W_{l+1}^\top. $$

    Rows of $F_l$ are as long as those of $A_l$ and meet at the same angles, but have $r = \min(d, n_1)$ entries in
    place of d. Those of the first layer have one row for all points.
    """
    found = [row_space(network).network.weights[0].unsqueeze(-3)]
    for gate, weight in zip(gates[:-1], network.weights[1:-1], strict=True):
        found.append(weight.unsqueeze(-3) @ (gate.to(weight.dtype).unsqueeze(-1) * found[-1]))
    return tuple(found)


def jacobian_norm(network: Mlp, gates: Gates) -> Float[Tensor, "*b t"]:
    r"""$\lVert A_P \rVert_F$ on the polytope of each pattern, differentiable in smooth gates, without forming $A_P$.

    $$ \lVert A_P \rVert_F^2 = \operatorname{tr} G_{H+1} = \lVert W_{H+1} D_H F_H \rVert_F^2, \qquad
       \text{and } s^\top K s,\; K = (W_2^\top W_2) \circ (W_1 W_1^\top), \text{ with one hidden layer.} $$

    Source: the norm of Peinemann (2021), Section 4.4.2; the recursion is ours.
    """
    weights, last = network.weights, gates[-1].to(network.weights[-1].dtype)
    if len(gates) == 1:  # K is shared by all points
        kernel = (weights[1].mT @ weights[1]) * (weights[0] @ weights[0].mT)
        square = ((last @ kernel) * last).sum(-1)
    else:
        factor = last.unsqueeze(-1) * gram_factors(network, gates)[-1]
        square = (weights[-1].unsqueeze(-3) @ factor).square().sum((-2, -1))
    # The root has no slope at 0, and rounding may lead just below it.
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt() * (square > 0)


def gradient_norms(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n"], ...]:
    r"""$\lVert w^*_i \rVert = \lVert \nabla z_i \rVert$ of the neurons of each hidden layer: the row lengths of $A_l$.

    Exactly 0 where no active path leads from the input to the neuron.
    """
    return tuple(factor.norm(dim=-1) for factor in gram_factors(network, gates))


class NearestHyperedges(NamedTuple):
    """The hyperedges nearest to each point, in ascending order: distance, and the neuron counted through all layers."""

    distances: Float[Tensor, "*b t k"]
    neurons: Int[Tensor, "*b t k"]


def hyperedge_distances(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t N"]:
    r"""Euclidean distances $|z_i(x)| / \lVert w^*_i \rVert$ of all N hidden neurons, in the order of the layers.

    This is the distance to the hyperplane that neuron i has on the polytope of x. The smallest is the distance to the
    boundary of the polytope, the others may be to hyperplanes beyond it. Infinite where $w^*_i = 0$. Where a neuron
    without an active path to the output flips, the function of the network does not change.
    """
    heights = network.preactivations(points)[:-1]
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
    """
    values, neurons = hyperedge_distances(network, points).topk(count, dim=-1, largest=False, sorted=True)
    return NearestHyperedges(values, neurons)


def inscribed_radius(network: Mlp, points: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t"]:
    r"""$r(x) = \min_i |z_i(x)| / \lVert w^*_i \rVert$, the radius of the largest ball around x inside its polytope."""
    return hyperedge_distances(network, points).amin(-1)
