r"""Norms of adapted weights without the weights: through a factor of their Gram matrix.

With $W_1 = F_1 Q^\top$, $Q^\top Q = I$, every adapted weight is $A_l = F_l Q^\top$, so rows of $F_l$ are as long as
those of $A_l$ and meet at the same angles, but have $\min(d, n_1)$ entries in place of d. Gates are those of
`geometry.patterns`, smooth or not. Nothing here forms $A_P$.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.geometry.patterns import Gates, check_gates
from leakage.geometry.row_space import row_space
from leakage.models.mlp import Mlp


def factors(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n r"], ...]:
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


def frobenius_norm(network: Mlp, gates: Gates) -> Float[Tensor, "*b t"]:
    r"""$\lVert A_P \rVert_F$ on the polytope of each pattern, differentiable in smooth gates.

    $$ \lVert A_P \rVert_F^2 = \operatorname{tr} G_{H+1} = \lVert W_{H+1} D_H F_H \rVert_F^2, \qquad
       \text{and } s^\top K s,\; K = (W_2^\top W_2) \circ (W_1 W_1^\top), \text{ with one hidden layer.} $$

    Source: the norm of Peinemann (2021), Section 4.4.2; the recursion is ours. Squares of products of weights must be
    numbers: between 1e-150 and 1e150 (1e-18 and 1e18 in single precision) they are.

    Raises:
        ValueError: if the network has no hidden layer, or as in `factors`.
    """
    if not gates:
        raise ValueError("`network` must have a hidden layer; without one, A_P is its only weight.")
    weights, last = network.weights, gates[-1].to(network.weights[-1].dtype)
    if len(gates) == 1:  # K is shared by all points: no matrix for any single one
        check_gates(network, gates)
        kernel = (weights[1].mT @ weights[1]) * (weights[0] @ weights[0].mT)
        square = ((last @ kernel) * last).sum(-1)
    else:
        factor = last.unsqueeze(-1) * factors(network, gates)[-1]
        square = (weights[-1].unsqueeze(-3) @ factor).square().sum((-2, -1))
    # The root has no slope at 0, and rounding may lead just below it.
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt() * (square > 0)


def row_norms(network: Mlp, gates: Gates) -> tuple[Float[Tensor, "*b t n"], ...]:
    r"""$\lVert w^*_i \rVert$ of the neurons of each hidden layer: the lengths of the rows of $F_l$.

    Exactly 0 where no active path leads from the input to the neuron.

    Raises:
        ValueError: as in `factors`.
    """
    return tuple(factor.norm(dim=-1) for factor in factors(network, gates))
