"""Which signals add to which: nested logistic regressions on the scores of several attacks, held out twice.

A regression is fitted on shadow models and half of the points, and judged on the target and the other half. So it never
sees the rows of `member` that it is judged by, nor a point that it is judged on.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float64
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from leakage.metrics.intervals import Estimate
from leakage.panel import Standing, evaluate
from leakage.runtime import stream

STEPS: Mapping[str, tuple[str, ...]] = {
    "right or wrong": ("gap",),
    "+ labels of one's choice": ("noise", "HopSkipJump"),
    "+ posteriors": ("loss", "margin size", "ML-Leaks, trees"),
    "+ shadow models": ("sample threshold", "calibrated loss", "LiRA", "LiRA, own variance", "RMIA"),
    "+ weights": ("DeepFool", "certified radius", "cell distance", "calibrated cell distance", "weight norm"),
}
"""What each step adds to the ones before it; what a panel hides is left out."""


def nested(standing: Standing, *, seed: int) -> Standing:
    """What all signals up to each step reach together, as one more attack for each step on the same models.

    Raises:
        ValueError: if no attack of the first step has scores.
    """
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
    """What each step but the first adds to the one before, paired over models."""
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
    """Each score by its place among its model's, as a normal quantile; equal scores share their mean place."""
    below, upto = (torch.searchsorted(scores.sort(-1).values, scores, right=right) for right in (False, True))
    return torch.special.ndtri((below + upto).double() / 2 / scores.shape[-1] * 0.998 + 0.001)
