"""The audit of one's own models against loops and bare trainings. `python benchmarks/audit.py [--record]`.

The losses are those of logistic regressions on halves of Location-30, or of the digits where that set is not here. The
straightforward side is in `ordinary_attacks`; both have the same losses and the same shadow models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import ordinary_attacks as ordinary
from leakage import audit
from leakage.data import datasets, tabular
from leakage.membership.lira import lira
from leakage.membership.posterior import logit_of_loss
from leakage.membership.rmia import rmia
from leakage.membership.trained_models import TrainedModels
from leakage.metrics.scores import rates
from timing import ROUNDING, Benchmark, Case, Disagreement, Side, equal


@dataclass(frozen=True)
class Sizes:
    """How large everything is: by default as in the record, small in a test."""

    data: str = "location" if datasets.is_available("location") else "digits"  # the set, by its name
    rows: int = 5010  # the most of it that are taken
    models: int = 16  # how many are trained on halves
    iterations: int = 300  # of the logistic regression, at most
    trees: int = 100  # of the forest that is audited where trainings of regressions take milliseconds, on the digits
    fprs: tuple[float, ...] = (0.01, 0.002)  # false positive rates
    calls: int = 10  # how often a quick side is run in one turn
    rounds: int = 5  # turns; the costly cases take `few`
    few: int = 3


PROMISED = {"lira": 50, "end": 0.83}


def cases(sizes: Sizes) -> Iterator[Case]:
    x, y = rows_of(sizes)
    attacked = LogisticRegression(max_iter=sizes.iterations)
    known = audit.of_sklearn(attacked, x, y, models=sizes.models, fprs=sizes.fprs).evaluation.models
    yield likelihood_ratios(sizes, known, "lira", "fixed")
    yield likelihood_ratios(sizes, known, "own", "own")
    yield domination(sizes, known)
    yield curves(sizes, known)
    yield end_to_end(sizes, x, y)


def rows_of(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """The rows and their labels: the digits in grey, since as bits some are alike, and rounding decides RMIA's ties."""
    found = tabular.load_digits() if sizes.data == "digits" else tabular.load(sizes.data)
    return found.features[: sizes.rows].double().numpy(), found.labels[: sizes.rows].numpy()


def shadows_of(known: TrainedModels) -> list[list[int]]:
    """All models but the target and its partner."""
    assert known.partner is not None  # an estimator is trained on pairs
    models = range(len(known.losses))
    return [[other for other in models if other not in (target, int(known.partner[target]))] for target in models]


def likelihood_ratios(sizes: Sizes, known: TrainedModels, id: str, variance: Literal["fixed", "own"]) -> Case:
    """LiRA; with own variances both are equal, with a fixed one ours must find as much, up to two standard errors."""
    shadows, member = shadows_of(known), known.member.numpy()
    spread = ordinary.of_all if variance == "fixed" else ordinary.of_each

    logits = logit_of_loss(known.losses).numpy()
    ours = partial(lira, known.losses, known.member, known.partner, variance=variance)
    theirs = partial(ordinary.lira, logits, member, shadows, spread)

    def check() -> str:
        if variance == "own":
            return equal(ours().numpy(), theirs())
        fpr = sizes.fprs[0]
        found, others = (
            rates(torch.as_tensor(scores), member=known.member, fprs=[fpr])[f"tpr_at_{fpr}"]
            for scores in (ours(), theirs())
        )
        more = found - others
        rate, means = f"{100 * fpr:g} %", (float(found.mean()), float(others.mean()))
        if float(more.mean()) < -2 * float(more.std()) / len(more) ** 0.5:
            raise Disagreement(f"the loop finds more: {means[1]:.3f} of the members at {rate}, we {means[0]:.3f}.")
        return f"we find {means[0]:.3f} of the members at {rate} false alarms, the loop {means[1]:.3f}"

    return Case(
        id=id,
        what=f"LiRA, {variance} variance: {_shape(known)}",
        unit="audit",
        ours=Side("sums over all models less two", ours, calls=sizes.calls),
        theirs=Side("a loop over targets and points", theirs),
        check=check,
        rounds=sizes.few,
    )


def domination(sizes: Sizes, known: TrainedModels) -> Case:
    """RMIA, which both sides count in whole points."""
    shadows, member = shadows_of(known), known.member.numpy()
    ours = partial(rmia, known.losses, known.member, known.partner)
    theirs = partial(ordinary.rmia, known.losses.double().numpy(), member, shadows)
    return Case(
        id="rmia",
        what=f"RMIA: {_shape(known)}",
        unit="audit",
        ours=Side("one sort of the ratios", ours, calls=sizes.calls),
        theirs=Side("every point against all others", theirs),
        check=lambda: same_shares(ours().numpy() + 0.5, theirs()),
        rounds=sizes.few,
    )


def same_shares(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Evidence that shares of the points agree; in a thousandth of them a ratio may tie with another in rounding."""
    apart = np.abs(ours - theirs)
    ties = apart > ROUNDING
    if ties.mean() > 1e-3 or apart.max() > 1.5 / ours.shape[1]:
        raise Disagreement(f"the values differ in {int(ties.sum())} of {ties.size}, by {apart.max():.2g} at most.")
    return f"same values: up to {ROUNDING:g}, and by one point in {int(ties.sum())} of {ties.size} that tie"


def curves(sizes: Sizes, known: TrainedModels) -> Case:
    """AUC and true positive rates of the same scores."""
    scores = lira(known.losses, known.member, known.partner)
    member, names = known.member.numpy(), ("auc", *(f"tpr_at_{fpr}" for fpr in sizes.fprs))

    theirs = partial(ordinary.roc, scores.numpy(), member, sizes.fprs)

    def ours() -> np.ndarray:
        found = rates(scores, member=known.member, fprs=sizes.fprs)
        return np.stack([found[name].numpy() for name in names], axis=-1)

    return Case(
        id="roc",
        what=f"AUC and TPR of {_shape(known)}",
        unit="attack",
        ours=Side("one sort, one merge", ours, calls=sizes.calls),
        theirs=Side("every member against every outsider", theirs),
        check=lambda: equal(ours(), theirs()),
        rounds=sizes.few,
    )


def end_to_end(sizes: Sizes, x: np.ndarray, y: np.ndarray) -> Case:
    """All of an audit over the fits that it cannot do without."""
    slow = RandomForestClassifier(sizes.trees, random_state=0)  # the digits teach a regression in milliseconds
    estimator = slow if sizes.data == "digits" else LogisticRegression(max_iter=sizes.iterations)
    ours = partial(audit.of_sklearn, estimator, x, y, models=sizes.models)
    member = ours().member

    def theirs() -> list[ClassifierMixin]:
        fresh: list[Any] = [clone(estimator) for _ in member]
        return [one.fit(x[rows], y[rows]) for one, rows in zip(fresh, member, strict=True)]

    def check() -> str:
        found = ours()
        if not np.array_equal(found.member, member):  # noqa: TID251  booleans
            raise Disagreement("the halves of two audits differ.")
        return f"the same halves; {len(found.results)} attacks with intervals"

    return Case(
        id="end",
        what=f"an audit of {sizes.models} × {type(estimator).__name__}, {len(x):,} rows",
        unit="audit",
        ours=Side("`audit.of_sklearn`", ours),
        theirs=Side("the fits alone", theirs),
        check=check,
        rounds=sizes.rounds,
    )


def _shape(known: TrainedModels) -> str:
    models, points = known.losses.shape
    return f"{models} targets × {points:,} points"


BENCHMARK = Benchmark("audit", "Audit your own model", cases, Sizes(), PROMISED)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.run())
