r"""Outputs of ridge logistic regression at a point, with and without training on it, and the best attacks on them.

An outsider with teacher logit $Z \sim N(0, \kappa^2)$ and label $P(y = 1 \mid Z) = \rho'(Z)$ gets the output
$h \sim N(\alpha Z, \sigma^2)$ for both labels. A member with label y gets
$\operatorname{Prox}_{\gamma \ell(y, \cdot)}(h)$. `limit.solve` has α, σ and γ. The best attack on one point is one loss
threshold (`best_attack_on_point`). Laws are batched and broadcast, in float64. Label 0 follows from label 1 by
$(Z, z, 0) \to (-Z, -z, 1)$. Nothing here is random.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.nn.functional import softplus

from leakage.theory.logistic.proximal_operator import curvature, inverse_prox, label_sign, loss, prox

_SPAN = 8.5  # standard deviations that a quadrature covers: beyond them lies 2e-17 of the mass
_LOGIT_NODES = 161  # in Z: 12 digits for κ up to 100
_EXCEEDANCE_NODES = 321  # 12 digits where the output separates labels sharply, far from the teacher's boundary
_OUTPUT_NODES = 120  # in the output: 11 digits in the corners of the parameters, all digits elsewhere
_WIDE = 1.1  # spread from which the logistic variable is the one to sum over
_LOGISTIC_STEP, _LOGISTIC_END = 0.55, 27.5  # both sums are good to 1e-12, which steps of 0.75 and 0.6 are not:
_NORMAL_STEP, _NORMAL_END = 0.5, 8.5  # they leave 1e-9 at spreads near 1
_CHUNK = 400  # integrals done together, so that their nodes stay in the processor's cache
_HALVINGS = 60
_TAIL = 9.0  # deviations of the output within which thresholds are searched
_CELLS = 64  # of the grid of each round of `best_loss_threshold`
_ROUNDS = 5


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
    """Densities of the output at one point, of models trained without it and with it."""

    outsider: Float[Tensor, "*b points"]
    member: Float[Tensor, "*b points"]


class LossThreshold(NamedTuple):
    """The attack "member if the loss is below the threshold", and its rates."""

    threshold: Float[Tensor, "*b"]
    tpr: Float[Tensor, "*b"]
    fpr: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


class Quadrature(NamedTuple):
    """Nodes and weights, which sum to 1 along the last dimension."""

    nodes: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


class OutputQuadrature(NamedTuple):
    r"""Nodes of $h \sim N(0, q^2)$, the member's outputs $\operatorname{Prox}_{\gamma\rho}(h)$ there, and weights."""

    outsider: Float[Tensor, "*b nodes"]
    member: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


class LabelMoments(NamedTuple):
    r"""$\E[\rho'(-Z)]$, the probability of label 0, and $\E[\rho''(Z)]$, for Gaussian Z."""

    label_zero: Float[Tensor, "*b means"]
    curvature: Float[Tensor, "*b means"]


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
    slope = 1 + wide.gamma * curvature(outputs)
    return Densities(
        torch.exp(-((outputs - mean) / wide.sigma).square() / 2) / norm,
        torch.exp(-((before - mean) / wide.sigma).square() / 2) * slope / norm,
    )


def best_attack_on_point(law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]) -> LossThreshold:
    r"""The attack of largest advantage on one point that the attacker knows: its loss threshold and its rates.

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
    root = _likelihood_ratio_root(*torch.broadcast_tensors(sign * law.alpha * teacher, law.sigma, law.gamma))
    distance = (root - sign * law.alpha * teacher) / law.sigma
    pull = law.gamma * torch.sigmoid(-root) / law.sigma
    fpr, tpr = torch.special.ndtr(-distance), torch.special.ndtr(pull - distance)
    return LossThreshold(loss(sign * root, label), tpr, fpr, _normal_mass(distance, pull))


def _normal_mass(end: Tensor, length: Tensor) -> Tensor:
    """Φ(d) - Φ(d - p) for p ≥ 0, from the tail in which both are small."""
    flip = torch.where(end - length / 2 > 0, -1.0, 1.0).to(end)
    return flip * (torch.special.ndtr(flip * end) - torch.special.ndtr(flip * (end - length)))


def _likelihood_ratio_root(mean: Tensor, sigma: Tensor, gamma: Tensor) -> Tensor:
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


def loss_threshold_rates(law: OutputLaw, threshold: Float[Tensor, "*#b"]) -> LossThreshold:
    r"""Rates of "member if the loss is below τ" with one threshold for all points, averaged over points and labels.

    For label 1 the loss is below τ where the output exceeds $c = -\log(e^\tau - 1)$, and a member's output does where
    the output without training exceeds $c - \gamma\rho'(-c)$.
    """
    tpr, fpr = _cut_rates(law, -torch.log(torch.expm1(threshold)))
    return LossThreshold(threshold.expand_as(tpr), tpr, fpr, tpr - fpr)


def best_loss_threshold(law: OutputLaw) -> LossThreshold:
    r"""The one loss threshold for all points with the largest advantage, by grids of c that close in on it.

    c is that of `loss_threshold_rates`; the grids begin with all outputs of members and outsiders. An error of the
    threshold costs only its square.
    """
    one, reach = torch.ones_like(law.alpha), _TAIL * law.spread
    low, high = -reach, prox(reach, law.gamma, one)
    wide = law.unsqueeze()
    for _ in range(_ROUNDS):
        steps = torch.linspace(0, 1, _CELLS + 1, dtype=low.dtype, device=low.device)
        cuts = torch.lerp(low[..., None], high[..., None], steps)
        tpr, fpr = _cut_rates(wide, cuts)
        index = (tpr - fpr).argmax(-1, keepdim=True)
        low, high = (cuts.gather(-1, (index + i).clamp(0, _CELLS)).squeeze(-1) for i in (-1, 1))
    cut = low + (high - low) / 2
    tpr, fpr = _cut_rates(law, cut)
    return LossThreshold(softplus(-cut, threshold=40.0), tpr, fpr, tpr - fpr)


def _cut_rates(law: OutputLaw, cut: Tensor) -> tuple[Tensor, Tensor]:
    """True and false positive rate of "member if the output is above c", for label 1."""
    cut, one = torch.broadcast_tensors(cut, torch.ones_like(law.alpha))
    return exceedance(law, inverse_prox(cut, law.gamma, one)), exceedance(law, cut)


def exceedance(law: OutputLaw, bound: Float[Tensor, "*#b"], *, nodes: int = _EXCEEDANCE_NODES) -> Float[Tensor, "*b"]:
    r"""Probability of an output above b at a fresh point of label 1, $2\E[\rho'(Z)\Phi((\alpha Z - b)/\sigma)]$."""
    rule, wide = logit_quadrature(law.kappa, nodes=nodes), law.unsqueeze()
    return average_over_points(torch.special.ndtr((wide.alpha * rule.nodes - bound[..., None]) / wide.sigma), rule)


def generalisation_error(law: OutputLaw) -> Float[Tensor, "*b"]:
    r"""Misclassification of fresh points, $2\E[\rho'(Z)\Phi(-\alpha Z/\sigma)]$.

    Source: Tan et al. (2023), (59); (6) lacks the factor 2 in our copy.
    """
    return 1 - exceedance(law, torch.zeros_like(law.alpha))


def logit_quadrature(kappa: Float[Tensor, "*b"], *, nodes: int = _LOGIT_NODES) -> Quadrature:
    r"""Nodes $Z = \sinh x$ with equal steps of x out to $\pm 8.5\kappa$, weights of $N(0, \kappa^2)$.

    The stretch puts as many nodes where Z is of order 1, where labels are random, as where it is of order κ: so
    $\kappa = 100$, where $\rho'(Z)$ is a step, costs no more than $\kappa = 1$. For $\kappa = 0$ every node is 0.
    """
    end = torch.asinh(_SPAN * kappa)[..., None]
    x = end * torch.linspace(-1, 1, nodes, dtype=kappa.dtype, device=kappa.device)
    z = torch.sinh(x)
    scaled = z / kappa.clamp_min(torch.finfo(kappa.dtype).tiny)[..., None]
    weights = torch.exp(-scaled.square() / 2) * torch.cosh(x)
    return Quadrature(z, weights / weights.sum(-1, keepdim=True))


def average_over_points(values: Float[Tensor, "*b nodes"], rule: Quadrature) -> Float[Tensor, "*b"]:
    r"""$2\,\E[\rho'(Z)\,v(Z)]$, the mean over points of a value that is $v(Z)$ for label 1 and $v(-Z)$ for label 0."""
    return 2 * (rule.weights * torch.sigmoid(rule.nodes) * values).sum(-1)


def output_quadrature(law: OutputLaw, *, nodes: int = _OUTPUT_NODES) -> OutputQuadrature:
    r"""Quadrature over outsiders' outputs h and members' $w = \operatorname{Prox}_{\gamma\rho}(h)$ of label 0.

    $\E F(w) = \int F(w)\,\varphi(g(w)/q)\,g'(w)/q\,dw$ with $g(w) = w + \gamma\rho'(w)$, by the trapezoidal rule in x
    where $w = w_0 + \sinh x$: no proximal operator is needed at a node. The centre $w_0$ is where g bends from slope 1
    to γ and the density of w is narrow, so that a hundred nodes are enough for γ up to $10^{13}$.
    """
    spread = law.spread
    centre = -torch.log1p(law.gamma / (1 + spread))
    zero = torch.zeros_like(spread)
    low, high = (torch.asinh(prox(sign * _SPAN * spread, law.gamma, zero) - centre)[..., None] for sign in (-1, 1))
    x = torch.lerp(low, high, torch.linspace(0, 1, nodes, dtype=spread.dtype, device=spread.device))
    member, gamma = centre[..., None] + torch.sinh(x), law.gamma[..., None]
    outsider = member + gamma * torch.sigmoid(member)
    density = torch.exp(-(outsider / spread[..., None]).square() / 2)
    weights = density * (1 + gamma * curvature(member)) * torch.cosh(x)
    return OutputQuadrature(outsider, member, weights / weights.sum(-1, keepdim=True))


def label_given_output(law: OutputLaw, outputs: Float[Tensor, "*b nodes"]) -> LabelMoments:
    r"""$\E[\rho'(-Z) \mid h]$, $\E[\rho''(Z) \mid h]$; Z has mean $\kappa^2\alpha h/q^2$, spread $\kappa\sigma/q$."""
    slope = law.kappa.square() * law.alpha / law.spread.square()
    mean = (slope[..., None] * outputs).reshape(-1, outputs.shape[-1])
    moments = label_moments(mean, (law.kappa * law.sigma / law.spread).flatten())
    return LabelMoments(*(moment.reshape(outputs.shape) for moment in moments))


def label_moments(mean: Float[Tensor, "b means"], spread: Float[Tensor, " b"]) -> LabelMoments:
    r"""The two logistic-normal integrals at $Z \sim N(m, v^2)$, to about 12 digits of 1.

    For $v \ge 1.1$ both are sums over the logistic variable U with distribution function $\rho'$:

    $$ \E[\rho'(-Z)] = \E\,\Phi\!\Bigl(-\frac{m + U}{v}\Bigr), \qquad
       \E[\rho''(Z)] = \E\,\frac1v\,\varphi\!\Bigl(\frac{m + U}{v}\Bigr), $$

    by the trapezoidal rule with step 0.55; below, the same rule over the normal variable with step 0.5. The integrands
    are analytic in a strip and vanish at its ends, so that the rule converges exponentially.
    """
    wide = spread >= _WIDE
    zero, slope = torch.empty_like(mean), torch.empty_like(mean)
    for chosen, rule in ((wide, _sum_over_logistic), (~wide, _sum_over_normal)):
        rows, spreads = mean[chosen].flatten(), spread[chosen, None].expand_as(mean[chosen]).flatten()
        parts = [rule(m, v) for m, v in zip(rows.split(_CHUNK), spreads.split(_CHUNK), strict=True)]
        zero[chosen], slope[chosen] = (torch.cat(part).view_as(mean[chosen]) for part in zip(*parts, strict=True))
    return LabelMoments(zero, slope)


def _sum_over_logistic(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    u = _steps(_LOGISTIC_STEP, _LOGISTIC_END, mean)
    weights = curvature(u)
    weights = weights / weights.sum()
    scaled = (mean[:, None] + u) / (math.sqrt(2) * spread[:, None])
    zero = torch.erfc(scaled) @ weights / 2  # twice as fast as the normal distribution function
    return zero, torch.exp(-scaled.square()) @ weights / (spread * math.sqrt(2 * math.pi))


def _sum_over_normal(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    x = _steps(_NORMAL_STEP, _NORMAL_END, mean)
    weights = torch.exp(-x.square() / 2)
    weights = weights / weights.sum()
    zero = torch.sigmoid(-mean[:, None] - spread[:, None] * x)
    return zero @ weights, (zero - zero.square()) @ weights


def _steps(step: float, end: float, like: Tensor) -> Tensor:
    count = round(end / step)
    return step * torch.arange(-count, count + 1, dtype=like.dtype, device=like.device)
