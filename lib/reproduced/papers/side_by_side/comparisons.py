"""All attacks on the same models beside each other: a table of their rates, and what their signals add to each other.

Signals are combined by nested logistic regressions on the scores of several attacks. A regression is fitted on shadow
models and half of the points, and judged on the target and the other half: it sees neither the target's membership nor
a point that it is judged on.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float64
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from leakage.membership.evaluation import AttackResult, Evaluation, evaluate
from leakage.membership.trained_models import TrainedModels
from leakage.metrics.estimates import Estimate
from reproduced.runtime import stream

HEADS = ("attack", "sees", "AUC", "advantage", "TPR at 1 %", "TPR at 0.1 %")
_RATES = ("auc", "advantage", "tpr@0.01", "tpr@0.001")
_SIGHTS = ("label", "margin", "loss", "posterior", "weights")
ACCESS_STEPS: Mapping[str, tuple[str, ...]] = {
    "right or wrong": ("gap",),
    "+ labels of one's choice": ("noise", "HopSkipJump"),
    "+ posteriors": ("loss", "margin size", "ML-Leaks, trees"),
    "+ shadow models": ("sample threshold", "calibrated logit", "LiRA", "LiRA, own variance", "RMIA"),
    "+ weights": ("DeepFool", "certified radius", "cell distance", "calibrated cell distance", "weight norm"),
}
"""The attacks that each step adds to the ones before it; attacks that have no scores on some models are left out."""


def table_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """A table row for each attack: what it sees, and its rates with intervals over models and points, or – for no rate.

    Attacks are sorted by what they see, the least first, and then by their AUC, the largest first.
    """

    def order(item: tuple[str, AttackResult]) -> tuple[int, float]:
        row = item[1]
        return _SIGHTS.index(row.attack.sees), -float(row.rates["auc"].mean()) if row.rates else 1.0

    return [
        (
            name,
            row.attack.sees,
            *(f"{evaluation.interval(name, rate):.2f}" if rate in row.rates else "–" for rate in _RATES),
        )
        for name, row in sorted(evaluation.results.items(), key=order)
    ]


def rate_intervals(evaluation: Evaluation, names: Sequence[str], rate: str = "auc") -> dict[str, Estimate]:
    """A rate of each named attack that these models allow, the largest last."""
    found = {name: evaluation.interval(name, rate) for name in names if rate in evaluation.results[name].rates}
    return dict(sorted(found.items(), key=lambda one: one[1].estimate))


def combine_signals_by_step(evaluation: Evaluation, *, seed: int) -> Evaluation:
    """Attack the models, for each step, with one logistic regression on all signals up to that step."""
    signals = {name: row.scores for name, row in evaluation.results.items() if row.scores is not None}
    added = {step: [signals[name] for name in names if name in signals] for step, names in ACCESS_STEPS.items()}
    draws = stream(seed, "side by side/folds")
    fold = torch.rand(evaluation.models.member.shape[1], dtype=torch.float32, generator=draws) < 0.5
    stacks = {
        step: _stack(evaluation.models, known, fold)
        for step, known in zip(added, accumulate(added.values()), strict=True)
        if added[step]
    }
    attacks = {step: lambda _, scores=scores: scores for step, scores in stacks.items()}
    return evaluate(evaluation.models, attacks, generator=stream(seed, "side by side/nothing"))


def gain_per_step(evaluation: Evaluation) -> dict[str, Estimate]:
    """What each step but the first adds to the AUC of the one before, with intervals of paired differences."""
    return {new: evaluation.interval(new, "auc", over=old) for old, new in pairwise(evaluation.results)}


def _stack(models: TrainedModels, signals: Sequence[Tensor], fold: Tensor) -> Float64[Tensor, "models points"]:
    features = torch.stack([_normal_ranks(scores) for scores in signals], -1)
    member, shadows, found = models.member, models.shadows, torch.zeros(models.member.shape).double()
    for target in range(len(member)):
        for part in (fold, ~fold):
            known = features[shadows[target]][:, ~part].flatten(0, 1).numpy()
            fitted = LogisticRegression().fit(known, member[shadows[target]][:, ~part].flatten().numpy())
            found[target, part] = torch.from_numpy(fitted.decision_function(features[target, part].numpy()))
    return found


def _normal_ranks(scores: Float64[Tensor, "models points"]) -> Float64[Tensor, "models points"]:
    """The normal quantile of each score's rank among its model's scores; equal scores share their mean rank."""
    below, upto = (torch.searchsorted(scores.sort(-1).values, scores, right=right) for right in (False, True))
    return torch.special.ndtri((below + upto).double() / 2 / scores.shape[-1] * 0.998 + 0.001)
