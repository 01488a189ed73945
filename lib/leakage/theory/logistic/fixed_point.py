r"""The limit of ridge logistic regression: three numbers α, σ, γ for every setting, from a nonlinear system.

A fresh point whose teacher logit is Z gets the output $N(\alpha Z, \sigma^2)$; γ says how far a training point's output
is pulled towards its label (`output_law`). Points of a grid are solved together. One that does not converge raises, or
is marked and NaN if that is asked for; nothing unconverged is ever returned unmarked. Nothing is random.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.theory.logistic.output_law import OutputLaw, label_given_output, output_rule
from leakage.theory.logistic.problem import Setting
from leakage.theory.logistic.prox import curvature
from leakage.theory.logistic.teacher import label_moments

TOLERANCE = 1e-10
"""The largest residual, in the logarithms of α, σ and γ, of a setting that counts as solved."""
_GOAL = 1e-12  # where the iteration stops; rounding is about 1e-14 and grows with the corner of the parameters
_NODES, _ROUGH = 120, 48  # of the rule in the output: for the residual, and for the Jacobian, which may be rough
_FIXED_POINT_STEPS = 6
_LARGEST_STEP = 2.0  # of Newton's method, in the logarithms
_DAMPING = (0.0, *(2.0**k for k in range(-6, 5)))  # 1/t: from Newton's method to short steps along the gap
_DIFFERENCE = 1e-6


class Solution(NamedTuple):
    r"""The solved system. `scale` is $s = \sigma\tau$, which occurs only as a product; `r_squared` is $r^2$.

    `residual` is the largest error of the three equations in $\log\alpha$, $\log\sigma$, $\log\gamma$; where it exceeds
    `TOLERANCE` the point has `converged` false and all its numbers are NaN.

    θ and $r^2$ never exceed 1/4. For θ: $\operatorname{Prox}(h) \le h$, and h is symmetric. For $r^2 = \E e^2$ with
    $e = \rho'(-\text{margin})$: a minimum of the ridge loss has $\E[e \cdot \text{margin}] \ge 0$, and
    $e^2 + e \cdot \text{margin}/2 \le 1/4$ for every margin. The paper shows 1/2 and 2, (35) and (32).
    """

    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]
    gamma: Float[Tensor, "*b"]
    theta: Float[Tensor, "*b"]
    r_squared: Float[Tensor, "*b"]
    scale: Float[Tensor, "*b"]
    kappa: Float[Tensor, "*b"]
    residual: Float[Tensor, "*b"]
    iterations: Int[Tensor, "*b"]
    converged: Bool[Tensor, "*b"]

    @property
    def law(self) -> OutputLaw:
        """The laws of the outputs on seen and on fresh points."""
        return OutputLaw(self.alpha, self.sigma, self.gamma, self.kappa)


def solve(
    setting: Setting, *, nodes: int = _NODES, iterations: int = 60, strict: bool = True, method: str = "newton"
) -> Solution:
    r"""Solve the system of Theorem 5 at every point of the batch, to a residual of about 1e-12.

    With $q^2 = \kappa^2\alpha^2 + \sigma^2$, the fresh output $h = \kappa\alpha Z_1 + \sigma Z_2$ and
    $w = \operatorname{Prox}_{\gamma\rho}(h)$,

    $$ \theta = 2\E[\rho''(\kappa Z_1)\rho'(w)], \quad r^2 = 2\E[\rho'(-\kappa Z_1)\rho'(w)^2], \quad
       \frac1s = 2\E\Bigl[\frac{\rho'(-\kappa Z_1)\rho''(w)}{1 + \gamma\rho''(w)}\Bigr], $$

    and with the ridge's shrinkage $a_k = S_k/(S_k + \lambda s)$ of eigenvalue $S_k$, $\bar a$ its mean over the signal,

    $$ \alpha = s\theta\,\bar a, \quad \gamma = \frac s\delta \langle a \rangle, \quad
       \sigma^2 = s^2 \Bigl\{ \kappa^2\theta^2 \langle (a - \bar a)^2 \rangle_{\text{signal}}
       + \frac{r^2}\delta \langle a^2 \rangle \Bigr\} . $$

    Source: Tan et al. (2023), (12) and (53), with the misprints of our copy corrected: $1/(r\sqrt\delta\,p)$ in the
    second line of (12), $\rho(z) = \log(1 + e^z)$. Six fixed-point steps, then Newton's method in the logarithms.

    Args:
        nodes: of the rule in the output.
        iterations: steps, after the first six, after which a point counts as failed.
        strict: raise if a point fails; otherwise mark it by `converged` and NaN.
        method: `newton`, or `fixed point`, which the paper proposes, for comparison.
    """
    flat = setting.flat()
    logs = _start(flat)
    for _ in range(_FIXED_POINT_STEPS):
        logs = _apply(logs, flat, _ROUGH)
    best = logs.clone()
    residual = torch.full_like(logs[:, 0], torch.inf)
    used = torch.zeros_like(residual, dtype=torch.int64)
    active = torch.arange(len(logs), device=logs.device)
    for step in range(iterations):
        part, here = flat.take(active), logs[active]
        gap = _apply(here, part, nodes) - here
        size = gap.abs().amax(-1)
        better = size < residual[active]
        best[active[better]], residual[active[better]], used[active] = here[better], size[better], step
        # A point that is solved but no longer improves has reached the floor of rounding.
        going = (size >= _GOAL) & (better | (residual[active] >= TOLERANCE))
        if not bool(going.any()):
            break
        active, part, here, gap = active[going], part.take(going), here[going], gap[going]
        logs[active] = here + _METHODS[method](here, gap, part)
    return _report(setting, flat, best, residual, used, nodes=nodes, strict=strict)


def _newton(logs: Tensor, gap: Tensor, setting: Setting) -> Tensor:
    r"""The step that would close the gap if the system were linear; its Jacobian J by forward differences.

    Near separable data $1 - J$ is nearly singular and the step leads nowhere. The flow $du/dt = F(u) - u$ of the
    fixed-point iteration still does: of its implicit Euler steps $(1 + 1/t - J)^{-1}(F(u) - u)$ the one with the
    largest t is taken whose length is in bounds; $t = \infty$ is Newton's.
    """
    identity = torch.eye(3, dtype=logs.dtype, device=logs.device)
    shifts = torch.cat([torch.zeros_like(identity[:1]), _DIFFERENCE * identity])
    every = torch.arange(len(logs), device=logs.device).repeat(4)
    images = _apply((logs + shifts[:, None]).flatten(0, 1), setting.take(every), _ROUGH)
    images = images.unflatten(0, (4, len(logs)))
    jacobian = ((images[1:] - images[0]) / _DIFFERENCE).movedim(0, -1)
    damping = torch.tensor(_DAMPING, dtype=logs.dtype, device=logs.device)[:, None, None, None]
    steps, _ = torch.linalg.solve_ex((1 + damping) * identity - jacobian, gap.expand(len(_DAMPING), -1, -1)[..., None])
    fits = steps.squeeze(-1).norm(dim=-1) <= _LARGEST_STEP  # false for NaN
    chosen = fits.to(torch.int8).argmax(0)  # the first that fits; if none does, the last is short enough
    chosen = torch.where(fits.any(0), chosen, len(_DAMPING) - 1)
    return steps.squeeze(-1).gather(0, chosen[None, :, None].expand(1, -1, 3)).squeeze(0)


_METHODS = {"newton": _newton, "fixed point": lambda logs, gap, setting: gap}


def _apply(logs: Tensor, setting: Setting, nodes: int) -> Tensor:
    r"""The right-hand sides at $(\log\alpha, \log\sigma, \log\gamma)$."""
    return _image(setting, setting.penalty, *_moments(logs, setting.kappa, nodes))


def _image(
    setting: Setting, penalty: Tensor, theta: Tensor, r_squared: Tensor | float, scale: Tensor | float
) -> Tensor:
    r"""The logarithms of α, σ and γ that follow from θ, $r^2$ and s."""
    values, features, signal = setting.spectrum
    shrunk = values / (values + (penalty * scale)[:, None])
    mean = (signal * shrunk).sum(-1)
    alpha = scale * theta * mean
    gamma = scale / setting.delta * (features * shrunk).sum(-1)
    uneven = (signal * (shrunk - mean[:, None]).square()).sum(-1)
    noise = r_squared / setting.delta * (features * shrunk.square()).sum(-1)
    sigma = scale * ((setting.kappa * theta).square() * uneven + noise).sqrt()
    return torch.stack([alpha, sigma, gamma], -1).log()


def _moments(logs: Tensor, kappa: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""θ, $r^2$ and s of `solve`."""
    alpha, sigma, gamma = logs.exp().unbind(-1)
    law = OutputLaw(alpha, sigma, gamma, kappa)
    rule = output_rule(law, nodes=nodes)
    label, weights = label_given_output(law, rule.fresh), 2 * rule.weights
    slope, bend = torch.sigmoid(rule.seen), curvature(rule.seen)
    theta = (weights * label.slope * slope).sum(-1)
    r_squared = (weights * label.zero * slope.square()).sum(-1)
    return theta, r_squared, 1 / (weights * label.zero * bend / (1 + gamma[:, None] * bend)).sum(-1)


def _start(setting: Setting) -> Tensor:
    r"""The solution for a large ridge: $s = 4$, $r^2 = 1/4$, $\theta = \E\rho''(\kappa Z)$; $\lambda + 1/4$ for λ."""
    theta = label_moments(torch.zeros_like(setting.kappa)[:, None], setting.kappa).slope[:, 0]
    return _image(setting, setting.penalty + 0.25, theta, r_squared=0.25, scale=4.0)


def _report(
    setting: Setting, flat: Setting, logs: Tensor, residual: Tensor, used: Tensor, *, nodes: int, strict: bool
) -> Solution:
    converged = residual < TOLERANCE
    if strict and not bool(converged.all()):
        worst = int(torch.where(converged, -torch.inf, residual.nan_to_num(torch.inf)).argmax())
        raise ArithmeticError(
            f"the system did not converge at {int((~converged).sum())} of {len(logs)} points; the worst, "
            f"λ = {float(flat.penalty[worst]):g}, δ = {float(flat.delta[worst]):g}, κ = {float(flat.kappa[worst]):g}, "
            f"has residual {float(residual[worst]):.1e}: allow more `iterations` or more `nodes`."
        )
    numbers = (*logs.exp().unbind(-1), *_moments(logs, flat.kappa, nodes))
    numbers = (torch.where(converged, number, torch.nan) for number in numbers)
    parts = (*numbers, flat.kappa, residual, used, converged)
    return Solution(*(part.reshape(setting.shape) for part in parts))
