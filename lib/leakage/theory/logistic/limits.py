r"""Where the system can be solved by hand: an infinite ridge, infinitely many weak features, and bounds on the rest.

Both limits are those of the bi-level ensemble, with $n/d$ = `samples` $= \delta\phi$ fixed. The limits are taken after
$n, p \to \infty$. Float64, batched; nothing is random.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.theory.logistic.output_law import OutputLaw, generalisation_error
from leakage.theory.logistic.problem import Setting, together
from leakage.theory.logistic.prox import curvature
from leakage.theory.logistic.teacher import Rule, logit_rule

_DAMPING = 0.5
_STEPS = 2000
_GOAL = 1e-14
_NODES = 321


class InfiniteRidge(NamedTuple):
    r"""What the model tends to as $\lambda \to \infty$.

    `alpha` and `sigma` are multiplied by λ and `gamma` by $\lambda\delta$ to stay finite; `ratio` is
    $\alpha^2/\sigma^2$; `advantage` is that of the best attack on a point, the same for every point.
    """

    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]
    gamma: Float[Tensor, "*b"]
    ratio: Float[Tensor, "*b"]
    error: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


class MaxMargin(NamedTuple):
    r"""The maximum-margin classifier of infinitely many weak features, with outputs in units of its margin.

    `support` is the share of support vectors, to which the best attack's advantage tends; `error` is the test error, to
    which that of any fixed loss threshold tends.
    """

    support: Float[Tensor, "*b"]
    error: Float[Tensor, "*b"]
    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]


def infinite_ridge(
    *,
    phi: Tensor | float,
    delta: Tensor | float | None = None,
    samples: Tensor | float | None = None,
    eta: Tensor | float = 1.0,
    kappa: Tensor | float = 10.0,
) -> InfiniteRidge:
    r"""The limit $\lambda \to \infty$ of the bi-level ensemble: $s = 4$, $r^2 = 1/4$, $\theta = \E\rho''(\kappa Z)$.

    $$ \lambda\alpha \to \theta\phi, \quad \lambda\delta\gamma \to 1 + \eta, \quad
       (\lambda\sigma)^2 \to \frac{\phi}{4\delta}\Bigl(1 + \frac{\eta^2}{\phi - 1}\Bigr), $$
    $$ \operatorname{Adv} \to 2\Phi(D/2) - 1, \qquad D = \frac{1 + \eta}{\sqrt{(n/d)(1 + \eta^2/(\phi - 1))}} . $$

    Outputs and pull shrink alike, so that the attack does not get weaker: a training point moves its own output by
    $\gamma/2$, σD. Source: Tan et al. (2023), (57) and (60), corrected: printed are $2/(\lambda\delta)$ for γ, true for
    $\eta = 1$, and $\delta/\phi$ for $n/d = \delta\phi$ in $\alpha^2/\sigma^2$. The advantage is not in the paper.

    Args:
        phi, eta, kappa: as in `Setting.bilevel`.
        delta, samples: $n/p$ or $n/d = \delta\phi$, one of them.
    """
    size = delta if delta is not None else samples
    phi, size, eta, kappa = together(phi=phi, size=size, eta=eta, kappa=kappa)  # pyright: ignore[reportArgumentType]
    delta = size if samples is None else size / phi
    Setting.bilevel(penalty=1.0, delta=delta, phi=phi, eta=eta, kappa=kappa)  # for its checks
    rule = logit_rule(kappa)
    theta = (rule.weights * curvature(rule.nodes)).sum(-1)
    tail = 1 + eta.square() / (phi - 1)
    alpha, sigma = theta * phi, (phi / delta * tail).sqrt() / 2
    law = OutputLaw(alpha, sigma, torch.zeros_like(alpha), kappa)
    half = (1 + eta) / (delta * phi * tail).sqrt() / 2
    return InfiniteRidge(
        alpha=alpha,
        sigma=sigma,
        gamma=1 + eta,
        ratio=(alpha / sigma).square(),
        error=generalisation_error(law),
        advantage=torch.special.erf(half / 2**0.5),
    )


def max_margin(*, samples: Tensor | float, eta: Tensor | float = 1.0, kappa: Tensor | float = 10.0) -> MaxMargin:
    r"""The limit $\phi \to \infty$ of the bi-level ensemble at $n/d$ = `samples`, whatever the ridge: maximum margin.

    With $h = \kappa\alpha Z_1 + \sigma Z_2$ the output in units of the margin on a fresh point with label 0, solve

    $$ S = 2\E[\rho'(-\kappa Z_1) 1_{h > -1}], \quad \theta_0 = 2\E[\rho''(\kappa Z_1)(h + 1)_+], \quad
       r_0^2 = 2\E[\rho'(-\kappa Z_1)(h + 1)_+^2], $$
    $$ S\,\frac nd = \frac\eta x + \frac1{1 + x}, \qquad \alpha = \frac{\theta_0}{S(1 + x)}, \qquad
       \sigma^2 = \frac{r_0^2}{(n/d)\,S^2 (1 + x)^2} $$

    by a damped fixed point; the averages over $Z_2$ are closed. Not in the paper, whose Theorem 4(b) has every fixed
    threshold's advantage tend to 1 here.
    """
    samples, eta, kappa = together(samples=samples, eta=eta, kappa=kappa)
    Setting.bilevel(penalty=1.0, delta=1.0, phi=2.0, eta=eta, kappa=kappa)  # for its checks
    rule = logit_rule(kappa, nodes=_NODES)
    alpha, sigma = torch.full_like(eta, 0.05), torch.full_like(eta, 0.5)
    for _ in range(_STEPS):
        support, new_alpha, new_sigma = _margin_step(alpha, sigma, rule, samples, eta)
        change = torch.maximum((new_alpha - alpha).abs() / new_alpha, (new_sigma - sigma).abs() / new_sigma)
        if bool((change < _GOAL).all()):
            law = OutputLaw(new_alpha, new_sigma, torch.zeros_like(eta), kappa)
            return MaxMargin(support, generalisation_error(law), new_alpha, new_sigma)
        alpha, sigma = (torch.lerp(old, new, _DAMPING) for old, new in ((alpha, new_alpha), (sigma, new_sigma)))
    raise ArithmeticError(f"the limit did not settle: change {float(change.max()):.1e} after {_STEPS} steps.")


def _margin_step(
    alpha: Tensor, sigma: Tensor, rule: Rule, samples: Tensor, eta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """S and the new α and σ (see `max_margin`)."""
    mean, sd = alpha[..., None] * rule.nodes + 1, sigma[..., None]
    inside, density = torch.special.ndtr(mean / sd), torch.exp(-(mean / sd).square() / 2) / (2 * torch.pi) ** 0.5
    first = mean * inside + sd * density
    second = (mean.square() + sd.square()) * inside + mean * sd * density
    zero = 2 * rule.weights * torch.sigmoid(-rule.nodes)
    support, square = (zero * inside).sum(-1), (zero * second).sum(-1)
    theta = 2 * (rule.weights * curvature(rule.nodes) * first).sum(-1)
    load = support * samples
    # The positive root of load x² + (load - η - 1) x - η = 0.
    b = load - eta - 1
    tail = ((b.square() + 4 * load * eta).sqrt() - b) / (2 * load)
    scale = support * (1 + tail)
    return support, theta / scale, (square / samples).sqrt() / scale


def least_gamma(setting: Setting) -> Float[Tensor, "*b"]:
    r"""The lower bound $\gamma > \lambda_{\min}(\Sigma)\,(1/\delta - 1)/\lambda$, empty for $\delta > 1$.

    Source: Tan et al. (2023), (31).
    """
    return setting.spectrum.values.amin(-1) * (1 / setting.delta - 1) / setting.penalty
