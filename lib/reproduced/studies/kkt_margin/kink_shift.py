r"""Moving one kink of a network on the line without touching its training points.

The proof of Theorem 4.3 of Smorodinsky et al. shifts the right end of a ramp between two flat pieces and lets a neuron
that is active everywhere make up for it; the norm then changes at the rate $-2E$. In the network of their Figure 6 it
falls, so that network is feasible but no KKT point. At a KKT point E is 0, as every shift that keeps the function at
the training points is orthogonal to θ. Networks have one input.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.models.two_layer import TwoLayer
from leakage.runtime import DTYPE


def figure_6(*, device: torch.device | str = "cpu") -> tuple[TwoLayer, Float[Tensor, " 4"], Float[Tensor, " 4"]]:
    r"""A network, its training points and labels, with a ramp from 1 to -1 whose ends $\mp\tfrac12$ are no points.

    $$ \Phi(x) = [-2x + 8]_+ - [-2x - 1]_+ + [2x - 1]_+ - [8]_+ $$

    Each term is a balanced neuron, $\lVert (w, b) \rVert = |v|$. The first is active on all points, -2, -1, 1 and 2;
    labels are the signs of -x. The formula is ours: the paper draws such a network without giving one.
    """
    terms = torch.tensor([[-2.0, 8], [-2, -1], [2, -1], [0, 8]], dtype=DTYPE, device=device)
    signs = torch.tensor([1.0, -1, 1, -1], dtype=DTYPE, device=device)
    size = terms.norm(dim=-1).sqrt()
    points = torch.tensor([-2.0, -1, 1, 2], dtype=DTYPE, device=device)
    return TwoLayer(terms[:, :1] / size[:, None], terms[:, 1] / size, signs * size), points, -points.sign()


def shifted(model: TwoLayer, *, step: float, everywhere: int = 0, left: int = 1, right: int = 2) -> TwoLayer:
    r"""The network with the kink of neuron `right` moved, and the function unchanged outside of the ramp.

    With c, l, r for the neurons `everywhere`, `left` and `right`, and δ for `step`:

    $$ v_l \mathrel{-}= \delta \frac{v_r w_r}{w_l}, \quad v_r \mathrel{*}= 1 - \delta, \quad
       b_r \mathrel{-}= \frac{\delta}{1 - \delta} \Bigl(\frac{w_r b_l}{w_l} - b_r\Bigr), \quad
       w_c \mathrel{+}= \delta \frac{v_r w_r}{v_c}, \quad b_c \mathrel{+}= \delta \frac{v_r w_r b_l}{v_c w_l} $$

    The kink p of `left` stays; q, that of `right`, goes to $q + \tfrac{\delta}{1 - \delta} (q - p)$.
    Neuron c is active on all points, and stays so; l is active to the left of the ramp ($w_l < 0$) and r to the right
    ($w_r > 0$); δ < 1.

    Source: Smorodinsky et al., proof of Theorem 4.3, case 1.
    """
    (w_c, _, v_c), (w_l, b_l, v_l), (w_r, b_r, v_r) = _three(model, everywhere, left, right)
    weights, biases, outputs = model.weights.clone(), model.biases.clone(), model.outputs.clone()
    outputs[left] = v_l - step * v_r * w_r / w_l
    outputs[right] = (1 - step) * v_r
    biases[right] = b_r - step / (1 - step) * (w_r * b_l / w_l - b_r)
    weights[everywhere] = w_c + step * v_r * w_r / v_c
    biases[everywhere] += step * v_r * w_r * b_l / (v_c * w_l)
    return TwoLayer(weights, biases, outputs)


def norm_derivative(model: TwoLayer, *, everywhere: int = 0, left: int = 1, right: int = 2) -> Float[Tensor, ""]:
    r"""The rate $\mathrm{d} \lVert\theta\rVert^2 / \mathrm{d}\delta = -2E$ of `shifted` at δ = 0.

    $$ E = v_r^2 + \frac{v_r w_r v_l}{w_l} + b_r \Bigl(\frac{w_r b_l}{w_l} - b_r\Bigr)
         - \frac{w_c v_r w_r}{v_c} - \frac{b_c b_l v_r w_r}{v_c w_l} $$

    Source: Smorodinsky et al., proof of Theorem 4.3, the expression of case 1 at δ = 0.
    """
    (w_c, b_c, v_c), (w_l, b_l, v_l), (w_r, b_r, v_r) = _three(model, everywhere, left, right)
    own = v_r.square() + v_r * w_r * v_l / w_l + b_r * (w_r * b_l / w_l - b_r)
    return -2 * (own - w_c * v_r * w_r / v_c - b_c * b_l * v_r * w_r / (v_c * w_l))


def _three(model: TwoLayer, everywhere: int, left: int, right: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Weight, bias and output of the neurons."""
    neurons = [(model.weights[j, 0], model.biases[j], model.outputs[j]) for j in (everywhere, left, right)]
    return neurons
