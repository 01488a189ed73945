"""Attacks from features: the logit expected of similar outsiders, and a classifier of members that sees no model.

Both fit histogram trees of scikit-learn; no row is scored by a fit that saw it. Features are (points, d) and may be
NaN or infinite. Scores are larger for likelier members, and rounded to nine decimals: the sign of a rounding error
is no evidence.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from scipy import special
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

_FOLDS = 5
_MOST_FITTED = 10_000  # that one fit sees: more take longer and hardly change it
_TREES: dict[str, Any] = dict(max_iter=50, max_leaf_nodes=8, early_stopping=False, random_state=0)
_ONE_SPREAD = float(special.ndtr(1.0))  # the quantile of a Gaussian that is one standard deviation above its mean
_LEAST_SHARE = 0.25  # of the spread of all outsiders: less is the error of the fit
_LEAST_SPREAD = 1e-3  # of logits; less is the rounding of losses near 0


def quantile_regression(
    logits: Float[Tensor, "targets points"],
    member: Bool[Tensor, "targets points"],
    features: Float[Tensor, "points d"],
    units: Int[Tensor, " points"] | None = None,
) -> Float64[Tensor, "targets points"]:
    r"""By how many spreads a point's logit exceeds the median of outsiders with such features; no shadow models.

    $$ s(x) = \frac{\phi(x) - q_{1/2}(x)}{q_{0.84}(x) - q_{1/2}(x)}, \qquad \phi = \log \tfrac{p}{1-p}, $$

    where $q_\alpha(x)$ is the quantile of the logits of outsiders, fitted to the target's outsiders as a function of
    the features with the pinball loss, and $0.84 = \Phi(1)$. Were the logits of outsiders with features x Gaussian,
    $s(x) > \Phi^{-1}(1 - a)$ would be the test $\phi(x) > q_{1-a}(x)$ at the false positive rate a.

    Rows are in five folds, and each fold is scored by what was fitted on the other four.

    Source: Bertran et al. (2023), Scalable Membership Inference Attacks via Quantile Regression, with their scores of
    a fitted Gaussian. Departures: its mean and spread are from two quantiles, and no outsider is scored by quantiles
    that were fitted to it.

    Args:
        member: who each target was trained on. A point's score depends on that of points in other folds only.
        units: each point's unit, such as a patient of several visits; points of one unit are in one fold.
    """
    table, scores = features.cpu().numpy(), torch.empty_like(logits, dtype=torch.float64)
    for own, marks, row in zip(logits.double(), member, scores, strict=True):
        for rest, fold in _folds(table, units):
            rows = _thin_out(rest[~marks.cpu().numpy()[rest]])
            known = own[rows].cpu().numpy()
            middle, upper = (
                HistGradientBoostingRegressor(loss="quantile", quantile=share, **_TREES)
                .fit(table[rows], known)
                .predict(table[fold])
                for share in (0.5, _ONE_SPREAD)
            )
            whole = np.quantile(known, _ONE_SPREAD) - np.median(known)
            spread = np.maximum(upper - middle, max(_LEAST_SHARE * whole, _LEAST_SPREAD))
            row[fold] = torch.from_numpy(((own[fold].cpu().numpy() - middle) / spread).round(9)).to(row)
    return scores


def tell_members_apart(
    member: Bool[Tensor, "targets points"], features: Float[Tensor, "points d"]
) -> tuple[Float64[Tensor, "targets some"], Bool[Tensor, "targets some"]]:
    """The log-odds of membership by features alone, without any model, of every second row; and who is a member.

    It is fitted on the other rows. Cross-fitting would score every row, but without a difference the two folds have
    nearly equal AUCs, and an interval over all rows would be too narrow by up to √2.
    """
    table = features.cpu().numpy()
    order = _order_by_content(table)
    rows, judged = _thin_out(order[::2]), order[1::2]
    scores = torch.zeros(len(member), len(judged), dtype=torch.float64, device=member.device)
    for marks, row in zip(member.cpu().numpy(), scores, strict=True):
        if 0 < marks[rows].sum() < len(rows):  # else there is nothing to learn
            trees = HistGradientBoostingClassifier(**_TREES).fit(table[rows], marks[rows])
            row.copy_(torch.from_numpy(trees.decision_function(table[judged]).round(9)))
    return scores, member[:, torch.from_numpy(judged).to(member.device)]


def _folds(table: np.ndarray, units: Tensor | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The places of all other rows, and those of the rows of each fold."""
    order = _order_by_content(table)
    unit = order if units is None else units.cpu().numpy()[order]
    _, first, place = np.unique(unit, return_index=True, return_inverse=True)
    turn = first.argsort().argsort()[place] % _FOLDS
    for fold in range(_FOLDS):
        yield order[turn != fold], order[turn == fold]


def _order_by_content(table: np.ndarray) -> np.ndarray:
    """The places of the rows in an order that follows from their content alone."""
    key = np.nan_to_num(table) @ np.random.default_rng(0).normal(size=table.shape[1])
    return key.argsort(kind="stable")


def _thin_out(rows: np.ndarray) -> np.ndarray:
    """At most `_MOST_FITTED` of the rows, evenly over their order."""
    return rows[:: -(-len(rows) // _MOST_FITTED)]
