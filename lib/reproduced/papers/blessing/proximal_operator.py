r"""The logistic loss of a linear output, its slopes, and its proximal operator for labels 0 and 1.

$\ell(y, z) = \rho(z) - yz$ with $\rho(z) = \log(1 + e^z)$, so that $\rho'$ is the logistic function and
$\rho'' = \rho'(1 - \rho')$. A training point's output is the proximal operator of its loss at the output of the model
trained without the point. All functions are elementwise, on the device of the output: training calls them.
"""

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.nn.functional import softplus

_STEPS = 400  # far more than halving a bracket down to rounding takes
_ROUNDINGS = 2  # units of rounding up to which the equation counts as solved
_SHRINK = 0.5  # a Newton step must be at most this share of the last step, or the bracket is halved


def loss(output: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$\ell(y, z) = \log(1 + e^{-z})$ for $y = 1$ and $\log(1 + e^z)$ for $y = 0$, in nats."""
    return softplus(-label_sign(label).to(output.device) * output, threshold=40.0)


def curvature(output: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""$\rho''(z) = \rho'(z)\,\rho'(-z)$, without cancellation in either tail."""
    return torch.sigmoid(output) * torch.sigmoid(-output)


def prox(output: Float[Tensor, "*#b"], gamma: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""$\operatorname{Prox}_{\gamma \ell(y, \cdot)}(v)$: the root w of $w + \gamma(\rho'(w) - y) = v$.

    By Newton's method in the bracket $[v - \gamma(1 - y), v + \gamma y]$. A step that leaves the open bracket, or is
    more than half as long as the last one, is replaced by halving the bracket: without this the iteration can alternate
    between two points for ever, as at $v = 4.8$, $\gamma = 367$. $y = 1$ is reflected to $y = 0$, where $\rho'$ keeps
    its digits.

    Source: Tan et al. (2023), Definition 2 and equation (49). v and $\gamma \ge 0$ are at most 1e300 in size.
    """
    sign = label_sign(label).to(output.device)
    return -sign * _root(*torch.broadcast_tensors(-sign * output, gamma))


def inverse_prox(
    output: Float[Tensor, "*#b"], gamma: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]
) -> Float[Tensor, "*b"]:
    r"""$g_y(z) = z + \gamma(\rho'(z) - y)$: the output without the point, from the one with it.

    Its slope is $1 + \gamma \rho''(z)$. Source: Tan et al. (2023), equation (66).
    """
    sign = label_sign(label).to(output.device)
    return output - gamma * sign * torch.sigmoid(-sign * output)


def _root(v: Tensor, gamma: Tensor) -> Tensor:
    r"""The root of the increasing function $w + \gamma \rho'(w) - v$, for $y = 0$."""
    low, high = v - gamma, v.clone()
    # For large γ the root is near -log γ or near v - γ; the clamp keeps the start in the bracket.
    w = torch.minimum(torch.maximum((-gamma.clamp_min(1.0).log()), low), high)
    last = high - low
    for _ in range(_STEPS):
        sigmoid = torch.sigmoid(w)
        value, derivative = w - v + gamma * sigmoid, 1 + gamma * sigmoid * torch.sigmoid(-w)
        # The change of the equation when v, γρ'(w) and w are rounded by one unit.
        unit = torch.finfo(w.dtype).eps * (v.abs() + gamma * sigmoid + derivative * w.abs())
        done = value.abs() <= _ROUNDINGS * unit
        if bool(done.all()):
            return w
        low, high = torch.where(value <= 0, w, low), torch.where(value >= 0, w, high)
        step = value / derivative
        target = w - step
        halve = (target <= low) | (target >= high) | (step.abs() > _SHRINK * last)
        new = torch.where(done, w, torch.where(halve, low + (high - low) / 2, target))
        last, w = (new - w).abs(), new
    raise ArithmeticError("the proximal operator did not converge: are its arguments finite?")


def label_sign(label: Num[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """+1 for label 1 and -1 for label 0."""
    return torch.where(label == 1, 1.0, -1.0).to(
        label.dtype if label.is_floating_point() else torch.get_default_dtype()
    )
