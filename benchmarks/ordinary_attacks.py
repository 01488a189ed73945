"""LiRA, RMIA and ROC curves as loops over targets and points, as their definitions read.

The oracles that `audit` times and checks the library's own ways against. `shadows` lists for each target the models
that its attacker may use; the formulas are those of the papers, and the fixed variance is that of the authors' code.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Spread = Callable[[list[Array]], Array]
LEAST_VARIANCE = 1e-6  # of logits, where all shadow models agree: that of the library


def of_all(lists: list[Array]) -> Array:
    """One variance of the logits of all points together, as Carlini et al. (2022) fix it in their code."""
    return np.full(len(lists), float(np.var(np.concatenate(lists)))).astype(np.float64)


def of_each(lists: list[Array]) -> Array:
    """An unbiased variance for each point."""
    return np.array([max(np.var(one, ddof=1), LEAST_VARIANCE) for one in lists])


def lira(logits: Array, member: Mask, shadows: Sequence[Sequence[int]], spread: Spread) -> Array:
    """The log-likelihood ratios of Carlini et al. (2022), algorithm 1, of every target on every point."""
    scores = np.empty(logits.shape)
    for target, others in enumerate(shadows):
        inside, outside = [], []
        for point in range(logits.shape[1]):
            inside.append(np.array([logits[model, point] for model in others if member[model, point]]))
            outside.append(np.array([logits[model, point] for model in others if not member[model, point]]))
        densities = []
        for lists in (inside, outside):
            mean, variance = np.array([np.mean(one) for one in lists]), spread(lists)
            densities.append(-((logits[target] - mean) ** 2 / variance + np.log(variance)) / 2)
        scores[target] = densities[0] - densities[1]
    return scores


def rmia(losses: Array, member: Mask, shadows: Sequence[Sequence[int]]) -> Array:
    """The share of the pool that each point dominates, Zarifzadeh et al. (2024), eqs. (2) and (8) with γ = 1."""
    chances, scores = np.exp(-losses), np.empty(losses.shape)
    for target, others in enumerate(shadows):
        ratios = np.empty(losses.shape[1])
        for point in range(losses.shape[1]):
            inside = [chances[model, point] for model in others if member[model, point]]
            outside = [chances[model, point] for model in others if not member[model, point]]
            ratios[point] = chances[target, point] / ((np.mean(inside) + np.mean(outside)) / 2)
        for point, ratio in enumerate(ratios):
            scores[target, point] = np.mean(ratio >= ratios)
    return scores


def roc(scores: Array, member: Mask, fprs: Sequence[float]) -> Array:
    """AUC, and the true positive rate at each false positive rate, of every target: one row each."""
    rows = []
    for own, kind in zip(scores, member, strict=True):
        inside, outside = own[kind], own[~kind]
        wins = [np.sum(score > outside) + np.sum(score == outside) / 2 for score in inside]
        row = [np.sum(wins) / (len(inside) * len(outside))]
        for fpr in fprs:
            spared = sorted(outside, reverse=True)[int(fpr * len(outside) + 1e-9)]
            row.append(np.mean([score > spared for score in inside]))
        rows.append(row)
    return np.array(rows)
