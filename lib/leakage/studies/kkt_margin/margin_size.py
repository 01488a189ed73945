r"""How small and how large the margin of a trained network can be, from its loss and from its gradient.

With $q = y \Phi(x)$ the losses are $\ell(q) = \log(1 + e^{-q})$ (logistic) and $e^{-q}$ (exponential). Where the
paper's expression differs from what follows from its premises, both are here, the paper's under a name with `printed`.
Nothing here trains, and nothing is random.
"""

import math

import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

from leakage import arguments

LOSSES = ("logistic", "exponential")
PRINTED_PEAK = 1 + float(special.lambertw(1 / math.e).real)
r"""Where `printed_gradient_factor` is largest, $1 + W(1/e) \approx 1.2785$: it grows up to there."""
_STEEP = 30.0  # of loss/share, from where on the exponential is taken out of the logarithm, before it overflows


def least_margin(loss: Float[Tensor, "*b"], *, share: float = 0.5, kind: str = "logistic") -> Float[Tensor, "*b"]:
    r"""What the margin exceeds when the mean loss is below `loss` and a `share` of the points lies on the margin.

    $$ \text{loss} > \text{share} \cdot \ell(m) \implies m > -\ln\bigl(e^{\text{loss}/\text{share}} - 1\bigr)
       \quad\text{or}\quad m > -\ln(\text{loss}/\text{share}) . $$

    At the loss $1/(2e)$ and half of the points this is 0.8104 and 1.

    Source: Smorodinsky et al., Remark B.5, which concludes $m > 1/e$: true, by this argument.

    Raises:
        ValueError: if `share` is not in (0, 1], a loss is not positive and finite, or the kind is unknown.
    """
    _check(loss, share, kind)
    ceiling = loss / share
    if kind == "exponential":
        return -ceiling.log()
    small = torch.expm1(ceiling.clamp_max(_STEEP)).log()
    return -torch.where(ceiling > _STEEP, ceiling + torch.log1p(-(-ceiling).exp()), small)


def bisected_margin(loss: float, *, share: float = 0.5) -> float:
    r"""The m at which a `share` of the points, all on the margin, has this mean logistic loss by itself, by bisection.

    It solves what `least_margin` writes down, which it tests.

    Raises:
        ValueError: if `share` is not in (0, 1], or the loss is not between 0 and $\text{share} \cdot \ln 2$, which is
            that of answers 0.
    """
    arguments.number("share", share, above=0, most=1)
    arguments.number("loss", loss, above=0, below=share * math.log(2))
    low, high = 0.0, 1.0
    while share * math.log1p(math.exp(-high)) > loss:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if share * math.log1p(math.exp(-middle)) > loss else (low, middle)
    return high


def printed_least_margin(loss: Float[Tensor, "*b"], *, share: float = 0.5) -> Float[Tensor, "*b"]:
    r"""What the printed steps give, with the 1 lost on the way:

    $$ 1 + e^{-m} < e^{\text{loss}/\text{share}} \implies e^{-m} < e^{\text{loss}/\text{share}}
       \implies m > -\text{loss}/\text{share} . $$

    Source: Smorodinsky et al., Remark B.5, where $m > -1/e$ becomes $m > 1/e$ in the last step.
    """
    _check(loss, share, "logistic")
    return -loss / share


def gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$|\partial \ell / \partial \Phi| = e^{-q} / (1 + e^{-q})$ of the logistic loss, decreasing in q."""
    return torch.sigmoid(-arguments.real("q", q, finite=False))


def printed_gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$q e^{-q} / (1 + e^{-q})$, the derivative as printed, with a factor q too much.

    It is below the derivative for $q < 1$, so no bound there, and above it for $q > 1$: a weaker bound.

    Source: Smorodinsky et al., Remark B.6.
    """
    return arguments.real("q", q) * torch.sigmoid(-q)


def squared_log(dimension: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$t(d) = \log^2 d$, the margin at which training stops according to Remark B.6, and the t of Corollary 3.5.

    Raises:
        ValueError: if a dimension is below 1.
    """
    return arguments.real("dimension", dimension, least=1).log().square()


def gradient_exponent(dimension: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The r for which the gradient factor at the margin $\log^2 d$ is $d^{-r}$: r grows like $\log d$, without bound.

    Raises:
        ValueError: if a dimension is not above 1.
    """
    arguments.real("dimension", dimension, above=1)
    return -logsigmoid(-squared_log(dimension)) / dimension.log()


def bounded_margin_ratio(ratio: Float[Tensor, "*#b"], dimension: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$n \delta\, t(d) / \Delta$ from $n \delta / \Delta$: what Corollary 3.5 sends to 0.

    Raises:
        ValueError: if a ratio is negative, or as `squared_log`.
    """
    arguments.real("ratio", ratio, least=0)
    return ratio * squared_log(dimension)


def _check(loss: Tensor, share: float, kind: str) -> None:
    arguments.number("share", share, above=0, most=1)
    arguments.real("loss", loss, above=0)
    arguments.choice("kind", kind, LOSSES)
