"""Clones of a scikit-learn classifier on random halves, and what they say of every row."""

from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from tqdm import tqdm

from leakage.audit.inputs import AuditInputs, validate_inputs
from leakage.audit.halves import drawn, of_duplicates, stream_of

_MOST_FLOOR = 1e-3  # of a posterior: a tree that says 0 or 1 only has no smaller step to take it from


def trained(estimator: Any, X: Any, y: Any, *, models: int, generator: Any, groups: Any) -> tuple[AuditInputs, list[str]]:
    """What an audit is given, and notes; see `audit.of_sklearn`."""
    if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"`estimator` must have `fit` and `predict_proba`, got {type(estimator).__name__}; wrap it in "
            "scikit-learn's CalibratedClassifierCV, which adds probabilities."
        )
    X, labels = _table(X), _labels(y)
    if _rows(X) != len(labels):
        raise ValueError(f"`X` and `y` must have equally many rows, got {_rows(X)} and {len(labels)}.")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"`y` must have two classes or more, got {classes.tolist()}.")
    member = drawn(len(labels), models, stream_of(generator))
    chance, correct = np.zeros(member.shape), np.zeros(member.shape, dtype=bool)
    for model, rows in enumerate(tqdm(member.numpy(), desc="Models", unit="model", disable=None)):
        fitted: Any = clone(estimator)
        fitted.fit(_safe_indexing(X, np.flatnonzero(rows)), labels[rows])
        chance[model], correct[model] = _own(fitted, X, classes, codes)
    floor, notes = _floor(chance)
    known = validate_inputs(-np.log(np.clip(chance, floor, 1 - floor)), member, correct=correct, labels=labels, groups=groups)
    return known, [*of_duplicates(X, labels.tolist(), member), *notes]


def _own(fitted: Any, X: Any, classes: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The posterior of each row's own label, 0 where the model knows no such class, and whether it is the largest."""
    posteriors = np.asarray(fitted.predict_proba(X), dtype=float)
    known = np.searchsorted(classes, fitted.classes_)
    if posteriors.shape != (len(codes), len(known)):
        raise ValueError(
            f"`predict_proba` must give ({len(codes)}, {len(known)}) posteriors, one for each of `classes_`, got "
            f"{posteriors.shape}."
        )
    if not bool(np.isfinite(posteriors).all()) or posteriors.min() < 0 or posteriors.max() > 1 + 1e-6:
        raise ValueError(
            "`predict_proba` must give probabilities in [0, 1], got others or NaN; has the fit diverged, or has `X` "
            "missing values?"
        )
    column = np.full(len(classes), -1)
    column[known] = np.arange(len(known))
    place = column[codes]
    own = np.where(place >= 0, posteriors[np.arange(len(codes)), place], 0.0)
    return own.clip(0, 1), posteriors.argmax(1) == place


def _floor(chance: np.ndarray) -> tuple[float, list[str]]:
    r"""Where posteriors are clipped: half the least that is not 0, of p and 1 - p, from 2⁻⁵² to a thousandth."""
    extreme = (chance <= 0) | (chance >= 1)
    least = float(np.finfo(float).eps)
    if not extreme.any():
        return 0.0, []
    steps = np.concatenate([chance[chance > 0], 1 - chance[chance < 1]])
    floor = min(max(least, float(steps.min(initial=1.0)) / 2), _MOST_FLOOR)
    if not (chance <= 0).any() and floor < 1e-12:  # a confident model, whose largest posteriors round to 1
        return floor, []
    return floor, [
        f"{int(extreme.sum()):,} of {chance.size:,} probabilities of the true label are 0 or 1, as trees give them; "
        f"they are clipped to [{floor:.2g}, 1 - {floor:.2g}]."
    ]


def _table(X: Any) -> Any:
    return X.detach().cpu().numpy() if isinstance(X, torch.Tensor) else X


def _rows(X: Any) -> int:
    if not getattr(X, "shape", ()) and not hasattr(X, "__len__"):
        raise TypeError(f"`X` must be a table, one row for each label, got {type(X).__name__}.")
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _labels(y: Any) -> np.ndarray:
    labels = np.asarray(_table(y))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.ndim != 1:
        raise ValueError(
            f"`y` must be one label for each row, got shape {labels.shape}; several outputs are not audited."
        )
    if labels.dtype.kind == "f" and not bool(np.isfinite(labels).all()):
        raise ValueError("`y` must have no missing labels, got NaN or inf; leave such rows out.")
    try:
        np.unique(labels)
    except TypeError as error:
        raise ValueError("`y` must hold labels of one type that can be ordered; convert them to text.") from error
    return labels
