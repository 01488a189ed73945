r"""The information ladder of ridge logistic regression in the limit, for attackers who do not know the other rows.

An outsider's output at $x_0$ is $h \sim N(\alpha Z, \sigma^2)$, and a member's f solves $f = h + \gamma e$ with
$e = y - \rho'(f)$ (`theory.logistic.output_law`). Along each eigenspace of Σ the weights are as likely in any direction
with the teacher's part taken out. So the weights carry no more about the row than the outputs $v_k$ at its parts,
which are independent Gaussians of variances $\sigma_k^2$, moved by $e \gamma_k$. The log-likelihood ratio given v is

$$ L = \log(1 + \gamma \rho''(f)) + e z - \tfrac12 \kappa e^2, \qquad z = q^\top C^{-1}(v - \bar v), \quad
   \kappa = q^\top C^{-1} q . $$

One output has $\kappa = \gamma^2/\sigma^2$, weights $\kappa = 1/(\delta r^2)$ whatever the spectrum, $r^2 = \E e^2$
being that of members. With the shrinkage $a = S/(S + \lambda s)$ of an eigenvalue S, the former is
$\langle a \rangle^2/\langle a^2 \rangle$ of the latter: equal if all are shrunk alike. The gradient of the whole loss
at w = 0 is moved by half the row: two Gaussians $1/\sqrt\delta$ apart. None of this is in the papers.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.runtime import DTYPE
from leakage.theory.logistic.fixed_point import solve
from leakage.theory.logistic.output_law import OutputLaw, average_advantage, densities
from leakage.theory.logistic.problem import Setting
from leakage.theory.logistic.prox import curvature, prox
from leakage.theory.logistic.teacher import logit_rule
from leakage.theory.logistic.threshold_attacks import best_threshold, threshold_rates
from leakage.theory.ridge_evidence import Ratios
from reproduced.studies.side_by_side.ladder import Rung, rung

PHI, DELTA, KAPPA = 4.0, 0.5, 10.0
"""The chapter's ensemble: features per strong one, rows per feature, standard deviation of the teacher's logit."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_GRID = 4000  # outputs between which a ratio is interpolated


@dataclass(frozen=True, eq=False)
class Limit:
    r"""The limit at one penalty.

    Attributes:
        law: α, σ, γ and the teacher's κ.
        pulls: $\gamma_k$ of the strong and of the weak features; they sum to γ.
        variances: $\sigma_k^2$ of both.
        delta: rows per feature.
    """

    law: OutputLaw
    pulls: Float[Tensor, " 2"]
    variances: Float[Tensor, " 2"]
    delta: float

    @property
    def strength(self) -> dict[str, float]:
        """κ of the log-likelihood ratio given the prediction, and given the weights."""
        one, both = self.pulls.sum().square() / self.variances.sum(), (self.pulls.square() / self.variances).sum()
        return {"prediction": float(one), "weights": float(both)}


def limit(penalty: float) -> Limit:
    """The limit at one penalty."""
    setting = Setting.bilevel(penalty=penalty, delta=DELTA, phi=PHI, kappa=KAPPA)
    solved, (values, features, _) = solve(setting), setting.spectrum
    shrunk = values / (values + setting.penalty * solved.scale)
    variances = solved.scale.square() * solved.r_squared / DELTA * features * shrunk.square()
    return Limit(solved.law, solved.scale / DELTA * features * shrunk, variances, DELTA)


def sided(points: int) -> Float[Tensor, " points"]:
    """Equally likely values of the teacher's logit towards the label, Z or -Z; at a fresh point its density is 2ρ'φ."""
    rule = logit_rule(torch.tensor(KAPPA, dtype=DTYPE), nodes=4001)
    below = (2 * rule.weights * torch.sigmoid(rule.nodes)).cumsum(0)
    shares = (torch.arange(points, dtype=DTYPE) + 0.5) / points
    return rule.nodes[torch.searchsorted(below, shares).clamp(max=len(below) - 1)]


def ratios(found: Limit, teacher: Float[Tensor, " points"], strength: float, *, nodes: int) -> Ratios:
    """L of equally likely outcomes at points with label 1."""
    law, (first, second) = found.law, _outcomes(teacher, nodes)
    fresh = law.alpha * teacher[:, None] + law.sigma * first
    pull = law.gamma / law.sigma
    z = pull * first + (strength - pull.square()).clamp_min(0).sqrt() * second

    def ratio(output: Tensor, sign: int) -> Tensor:
        left = torch.sigmoid(-output)
        return torch.log1p(law.gamma * curvature(output)) + left * z + sign * strength * left.square() / 2

    return Ratios(ratio(fresh, -1), ratio(prox(fresh, law.gamma, torch.ones_like(fresh)), 1))


def exact(penalty: float, *, points: int = 24, nodes: int = 48) -> dict[str, Rung]:
    """Every rung with a known law by name, from the least evidence to the most."""
    found = limit(penalty)
    kinds = {
        "label": lambda teacher, nodes: _label(found, teacher, nodes),
        "loss": lambda teacher, nodes: _loss(found, teacher, nodes),
        **{
            name: lambda teacher, nodes, strength=strength: ratios(found, teacher, strength, nodes=nodes)
            for name, strength in found.strength.items()
        },
        "first gradient": lambda teacher, nodes: _gradient(found, teacher, nodes),
    }
    return {
        name: rung(kind(sided(points), nodes), kind(sided(points // 2), nodes // 2)) for name, kind in kinds.items()
    }


def _label(found: Limit, teacher: Tensor, nodes: int) -> Ratios:
    """L given whether the prediction is right."""
    law = found.law
    # A member's output is above 0 if its output without the point is above -γ/2.
    right = [torch.special.ndtr((law.alpha * teacher + shift) / law.sigma) for shift in (0.0, law.gamma / 2)]
    yes, no = (
        torch.log(seen.clamp_min(1e-300)) - torch.log(out.clamp_min(1e-300))
        for out, seen in (right, [1 - r for r in right])
    )
    fresh = law.alpha * teacher[:, None] + law.sigma * _outcomes(teacher, nodes)[0]
    return Ratios(*(torch.where(fresh + shift > 0, yes[:, None], no[:, None]) for shift in (0.0, law.gamma / 2)))


def _loss(found: Limit, teacher: Tensor, nodes: int) -> Ratios:
    """L given the loss without x: the ratio of the two mixtures over points, interpolated between outputs of a grid."""
    law = found.law
    fresh = law.alpha * teacher[:, None] + law.sigma * _outcomes(teacher, nodes)[0]
    seen = prox(fresh, law.gamma, torch.ones_like(fresh))
    grid = torch.linspace(float(fresh.min()), float(seen.max()), _GRID, dtype=fresh.dtype)
    rule = logit_rule(law.kappa)
    weights = (rule.weights * torch.sigmoid(rule.nodes))[:, None]
    both = densities(law, grid.expand(len(weights), -1), teacher=rule.nodes, label=torch.ones_like(rule.nodes))
    ratio = ((weights * both.member).sum(0) / (weights * both.outsider).sum(0)).clamp_min(1e-300).log()

    def at(output: Tensor) -> Tensor:
        place = (output - grid[0]) / (grid[1] - grid[0])
        left = place.long().clamp(0, _GRID - 2)
        return torch.lerp(ratio[left], ratio[left + 1], place - left)

    return Ratios(at(fresh), at(seen))


def _gradient(found: Limit, teacher: Tensor, nodes: int) -> Ratios:
    away, first = found.delta**-0.5, _outcomes(teacher, nodes)[0].expand(len(teacher), -1)
    return Ratios(away * first - away**2 / 2, away * first + away**2 / 2)


def _outcomes(like: Tensor, nodes: int) -> Float[Tensor, "2 outcomes"]:
    """`nodes`² pairs of normal numbers on a lattice that stand for independent draws; no two pairs share a number."""
    count = torch.arange(nodes**2, dtype=like.dtype) + 0.5
    return torch.special.ndtri(torch.stack([count / nodes**2, (count * _GOLDEN).frac()]))


class Advantages(NamedTuple):
    """The best advantages on ridge logistic regression in the limit, one for each setting.

    Attributes:
        label: given only whether the prediction is right.
        loss: with one threshold on the loss for all points.
        own: with a threshold for each point, the best of all attacks on a loss or a prediction.
    """

    label: Float[Tensor, "*b"]
    loss: Float[Tensor, "*b"]
    own: Float[Tensor, "*b"]


def advantages(setting: Setting) -> Advantages:
    """The best advantages in binary classification, where loss and label determine the prediction."""
    law = solve(setting).law
    # A prediction is right where the loss is below that of a coin.
    coin = torch.full_like(law.alpha, math.log(2))
    return Advantages(threshold_rates(law, coin).advantage, best_threshold(law).advantage, average_advantage(law))
