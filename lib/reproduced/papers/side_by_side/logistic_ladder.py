r"""The information ladder of ridge logistic regression in the limit, for attackers who do not know the other rows.

An outsider's output at $x_0$ is $h \sim N(\alpha Z, \sigma^2)$, and a member's f solves $f = h + \gamma e$ with
$e = y - \rho'(f)$ (`blessing.output_law`). Along each eigenspace of Σ the weights are as likely in any direction
with the teacher's part taken out. So the weights carry no more about the row than the outputs $v_k$ at its parts,
which are independent Gaussians of variances $\sigma_k^2$, moved by $e \gamma_k$. The log-likelihood ratio given v is

$$ L = \log(1 + \gamma \rho''(f)) + e z - \tfrac12 \kappa e^2, \qquad z = q^\top C^{-1}(v - \bar v), \quad
   \kappa = q^\top C^{-1} q . $$

One output has $\kappa = \gamma^2/\sigma^2$, weights $\kappa = 1/(\delta r^2)$ whatever the spectrum, $r^2 = \E e^2$
being that of members. With the shrinkage $a = S/(S + \lambda s)$ of an eigenvalue S, the former is
$\langle a \rangle^2/\langle a^2 \rangle$ of the latter: equal if all are shrunk alike. The gradient of the whole loss
at w = 0 is moved by half the row: two Gaussians $1/\sqrt\delta$ apart. None of this is in the papers. Regressions are
also trained, on rows of the two-level ensemble, to check the laws and to run attacks that know no law.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.draws import gaussian
from leakage.metrics.roc import KsTest, ks_test
from leakage.precision import DTYPE
from reproduced.papers.blessing.limit import Setting, solve
from reproduced.papers.blessing.logistic_regression import Fit, fit, predict_with_point, train_with_point
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    average_advantage,
    best_loss_threshold,
    densities,
    logit_quadrature,
    loss_threshold_rates,
)
from reproduced.papers.blessing.proximal_operator import curvature, loss, prox
from reproduced.papers.side_by_side import ridge_ladder
from reproduced.papers.side_by_side.ridge_likelihood_ratios import LikelihoodRatios
from reproduced.runtime import Run, move, stream

PHI, DELTA, KAPPA = 4.0, 0.5, 10.0
"""The chapter's ensemble: features per strong one, rows per feature, standard deviation of the teacher's logit."""
RUNG_OF_ATTACK = ridge_ladder.RUNG_OF_ATTACK | {"sample threshold": "prediction"}
"""The rung that bounds each measured attack; with the point and its label known, the loss tells the prediction."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_GRID = 4000  # outputs between which a ratio is interpolated


@dataclass(frozen=True, eq=False)
class Limit:
    r"""The laws of ridge logistic regression at one penalty, for infinitely many rows and features.

    Attributes:
        law: α, σ, γ and the teacher's κ.
        gamma_parts: $\gamma_k$ of the strong and of the weak features; they sum to γ.
        variances: $\sigma_k^2$ of both.
    """

    law: OutputLaw
    gamma_parts: Float[Tensor, " 2"]
    variances: Float[Tensor, " 2"]

    @property
    def evidence_strength(self) -> dict[str, float]:
        """κ of the log-likelihood ratio given the prediction, and given the weights."""
        prediction = self.gamma_parts.sum().square() / self.variances.sum()
        weights = (self.gamma_parts.square() / self.variances).sum()
        return {"prediction": float(prediction), "weights": float(weights)}


class Advantages(NamedTuple):
    """The best advantages on ridge logistic regression in the limit, one for each setting.

    Attributes:
        label: given only whether the prediction is right.
        loss: with one threshold on the loss for all points.
        per_point_threshold: with a threshold for each point, the best of all attacks on a loss or a prediction.
    """

    label: Float[Tensor, "*b"]
    loss: Float[Tensor, "*b"]
    per_point_threshold: Float[Tensor, "*b"]


class _Sample(NamedTuple):
    """Rows among the strong features, the teacher's direction first, and among the weak ones; lengths are about 1."""

    parts: tuple[Float[Tensor, "*b n d"], Float[Tensor, "*b n w"]]
    teacher: Float[Tensor, "*b n"]
    labels: Float[Tensor, "*b n"]


def solve_limit(penalty: float) -> Limit:
    """Solve for the limit of ridge logistic regression at one penalty."""
    setting = Setting.bilevel(penalty=penalty, delta=DELTA, phi=PHI, kappa=KAPPA)
    solved, (values, features, _) = solve(setting), setting.spectrum
    shrunk = values / (values + setting.penalty * solved.scale)
    variances = solved.scale.square() * solved.r_squared / DELTA * features * shrunk.square()
    return Limit(solved.law, solved.scale / DELTA * features * shrunk, variances)


def teacher_quantiles(points: int) -> Float[Tensor, " points"]:
    """Equally likely values of the teacher's logit towards the label, Z or -Z; at a fresh point its density is 2ρ'φ."""
    rule = logit_quadrature(torch.tensor(KAPPA, dtype=DTYPE), nodes=4001)
    below = (2 * rule.weights * torch.sigmoid(rule.nodes)).cumsum(0)
    shares = (torch.arange(points, dtype=DTYPE) + 0.5) / points
    return rule.nodes[torch.searchsorted(below, shares).clamp(max=len(below) - 1)]


def ratios(limit: Limit, teacher: Float[Tensor, " points"], strength: float, *, nodes: int) -> LikelihoodRatios:
    """The log-likelihood ratio L of equally likely outcomes, at points with label 1."""
    law, (first, second) = limit.law, _outcomes(teacher, nodes)
    fresh = law.alpha * teacher[:, None] + law.sigma * first
    pull = law.gamma / law.sigma
    z = pull * first + (strength - pull.square()).clamp_min(0).sqrt() * second

    def ratio(output: Tensor, sign: int) -> Tensor:
        left = torch.sigmoid(-output)
        return torch.log1p(law.gamma * curvature(output)) + left * z + sign * strength * left.square() / 2

    return LikelihoodRatios(ratio(fresh, -1), ratio(prox(fresh, law.gamma, torch.ones_like(fresh)), 1))


def exact_rungs(penalty: float, *, points: int = 24, nodes: int = 48) -> dict[str, ridge_ladder.Rung]:
    """Every rung with a known law by name, from the least evidence to the most."""
    limit = solve_limit(penalty)
    kinds = {
        "label": partial(_label_ratios, limit),
        "loss": partial(_loss_ratios, limit),
        **{name: partial(ratios, limit, strength=strength) for name, strength in limit.evidence_strength.items()},
        "first gradient": _gradient_ratios,
    }
    fine, coarse = teacher_quantiles(points), teacher_quantiles(points // 2)
    return {
        name: ridge_ladder.evaluate_rung(of(fine, nodes=nodes), of(coarse, nodes=nodes // 2))
        for name, of in kinds.items()
    }


def advantages(setting: Setting) -> Advantages:
    """The best advantages in binary classification, where loss and label determine the prediction."""
    law = solve(setting).law
    # A prediction is right where the loss is below that of a coin.
    coin = torch.full_like(law.alpha, math.log(2))
    return Advantages(
        loss_threshold_rates(law, coin).advantage, best_loss_threshold(law).advantage, average_advantage(law)
    )


def compare_with_law(
    penalty: float, *, points: int, trainings: int, n: int, seed: int, nodes: int = 96
) -> dict[str, list[KsTest]]:
    r"""Distances of trained regressions from the limit's law of L, for each point without it, then with it.

    The points have length 1 among the strong features and among the weak ones, the typical lengths, so that the limit's
    γ is theirs. At n rows the limit is off by about 1/n of a squared standard deviation.
    """
    draws, limit = stream(seed, "logistic ladder/agreement"), solve_limit(penalty)
    asked = _draw_sample((points,), n, draws)
    lengths = [1 - asked.parts[0][:, 0].square(), torch.ones(points, dtype=DTYPE)]  # the teacher's direction stays
    for part, wanted in zip((asked.parts[0][:, 1:], asked.parts[1]), lengths, strict=True):
        part *= (wanted.clamp_min(0).sqrt() / part.norm(dim=-1))[:, None]
    sides = (2 * asked.labels - 1)[:, None]
    most = max(1, 2**20 // n**2)  # regressions at once
    batches = [min(most, trainings - begin) for begin in range(0, trainings, most)]
    seen = [_train_parts(asked, penalty, many, n, draws) for many in batches]
    tests: dict[str, list[KsTest]] = {name: [] for name in limit.evidence_strength}
    for place, side in enumerate(sides):
        for inside in (0, 1):
            parts = side * torch.cat([one[inside][:, place] for one in seen])
            teacher = side * asked.teacher[place]
            for name in tests:
                law = ratios(limit, teacher, limit.evidence_strength[name], nodes=nodes)
                trained = _ratio_of_outputs(limit, parts, teacher, summed=name == "prediction")
                tests[name].append(ks_test(trained, law[inside][0], level=ridge_ladder.LEVEL))
    return tests


def measure_attacks(
    penalty: float, *, n: int, points: int, models: int, ensembles: int, run: Run
) -> dict[str, ridge_ladder.AttackArea]:
    """AUCs of attacks that learn from `models` - 1 shadow models of n rows, over ensembles with points of their own."""
    device, areas = run.device_for("logistic regression", models * n**3), []
    for number in range(ensembles):
        draws = run.stream(f"logistic ladder/ensemble/{number}")
        asked = move(_draw_sample((points,), n, draws), device)
        model, _, cross = _train(asked, penalty, models, n, draws)
        squares = torch.stack([part.square().sum(-1) for part in asked.parts]).sum(0)
        seen, labels = move((predict_with_point(model, cross.sum(-1), squares, asked.labels), asked.labels), "cpu")
        member = torch.rand(models, points, dtype=torch.float32, generator=draws) < 0.5
        outputs = (2 * labels - 1) * torch.where(member, seen.outputs, seen.without)
        losses = loss(outputs, torch.ones_like(outputs))
        areas.append(ridge_ladder.attack_areas(outputs, losses, outputs, member))
    return ridge_ladder.average_areas(areas, RUNG_OF_ATTACK)


def _label_ratios(limit: Limit, teacher: Tensor, *, nodes: int) -> LikelihoodRatios:
    """L given whether the prediction is right."""
    law = limit.law
    # A member's output is above 0 if its output without the point is above -γ/2.
    right = [torch.special.ndtr((law.alpha * teacher + shift) / law.sigma) for shift in (0.0, law.gamma / 2)]
    yes, no = (
        torch.log(seen.clamp_min(1e-300)) - torch.log(out.clamp_min(1e-300))
        for out, seen in (right, [1 - r for r in right])
    )
    fresh = law.alpha * teacher[:, None] + law.sigma * _outcomes(teacher, nodes)[0]
    return LikelihoodRatios(
        *(torch.where(fresh + shift > 0, yes[:, None], no[:, None]) for shift in (0.0, law.gamma / 2))
    )


def _loss_ratios(limit: Limit, teacher: Tensor, *, nodes: int) -> LikelihoodRatios:
    """L given the loss without x: the ratio of the two mixtures over points, interpolated between outputs of a grid."""
    law = limit.law
    fresh = law.alpha * teacher[:, None] + law.sigma * _outcomes(teacher, nodes)[0]
    seen = prox(fresh, law.gamma, torch.ones_like(fresh))
    grid = torch.linspace(float(fresh.min()), float(seen.max()), _GRID, dtype=fresh.dtype)
    rule = logit_quadrature(law.kappa)
    weights = (rule.weights * torch.sigmoid(rule.nodes))[:, None]
    both = densities(law, grid.expand(len(weights), -1), teacher=rule.nodes, label=torch.ones_like(rule.nodes))
    ratio = ((weights * both.member).sum(0) / (weights * both.outsider).sum(0)).clamp_min(1e-300).log()

    def at(output: Tensor) -> Tensor:
        place = (output - grid[0]) / (grid[1] - grid[0])
        left = place.long().clamp(0, _GRID - 2)
        return torch.lerp(ratio[left], ratio[left + 1], place - left)

    return LikelihoodRatios(at(fresh), at(seen))


def _gradient_ratios(teacher: Tensor, *, nodes: int) -> LikelihoodRatios:
    away, first = DELTA**-0.5, _outcomes(teacher, nodes)[0].expand(len(teacher), -1)
    return LikelihoodRatios(away * first - away**2 / 2, away * first + away**2 / 2)


def _outcomes(like: Tensor, nodes: int) -> Float[Tensor, "2 outcomes"]:
    """`nodes`² pairs of normal numbers on a lattice that stand for independent draws; no two pairs share a number."""
    count = torch.arange(nodes**2, dtype=like.dtype) + 0.5
    return torch.special.ndtri(torch.stack([count / nodes**2, (count * _GOLDEN).frac()]))


def _draw_sample(shape: tuple[int, ...], n: int, generator: torch.Generator) -> _Sample:
    """Rows of the ensemble in which a training set has n rows."""
    p = round(n / DELTA)
    d = round(p / PHI)
    strong, weak = (gaussian((*shape, count), generator=generator) / count**0.5 for count in (d, p - d))
    teacher = KAPPA * d**0.5 * strong[..., 0]
    drawn = torch.rand(teacher.shape, generator=generator, dtype=DTYPE)
    return _Sample((strong, weak), teacher, (drawn < torch.sigmoid(teacher)).to(DTYPE))


def _train(
    points: _Sample, penalty: float, trials: int, n: int, generator: torch.Generator
) -> tuple[Fit, Float[Tensor, "T n"], Float[Tensor, "T n k 2"]]:
    """Models, labels, and inner products of rows with the points, for both kinds of features."""
    data = move(_draw_sample((trials, n), n, generator), points.labels.device)
    gram = torch.stack([part @ part.mT for part in data.parts]).sum(0)
    cross = torch.stack([part @ asked.mT for part, asked in zip(data.parts, points.parts, strict=True)], -1)
    # The ridge belongs to the sum of the losses: μ = λ n / p.
    model = fit(gram, data.labels, ridge=penalty * DELTA)
    assert bool(model.converged.all())
    return model, data.labels, cross


def _train_parts(
    points: _Sample, penalty: float, trials: int, n: int, generator: torch.Generator
) -> tuple[Float[Tensor, "T k 2"], Float[Tensor, "T k 2"]]:
    """Outputs at each point's strong and weak part, of the models without the point and of those with it."""
    model, labels, cross = _train(points, penalty, trials, n, generator)
    without, within = torch.einsum("tn,tnkc->tkc", model.dual, cross), []
    for place, label in enumerate(points.labels):
        squares = torch.stack([part[place].square().sum() for part in points.parts])
        again = train_with_point(model, labels, cross[:, :, place].sum(-1), squares.sum(), label)
        assert bool(again.converged.all())
        others = torch.einsum("tn,tnc->tc", again.dual[:, :-1], cross[:, :, place])
        within.append(others + again.dual[:, -1:] * squares)
    return without, torch.stack(within, 1)


def _ratio_of_outputs(
    limit: Limit, parts: Float[Tensor, "T 2"], teacher: Tensor, *, summed: bool
) -> Float[Tensor, " T"]:
    """L of the outputs, as the difference of two Gaussian log-densities."""
    mean = torch.stack([limit.law.alpha * teacher[0], torch.zeros_like(teacher[0])])
    output = parts.sum(-1)
    left, pulls, variances = torch.sigmoid(-output)[:, None], limit.gamma_parts, limit.variances
    if summed:
        parts, mean, pulls, variances = (part.sum(-1, keepdim=True) for part in (parts, mean, pulls, variances))
    squares = [((parts - mean - pull) ** 2 / variances).sum(-1) for pull in (0 * left, left * pulls)]
    return torch.log1p(limit.law.gamma * curvature(output)) + (squares[0] - squares[1]) / 2
