r"""Testing $N(0, \sigma_1^2)$ (member) against $N(0, \sigma_0^2)$ (outsider) with one observation.

Only the ratio of the two variances matters. One variance may be $+\infty$ (then the laws do not overlap), but none
zero, negative or NaN. Source of all formulas: Tan et al. (2022), Theorem 3.2, in a form that is stable for nearly equal
variances.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_EQUAL = 1e-12  # |log ratio| below which the variances count as equal: the limits are then exact to rounding


def advantage(*, member: Float[Tensor, "*#b"], outsider: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""Advantage of the likelihood ratio test, which is the total variation distance of the two laws.

    $$ \mathrm{Adv} = 2\,\bigl|\Phi(\alpha/\sigma_0) - \Phi(\alpha/\sigma_1)\bigr|, \qquad
       \frac{\alpha}{\sigma_0} = \sqrt{\frac{L}{e^L - 1}}, \quad
       \frac{\alpha}{\sigma_1} = \sqrt{\frac{L}{1 - e^{-L}}}, \quad L = \log\frac{\sigma_0^2}{\sigma_1^2}. $$

    Source: Tan et al. (2022), eq. (4); the ratio form avoids its 0/0 at $\sigma_0 = \sigma_1$.
    """
    over_outsider, over_member = _scaled_thresholds(outsider, member)
    return 2 * (torch.special.ndtr(over_outsider) - torch.special.ndtr(over_member)).abs()


def threshold(*, member: Float[Tensor, "*#b"], outsider: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""The $|y| = \alpha$ at which the two densities cross.

    $$ \alpha^2 = \frac{\sigma_0^2 \sigma_1^2 \log(\sigma_0^2 / \sigma_1^2)}{\sigma_0^2 - \sigma_1^2} $$

    Members lie outside $[-\alpha, \alpha]$ if $\sigma_1 > \sigma_0$ and inside if $\sigma_1 < \sigma_0$.
    Source: Tan et al. (2022), eq. (3). With an infinite variance there is no crossing, and α is $+\infty$.
    """
    over_outsider, over_member = _scaled_thresholds(outsider, member)
    # In units of the smaller deviation: in units of the larger one the threshold may underflow.
    found = torch.where(outsider < member, over_outsider * outsider.sqrt(), over_member * member.sqrt())
    return torch.where(torch.isinf(outsider) | torch.isinf(member), torch.inf, found)


def power(*, member: Float[Tensor, "*#b"], outsider: Float[Tensor, "*#b"], fpr: float) -> Float[Tensor, "*b"]:
    r"""True positive rate of the best test with false positive rate `fpr`.

    $$ \mathrm{TPR} = 2\,\Phi\!\Bigl(\tfrac{\sigma_0}{\sigma_1}\,\Phi^{-1}(\mathrm{FPR}/2)\Bigr)
       \ (\sigma_1 \ge \sigma_0), \qquad
       \operatorname{erf}\Bigl(\tfrac{\sigma_0}{\sigma_1}\,\operatorname{erf}^{-1}(\mathrm{FPR})\Bigr)
       \ (\sigma_1 < \sigma_0). $$
    """
    ratio = _log_ratio(outsider, member).div(2).exp()
    level = torch.tensor(fpr, dtype=ratio.dtype)
    outside = torch.special.erfc(-ratio * torch.special.ndtri(level / 2) / math.sqrt(2))  # `ndtr` has no lower tail
    inside = torch.erf(ratio * torch.erfinv(level))
    return torch.where(ratio <= 1, outside, inside)


def _log_ratio(outsider: Tensor, member: Tensor) -> Tensor:
    return outsider.log() - member.log()


def _scaled_thresholds(outsider: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """α/σ0 and α/σ1: both 1 where the variances are equal, 0 and ∞ where one is infinite."""
    log_ratio = _log_ratio(outsider, member)
    equal, infinite = log_ratio.abs() < _EQUAL, torch.isinf(log_ratio)
    safe = torch.where(equal | infinite, torch.ones_like(log_ratio), log_ratio)
    at_infinity = torch.where(log_ratio > 0, 0.0, torch.inf).to(safe.dtype)

    def scaled(square: Tensor, limit: Tensor) -> Tensor:
        return torch.where(equal, 1.0, torch.where(infinite, limit, square.sqrt()))

    return (
        scaled(safe / torch.expm1(safe), at_infinity),
        scaled(-safe / torch.expm1(-safe), torch.where(log_ratio > 0, torch.inf, 0.0).to(safe.dtype)),
    )
