r"""The limit of ridge logistic regression: α, σ, γ from a nonlinear system, and two cases that are solved by hand.

$$ \hat\beta = \arg\min_b \frac1n \sum_i \ell(y_i, x_i^\top b) + \frac{\lambda}{2p} \lVert b \rVert^2, \qquad
   x_i \sim N(0, \Sigma/p), \quad P(y_i = 1 \mid x_i) = \rho'(x_i^\top \beta^*), $$

as n and p grow with $n/p \to \delta$. A fresh point with teacher logit Z gets the output $N(\alpha Z, \sigma^2)$; γ is
how far training pulls the output of a point towards its label (`output_law`). Settings are batched: numbers and tensors
broadcast to float64 tensors. Nothing here is random.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.precision import DTYPE
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    Quadrature,
    generalisation_error,
    label_given_output,
    label_moments,
    logit_quadrature,
    output_quadrature,
)
from reproduced.papers.blessing.proximal_operator import curvature

TOLERANCE = 1e-10
"""The largest residual, in the logarithms of α, σ and γ, of a setting that counts as solved."""
_GOAL = 1e-12  # where the iteration stops; rounding is about 1e-14 and larger in the corners of the parameters
_NODES, _ROUGH = 120, 48  # of the quadrature in the output: for the residual, and for the Jacobian, which may be rough
_FIXED_POINT_STEPS = 6
_LARGEST_STEP = 2.0  # of Newton's method, in the logarithms
_DAMPING = (0.0, *(2.0**k for k in range(-6, 5)))  # 1/t: from Newton's method to short steps along the gap
_DIFFERENCE = 1e-6
_MARGIN_DAMPING = 0.5
_MARGIN_STEPS = 2000
_MARGIN_GOAL = 1e-14
_MARGIN_NODES = 321


class Spectrum(NamedTuple):
    r"""The eigenvalues of Σ, each with its share of the features and its share of the signal.

    `signal` is the share of $\kappa^2 = \beta^{*\top} \Sigma \beta^* / p$ along the eigenvectors; both shares sum to 1.
    """

    values: Float[Tensor, "*b atoms"]
    features: Float[Tensor, "*b atoms"]
    signal: Float[Tensor, "*b atoms"]


@dataclass(frozen=True)
class Setting:
    r"""A batch of problems: `penalty` λ, `delta` $\delta = n/p$, `kappa` κ, and the spectrum of Σ.

    κ is the standard deviation of the teacher's logit; at $\kappa = 0$ the labels are coin flips and α is its limit as
    $\kappa \to 0$.
    """

    penalty: Float[Tensor, "*b"]
    delta: Float[Tensor, "*b"]
    kappa: Float[Tensor, "*b"]
    spectrum: Spectrum

    @classmethod
    def bilevel(
        cls,
        *,
        penalty: Tensor | float,
        delta: Tensor | float,
        phi: Tensor | float,
        eta: Tensor | float = 1.0,
        kappa: Tensor | float = 10.0,
    ) -> "Setting":
        r"""The bi-level ensemble: $p/\phi$ signal features of total variance 1, and a tail of total variance η.

        Eigenvalues of Σ: $\phi$ for a share $1/\phi$ of the features, which carry all the signal, and
        $\eta\phi/(\phi - 1)$ for the others. Source: Tan et al. (2023), equation (5), which in our copy prints
        $[\Sigma]^2$ where (53) and (61) use Σ. $\kappa = \sigma_\beta$.
        """
        penalty, delta, phi, eta, kappa = broadcast_float64(penalty, delta, phi, eta, kappa)
        head, tail = torch.ones_like(phi), torch.zeros_like(phi)
        spectrum = Spectrum(
            torch.stack([phi, eta * phi / (phi - 1)], -1),
            torch.stack([1 / phi, (phi - 1) / phi], -1),
            torch.stack([head, tail], -1),
        )
        return cls(penalty, delta, kappa, spectrum)

    @classmethod
    def from_lambda_delta(
        cls,
        *,
        lambda_delta: Tensor | float,
        phi: Tensor | float,
        samples: Tensor | float = 5.0,
        eta: Tensor | float = 1.0,
        kappa: Tensor | float = 10.0,
    ) -> "Setting":
        r"""The bi-level ensemble in the variables of the figures: $\lambda\delta$, and `samples` $n/d = \delta\phi$."""
        product, phi, samples = broadcast_float64(lambda_delta, phi, samples)
        delta = samples / phi
        return cls.bilevel(penalty=product / delta, delta=delta, phi=phi, eta=eta, kappa=kappa)

    def flatten(self) -> "Setting":
        """The same problems as a vector."""
        spectrum = Spectrum(*(part.flatten(0, -2) if part.ndim > 1 else part[None] for part in self.spectrum))
        return Setting(self.penalty.flatten(), self.delta.flatten(), self.kappa.flatten(), spectrum)

    def take(self, index: Tensor) -> "Setting":
        """The problems of a vector at `index`, numbers or booleans."""
        spectrum = Spectrum(*(part[index] for part in self.spectrum))
        return Setting(self.penalty[index], self.delta[index], self.kappa[index], spectrum)


def broadcast_float64(*values: Tensor | float) -> list[Tensor]:
    """Float64 tensors of one shape."""
    return list(torch.broadcast_tensors(*(torch.as_tensor(one, dtype=DTYPE) for one in values)))


class Solution(NamedTuple):
    r"""The solved system. `scale` is $s = \sigma\tau$, which occurs only as a product; `r_squared` is $r^2$.

    `residual` is the largest error of the three equations in $\log\alpha$, $\log\sigma$, $\log\gamma$; where it exceeds
    `TOLERANCE`, `converged` is false and all numbers are NaN.

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
        """The laws of members' and outsiders' outputs."""
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
        iterations: steps, after the first six, after which a point counts as failed.
        strict: raise if a point fails; otherwise mark it by `converged` and NaN.
        method: `newton`, or `fixed point`, which the paper proposes, for comparison.
    """
    flat = setting.flatten()
    logs = _start(flat)
    for _ in range(_FIXED_POINT_STEPS):
        logs = _apply(logs, flat, _ROUGH)
    best = logs.clone()
    residual = torch.full_like(logs[:, 0], torch.inf)
    used = torch.zeros_like(residual, dtype=torch.int64)
    active = torch.arange(len(logs))
    for step in range(iterations):
        part, here = flat.take(active), logs[active]
        gap = _apply(here, part, nodes) - here
        size = gap.abs().amax(-1)
        better = size < residual[active]
        best[active[better]], residual[active[better]], used[active] = here[better], size[better], step
        # A point that is solved and no longer improves is at the level of rounding.
        unsolved = (size >= _GOAL) & (better | (residual[active] >= TOLERANCE))
        if not bool(unsolved.any()):
            break
        active, part, here, gap = active[unsolved], part.take(unsolved), here[unsolved], gap[unsolved]
        logs[active] = here + _METHODS[method](here, gap, part)
    converged = residual < TOLERANCE
    if strict and not bool(converged.all()):
        worst = int(torch.where(converged, -torch.inf, residual.nan_to_num(torch.inf)).argmax())
        raise ArithmeticError(
            f"the system did not converge at {int((~converged).sum())} of {len(logs)} points; the worst, "
            f"λ = {float(flat.penalty[worst]):g}, δ = {float(flat.delta[worst]):g}, κ = {float(flat.kappa[worst]):g}, "
            f"has residual {float(residual[worst]):.1e}: allow more `iterations` or more `nodes`."
        )
    numbers = (*best.exp().unbind(-1), *_moments(best, flat.kappa, nodes))
    numbers = (torch.where(converged, number, torch.nan) for number in numbers)
    parts = (*numbers, flat.kappa, residual, used, converged)
    return Solution(*(part.reshape(setting.penalty.shape) for part in parts))


def _newton(logs: Tensor, gap: Tensor, setting: Setting) -> Tensor:
    r"""The step that would close the gap if the system were linear; its Jacobian J by forward differences.

    Near separable data $1 - J$ is nearly singular and the step leads nowhere. The flow $du/dt = F(u) - u$ of the
    fixed-point iteration still does: of its implicit Euler steps $(1 + 1/t - J)^{-1}(F(u) - u)$ the one with the
    largest t and an allowed length is taken; $t = \infty$ is Newton's.
    """
    identity = torch.eye(3, dtype=logs.dtype)
    shifts = torch.cat([torch.zeros_like(identity[:1]), _DIFFERENCE * identity])
    every = torch.arange(len(logs)).repeat(4)
    images = _apply((logs + shifts[:, None]).flatten(0, 1), setting.take(every), _ROUGH)
    images = images.unflatten(0, (4, len(logs)))
    jacobian = ((images[1:] - images[0]) / _DIFFERENCE).movedim(0, -1)
    damping = torch.tensor(_DAMPING, dtype=logs.dtype)[:, None, None, None]
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
    rule = output_quadrature(law, nodes=nodes)
    label, weights = label_given_output(law, rule.outsider), 2 * rule.weights
    slope, bend = torch.sigmoid(rule.member), curvature(rule.member)
    theta = (weights * label.curvature * slope).sum(-1)
    r_squared = (weights * label.label_zero * slope.square()).sum(-1)
    return theta, r_squared, 1 / (weights * label.label_zero * bend / (1 + gamma[:, None] * bend)).sum(-1)


def _start(setting: Setting) -> Tensor:
    r"""The solution for a large ridge: $s = 4$, $r^2 = 1/4$, $\theta = \E\rho''(\kappa Z)$; $\lambda + 1/4$ for λ."""
    theta = label_moments(torch.zeros_like(setting.kappa)[:, None], setting.kappa).curvature[:, 0]
    return _image(setting, setting.penalty + 0.25, theta, r_squared=0.25, scale=4.0)


class InfiniteRidge(NamedTuple):
    r"""The model as $\lambda \to \infty$.

    `alpha` and `sigma` are multiplied by λ and `gamma` by $\lambda\delta$ to stay finite; `ratio` is
    $\alpha^2/\sigma^2$; `advantage` is that of the best attack on a point, the same for every point.
    """

    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]
    gamma: Float[Tensor, "*b"]
    ratio: Float[Tensor, "*b"]
    error: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


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
    Give `delta`, $n/p$, or `samples`, $n/d = \delta\phi$.
    """
    size = samples if delta is None else delta
    phi, size, eta, kappa = broadcast_float64(phi, size, eta, kappa)  # pyright: ignore[reportArgumentType]
    delta = size / phi if delta is None else size
    rule = logit_quadrature(kappa)
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


class MaxMargin(NamedTuple):
    r"""The maximum-margin classifier of infinitely many weak features, with outputs in units of its margin.

    `support` is the share of support vectors, to which the best attack's advantage tends; `error` is the test error, to
    which that of any fixed loss threshold tends.
    """

    support: Float[Tensor, "*b"]
    error: Float[Tensor, "*b"]
    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]


def max_margin(*, samples: Tensor | float, eta: Tensor | float = 1.0, kappa: Tensor | float = 10.0) -> MaxMargin:
    r"""The limit $\phi \to \infty$ of the bi-level ensemble at $n/d$ = `samples`, for every ridge: maximum margin.

    With $h = \kappa\alpha Z_1 + \sigma Z_2$ the output in units of the margin on a fresh point with label 0, solve

    $$ S = 2\E[\rho'(-\kappa Z_1) 1_{h > -1}], \quad \theta_0 = 2\E[\rho''(\kappa Z_1)(h + 1)_+], \quad
       r_0^2 = 2\E[\rho'(-\kappa Z_1)(h + 1)_+^2], $$
    $$ S\,\frac nd = \frac\eta x + \frac1{1 + x}, \qquad \alpha = \frac{\theta_0}{S(1 + x)}, \qquad
       \sigma^2 = \frac{r_0^2}{(n/d)\,S^2 (1 + x)^2} $$

    by a damped fixed point; the averages over $Z_2$ are closed forms. Not in the paper, whose Theorem 4(b) has every
    fixed threshold's advantage tend to 1 here.
    """
    samples, eta, kappa = broadcast_float64(samples, eta, kappa)
    rule = logit_quadrature(kappa, nodes=_MARGIN_NODES)
    alpha, sigma = torch.full_like(eta, 0.05), torch.full_like(eta, 0.5)
    for _ in range(_MARGIN_STEPS):
        support, new_alpha, new_sigma = _margin_step(alpha, sigma, rule, samples, eta)
        change = torch.maximum((new_alpha - alpha).abs() / new_alpha, (new_sigma - sigma).abs() / new_sigma)
        if bool((change < _MARGIN_GOAL).all()):
            law = OutputLaw(new_alpha, new_sigma, torch.zeros_like(eta), kappa)
            return MaxMargin(support, generalisation_error(law), new_alpha, new_sigma)
        alpha, sigma = (torch.lerp(old, new, _MARGIN_DAMPING) for old, new in ((alpha, new_alpha), (sigma, new_sigma)))
    raise ArithmeticError(f"the limit did not settle: change {float(change.max()):.1e} after {_MARGIN_STEPS} steps.")


def _margin_step(
    alpha: Tensor, sigma: Tensor, rule: Quadrature, samples: Tensor, eta: Tensor
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


def gamma_lower_bound(setting: Setting) -> Float[Tensor, "*b"]:
    r"""The lower bound $\gamma > \lambda_{\min}(\Sigma)\,(1/\delta - 1)/\lambda$, not positive for $\delta \ge 1$.

    Source: Tan et al. (2023), (31).
    """
    return setting.spectrum.values.amin(-1) * (1 / setting.delta - 1) / setting.penalty
