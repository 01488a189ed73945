r"""How small and how large the margin of a trained network can be, from its loss and from its gradient.

With $q = y \Phi(x)$ the logistic loss is $\ell(q) = \log(1 + e^{-q})$. Where the paper's expression differs from what
follows from its premises, both are here, the paper's under a name with `printed`.
"""

import math

import torch
from jaxtyping import Float
from scipy import optimize, special
from torch import Tensor
from torch.nn.functional import logsigmoid

PRINTED_PEAK = 1 + float(special.lambertw(1 / math.e).real)
r"""Where `printed_gradient_factor` is largest, $1 + W(1/e) \approx 1.2785$: it grows up to there."""


def least_margin(loss: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The lower bound on the margin m when the mean loss is below `loss` and half of the points lies on the margin.

    $$ \text{loss} > \tfrac12 \ell(m) \implies m > -\ln\bigl(e^{2\, \text{loss}} - 1\bigr), $$

    which is 0.8104 at the loss $1/(2e)$.

    Source: Smorodinsky et al., Remark B.5, which concludes $m > 1/e$: true, by this argument.
    """
    return -torch.expm1(2 * loss).log()


def least_margin_by_bisection(loss: float) -> float:
    r"""`least_margin`, as the solution of $\ell(m) = 2\, \text{loss}$."""
    found = optimize.root_scalar(lambda m: 0.5 * math.log1p(math.exp(-m)) - loss, bracket=(0, 700), method="bisect")
    return float(found.root)


def printed_least_margin(loss: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The bound that follows from the printed steps, which lose a 1 on the way:

    $$ 1 + e^{-m} < e^{2\, \text{loss}} \implies e^{-m} < e^{2\, \text{loss}} \implies m > -2\, \text{loss} . $$

    Source: Smorodinsky et al., Remark B.5, where $m > -1/e$ becomes $m > 1/e$ in the last step.
    """
    return -2 * loss


def gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$|\partial \ell / \partial \Phi| = e^{-q} / (1 + e^{-q})$, decreasing in q."""
    return torch.sigmoid(-q)


def printed_gradient_factor(q: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$q e^{-q} / (1 + e^{-q})$, the derivative as printed, with a superfluous factor q.

    It is below the derivative for $q < 1$, so no bound there, and above it for $q > 1$: a weaker bound.

    Source: Smorodinsky et al., Remark B.6.
    """
    return q * torch.sigmoid(-q)


def gradient_exponent(dimension: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""The exponent r with gradient factor $d^{-r}$ at the margin $\log^2 d$, the last step of Remark B.6."""
    return -logsigmoid(-dimension.log().square()) / dimension.log()


def bounded_margin_ratio(ratio: Float[Tensor, "*#b"], dimension: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$n \delta / \Delta$, the `ratio`, times $t(d) = \log^2 d$: Corollary 3.5 asks that it tends to 0."""
    return ratio * dimension.log().square()
