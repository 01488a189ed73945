r"""What ridge logistic regression says about a point it was, and was not, trained on: two laws and what follows.

An outsider with teacher logit Z gets the output $h \sim N(\alpha Z, \sigma^2)$, whatever its label; a member with
label y gets $\operatorname{Prox}_{\gamma \ell(y, \cdot)}(h)$. The best attacker on one point compares the output with a
single threshold (`best_attack_on_point`). The laws are batched, everything broadcasts, and the label enters by the reflection
$(Z, z, 0) \to (-Z, -z, 1)$. Float64; nothing is random, and nothing here solves for α, σ and γ (`fixed_point`).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from leakage.theory.logistic.proximal_operator import curvature, inverse_prox, label_sign, loss, prox

SPAN = 8.5  # standard deviations that a rule covers: beyond them lies 2e-17 of the mass
NODES = 161  # of the rule in Z: 12 digits for κ up to 100


class Quadrature(NamedTuple):
    """Nodes and weights, which sum to 1 along the last dimension."""

    nodes: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


class LabelMoments(NamedTuple):
    r"""$\E[\rho'(-Z)]$, the chance of label 0, and $\E[\rho''(Z)]$, for Gaussian Z with given means and spread."""

    zero: Float[Tensor, "*b means"]
    slope: Float[Tensor, "*b means"]


_HALVINGS = 60
_TAIL = 9.0  # deviations: a bracket of the threshold ends there
_EXCEEDANCE_NODES = 321  # 12 digits where the output tells labels apart sharply, far from the teacher's boundary
_RULE_NODES = 120  # of `output_quadrature`: 11 digits in the corners of the parameters, all digits elsewhere


@dataclass(frozen=True)
class OutputLaw:
    r"""α, σ, γ and the teacher's κ, as tensors of one batch."""

    alpha: Float[Tensor, "*b"]
    sigma: Float[Tensor, "*b"]
    gamma: Float[Tensor, "*b"]
    kappa: Float[Tensor, "*b"]

    @property
    def spread(self) -> Float[Tensor, "*b"]:
        r"""$q = \sqrt{\kappa^2\alpha^2 + \sigma^2}$, the standard deviation of the output at a fresh point."""
        return torch.hypot(self.kappa * self.alpha, self.sigma)

    def unsqueeze(self) -> "OutputLaw":
        """The same laws with a new last dimension, against which the points of a grid broadcast."""
        return OutputLaw(*(getattr(self, name)[..., None] for name in ("alpha", "sigma", "gamma", "kappa")))


class Densities(NamedTuple):
    """Densities of the output on one point: of models trained without it, and with it."""

    outsider: Float[Tensor, "*b points"]
    member: Float[Tensor, "*b points"]


class LossThreshold(NamedTuple):
    """The best attack of its kind: call a point a member if its loss is below the threshold."""

    threshold: Float[Tensor, "*b"]
    tpr: Float[Tensor, "*b"]
    fpr: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


class OutputQuadrature(NamedTuple):
    r"""Nodes of $h \sim N(0, q^2)$ and of the output that label 0 makes of it; weights sum to 1 along the last axis."""

    fresh: Float[Tensor, "*b nodes"]
    seen: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


def densities(
    law: OutputLaw, outputs: Float[Tensor, "*#b points"], *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]
) -> Densities:
    r"""The two densities at `outputs`, for one point with teacher logit Z and label y:

    $$ \frac1\sigma \varphi\Bigl(\frac{z - \alpha Z}\sigma\Bigr), \qquad
       \frac{1 + \gamma\rho''(z)}\sigma \varphi\Bigl(\frac{g_y(z) - \alpha Z}\sigma\Bigr), \quad
       g_y(z) = z + \gamma(\rho'(z) - y). $$

    Source: Tan et al. (2023), (64) and (65).
    """
    wide, mean, label = law.unsqueeze(), (law.alpha * teacher)[..., None], label[..., None]
    norm = wide.sigma * math.sqrt(2 * math.pi)
    before = inverse_prox(outputs, wide.gamma, label)
    pull = 1 + wide.gamma * curvature(outputs)
    return Densities(
        torch.exp(-((outputs - mean) / wide.sigma).square() / 2) / norm,
        torch.exp(-((before - mean) / wide.sigma).square() / 2) * pull / norm,
    )


def best_attack_on_point(law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]) -> LossThreshold:
    r"""The attack of largest advantage on a point that the attacker knows, its loss threshold and its rates.

    For $y = 1$ and with $m = \alpha Z$, $a(z) = \gamma\rho'(-z)$, the logarithm of the likelihood ratio is

    $$ S(z) = \log(1 + \gamma\rho''(z)) + a(z)\,\frac{2(z - m) - a(z)}{2\sigma^2} . $$

    $S/a$ increases from $-\infty$ to $+\infty$, so that S has one root $z^*$: members are the outputs above it, that
    is, the losses below $\log(1 + e^{-z^*})$. Then

    $$ \operatorname{Adv}(Z, 1) = \Phi\Bigl(\frac{z^* - m}\sigma\Bigr) -
       \Phi\Bigl(\frac{z^* - m - a(z^*)}\sigma\Bigr) . $$

    At $m - \max(9, \sigma)\,\sigma$ S is negative, at $\operatorname{Prox}(m + 9\sigma)$ it is positive. The root is
    not in the paper; the advantage is that of its (7), exactly.
    """
    sign = label_sign(label).to(law.alpha)
    root = _root(*torch.broadcast_tensors(sign * law.alpha * teacher, law.sigma, law.gamma))
    distance = (root - sign * law.alpha * teacher) / law.sigma
    pull = law.gamma * torch.sigmoid(-root) / law.sigma
    fpr, tpr = torch.special.ndtr(-distance), torch.special.ndtr(pull - distance)
    return LossThreshold(loss(sign * root, label), tpr, fpr, _gap(distance, pull))


def _gap(distance: Tensor, pull: Tensor) -> Tensor:
    """Φ(d) - Φ(d - p) for p ≥ 0, from the tail in which both are small."""
    flip = torch.where(distance - pull / 2 > 0, -1.0, 1.0).to(distance)
    return flip * (torch.special.ndtr(flip * distance) - torch.special.ndtr(flip * (distance - pull)))


def _root(mean: Tensor, sigma: Tensor, gamma: Tensor) -> Tensor:
    """The root of S by halving: an error h of the root costs an advantage of order h² only."""
    low = mean - sigma.clamp_min(_TAIL) * sigma
    high = prox(mean + _TAIL * sigma, gamma, torch.ones_like(mean))
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        pull = gamma * torch.sigmoid(-middle)
        ratio = torch.log1p(gamma * curvature(middle)) + pull * (2 * (middle - mean) - pull) / (2 * sigma.square())
        low, high = torch.where(ratio < 0, middle, low), torch.where(ratio < 0, high, middle)
    return low + (high - low) / 2


def average_advantage(law: OutputLaw, *, nodes: int = 101) -> Float[Tensor, "*b"]:
    r"""Mean over points and labels of the best advantage on each, $2\E[\rho'(Z)\operatorname{Adv}(Z, 1)]$.

    Source: Tan et al. (2023), (7) and (69), without their integral over outputs.
    """
    rule = logit_quadrature(law.kappa, nodes=nodes)
    attack = best_attack_on_point(law.unsqueeze(), teacher=rule.nodes, label=torch.ones_like(rule.nodes))
    return average_over_points(attack.advantage, rule)


def exceedance(law: OutputLaw, bound: Float[Tensor, "*#b"], *, nodes: int = _EXCEEDANCE_NODES) -> Float[Tensor, "*b"]:
    r"""How often the output on a fresh point of label 1 exceeds `bound`, $2\E[\rho'(Z)\Phi((\alpha Z - b)/\sigma)]$."""
    rule, wide = logit_quadrature(law.kappa, nodes=nodes), law.unsqueeze()
    return average_over_points(torch.special.ndtr((wide.alpha * rule.nodes - bound[..., None]) / wide.sigma), rule)


def generalisation_error(law: OutputLaw) -> Float[Tensor, "*b"]:
    r"""Misclassification of fresh points, $2\E[\rho'(Z)\Phi(-\alpha Z/\sigma)]$.

    Source: Tan et al. (2023), (59); (6) lacks the factor 2 in our copy.
    """
    return 1 - exceedance(law, torch.zeros_like(law.alpha))


def output_quadrature(law: OutputLaw, *, nodes: int = _RULE_NODES) -> OutputQuadrature:
    r"""Quadrature over fresh outputs h and $w = \operatorname{Prox}_{\gamma\rho}(h)$, without a proximal map at a node.

    $\E F(w) = \int F(w)\,\varphi(g(w)/q)\,g'(w)/q\,dw$ with $g(w) = w + \gamma\rho'(w)$, by the trapezoidal rule
    in x where $w = w_0 + \sinh x$. The centre $w_0$ is where g bends from 1 to γ and the density of w is narrow: so a
    hundred nodes do for γ up to $10^{13}$.
    """
    spread = law.spread
    centre = -torch.log1p(law.gamma / (1 + spread))
    zero = torch.zeros_like(spread)
    low, high = (torch.asinh(prox(side * SPAN * spread, law.gamma, zero) - centre)[..., None] for side in (-1, 1))
    x = torch.lerp(low, high, torch.linspace(0, 1, nodes, dtype=spread.dtype, device=spread.device))
    seen, gamma = centre[..., None] + torch.sinh(x), law.gamma[..., None]
    fresh = seen + gamma * torch.sigmoid(seen)
    weights = torch.exp(-(fresh / spread[..., None]).square() / 2) * (1 + gamma * curvature(seen)) * torch.cosh(x)
    return OutputQuadrature(fresh, seen, weights / weights.sum(-1, keepdim=True))


def label_given_output(law: OutputLaw, fresh: Float[Tensor, "*b nodes"]) -> LabelMoments:
    r"""$\E[\rho'(-Z) \mid h]$, $\E[\rho''(Z) \mid h]$; Z has mean $\kappa^2\alpha h/q^2$, spread $\kappa\sigma/q$."""
    slope = law.kappa.square() * law.alpha / law.spread.square()
    mean = (slope[..., None] * fresh).reshape(-1, fresh.shape[-1])
    moments = label_moments(mean, (law.kappa * law.sigma / law.spread).flatten())
    return LabelMoments(*(moment.reshape(fresh.shape) for moment in moments))


_SEARCHED_TAIL = 9.0  # deviations of the fresh output within which thresholds are looked for
_CELLS = 64  # of each round's grid
_ROUNDS = 5


class Rates(NamedTuple):
    """True and false positive rate of a rule, and their difference."""

    tpr: Float[Tensor, "*b"]
    fpr: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


def loss_threshold_rates(law: OutputLaw, threshold: Float[Tensor, "*#b"]) -> Rates:
    r"""Rates of "member if the loss is below τ", elementwise.

    For label 1 the loss is below τ where the output exceeds $c = -\log(e^\tau - 1)$; a member's does if it exceeded
    $c - \gamma\rho'(-c)$ before.
    """
    return _rates(law, -torch.log(torch.expm1(threshold)))


def best_loss_threshold(law: OutputLaw) -> LossThreshold:
    r"""The one loss threshold with the largest advantage, by grids of c (`loss_threshold_rates`) that close in on it.

    The search covers all outputs of members and outsiders; an error of the threshold costs only its square.
    """
    one, reach = torch.ones_like(law.alpha), _SEARCHED_TAIL * law.spread
    low, high = -reach, prox(reach, law.gamma, one)
    wide = law.unsqueeze()
    for _ in range(_ROUNDS):
        steps = torch.linspace(0, 1, _CELLS + 1, dtype=low.dtype, device=low.device)
        cuts = torch.lerp(low[..., None], high[..., None], steps)
        index = _rates(wide, cuts).advantage.argmax(-1, keepdim=True)
        low, high = (cuts.gather(-1, (index + i).clamp(0, _CELLS)).squeeze(-1) for i in (-1, 1))
    cut = low + (high - low) / 2
    return LossThreshold(torch.nn.functional.softplus(-cut, threshold=40.0), *_rates(law, cut))


def _rates(law: OutputLaw, cut: Tensor) -> Rates:
    cut, one = torch.broadcast_tensors(cut, torch.ones_like(law.alpha))
    tpr, fpr = exceedance(law, inverse_prox(cut, law.gamma, one)), exceedance(law, cut)
    return Rates(tpr, fpr, tpr - fpr)


_FEWEST = 21  # nodes of a rule in Z: 4 digits at κ = 50; below, averages are off by anything
_WIDE = 1.1  # spread from which the logistic variable is the one to sum over
_LOGISTIC_STEP, _LOGISTIC_END = 0.55, 27.5  # both rules are good to 1e-12, which steps of 0.75 and 0.6 are not:
_NORMAL_STEP, _NORMAL_END = 0.5, 8.5  # they leave 1e-9 at spreads near 1
_CHUNK = 400  # integrals done together: their rule's nodes stay in the processor's cache


def logit_quadrature(kappa: Float[Tensor, "*b"], *, nodes: int = NODES) -> Quadrature:
    r"""Nodes $Z = \sinh x$ with equal steps of x out to $\pm 8.5\kappa$, weights of $N(0, \kappa^2)$.

    The stretch puts as many nodes where Z is of order 1, where labels are drawn, as where it is of order κ. For
    $\kappa = 0$ every node is 0.
    """
    end = torch.asinh(SPAN * kappa)[..., None]
    x = end * torch.linspace(-1, 1, nodes, dtype=kappa.dtype, device=kappa.device)
    z = torch.sinh(x)
    scaled = z / kappa.clamp_min(torch.finfo(kappa.dtype).tiny)[..., None]
    weights = torch.exp(-scaled.square() / 2) * torch.cosh(x)
    return Quadrature(z, weights / weights.sum(-1, keepdim=True))


def average_over_points(values: Float[Tensor, "*b nodes"], rule: Quadrature) -> Float[Tensor, "*b"]:
    r"""$2\,\E[\rho'(Z)\,v(Z)]$, the mean over points of what is $v(Z)$ for label 1 and $v(-Z)$ for label 0."""
    return 2 * (rule.weights * torch.sigmoid(rule.nodes) * values).sum(-1)


def label_moments(mean: Float[Tensor, "b means"], spread: Float[Tensor, " b"]) -> LabelMoments:
    r"""The two logistic-normal integrals at $Z \sim N(m, v^2)$, to about 12 digits of 1.

    For $v \ge 1.1$ both are sums over the logistic variable U of $\rho'$:

    $$ \E[\rho'(-Z)] = \E\,\Phi\!\Bigl(-\frac{m + U}{v}\Bigr), \qquad
       \E[\rho''(Z)] = \E\,\frac1v\,\varphi\!\Bigl(\frac{m + U}{v}\Bigr), $$

    by the trapezoidal rule with step 0.55; below, the same rule over the normal variable with step 0.5. The trapezoidal
    rule is as good as exact for both: they are analytic in a strip, and vanish at its ends.
    """
    wide = spread >= _WIDE
    zero, slope = torch.empty_like(mean), torch.empty_like(mean)
    for chosen, rule in ((wide, _by_logistic), (~wide, _by_normal)):
        rows, spreads = mean[chosen].flatten(), spread[chosen, None].expand_as(mean[chosen]).flatten()
        parts = [rule(m, v) for m, v in zip(rows.split(_CHUNK), spreads.split(_CHUNK), strict=True)]
        zero[chosen], slope[chosen] = (torch.cat(part).view_as(mean[chosen]) for part in zip(*parts, strict=True))
    return LabelMoments(zero, slope)


def _by_logistic(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    u = _steps(_LOGISTIC_STEP, _LOGISTIC_END, mean)
    weights = curvature(u)
    weights = weights / weights.sum()
    scaled = (mean[:, None] + u).div_(math.sqrt(2) * spread[:, None])
    zero = torch.erfc(scaled) @ weights / 2  # twice as fast as the normal distribution function
    return zero, scaled.square_().neg_().exp_() @ weights / (spread * math.sqrt(2 * math.pi))


def _by_normal(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    x = _steps(_NORMAL_STEP, _NORMAL_END, mean)
    weights = torch.exp(-x.square() / 2)
    weights = weights / weights.sum()
    zero = (mean[:, None] + spread[:, None] * x).neg_().sigmoid_()
    return zero @ weights, (zero - zero.square()) @ weights


def _steps(step: float, end: float, like: Tensor) -> Tensor:
    count = round(end / step)
    return step * torch.arange(-count, count + 1, dtype=like.dtype, device=like.device)
