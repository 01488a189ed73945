r"""How small and how large the margin of a trained network can be, from its loss and from its gradient.

With $q = y \Phi(x)$ the losses are $\ell(q) = \log(1 + e^{-q})$ (logistic) and $e^{-q}$ (exponential). Where the
paper's expression differs from what follows from its premises, both are here, the paper's under a name with `printed`.
"""

import math

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

PRINTED_PEAK = 1 + float(special.lambertw(1 / math.e).real)
r"""Where `printed_gradient_factor` is largest, $1 + W(1/e) \approx 1.2785$: it grows up to there."""
_STEEP = 30.0  # loss/share above which the exponential is taken out of the logarithm, before it overflows


def least_margin(loss: Float[Tensor, "*b"], *, share: float = 0.5, kind: str = "logistic") -> Float[Tensor, "*b"]:
    r"""The lower bound on the margin when the mean loss is below `loss` and a `share` of the points lies on the margin.

    $$ \text{loss} > \text{share} \cdot \ell(m) \implies m > -\ln\bigl(e^{\text{loss}/\text{share}} - 1\bigr)
       \quad\text{or}\quad m > -\ln(\text{loss}/\text{share}) . $$

    At the loss $1/(2e)$ and half of the points this is 0.8104 and 1.

    Source: Smorodinsky et al., Remark B.5, which concludes $m > 1/e$: true, by this argument.
    """
    ceiling = loss / share
    if kind == "exponential":
        return -ceiling.log()
    small = torch.expm1(ceiling.clamp_max(_STEEP)).log()
    return -torch.where(ceiling > _STEEP, ceiling + torch.log1p(-(-ceiling).exp()), small)


def bisected_margin(loss: float, *, share: float = 0.5) -> float:
    r"""`least_margin` of the logistic loss by bisection, as a test of it."""
    low, high = 0.0, 1.0
    while share * math.log1p(math.exp(-high)) > loss:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if share * math.log1p(math.exp(-middle)) > loss else (low, middle)
    return high


def printed_least_margin(loss: Float[Tensor, "*b"], *, share: float = 0.5) -> Float[Tensor, "*b"]:
    r"""The bound that follows from the printed steps, which lose a 1 on the way:

    $$ 1 + e^{-m} < e^{\text{loss}/\text{share}} \implies e^{-m} < e^{\text{loss}/\text{share}}
       \implies m > -\text{loss}/\text{share} . $$

    Source: Smorodinsky et al., Remark B.5, where $m > -1/e$ becomes $m > 1/e$ in the last step.
    """
    return -loss / share


def gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$|\partial \ell / \partial \Phi| = e^{-q} / (1 + e^{-q})$ of the logistic loss, decreasing in q."""
    return torch.sigmoid(-q)


def printed_gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$q e^{-q} / (1 + e^{-q})$, the derivative as printed, with a superfluous factor q.

    It is below the derivative for $q < 1$, so no bound there, and above it for $q > 1$: a weaker bound.

    Source: Smorodinsky et al., Remark B.6.
    """
    return q * torch.sigmoid(-q)


def squared_log(dimension: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$t(d) = \log^2 d$, the margin at which training stops according to Remark B.6, and the t of Corollary 3.5."""
    return dimension.log().square()


def gradient_exponent(dimension: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The r for which the gradient factor at the margin $\log^2 d$ is $d^{-r}$; r grows like $\log d$."""
    return -logsigmoid(-squared_log(dimension)) / dimension.log()


def bounded_margin_ratio(ratio: Float[Tensor, "*#b"], dimension: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$n \delta\, t(d) / \Delta$ from $n \delta / \Delta$: what Corollary 3.5 sends to 0."""
    return ratio * squared_log(dimension)
