r"""Does a ridge penalty protect? One answer at a known point, with its label and without, in two isotropic models.

*Real labels* are those of the fourth paper: Gaussian features, a linear teacher and Gaussian noise, ridge regression on
all of them. *Binary labels* are those of the second: a logistic teacher, ridge logistic regression. The attacker knows
the law of the answer at the point. Exact in the limit of many rows and features at a fixed ratio; regressions are
trained to check it. Sources of the laws: `min_norm.labelled_answers`, `blessing.output_law`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.blessing.limit import Setting, Spectrum, solve
from reproduced.papers.blessing.logistic_regression import Influence, fit, predict_with_point
from reproduced.papers.blessing.output_law import (
    OutputLaw,
    average_advantage,
    densities,
    generalisation_error,
    logit_quadrature,
)
from reproduced.papers.min_norm import labelled_answers, ridge, two_gaussians
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.runtime import stream

RATIO = 3
"""Features per row, all of them in use."""
SIGMA = 0.5
"""Standard deviation of the noise on real labels, whose signal has variance 1."""
KAPPA = 5.0
"""Standard deviation of the teacher's logit behind binary labels."""
_LARGE = 1000  # rows of the limit, which depends on ratios only
_REACH, _GRID = 9.0, 1500  # outputs between which a density is integrated, in deviations beyond what a label moves


class Advantages(NamedTuple):
    """For each penalty: the best advantage without the label and with it, and the error at a fresh point."""

    blind: Float[Tensor, " penalties"]
    labelled: Float[Tensor, " penalties"]
    error: Float[Tensor, " penalties"]


class MeasuredAdvantages(NamedTuple):
    """For each trained model and penalty, the advantage of the attack that the limit calls best."""

    blind: Float[Tensor, "models penalties"]
    labelled: Float[Tensor, "models penalties"]


def real_labels(penalties: Sequence[float]) -> Advantages:
    """Exact advantages and squared errors on real labels; the point is the typical one."""
    space, levels = Design(_LARGE, RATIO * _LARGE, SIGMA), torch.tensor(penalties, dtype=DTYPE)
    asked = space, space.D, levels, Query.typical(space, space.D)
    pair, answer = labelled_answers.limit_law(*asked), ridge.limit_variances(*asked)
    return Advantages(two_gaussians.advantage(**answer._asdict()), labelled_answers.advantage(pair), pair.error)


def binary_labels(penalties: Sequence[float]) -> Advantages:
    """Exact advantages and shares of wrong labels on binary labels, means over points."""
    law = _binary_law(penalties)
    return Advantages(_blind_advantage(law), average_advantage(law), generalisation_error(law))


def _binary_law(penalties: Sequence[float]) -> OutputLaw:
    levels = torch.tensor(penalties, dtype=DTYPE)
    ones = torch.ones(len(levels), 1, dtype=DTYPE)
    same = torch.ones_like(levels)
    return solve(Setting(levels, same / RATIO, KAPPA * same, Spectrum(ones, ones, ones))).law


def _blind_advantage(law: OutputLaw) -> Float[Tensor, " penalties"]:
    r"""$\E_Z \tfrac12 \int \lvert f_0 - \sum_y P(y \mid Z) f_1(\cdot \mid y) \rvert$, by the trapezoid rule."""
    rule = logit_quadrature(law.kappa, nodes=101)
    reach = (_REACH * law.sigma + law.gamma).unsqueeze(-1)
    middle = law.alpha.unsqueeze(-1) * rule.nodes  # penalties, points
    grid = middle.unsqueeze(-1) + reach.unsqueeze(-1) * torch.linspace(-1, 1, _GRID, dtype=DTYPE)
    sides = [
        densities(law.unsqueeze(), grid, teacher=rule.nodes, label=torch.full_like(middle, label))
        for label in (0.0, 1.0)
    ]
    chance = torch.sigmoid(rule.nodes).unsqueeze(-1)
    gap = sides[0].outsider - (1 - chance) * sides[0].member - chance * sides[1].member
    return (torch.trapezoid(gap.abs(), grid, dim=-1) / 2 * rule.weights).sum(-1)


def attack_ridge_regressions(penalties: Sequence[float], *, n: int, models: int, seed: int) -> MeasuredAdvantages:
    """Attack trained ridge regressions on n rows at one random point of each, by the likelihood ratio of the limit.

    Each model has a training set, a teacher, a point and a label of its own, and is trained without the point and with
    it; the point comes in by the exact leave-one-out formula.
    """
    draws, space = stream(seed, "known labels/real"), Design(n, RATIO * n, SIGMA)
    rows = gaussian((models, n + 1, space.D), generator=draws)
    teacher = gaussian((models, space.D, 1), generator=draws) / space.D**0.5
    labels = (rows @ teacher).squeeze(-1) + SIGMA * gaussian((models, n + 1), generator=draws)
    gram = rows @ rows.mT
    values, vectors = torch.linalg.eigh(gram[:, 1:, 1:])
    # The answer without the point, and the odds by which the point moves it, from one decomposition.
    cross, target = (vectors.mT @ part.unsqueeze(-1) for part in (gram[:, 1:, 0], labels[:, 1:]))
    shift = n * torch.tensor(penalties, dtype=DTYPE)
    inverse = 1 / (values.unsqueeze(-1) + shift)
    outside = (cross * target * inverse).sum(-2)
    odds = (gram[:, 0, 0, None] - (cross.square() * inverse).sum(-2)) / shift
    label = labels[:, :1]
    inside = (outside + odds * label) / (1 + odds)
    levels = torch.tensor(penalties, dtype=DTYPE)
    query = Query(gram[:, 0, 0, None], torch.zeros_like(gram[:, 0, 0, None]))
    answer = ridge.limit_variances(space, space.D, levels, query)
    pair = labelled_answers.limit_law(space, space.D, levels, query)
    blind = [_log_ratio_of_answers(seen, answer) for seen in (inside, outside)]
    whole = query.total / space.D + SIGMA**2
    labelled = [_log_ratio_of_pairs(label - seen, label.expand_as(seen), pair, whole) for seen in (inside, outside)]
    return MeasuredAdvantages(*((one[0] > 0).double() - (one[1] > 0).double() for one in (blind, labelled)))


def attack_logistic_regressions(
    penalties: Sequence[float], *, n: int, models: int, points: int, seed: int
) -> MeasuredAdvantages:
    """Attack trained logistic regressions on n rows at random points, by the likelihood ratio of the limit.

    The advantage on a model is the mean over its points, each added to the training set alone.
    """
    draws, p = stream(seed, "known labels/binary"), RATIO * n
    rows = gaussian((models, n + points, p), generator=draws) / p**0.5
    teacher = KAPPA * p**0.5 * rows[..., 0]
    labels = (torch.rand(teacher.shape, generator=draws, dtype=DTYPE) < torch.sigmoid(teacher)).to(DTYPE)
    gram, found = rows @ rows.mT, []
    for place, penalty in enumerate(penalties):
        law = _binary_law(penalties[place : place + 1])
        # The ridge belongs to the sum of the losses: μ = λ n / p.
        model = fit(gram[:, :n, :n], labels[:, :n], ridge=penalty / RATIO)
        squares = gram.diagonal(dim1=-2, dim2=-1)[:, n:]
        seen = predict_with_point(model, gram[:, :n, n:], squares, labels[:, n:])
        found.append(_binary_gains(law, seen, labels[:, n:], teacher[:, n:]))
    return MeasuredAdvantages(*(torch.stack(one, -1) for one in zip(*found, strict=True)))


def _binary_gains(
    law: OutputLaw, seen: Influence, labels: Float[Tensor, "T k"], teacher: Float[Tensor, "T k"]
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"]]:
    """The advantage on each model, without the labels and with them."""
    gains = []
    for of_label in (False, True):
        says = []
        for outputs in (seen.outputs, seen.without):
            sides = [
                densities(law, outputs.unsqueeze(-1), teacher=teacher, label=torch.full_like(labels, one))
                for one in (0.0, 1.0)
            ]
            chance = (labels if of_label else torch.sigmoid(teacher)).unsqueeze(-1)
            member = (1 - chance) * sides[0].member + chance * sides[1].member
            says.append((member > sides[0].outsider).double().squeeze(-1).mean(-1))
        gains.append(says[0] - says[1])
    return gains[0], gains[1]


def _log_ratio_of_answers(answers: Tensor, variances: ridge.Variances) -> Tensor:
    """Twice the log-likelihood ratio of two centred Gaussians."""
    member, outsider = variances
    return (outsider / member).log() + answers.square() * (1 / outsider - 1 / member)


def _log_ratio_of_pairs(residual: Tensor, label: Tensor, law: labelled_answers.LabelledLaw, whole: Tensor) -> Tensor:
    """Twice the log-likelihood ratio: a member's residual is an outsider's divided by 1 + q."""
    spread, scale = law.error.sqrt(), 1 + law.odds
    side = law.correlation * label / whole.sqrt()
    outsider = (residual / spread - side).square()
    member = (scale * residual / spread - side).square()
    return 2 * scale.log() + (outsider - member) / (1 - law.correlation.square())
