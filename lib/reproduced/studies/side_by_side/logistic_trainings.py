"""Trained ridge logistic regressions: distances from the laws of `logistic_ladder`, and attacks on them.

Rows are drawn from the two-level ensemble of `logistic_ladder`; a queried row is added to training sets without it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import gaussian
from leakage.metrics.estimates import mean_interval
from leakage.metrics.roc import KsTest, ks_test
from leakage.metrics.scores import apart
from leakage.runtime import DTYPE, stream
from leakage.theory.logistic.prox import curvature, loss
from leakage.trainers.logistic_regression import Fit, fit, train_with_point, with_point
from reproduced.studies.side_by_side.ladder import LEVEL, Measured, attacked
from reproduced.studies.side_by_side.logistic_ladder import DELTA, KAPPA, PHI, Limit, limit, ratios

RUNGS = {"gap": "label", "loss": "loss", "sample threshold": "prediction"} | {
    f"LiRA on the prediction{how}": "prediction" for how in (", fixed", "")
}
"""The rung that bounds each measured attack."""


def agreement(
    penalty: float, *, points: int, trainings: int, n: int, seed: int, nodes: int = 96
) -> dict[str, list[KsTest]]:
    r"""Distances of trained regressions from the limit's law of L given the `prediction`, and given the `weights`.

    For each point: models trained without it, then with it. The points have length 1 among the strong features and
    among the weak ones, the typical lengths, so that the limit's γ is theirs. At n rows the limit is off by about 1/n
    of a squared standard deviation.
    """
    draws, found = stream(seed, "logistic ladder/agreement"), limit(penalty)
    asked = _rows((points,), n, draws)
    lengths = [1 - asked.parts[0][:, 0].square(), torch.ones(points, dtype=DTYPE)]  # the teacher's direction stays
    for part, wanted in zip((asked.parts[0][:, 1:], asked.parts[1]), lengths, strict=True):
        part *= (wanted.clamp_min(0).sqrt() / part.norm(dim=-1))[:, None]
    sides = (2 * asked.labels - 1)[:, None]
    seen = [_parts(asked, penalty, many, n, draws) for many in _batches(trainings, n)]
    tests: dict[str, list[KsTest]] = {name: [] for name in found.strength}
    for place, side in enumerate(sides):
        for inside in (0, 1):
            parts = side * torch.cat([one[inside][:, place] for one in seen])
            teacher = side * asked.teacher[place]
            for name in tests:
                law = ratios(found, teacher, found.strength[name], nodes=nodes)
                trained = _ratio(found, parts, teacher, summed=name == "prediction")
                tests[name].append(ks_test(trained, law[inside][0], level=LEVEL))
    return tests


class _Rows(NamedTuple):
    """Rows among the strong features, the teacher's direction first, and among the weak ones; lengths are about 1."""

    parts: tuple[Float[Tensor, "*b n d"], Float[Tensor, "*b n w"]]
    teacher: Float[Tensor, "*b n"]
    labels: Float[Tensor, "*b n"]


def _rows(shape: tuple[int, ...], n: int, generator: torch.Generator) -> _Rows:
    """Rows of the ensemble in which a training set has n rows."""
    p = round(n / DELTA)
    d = round(p / PHI)
    strong, weak = (gaussian((*shape, count), generator=generator) / count**0.5 for count in (d, p - d))
    teacher = KAPPA * d**0.5 * strong[..., 0]
    drawn = torch.rand(teacher.shape, generator=generator, dtype=DTYPE)
    return _Rows((strong, weak), teacher, (drawn < torch.sigmoid(teacher)).to(DTYPE))


def _batches(trainings: int, n: int) -> list[int]:
    most = max(1, 2**20 // n**2)
    return [min(most, trainings - begin) for begin in range(0, trainings, most)]


class _Trained(NamedTuple):
    """Models, their training data, and inner products of its rows with the points, for both kinds of features."""

    model: Fit
    gram: Float[Tensor, "T n n"]
    labels: Float[Tensor, "T n"]
    cross: Float[Tensor, "T n k 2"]


def _trained(points: _Rows, penalty: float, trials: int, n: int, generator: torch.Generator) -> _Trained:
    data = _rows((trials, n), n, generator)
    gram = torch.stack([part @ part.mT for part in data.parts]).sum(0)
    cross = torch.stack([part @ asked.mT for part, asked in zip(data.parts, points.parts, strict=True)], -1)
    # The ridge belongs to the sum of the losses: μ = λ n / p.
    model = fit(gram, data.labels, ridge=penalty * DELTA)
    assert bool(model.converged.all())
    return _Trained(model, gram, data.labels, cross)


def _parts(
    points: _Rows, penalty: float, trials: int, n: int, generator: torch.Generator
) -> tuple[Float[Tensor, "T k 2"], Float[Tensor, "T k 2"]]:
    """Outputs at each point's strong and weak part, of the models without the point and of those with it."""
    model, gram, labels, cross = _trained(points, penalty, trials, n, generator)
    without, within = torch.einsum("tn,tnkc->tkc", model.dual, cross), []
    for place, label in enumerate(points.labels):
        squares = torch.stack([part[place].square().sum() for part in points.parts])
        again = train_with_point(model, gram, labels, cross[:, :, place].sum(-1), squares.sum(), label)
        assert bool(again.converged.all())
        others = torch.einsum("tn,tnc->tc", again.dual[:, :-1], cross[:, :, place])
        within.append(others + again.dual[:, -1:] * squares)
    return without, torch.stack(within, 1)


def _ratio(found: Limit, parts: Float[Tensor, "T 2"], teacher: Tensor, *, summed: bool) -> Float[Tensor, " T"]:
    """L of the outputs, as the difference of two Gaussian log-densities."""
    mean = torch.stack([found.law.alpha * teacher[0], torch.zeros_like(teacher[0])])
    output = parts.sum(-1)
    left, pulls, variances = torch.sigmoid(-output)[:, None], found.pulls, found.variances
    if summed:
        parts, mean, pulls, variances = (part.sum(-1, keepdim=True) for part in (parts, mean, pulls, variances))
    squares = [((parts - mean - pull) ** 2 / variances).sum(-1) for pull in (0 * left, left * pulls)]
    return torch.log1p(found.law.gamma * curvature(output)) + (squares[0] - squares[1]) / 2


def measured(penalty: float, *, n: int, points: int, models: int, ensembles: int, seed: int) -> dict[str, Measured]:
    """AUCs of attacks that learn from `models` - 1 shadow models of n rows, over ensembles with points of their own."""
    areas = {name: [] for name in RUNGS}
    for number in range(ensembles):
        draws = stream(seed, f"logistic ladder/ensemble/{number}")
        asked = _rows((points,), n, draws)
        model, _, _, cross = _trained(asked, penalty, models, n, draws)
        squares = torch.stack([part.square().sum(-1) for part in asked.parts]).sum(0)
        seen = with_point(model, cross.sum(-1), squares, asked.labels)
        member = torch.rand(models, points, dtype=torch.float32, generator=draws) < 0.5
        sides = 2 * asked.labels - 1
        outputs = sides * torch.where(member, seen.outputs, seen.without)
        losses = loss(outputs, torch.ones_like(outputs))
        for name, scores in attacked(outputs, losses, outputs, member).items():
            areas[name].append(apart(member=scores[member], outsider=scores[~member]).auc())
    return {name: Measured(mean_interval(torch.stack(found)), RUNGS[name]) for name, found in areas.items()}
