"""The attacks on one panel beside each other: a table of their rates, and what their signals add to each other.

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

from leakage.metrics.intervals import Estimate
from leakage.panel import Row, Standing, evaluate
from leakage.runtime import stream

HEADS = ("attack", "sees", "AUC", "advantage", "TPR at 1 %", "TPR at 0.1 %")
_RATES = ("auc", "advantage", "tpr_at_0.01", "tpr_at_0.001")
_SIGHTS = ("label", "margin", "posterior", "weights")
STEPS: Mapping[str, tuple[str, ...]] = {
    "right or wrong": ("gap",),
    "+ labels of one's choice": ("noise", "HopSkipJump"),
    "+ posteriors": ("loss", "margin size", "ML-Leaks, trees"),
    "+ shadow models": ("sample threshold", "calibrated loss", "LiRA", "LiRA, own variance", "RMIA"),
    "+ weights": ("DeepFool", "certified radius", "cell distance", "calibrated cell distance", "weight norm"),
}
"""The attacks that each step adds to the ones before it; attacks that have no scores on a panel are left out."""


def rows(standing: Standing) -> list[tuple[str, ...]]:
    """A table row for each attack: what it sees, and its rates with intervals over models and points, or – for no rate.

    Attacks are sorted by what they see, the least first, and then by their AUC, the largest first.
    """
    found = sorted(standing.rows.items(), key=lambda one: (_SIGHTS.index(one[1].entry.sees), -_mean_auc(one[1])))
    return [
        (
            name,
            row.entry.sees,
            *(f"{standing.interval(name, rate):.2f}" if rate in row.rates else "–" for rate in _RATES),
        )
        for name, row in found
    ]


def _mean_auc(row: Row) -> float:
    return float(row.rates["auc"].mean()) if row.rates else -1.0


def intervals(standing: Standing, names: Sequence[str], rate: str = "auc") -> dict[str, Estimate]:
    """A rate of each named attack that has it on this panel, the largest last."""
    found = {name: standing.interval(name, rate) for name in names if rate in standing.rows[name].rates}
    return dict(sorted(found.items(), key=lambda one: one[1].estimate))


def nested(standing: Standing, *, seed: int) -> Standing:
    """The panel attacked by all signals up to each step together: one attack a step, on the same models."""
    shown = {step: [name for name in names if _scores(standing, name) is not None] for step, names in STEPS.items()}
    sets = dict(zip(shown, accumulate(shown.values()), strict=True))
    fold = (
        torch.rand(standing.panel.member.shape[1], dtype=torch.float32, generator=stream(seed, "side by side/folds"))
        < 0.5
    )
    stacked = {step: _stacked(standing, names, fold) for step, names in sets.items() if shown[step]}
    attacks = {step: lambda _, scores=scores: scores for step, scores in stacked.items()}
    return evaluate(standing.panel, attacks, generator=stream(seed, "side by side/nothing"))


def gains(standing: Standing, rate: str = "auc") -> dict[str, Estimate]:
    """What each step but the first adds to the rate of the one before, with intervals of paired differences."""
    return {new: standing.interval(new, rate, over=old) for old, new in pairwise(standing.rows)}


def _scores(standing: Standing, name: str) -> Tensor | None:
    return standing.rows[name].scores if name in standing.rows else None


def _stacked(standing: Standing, names: Sequence[str], fold: Tensor) -> Float64[Tensor, "models points"]:
    panel = standing.panel
    columns = [scores for name in names if (scores := _scores(standing, name)) is not None]
    features = torch.stack([_normal(scores) for scores in columns], -1).cpu()
    member, shadows, found = panel.member.cpu(), panel.shadows.cpu(), torch.zeros(panel.member.shape).double()
    for target in range(len(member)):
        for part in (fold, ~fold):
            known = features[shadows[target]][:, ~part].flatten(0, 1).numpy()
            fitted = LogisticRegression().fit(known, member[shadows[target]][:, ~part].flatten().numpy())
            found[target, part] = torch.from_numpy(fitted.decision_function(features[target, part].numpy()))
    return found.to(panel.member.device)


def _normal(scores: Float64[Tensor, "models points"]) -> Float64[Tensor, "models points"]:
    """The normal quantile of each score's rank among its model's scores; equal scores share their mean rank."""
    below, upto = (torch.searchsorted(scores.sort(-1).values, scores, right=right) for right in (False, True))
    return torch.special.ndtri((below + upto).double() / 2 / scores.shape[-1] * 0.998 + 0.001)
