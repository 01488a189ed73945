r"""The information ladder: what the best attack learns from a label, a loss, predictions, a gradient or all weights.

The attack asks whether one row was in a ridge regression, whose laws are known exactly
(`side_by_side.ridge_likelihood_ratios`). The same regressions are trained many times, to check the laws and to run
attacks that know no law.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from leakage.draws import gaussian
from leakage.membership import loss_threshold
from leakage.membership.lira import lira_of_logits
from leakage.metrics.estimates import Estimate, mean_interval
from leakage.metrics.roc import KsTest, ks_test
from leakage.metrics.scores import Scores
from reproduced.papers.side_by_side.ridge_likelihood_ratios import LikelihoodRatios, RidgeTargets
from reproduced.runtime import stream

LEVEL = 0.998
"""Coverage of each distance between laws: high, since there are many."""
_SEVERAL = (2, 5)  # predictions on the rungs with several; the first prediction is at the row itself
RUNG_OF_ATTACK = {
    "gap": "label",
    "loss": "loss",
    "sample threshold": "loss",
    "LiRA on the prediction, fixed": "prediction",
    "LiRA on the prediction": "prediction",
}
"""The rung that bounds each measured attack."""


class Rung(NamedTuple):
    """What the best attack on one kind of evidence reaches on all queried rows with one threshold.

    Attributes:
        auc: area under the ROC curve.
        error: numerical error of the area: its change when the outcomes are twice as coarse along each axis.
        fpr: false positive rates of the curve to draw.
        curve: true positive rates at these.
    """

    auc: float
    error: float
    fpr: Float[Tensor, " corners"]
    curve: Float[Tensor, " corners"]


class AttackArea(NamedTuple):
    """The AUC of an attack on trained regressions, over independent ensembles, and the rung that bounds it."""

    auc: Estimate
    rung: str


def draw_rows(
    *, penalty: float, seed: int, n: int = 40, p: int = 20, asked: int = 40, noise: float = 1.0, draw: int = 0
) -> RidgeTargets:
    r"""Standard normal rows with $\beta \sim N(0, I/p)$ and `asked` queried rows of the same law, for every penalty.

    Each `draw` of one seed has rows of its own.
    """
    draws = stream(seed, f"ladder/rows/{draw}" if draw else "ladder/rows")
    others, points = gaussian((n, p), generator=draws), gaussian((asked, p), generator=draws)
    beta = gaussian((p,), generator=draws) / p**0.5
    labels = points @ beta + noise * gaussian((asked,), generator=draws)
    return RidgeTargets(others, points, labels, beta, penalty, noise)


def exact_rungs(setting: RidgeTargets, *, seed: int, nodes: int = 96) -> dict[str, Rung]:
    """Every rung by name, from the least evidence to the most."""
    draws = stream(seed, "ladder/queries")
    queries = gaussian((max(_SEVERAL), setting.others.shape[1]), generator=draws)
    several = {f"{k} predictions": partial(setting.from_predictions, queries[: k - 1]) for k in _SEVERAL}
    ratios = {
        "label": setting.from_label,
        "loss": setting.from_loss,
        "prediction": setting.from_prediction,
        **several,
        "weights": setting.from_weights,
        "first gradient": setting.from_first_gradient,
    }
    return {name: evaluate_rung(of(nodes=nodes), of(nodes=nodes // 2)) for name, of in ratios.items()}


def evaluate_rung(fine: LikelihoodRatios, coarse: LikelihoodRatios) -> Rung:
    """What the best attack reaches on all rows together; the ratios of fewer outcomes, `coarse`, give the error."""
    ranked, less = (
        Scores.from_groups(member=one.member.flatten(), outsider=one.outsider.flatten()) for one in (fine, coarse)
    )
    area = float(ranked.auc())
    fpr = torch.logspace(-3, 0, 61, dtype=torch.float64)[:-1]
    return Rung(area, abs(area - float(less.auc())) + 1e-9, fpr, ranked.tpr_at_fprs(fpr.tolist()))


def measure_gradient_gains(
    penalty: float, *, draws: int, seed: int, asked: int = 40, nodes: int = 96
) -> Float[Tensor, " draws"]:
    """The AUC of the best attack on the first gradient less that on the weights, exactly, for each draw of the rows."""
    gains = []
    for draw in range(draws):
        setting = draw_rows(penalty=penalty, seed=seed, asked=asked, draw=draw)
        gradient, weights = (
            Scores.from_groups(member=one.member.flatten(), outsider=one.outsider.flatten()).auc()
            for one in (setting.from_first_gradient(nodes=nodes), setting.from_weights(nodes=nodes))
        )
        gains.append(gradient - weights)
    return torch.stack(gains)


def compare_with_law(
    setting: RidgeTargets, *, trainings: int, seed: int, others: int | None = None, nodes: int = 96
) -> list[KsTest]:
    """Distances of trained regressions from the exact law of L, for each queried row without it, then with it.

    The evidence is the prediction at the row and `others` more predictions, or the weights if `others` is None.
    """
    width = setting.others.shape[1]
    asked = stream(seed, "ladder/queries")
    queries = None if others is None else gaussian((others, width), generator=asked)
    law = setting.from_weights(nodes=nodes) if queries is None else setting.from_predictions(queries, nodes=nodes)
    found = []
    for place in range(len(setting.labels)):
        row = setting.targets[place : place + 1]
        view = torch.eye(width, dtype=row.dtype) if queries is None else torch.cat([row, queries])
        laws, ratios = [_evidence_law(setting, place, inside, view) for inside in (False, True)], []
        for inside in (False, True):
            draws = stream(seed, f"ladder/agreement/{others}/{place}/{inside}")
            seen = _train(setting, place, inside, trainings, generator=draws) @ view.mT
            ratios.append(laws[1].log_prob(seen) - laws[0].log_prob(seen))
        pairs = zip(ratios, (law.outsider[place], law.member[place]), strict=True)
        found += [ks_test(seen, known, level=LEVEL) for seen, known in pairs]
    return found


def measure_attacks(setting: RidgeTargets, *, models: int, ensembles: int, seed: int) -> dict[str, AttackArea]:
    """AUCs of attacks with `models` - 1 shadow models; the best attack knows the laws instead."""
    areas = []
    for number in range(ensembles):
        draws, seen = stream(seed, f"ladder/ensemble/{number}"), []
        member = torch.rand(models, len(setting.labels), dtype=torch.float32, generator=draws) < 0.5
        for place, row in enumerate(setting.targets):  # each row has regressions of its own
            without, within = (_train(setting, place, inside, models, generator=draws) for inside in (False, True))
            seen.append(torch.where(member[:, place, None], within, without) @ row)
        predictions = torch.stack(seen, 1)
        losses = (predictions - setting.labels).square() / 2
        towards = predictions * setting.labels.sign()  # training on a row raises it
        areas.append(attack_areas(towards, losses, predictions, member))
    return average_areas(areas, RUNG_OF_ATTACK)


def attack_areas(towards: Tensor, losses: Tensor, predictions: Tensor, member: Tensor) -> dict[str, Tensor]:
    """AUCs of every attack of `RUNG_OF_ATTACK`; `towards` is positive where the prediction is on the label's side."""
    scores = {
        "gap": (towards > 0).double(),
        "loss": -losses,
        "sample threshold": loss_threshold.sample_scores(losses, member),
        "LiRA on the prediction, fixed": lira_of_logits(predictions, member),
        "LiRA on the prediction": lira_of_logits(predictions, member, variance="own"),
    }
    return {name: Scores.from_groups(member=one[member], outsider=one[~member]).auc() for name, one in scores.items()}


def average_areas(areas: Sequence[Mapping[str, Tensor]], rungs: Mapping[str, str]) -> dict[str, AttackArea]:
    """The mean area of each attack over ensembles, beside the rung that bounds it."""
    return {name: AttackArea(mean_interval(torch.stack([each[name] for each in areas])), rungs[name]) for name in rungs}


def _maps(setting: RidgeTargets, place: int, inside: bool) -> tuple[Tensor, Tensor]:
    """The matrix that maps X'y to the weights, and what the row adds to X'y."""
    row = setting.targets[place]
    added = setting.labels[place] * row if inside else torch.zeros_like(row)
    return torch.linalg.inv(setting.penalised_gram + (torch.outer(row, row) if inside else 0)), added


def _evidence_law(setting: RidgeTargets, place: int, inside: bool, view: Float[Tensor, "k p"]) -> MultivariateNormal:
    """The law of the evidence: the weights multiplied by `view`."""
    inverse, added = _maps(setting, place, inside)
    inverse = view @ inverse
    mean = inverse @ (setting.gram @ setting.beta + added)
    covariance = setting.noise**2 * inverse @ setting.gram @ inverse.mT
    return MultivariateNormal(mean, (covariance + covariance.mT) / 2)


def _train(
    setting: RidgeTargets, place: int, inside: bool, trainings: int, *, generator: torch.Generator
) -> Float[Tensor, "trainings p"]:
    """Ridge regressions on labels drawn anew, with the row or without."""
    noise = gaussian((trainings, len(setting.others)), generator=generator)
    labels = setting.others @ setting.beta + setting.noise * noise
    inverse, added = _maps(setting, place, inside)
    return (labels @ setting.others + added) @ inverse
