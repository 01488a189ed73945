"""Any scikit-learn classifier can be audited: labels of any type, rows of any kind and number, trees that say 0."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from leakage import audit
from leakage.audit import estimators

DRAWS = np.random.default_rng(0)
ROWS = 121
X = DRAWS.normal(size=(ROWS, 4))
Y = (X[:, 0] + DRAWS.normal(size=ROWS) > 0).astype(int)
MANY = np.digitize(X[:, 0], [-1, 0, 1])


class Memory(ClassifierMixin, BaseEstimator):
    """A classifier that knows the rows it has seen, and guesses the others."""

    def __init__(self, sure=0.9):
        self.sure = sure

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), {row.tobytes(): label for row, label in zip(X, y, strict=True)}
        return self

    def predict_proba(self, X):
        known = np.array([[self.seen_.get(row.tobytes()) == label for label in self.classes_] for row in X])
        rest = (1 - self.sure) / (len(self.classes_) - 1)
        return np.where(known.any(1, keepdims=True), np.where(known, self.sure, rest), 1 / len(self.classes_))


def audited(estimator, rows=X, labels=Y, **named):
    return audit.of_sklearn(estimator, rows, labels, **{"models": 6, "fprs": (0.05,)} | named)


LABELS = {
    "truth": Y.astype(bool),
    "text": np.array(["no", "yes"])[Y],
    "list of text": np.array(["no", "yes"])[Y].tolist(),
    "-1 and 1": 2 * Y - 1,
    "floats": Y * 2.0,
    "column": Y[:, None],
    "four classes": MANY,
    "tensor": torch.tensor(Y),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_any_type(labels):
    found = audited(GaussianNB(), labels=labels)
    assert "RMIA" in {row.attack for row in found.found}
    assert len(found.slices()) == len(np.unique(labels))


def test_rows_of_any_kind():
    import pandas

    frame = pandas.DataFrame(X, columns=list("abcd"), index=range(100, 100 + ROWS))
    expected = str(audited(GaussianNB()).table())
    for rows in (X.tolist(), frame, torch.tensor(X)):
        assert str(audited(GaussianNB(), rows).table()) == expected
    labels = pandas.Series(Y, index=frame.index)
    assert str(audited(GaussianNB(), frame, labels).table()) == expected
    words = [" ".join(np.array(["a", "bee", "cat", "dog"])[row > 0]) or "none" for row in X]
    assert audited(make_pipeline(CountVectorizer(), MultinomialNB()), words).found
    assert audited(MultinomialNB(), sparse.csr_matrix((X > 0).astype(float))).found


def test_a_memory_is_found_and_a_guesser_is_not():
    assert audited(Memory()).strongest.auc.estimate == pytest.approx(1.0)
    for row in audited(Memory(sure=0.5)).found:
        assert row.auc.low <= 0.5 <= row.auc.high


def test_the_estimator_stays_as_it_is():
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    audited(estimator)
    assert not hasattr(estimator[-1], "coef_")


@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(5, random_state=0), DecisionTreeClassifier(random_state=0)]
)
def test_probabilities_of_zero_are_clipped_with_a_note(estimator):
    found = audited(estimator)
    assert any("are clipped to" in note for note in found.notes)
    assert found.strongest.auc.low > 0.6  # a tree grown to the end knows its rows


@pytest.mark.parametrize(
    ("chance", "floor"),
    [([0.2, 0.9], 0.0), ([0.0, 0.02, 0.5], 1e-3), ([0.0, 1e-4, 0.5], 5e-5), ([0.0, 1.0], 1e-3), ([1.0, 0.5], 1e-3)],
)
def test_the_floor_is_half_the_least_step(chance, floor):
    found, notes = estimators._floor(np.array([chance]))
    assert found == pytest.approx(floor)
    assert bool(notes) == (floor > 0)


def test_the_halves_are_drawn_by_the_generator():
    given = [None, np.random.default_rng(1), np.random.default_rng(1), torch.Generator().manual_seed(0)]
    default, one, same, seeded = (str(audited(GaussianNB(), generator=generator)) for generator in given)
    assert one == same != default
    assert default == seeded


def test_duplicated_rows_are_warned_of():
    rows = np.concatenate([X, X[:10]])
    said = [note for note in audited(GaussianNB(), rows, np.concatenate([Y, Y[:10]])).notes if "optimistic" in note]
    assert len(said) == 1
    assert said[0].startswith("20 rows have the same content and label")
    assert not any("optimistic" in note for note in audited(GaussianNB(), rows, np.concatenate([Y, 1 - Y[:10]])).notes)


def test_a_class_that_one_half_lacks_has_probability_zero_there():
    labels = Y.copy()
    labels[0] = 2
    found = audited(GaussianNB(var_smoothing=1e-3), labels=labels)
    assert any("are clipped to" in note for note in found.notes)


def test_a_data_set_of_few_rows_has_a_result():
    rows, labels = load_breast_cancer(return_X_y=True)
    found = audit.of_sklearn(make_pipeline(StandardScaler(), GaussianNB()), rows, labels, models=6)
    assert any("needs ≥ 1,000 outsiders; there are 284" in note for note in found.notes)
    assert found.strongest.tpr[0.01] is not None


class Broken(Memory):
    """A classifier whose probabilities are none."""

    def predict_proba(self, X):
        return super().predict_proba(X) * float("nan")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: audited(LinearSVC()), TypeError, "CalibratedClassifierCV"),
        (lambda: audited(GaussianNB(), labels=Y[:9]), ValueError, "equally many rows, got 121 and 9"),
        (lambda: audited(GaussianNB(), labels=np.zeros(ROWS)), ValueError, "two classes or more"),
        (lambda: audited(GaussianNB(), labels=np.full(ROWS, np.nan)), ValueError, "missing labels"),
        (lambda: audited(GaussianNB(), labels=np.ones((ROWS, 2))), ValueError, "one label for each row"),
        (lambda: audited(GaussianNB(), labels=[None, "a"] * 60 + [1]), ValueError, "labels of one type"),
        (lambda: audited(GaussianNB(), X[:3], [0, 1, 0]), ValueError, "four rows or more"),
        (lambda: audited(GaussianNB(), None), TypeError, "`X` must be a table"),
        (lambda: audited(GaussianNB(), groups=["a"]), ValueError, "`groups` must be one for each of the 121 rows"),
        (lambda: audited(GaussianNB(), models=5), ValueError, "`models` must be even, got 5"),
        (lambda: audited(GaussianNB(), generator=7), TypeError, "numpy.random.default_rng"),
        (lambda: audited(Broken()), ValueError, "probabilities in"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()
