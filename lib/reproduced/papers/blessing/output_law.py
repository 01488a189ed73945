r"""The law of a ridge logistic regression's output at a point, with and without training on it, and the best attacks.

A point has the teacher logit $Z \sim N(0, \kappa^2)$ and a label with $P(y = 1 \mid Z) = \rho'(Z)$, the sigmoid. A
model trained without it gives it the output $h \sim N(\alpha Z, \sigma^2)$, whatever the label. A model trained with it
gives $z = \operatorname{Prox}_{\gamma \ell(y, \cdot)}(h)$. `limit.solve` computes α, σ and γ. The best attack on one
point is a loss threshold (`best_attack_on_point`). Laws are batched and broadcast, in float64. Most formulas are for
label 1; label 0 follows by $(Z, z, y) \to (-Z, -z, 1 - y)$. Nothing here is random.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.nn.functional import softplus

from reproduced.papers.blessing.proximal_operator import curvature, inverse_prox, label_sign, loss, prox

_SPAN = 8.5  # standard deviations that a quadrature covers: 2e-17 of the mass is beyond them
_LOGIT_NODES = 161  # in Z: 12 digits for κ up to 100
_EXCEEDANCE_NODES = 321  # 12 digits even if outputs separate labels sharply and the bound is far from 0
_OUTPUT_NODES = 120  # in the output: 11 digits at extreme parameters, all digits elsewhere
_WIDE = 1.1  # `label_moments` sums over the logistic variable at this spread and above, else over the normal one
# With these steps both sums have errors of 1e-12. Steps of 0.75 and 0.6 leave errors of 1e-9 at spreads near 1.
_LOGISTIC_STEP, _LOGISTIC_END = 0.55, 27.5
_NORMAL_STEP, _NORMAL_END = 0.5, 8.5
_CHUNK = 400  # integrals computed together, so that their nodes stay in the processor's cache
_HALVINGS = 60
_TAIL = 9.0  # thresholds are searched within this many standard deviations of the output
_CELLS = 64  # of the grid in each round of `best_loss_threshold`
_ROUNDS = 5  # each makes the cells of its grid 32 times smaller


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
        """The same laws with a new last dimension of size 1, for broadcasting with the points of a grid."""
        return OutputLaw(*(getattr(self, name)[..., None] for name in ("alpha", "sigma", "gamma", "kappa")))


class Densities(NamedTuple):
    """Densities of the output at one point, for models trained without the point and with it."""

    outsider: Float[Tensor, "*b points"]
    member: Float[Tensor, "*b points"]


class LossThreshold(NamedTuple):
    """The attack "member if the loss is below the threshold", and its rates; the advantage is TPR - FPR."""

    threshold: Float[Tensor, "*b"]
    tpr: Float[Tensor, "*b"]
    fpr: Float[Tensor, "*b"]
    advantage: Float[Tensor, "*b"]


class Quadrature(NamedTuple):
    """Nodes and weights, which sum to 1 along the last dimension."""

    nodes: Float[Tensor, "*b nodes"]
    weights: Float[Tensor, "*b nodes"]


class OutputQuadrature(NamedTuple):
    r"""Outsiders' outputs $h \sim N(0, q^2)$, members' outputs $\operatorname{Prox}_{\gamma\rho}(h)$, and weights."""

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
    expanded, mean, label = law.unsqueeze(), (law.alpha * teacher)[..., None], label[..., None]
    norm = expanded.sigma * math.sqrt(2 * math.pi)
    without = inverse_prox(outputs, expanded.gamma, label)  # the output of the model trained without the point
    slope = 1 + expanded.gamma * curvature(outputs)
    return Densities(
        torch.exp(-((outputs - mean) / expanded.sigma).square() / 2) / norm,
        torch.exp(-((without - mean) / expanded.sigma).square() / 2) * slope / norm,
    )


def best_attack_on_point(law: OutputLaw, *, teacher: Float[Tensor, "*#b"], label: Num[Tensor, "*#b"]) -> LossThreshold:
    r"""The loss threshold with the largest advantage on one point, for an attacker who knows Z and y, and its rates.

    For $y = 1$, with $m = \alpha Z$ and $a(z) = \gamma\rho'(-z)$, the logarithm of the likelihood ratio is

    $$ S(z) = \log(1 + \gamma\rho''(z)) + a(z)\,\frac{2(z - m) - a(z)}{2\sigma^2} . $$

    $S/a$ increases from $-\infty$ to $+\infty$, so that S has one root $z^*$. The best attack says "member" for
    outputs above the root, that is, for losses below $\log(1 + e^{-z^*})$. Then

    $$ \operatorname{Adv}(Z, 1) = \Phi\Bigl(\frac{z^* - m}\sigma\Bigr) -
       \Phi\Bigl(\frac{z^* - m - a(z^*)}\sigma\Bigr) . $$

    Bisection starts between $m - \max(9, \sigma)\,\sigma$, where S is negative, and $\operatorname{Prox}(m + 9\sigma)$,
    where it is positive.

    Source: the advantage is that of Tan et al. (2023), (7), exactly; the root is ours.
    """
    sign = label_sign(label).to(law.alpha)
    root = _likelihood_ratio_root(*torch.broadcast_tensors(sign * law.alpha * teacher, law.sigma, law.gamma))
    distance = (root - sign * law.alpha * teacher) / law.sigma
    shift = law.gamma * torch.sigmoid(-root) / law.sigma
    fpr, tpr = torch.special.ndtr(-distance), torch.special.ndtr(shift - distance)
    return LossThreshold(loss(sign * root, label), tpr, fpr, _normal_mass(distance, shift))


def _normal_mass(end: Tensor, length: Tensor) -> Tensor:
    """Φ(end) - Φ(end - length) for length ≥ 0, from the tail where both terms are small, so that no digits are lost."""
    flip = torch.where(end - length / 2 > 0, -1.0, 1.0).to(end)
    return flip * (torch.special.ndtr(flip * end) - torch.special.ndtr(flip * (end - length)))


def _likelihood_ratio_root(mean: Tensor, sigma: Tensor, gamma: Tensor) -> Tensor:
    """The root of S in `best_attack_on_point`, by bisection. An error h of the root lowers the advantage by O(h²)."""
    low = mean - sigma.clamp_min(_TAIL) * sigma
    high = prox(mean + _TAIL * sigma, gamma, torch.ones_like(mean))
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        a = gamma * torch.sigmoid(-middle)
        log_ratio = torch.log1p(gamma * curvature(middle)) + a * (2 * (middle - mean) - a) / (2 * sigma.square())
        low, high = torch.where(log_ratio < 0, middle, low), torch.where(log_ratio < 0, high, middle)
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

    For label 1 the loss is below τ if the output exceeds $c = -\log(e^\tau - 1)$. A member's output exceeds c if the
    output of the model trained without the point exceeds $c - \gamma\rho'(-c)$.
    """
    tpr, fpr = _cut_rates(law, -torch.log(torch.expm1(threshold)))
    return LossThreshold(threshold.expand_as(tpr), tpr, fpr, tpr - fpr)


def best_loss_threshold(law: OutputLaw) -> LossThreshold:
    r"""The loss threshold with the largest advantage, where all points have the same threshold.

    The search is over the output c in `loss_threshold_rates`. The first grid of c covers the outputs of members and
    outsiders; every next one covers the two cells around the best point. An error h lowers the advantage by O(h²).
    """
    one, reach = torch.ones_like(law.alpha), _TAIL * law.spread
    low, high = -reach, prox(reach, law.gamma, one)
    expanded = law.unsqueeze()
    for _ in range(_ROUNDS):
        steps = torch.linspace(0, 1, _CELLS + 1, dtype=low.dtype)
        cuts = torch.lerp(low[..., None], high[..., None], steps)
        tpr, fpr = _cut_rates(expanded, cuts)
        index = (tpr - fpr).argmax(-1, keepdim=True)
        low, high = (cuts.gather(-1, (index + i).clamp(0, _CELLS)).squeeze(-1) for i in (-1, 1))
    cut = low + (high - low) / 2
    tpr, fpr = _cut_rates(law, cut)
    return LossThreshold(softplus(-cut, threshold=40.0), tpr, fpr, tpr - fpr)


def _cut_rates(law: OutputLaw, cut: Tensor) -> tuple[Tensor, Tensor]:
    """True and false positive rates of "member if the output is above the cut", for label 1."""
    cut, one = torch.broadcast_tensors(cut, torch.ones_like(law.alpha))
    return exceedance(law, inverse_prox(cut, law.gamma, one)), exceedance(law, cut)


def exceedance(law: OutputLaw, bound: Float[Tensor, "*#b"], *, nodes: int = _EXCEEDANCE_NODES) -> Float[Tensor, "*b"]:
    r"""Probability of an output above b at a fresh point of label 1, $2\E[\rho'(Z)\Phi((\alpha Z - b)/\sigma)]$."""
    rule, expanded = logit_quadrature(law.kappa, nodes=nodes), law.unsqueeze()
    scaled = (expanded.alpha * rule.nodes - bound[..., None]) / expanded.sigma
    return average_over_points(torch.special.ndtr(scaled), rule)


def generalisation_error(law: OutputLaw) -> Float[Tensor, "*b"]:
    r"""The probability that a fresh point is misclassified, $2\E[\rho'(Z)\Phi(-\alpha Z/\sigma)]$.

    Source: Tan et al. (2023), (59); in our copy (6) lacks the factor 2.
    """
    return 1 - exceedance(law, torch.zeros_like(law.alpha))


def logit_quadrature(kappa: Float[Tensor, "*b"], *, nodes: int = _LOGIT_NODES) -> Quadrature:
    r"""Quadrature over $Z \sim N(0, \kappa^2)$: nodes $Z = \sinh x$ with equal steps of x, out to $\pm 8.5\kappa$.

    The hyperbolic sine puts as many nodes at |Z| of order 1, where labels are random, as at |Z| of order κ. So the same
    number of nodes serves $\kappa = 1$ and $\kappa = 100$, where $\rho'(Z)$ is nearly a step. For $\kappa = 0$ every
    node is 0.
    """
    end = torch.asinh(_SPAN * kappa)[..., None]
    x = end * torch.linspace(-1, 1, nodes, dtype=kappa.dtype)
    z = torch.sinh(x)
    scaled = z / kappa.clamp_min(torch.finfo(kappa.dtype).tiny)[..., None]
    weights = torch.exp(-scaled.square() / 2) * torch.cosh(x)
    return Quadrature(z, weights / weights.sum(-1, keepdim=True))


def average_over_points(values: Float[Tensor, "*b nodes"], rule: Quadrature) -> Float[Tensor, "*b"]:
    r"""$2\,\E[\rho'(Z)\,v(Z)]$, the mean over points of a value that is $v(Z)$ for label 1 and $v(-Z)$ for label 0."""
    return 2 * (rule.weights * torch.sigmoid(rule.nodes) * values).sum(-1)


def output_quadrature(law: OutputLaw, *, nodes: int = _OUTPUT_NODES) -> OutputQuadrature:
    r"""Quadrature over an outsider's output h and a member's $w = \operatorname{Prox}_{\gamma\rho}(h)$, for label 0.

    $\E F(w) = \int F(w)\,\varphi(g(w)/q)\,g'(w)/q\,dw$ with $g(w) = w + \gamma\rho'(w)$, by the trapezoidal rule in x
    with $w = w_0 + \sinh x$. As w is the variable, the nodes need no proximal operator. At the centre $w_0$ the slope
    of g changes and the density of w is narrow; the nodes are densest there, so that a hundred are enough for γ up to
    $10^{13}$.
    """
    spread = law.spread
    centre = -torch.log1p(law.gamma / (1 + spread))
    zero = torch.zeros_like(spread)
    low, high = (torch.asinh(prox(sign * _SPAN * spread, law.gamma, zero) - centre)[..., None] for sign in (-1, 1))
    x = torch.lerp(low, high, torch.linspace(0, 1, nodes, dtype=spread.dtype))
    member, gamma = centre[..., None] + torch.sinh(x), law.gamma[..., None]
    outsider = member + gamma * torch.sigmoid(member)
    density = torch.exp(-(outsider / spread[..., None]).square() / 2)
    weights = density * (1 + gamma * curvature(member)) * torch.cosh(x)
    return OutputQuadrature(outsider, member, weights / weights.sum(-1, keepdim=True))


def label_given_output(law: OutputLaw, outputs: Float[Tensor, "*b nodes"]) -> LabelMoments:
    r"""`label_moments` given the output h: Z then has mean $\kappa^2\alpha h/q^2$, spread $\kappa\sigma/q$."""
    slope = law.kappa.square() * law.alpha / law.spread.square()
    mean = (slope[..., None] * outputs).reshape(-1, outputs.shape[-1])
    moments = label_moments(mean, (law.kappa * law.sigma / law.spread).flatten())
    return LabelMoments(*(moment.reshape(outputs.shape) for moment in moments))


def label_moments(mean: Float[Tensor, "b means"], spread: Float[Tensor, " b"]) -> LabelMoments:
    r"""$\E[\rho'(-Z)]$ and $\E[\rho''(Z)]$ for $Z \sim N(m, v^2)$, with an error of about $10^{-12}$.

    For $v \ge 1.1$ both are sums over the logistic variable U with distribution function $\rho'$:

    $$ \E[\rho'(-Z)] = \E\,\Phi\!\Bigl(-\frac{m + U}{v}\Bigr), \qquad
       \E[\rho''(Z)] = \E\,\frac1v\,\varphi\!\Bigl(\frac{m + U}{v}\Bigr), $$

    by the trapezoidal rule with step 0.55. For smaller v the same rule sums over the normal variable with step 0.5. The
    integrands are analytic in a strip and vanish at its ends, so that the rule converges exponentially.
    """
    wide = spread >= _WIDE
    label_zero, slope = torch.empty_like(mean), torch.empty_like(mean)
    for chosen, rule in ((wide, _sum_over_logistic), (~wide, _sum_over_normal)):
        rows, spreads = mean[chosen].flatten(), spread[chosen, None].expand_as(mean[chosen]).flatten()
        parts = [rule(m, v) for m, v in zip(rows.split(_CHUNK), spreads.split(_CHUNK), strict=True)]
        label_zero[chosen], slope[chosen] = (torch.cat(part).view_as(mean[chosen]) for part in zip(*parts, strict=True))
    return LabelMoments(label_zero, slope)


def _sum_over_logistic(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    u = _steps(_LOGISTIC_STEP, _LOGISTIC_END, mean)
    weights = curvature(u)
    weights = weights / weights.sum()
    scaled = (mean[:, None] + u) / (math.sqrt(2) * spread[:, None])
    label_zero = torch.erfc(scaled) @ weights / 2  # erfc is twice as fast as the normal distribution function
    return label_zero, torch.exp(-scaled.square()) @ weights / (spread * math.sqrt(2 * math.pi))


def _sum_over_normal(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    x = _steps(_NORMAL_STEP, _NORMAL_END, mean)
    weights = torch.exp(-x.square() / 2)
    weights = weights / weights.sum()
    label_zero = torch.sigmoid(-mean[:, None] - spread[:, None] * x)
    return label_zero @ weights, (label_zero - label_zero.square()) @ weights


def _steps(step: float, end: float, like: Tensor) -> Tensor:
    """Multiples of `step` from -`end` to `end`, in the dtype of `like`."""
    count = round(end / step)
    return step * torch.arange(-count, count + 1, dtype=like.dtype)
