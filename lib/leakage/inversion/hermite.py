r"""Hermite moments of an activation, and which of them identify a batch of inputs.

For $w \sim N(0, I_d)$ Stein's lemma gives $\E[\sigma(w^\top x) H_p(w)] = s_p(\lVert x \rVert)\, x^{\otimes p}$ with
$s_p(t) = \E\,\sigma^{(p)}(tz)$ and no $1/p!$. An activation may have a kink at 0 and nowhere else.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from leakage.precision import DTYPE

ORDERS = range(5)
"""The orders of the moments."""
_ABSENT = 1e-10  # a moment below this share of the largest, each times t^p, counts as 0: rounding leaves 1e-14
_REACH = 14.0  # |z| beyond which the normal density is below 1e-42
_NODES = 24  # Gauss-Legendre nodes in a panel
_SCALES = 12  # panels halve this often towards 0, so that a sigmoid of tz is smooth on each for t up to a few thousand
_RESOLVED = 1e-9  # of E|σ(tz) He(z)|: largest change of a mean by twice as many nodes; rounding leaves 1e-15


def gaussian_mean(
    function: Callable[[Tensor], Tensor], *, device: torch.device | str = "cpu", nodes: int = _NODES
) -> Tensor:
    r"""$\E f(z)$, $z \sim N(0, 1)$, over the last axis of what `function` returns for a vector of z.

    Gauss-Legendre panels of `nodes` nodes on both sides of 0 shrink towards it: a kink at 0 costs no accuracy.
    """
    z, weight = (torch.as_tensor(values, dtype=DTYPE, device=device) for values in _quadrature(nodes))
    return function(z) @ weight


def moment(activation: Callable[[Tensor], Tensor], norm: Float[Tensor, "*b"], *, order: int) -> Float[Tensor, "*b"]:
    r"""The moment $s_p(t) = \E\,\sigma^{(p)}(t z)$ for inputs of norm $t > 0$, without any derivative.

    $$ s_p(t) = t^{-p}\, \E[\sigma(t z)\, \mathrm{He}_p(z)] . $$

    Source: Wang et al., Lemma 4.1, with an input of any norm. A `norm` that is too large for the quadrature is refused:
    about 60 for a sine.
    """
    t = norm.to(DTYPE)

    def integrand(z: Tensor) -> Tensor:
        return activation(t.unsqueeze(-1) * z) * torch.special.hermite_polynomial_he(z, order)

    mean = gaussian_mean(integrand, device=norm.device)
    finer, size = (
        gaussian_mean(part, device=norm.device, nodes=2 * _NODES) for part in (integrand, lambda z: integrand(z).abs())
    )
    if not bool(((finer - mean).abs() <= _RESOLVED * size).all()):
        raise ValueError(
            f"`norm` must be smaller: at {norm.max().item():g}, the activation varies too fast or overflows."
        )
    return mean / t**order


@dataclass(frozen=True)
class RecoveryMoments:
    """Which moments recover a batch.

    Attributes:
        span_order: the least order, 2 or 3, whose moment shows the span of the inputs; `None` if only order 4 does.
        tensor_order: the least order, 3 or 4, whose moment has the inputs as its only components.
        moments: $s_0, …, s_4$.
    """

    span_order: int | None
    tensor_order: int
    moments: tuple[float, ...]


def recovery_moments(activation: Callable[[Tensor], Tensor], *, norm: float = 1.0) -> RecoveryMoments:
    r"""The moments of an activation that recover inputs of this norm.

    Activations with $s_3 = s_4 = 0$, such as linear and quadratic ones, are refused: a moment of order 2 determines
    inputs up to a rotation only.

    Source: Wang et al., Section 4.1 and Remarks 3 and 4. They choose by the kind of activation; here the values of the
    moments decide.
    """
    t = torch.tensor(norm, dtype=DTYPE)
    moments = tuple(float(moment(activation, t, order=order)) for order in ORDERS)
    sizes = [abs(moments[order]) * norm**order for order in ORDERS]
    present = [order for order in ORDERS if sizes[order] > _ABSENT * max(sizes)]
    tensor = next((order for order in present if order >= 3), None)
    if tensor is None:
        raise ValueError(
            f"`activation` is not identifiable: at norm {norm!r} its moments of order 3 and 4 vanish, "
            f"s3 = {moments[3]:.1e} and s4 = {moments[4]:.1e}."
        )
    return RecoveryMoments(next((order for order in present if order in (2, 3)), None), tensor, moments)


@cache
def _quadrature(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and weights that include the normal density, of panels from 0 to ±`_REACH`."""
    fine = 2.0 ** -np.arange(_SCALES, 0, -1)
    edges = np.concatenate([[0.0], fine, np.arange(1.0, _REACH + 1)])
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = np.diff(edges)[:, None] / 2
    z = ((edges[:-1, None] + half) + half * nodes).ravel()
    density = (half * weights).ravel() * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.concatenate([z, -z]), np.concatenate([density, density])
