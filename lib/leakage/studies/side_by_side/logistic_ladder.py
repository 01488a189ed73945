r"""The information ladder of ridge logistic regression, of rows that the attacker does not know, in the limit.

An outsider's output at $x_0$ is $h \sim N(\alpha Z, \sigma^2)$, and a member's f solves $f = h + \gamma e$ with
$e = y - \rho'(f)$ (`theory.logistic.output_law`). Along each eigenspace of Σ the weights are as likely in any direction
with the teacher's part taken out; so all that they tell of the row are the outputs $v_k$ at its parts, and these are
independent Gaussians of variances $\sigma_k^2$, moved by $e \gamma_k$. Whoever sees v has the log-likelihood ratio

$$ L = \log(1 + \gamma \rho''(f)) + e z - \tfrac12 \kappa e^2, \qquad z = q^\top C^{-1}(v - \bar v), \quad
   \kappa = q^\top C^{-1} q . $$

One output has $\kappa = \gamma^2/\sigma^2$, weights $\kappa = 1/(\delta r^2)$ whatever the spectrum, $r^2 = \E e^2$
being that of members. With the shrinkage $a = S/(S + \lambda s)$ of an eigenvalue S, the former is
$\langle a \rangle^2/\langle a^2 \rangle$ of the latter: equal if all are shrunk alike. The gradient of the whole loss
at w = 0 is moved by half the row: two Gaussians $1/\sqrt\delta$ apart. All this is ours.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.metrics.estimates import mean_interval
from leakage.metrics.roc import ks_test
from leakage.metrics.scores import apart
from leakage.runtime import DTYPE, stream
from leakage.studies.blessing.bilevel import Bilevel, Points, fixed_points, training_sets
from leakage.studies.blessing.logistic_simulation import point_outputs
from leakage.studies.side_by_side.ladder import Measured, Rung, attacked, rung
from leakage.theory.logistic.fixed_point import solve
from leakage.theory.logistic.output_law import OutputLaw, average_advantage, densities
from leakage.theory.logistic.problem import Setting
from leakage.theory.logistic.prox import curvature, loss, prox
from leakage.theory.logistic.teacher import logit_rule
from leakage.theory.logistic.threshold_attacks import best_threshold, threshold_rates
from leakage.theory.ridge_evidence import Ratios
from leakage.trainers.logistic_regression import fit, train_with_point

PHI, DELTA, KAPPA = 4.0, 0.5, 10.0
"""The ensemble of the page: features per strong one, rows per feature, spread of the teacher's logit."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_GRID = 4000  # outputs between which a ratio is interpolated
RUNGS = {"gap": "label", "loss": "loss", "sample threshold": "prediction"} | {
    f"LiRA on the prediction{how}": "prediction" for how in (", fixed", "")
}
"""What each measured attack sees."""


@dataclass(frozen=True, eq=False)
class Limit:
    r"""The limit at one penalty.

    Attributes:
        law: α, σ, γ and κ of the teacher.
        pulls: $\gamma_k$ of the strong features and of the others; they sum to γ.
        variances: $\sigma_k^2$ of either.
        delta: rows per feature.
    """

    law: OutputLaw
    pulls: Float[Tensor, " 2"]
    variances: Float[Tensor, " 2"]
    delta: float

    @property
    def strength(self) -> dict[str, float]:
        """κ of whoever sees the prediction, and the weights."""
        one, both = self.pulls.sum().square() / self.variances.sum(), (self.pulls.square() / self.variances).sum()
        return {"prediction": float(one), "weights": float(both)}


def limit(penalty: float) -> Limit:
    """Solve for one penalty.

    Raises:
        ValueError: if it is not positive.
    """
    setting = Setting.bilevel(penalty=penalty, delta=DELTA, phi=PHI, kappa=KAPPA)
    solved, (values, features, _) = solve(setting), setting.spectrum
    shrunk = values / (values + setting.penalty * solved.scale)
    variances = solved.scale.square() * solved.r_squared / DELTA * features * shrunk.square()
    return Limit(solved.law, solved.scale / DELTA * features * shrunk, variances, DELTA)


def sided(points: int) -> Float[Tensor, " points"]:
    """Teacher's logits towards the label, Z or -Z, at equally likely places: of a fresh point its density is 2ρ'φ."""
    rule = logit_rule(torch.tensor(KAPPA, dtype=DTYPE), nodes=4001)
    below = (2 * rule.weights * torch.sigmoid(rule.nodes)).cumsum(0)
    shares = (torch.arange(points, dtype=DTYPE) + 0.5) / points
    return rule.nodes[torch.searchsorted(below, shares).clamp(max=len(below) - 1)]


def ratios(found: Limit, teacher: Float[Tensor, " points"], strength: float, *, nodes: int) -> Ratios:
    """L of equally likely outcomes at points of label 1."""
    law, (first, second) = found.law, _outcomes(teacher, nodes)
    fresh = law.alpha * teacher[:, None] + law.sigma * first
    pull = law.gamma / law.sigma
    z = pull * first + (strength - pull.square()).clamp_min(0).sqrt() * second

    def ratio(output: Tensor, sign: int) -> Tensor:
        left = torch.sigmoid(-output)
        return torch.log1p(law.gamma * curvature(output)) + left * z + sign * strength * left.square() / 2

    return Ratios(ratio(fresh, -1), ratio(prox(fresh, law.gamma, torch.ones_like(fresh)), 1))


def exact(penalty: float, *, points: int = 24, nodes: int = 48) -> dict[str, Rung]:
    """Every rung for which there is a law, by name, from the least to the most."""
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
    """Whether the prediction is right, of one output."""
    law = found.law
    # Right is a member's output above 0, as it was above -γ/2 before.
    right = [torch.special.ndtr((law.alpha * teacher + shift) / law.sigma) for shift in (0.0, law.gamma / 2)]
    yes, no = (
        torch.log(seen.clamp_min(1e-300)) - torch.log(out.clamp_min(1e-300))
        for out, seen in (right, [1 - r for r in right])
    )
    fresh = law.alpha * teacher[:, None] + law.sigma * _outcomes(teacher, nodes)[0]
    return Ratios(*(torch.where(fresh + shift > 0, yes[:, None], no[:, None]) for shift in (0.0, law.gamma / 2)))


def _loss(found: Limit, teacher: Tensor, nodes: int) -> Ratios:
    """Of whoever does not know x: the ratio of the two mixtures over points, interpolated between outputs of a grid."""
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
    """Pairs of independent normal numbers, nodes² of them on a lattice: no two have a number in common."""
    count = torch.arange(nodes**2, dtype=like.dtype) + 0.5
    return torch.special.ndtri(torch.stack([count / nodes**2, (count * _GOLDEN).frac()]))


def agreement(
    penalty: float, *, points: int, trainings: int, n: int, seed: int, nodes: int = 96
) -> dict[str, Float[Tensor, "points laws"]]:
    r"""p-values of trained regressions against the limit's law of L, without the row and trained again with it.

    The points have the lengths of typical ones, $\lVert x \rVert^2 = 1$ among either features, so that γ is theirs.

    Args:
        penalty: λ.
        points: whose label is 1 after a reflection.
        trainings: of each law.
        n: rows of a training set; the limit is off by some 1/n of a standard deviation squared.
        seed: of the run.
        nodes: see `exact`.

    Returns:
        For who sees the `prediction` and the `weights`.
    """
    draws, found = stream(seed, "logistic ladder/agreement"), limit(penalty)
    ensemble = _ensemble(n)
    asked = _typical(ensemble, fixed_points(ensemble, points, generator=draws))
    sides = (2 * asked.labels - 1)[:, None]
    seen = [_parts(ensemble, asked, penalty, many, draws) for many in _batches(trainings, n)]
    names, p_values = [*found.strength], torch.zeros(2, points, 2, dtype=DTYPE)
    for place, side in enumerate(sides):
        for inside in (0, 1):
            parts = side * torch.cat([one[inside][:, place] for one in seen])
            teacher = side * asked.teacher[place]
            for row, name in enumerate(names):
                law = ratios(found, teacher, found.strength[name], nodes=nodes)
                trained = _ratio(found, parts, teacher, summed=name == "prediction")
                p_values[row, place, inside] = ks_test(trained, law[inside][0]).p_value
    return dict(zip(names, p_values, strict=True))


def _ensemble(n: int) -> Bilevel:
    p = round(n / DELTA)
    return Bilevel(n=n, d=round(p / PHI), p=p, sigma_beta=KAPPA)


def _typical(ensemble: Bilevel, points: Points) -> Points:
    """The points with the lengths that they have on average; the teacher's direction stays."""
    first, rest = points.strong[:, :1], points.strong[:, 1:]
    wanted = (ensemble.d - first.square()).clamp_min(0).sqrt()
    strong = torch.cat([first, rest * wanted / rest.norm(dim=-1, keepdim=True)], -1)
    weak = points.weak * math.sqrt(ensemble.p - ensemble.d) / points.weak.norm(dim=-1, keepdim=True)
    return points._replace(strong=strong, weak=weak, squares=torch.full_like(points.squares, 1 + ensemble.eta))


def _batches(trainings: int, n: int) -> list[int]:
    most = max(1, 2**22 // n**2)
    return [min(most, trainings - begin) for begin in range(0, trainings, most)]


def _parts(
    ensemble: Bilevel, points: Points, penalty: float, trials: int, generator: torch.Generator
) -> tuple[Float[Tensor, "T k 2"], Float[Tensor, "T k 2"]]:
    """Outputs at each point's part among the strong features and at the rest of it, without and with the point."""
    data = training_sets(ensemble, trials, generator=generator, points=points)
    gram = data.gram()
    model = fit(gram, data.labels, ridge=ensemble.ridge(penalty))
    columns = points.strong.shape[-1]
    strong = ensemble.strong**0.5 * data.strong[..., :columns] @ points.strong.mT
    parts = torch.stack([strong, data.cross - strong], -1)
    without, within = torch.einsum("tn,tnkc->tkc", model.dual, parts), []
    for place in range(len(points.labels)):
        cross = data.cross[..., place]
        again = train_with_point(model, gram, data.labels, cross, points.squares[place], points.labels[place])
        assert bool(again.converged.all())
        own = again.dual[:, -1:] * torch.tensor([1.0, ensemble.eta], dtype=DTYPE)
        within.append(torch.einsum("tn,tnc->tc", again.dual[:, :-1], parts[:, :, place]) + own)
    return without, torch.stack(within, 1)


def _ratio(found: Limit, parts: Float[Tensor, "T 2"], teacher: Tensor, *, summed: bool) -> Float[Tensor, " T"]:
    """L of outputs seen, as the difference of two Gaussian log-densities."""
    mean = torch.stack([found.law.alpha * teacher[0], torch.zeros_like(teacher[0])])
    output = parts.sum(-1)
    left, pulls, variances = torch.sigmoid(-output)[:, None], found.pulls, found.variances
    if summed:
        parts, mean, pulls, variances = (part.sum(-1, keepdim=True) for part in (parts, mean, pulls, variances))
    squares = [((parts - mean - pull) ** 2 / variances).sum(-1) for pull in (0 * left, left * pulls)]
    return torch.log1p(found.law.gamma * curvature(output)) + (squares[0] - squares[1]) / 2


def measured(penalty: float, *, n: int, points: int, models: int, ensembles: int, seed: int) -> dict[str, Measured]:
    """Attacks that learn from `models` - 1 shadow models of n rows, in independent ensembles with points of their own.

    Raises:
        ValueError: if there are fewer than two ensembles, or as the attacks.
    """
    arguments.count("ensembles", ensembles, least=2)
    ensemble, areas = _ensemble(n), {name: [] for name in RUNGS}
    for number in range(ensembles):
        draws = stream(seed, f"logistic ladder/ensemble/{number}")
        asked = fixed_points(ensemble, points, generator=draws)
        seen = point_outputs(ensemble, asked, penalty=penalty, trials=models, generator=draws)
        member = torch.rand(models, points, generator=draws) < 0.5
        sides = 2 * asked.labels - 1
        outputs = sides * torch.where(member, seen.outputs.mT, seen.without.mT)
        losses = loss(outputs, torch.ones_like(outputs))
        for name, scores in attacked(outputs, losses, outputs, member).items():
            areas[name].append(apart(member=scores[member], outsider=scores[~member]).auc())
    return {name: Measured(mean_interval(torch.stack(found)), RUNGS[name]) for name, found in areas.items()}


class Advantages(NamedTuple):
    """The best advantages on ridge logistic regression in the limit, one for each setting.

    Attributes:
        label: of who sees whether the prediction is right.
        loss: of one threshold on the loss for all points.
        own: of a threshold for each point, which no attack on a loss or prediction exceeds.
    """

    label: Float[Tensor, "*b"]
    loss: Float[Tensor, "*b"]
    own: Float[Tensor, "*b"]


def advantages(setting: Setting) -> Advantages:
    """The rungs of binary classification, where loss and label tell the prediction.

    Raises:
        ValueError: as `fixed_point.solve`.
    """
    law = solve(setting).law
    # A prediction is right where the loss is below that of a coin.
    coin = torch.full_like(law.alpha, math.log(2))
    return Advantages(threshold_rates(law, coin).advantage, best_threshold(law).advantage, average_advantage(law))
