"""Clones of any scikit-learn classifier and modules of any kind are trained on halves, and audited like all else."""

import copy
import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jaxtyping
import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from torch import nn
from torch.utils.data import TensorDataset

from checking import HANGS
from leakage import audit
from leakage.draws import gaussian
from leakage.trainers.ensembles import Recipe
from reproduced.runtime import stream

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


def audit_clones(estimator, rows=X, labels=Y, **named):
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
    found = audit_clones(GaussianNB(), labels=labels)
    assert "RMIA" in {row.attack for row in found.results}
    assert len(found.slices()) == len(np.unique(labels))


def test_rows_of_any_kind():
    pandas = pytest.importorskip("pandas")  # the library alone does not need it

    frame = pandas.DataFrame(X, columns=list("abcd"), index=range(100, 100 + ROWS))
    expected = audit_clones(GaussianNB()).scores["loss"]
    for rows in (X.tolist(), frame, torch.tensor(X)):
        assert np.allclose(audit_clones(GaussianNB(), rows).scores["loss"], expected)
    labels = pandas.Series(Y, index=frame.index)
    assert np.allclose(audit_clones(GaussianNB(), frame, labels).scores["loss"], expected)
    words = [" ".join(np.array(["a", "bee", "cat", "dog"])[row > 0]) or "none" for row in X]
    assert audit_clones(make_pipeline(CountVectorizer(), MultinomialNB()), words).results
    assert audit_clones(MultinomialNB(), sparse.csr_matrix((X > 0).astype(float))).results


def test_a_memory_is_found_and_a_guesser_is_not():
    assert audit_clones(Memory()).strongest.auc.estimate == pytest.approx(1.0)
    for row in audit_clones(Memory(sure=0.5)).results:
        assert row.auc.low <= 0.5 <= row.auc.high


def test_the_estimator_stays_as_it_is():
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    audit_clones(estimator)
    assert not hasattr(estimator[-1], "coef_")


@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(5, random_state=0), DecisionTreeClassifier(random_state=0)]
)
def test_probabilities_of_zero_are_clipped_with_a_note(estimator):
    found = audit_clones(estimator)
    assert any("are clipped to" in note for note in found.notes)
    assert found.strongest.auc.low > 0.6  # a tree grown to the end knows its rows


def test_the_halves_are_drawn_by_the_generator():
    given = [None, np.random.default_rng(1), np.random.default_rng(1), torch.Generator().manual_seed(0)]
    default, one, same, seeded = (str(audit_clones(GaussianNB(), generator=generator)) for generator in given)
    assert one == same != default
    assert default == seeded


def test_duplicated_rows_are_warned_of():
    rows = np.concatenate([X, X[:10]])
    same, other = (audit_clones(GaussianNB(), rows, np.append(Y, more)).notes for more in (Y[:10], 1 - Y[:10]))
    assert [note[:40] for note in same if "optimistic" in note] == ["20 rows have the same content and label "]
    assert not any("optimistic" in note for note in other)


def test_a_class_that_one_half_lacks_has_probability_zero_there():
    labels = Y.copy()
    labels[0] = 2
    found = audit_clones(GaussianNB(var_smoothing=1e-3), labels=labels)
    assert any("are clipped to" in note for note in found.notes)
    assert any("1 of 121 rows have a label that no other has" in note for note in found.notes)


def test_halves_are_drawn_of_units():
    units = np.arange(ROWS) % 30
    found = audit_clones(Memory(), units=units)
    member = found.evaluation.models.member.numpy()
    for one in range(30):
        rows = member[:, units == one]
        assert (rows.all(1) | ~rows.any(1)).all()
    assert (found.member.sum(1) == 15).all()
    assert found.exposed_rows(1)[0]["unit"] in {*map(str, range(30))}


class Counted(GaussianNB):
    """A classifier that counts its fits, those of its clones included."""

    fits = 0

    def fit(self, X, y):
        Counted.fits += 1
        return super().fit(X, y)


def fails(models):
    raise RuntimeError("it needs the weights")


LATE = {
    "level": ({"level": 1.0}, "`level` must be a number"),
    "rates": ({"fprs": 0.01}, "`fprs` must be a sequence"),
    "no rates": ({"fprs": None}, "`fprs` must be a sequence"),
    "rate": ({"fprs": [2.0]}, "`fprs` must be a number"),
    "groups": ({"groups": Y[:9]}, "`groups` must be one for each of the"),
    "units": ({"units": Y[:9]}, "`units` must be one for each of the"),
    "missing unit": ({"units": [None] * ROWS}, "`units` must name the unit"),
    "odd models": ({"models": 5}, "`models` must be even"),
    "no number": ({"models": 6.0}, "`models` must be a whole number"),
    "generator": ({"generator": 7}, "`generator` must be"),
    "few rows": ({"rows": X[:3], "labels": [0, 1, 0]}, "`X` must have four rows"),
    "missing label": ({"labels": [None, *Y[1:]]}, "`y` must be a label for every row, got none at row 0"),
    "NaN": ({"labels": np.where(X[:, 1] > 1, np.nan, Y)}, "`y` must be a label for every row"),
    "taken name": ({"attacks": {"LiRA": lambda models: -models.losses}}, "`attacks` must have names of their own"),
    "no function": ({"attacks": {"mine": 3}}, "must be a function of the models"),
    "no mapping": ({"attacks": ["loss"]}, "`attacks` must be a mapping"),
    "failing attack": ({"attacks": {"mine": fails}}, "`attacks`: 'mine' fails on drawn losses .*needs the weights"),
    "of few rows": ({"attacks": {"mine": lambda models: -models.losses[:, :9]}}, "`scores of mine` must have shape"),
    "no number in scores": ({"attacks": {"mine": lambda models: models.losses / 0}}, "`scores of mine` must be finite"),
    "table of its own": (
        {"attacks": {"mine": lambda models: torch.zeros(6, ROWS, dtype=torch.float64)}},
        "without some of them",
    ),
}


@pytest.fixture
def unannotated():
    """The library checks by itself, not its annotations."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize(("more", "message"), LATE.values(), ids=LATE)
def test_nothing_is_trained_before_every_argument_was_checked(more, message):
    Counted.fits, calls = 0, []
    with pytest.raises((TypeError, ValueError), match=message):
        audit_clones(Counted(), **more)
    inputs, labels = torch.tensor(more.get("rows", X)).float(), more.get("labels", Y)
    named = {name: value for name, value in more.items() if name not in ("rows", "labels")}
    with pytest.raises((TypeError, ValueError), match=message):
        audit_modules(lambda *_: calls.append(1), inputs, labels, lambda: nn.Linear(4, 2), **named)
    assert (Counted.fits, calls) == (0, [])
    audit_clones(Counted(), models=4)
    assert Counted.fits == 4


class Fixed(ClassifierMixin, BaseEstimator):
    """A classifier with a class that labels need not have, which always answers the first."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1, 2])
        return self

    def predict_proba(self, X):
        return np.tile([1.0, 0.0, 0.0], (len(X), 1))


@pytest.mark.parametrize("least", [0, 1])
def test_a_class_that_labels_lack_is_no_other_class(least):
    found = audit_clones(Fixed(), labels=Y + least)
    right = found.evaluation.models.saved_correct
    assert bool((right == torch.tensor(Y + least == 0)).all())
    assert found.strongest.auc.agrees_with(0.5)


@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dok", "lil"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_of_every_format(form, kind):
    expected = audit_clones(LogisticRegression(), kind((X > 0).astype(float))).scores["loss"]
    found = audit_clones(LogisticRegression(), kind((X > 0).astype(float)).asformat(form)).scores["loss"]
    np.testing.assert_allclose(found, expected)


def test_infinities_and_gaps_that_an_estimator_takes():
    rows = np.where(X > 1.5, np.inf, np.where(X < -1.5, np.nan, X))
    assert audit_clones(HistGradientBoostingClassifier(max_iter=3), rows, models=2).results


class Late(ClassifierMixin, BaseEstimator):
    """A classifier that has its method only after `fit`, which returns nothing."""

    def fit(self, X, y):
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_
        self.predict_proba = self.inner_.predict_proba


@pytest.mark.parametrize("estimator", [Late(), GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, cv=2)])
def test_methods_may_appear_in_fit(estimator):
    expected = audit_clones(GaussianNB()).scores["loss"]
    np.testing.assert_allclose(audit_clones(estimator).scores["loss"], expected)


RARE = np.array([0] * (ROWS - 5) + [1] * 5)


@pytest.mark.parametrize(
    ("estimator", "labels", "message"),
    [
        (CalibratedClassifierCV(GaussianNB(), cv=5), RARE, r"`estimator` fails on half \d, \d+ rows: .* of class 1"),
        (
            LogisticRegression(),
            np.arange(ROWS) == 0,
            r"`estimator` fails on half \d, \d+ rows: \d+ of class False\. It",
        ),
    ],
)
def test_an_error_from_inside_says_on_which_half(estimator, labels, message):
    with pytest.raises(ValueError, match=message) as caught:
        audit_clones(estimator, labels=labels)
    assert caught.value.__cause__ is not None


class Nameless(Memory):
    """A classifier that keeps its classes to itself."""

    def fit(self, X, y):
        super().fit(X, y)
        self.names_ = self.__dict__.pop("classes_")
        return self


class Bare:
    """A classifier that is no estimator of scikit-learn."""

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


class Broken(Memory):
    """A classifier whose probabilities are none."""

    def predict_proba(self, X):
        return super().predict_proba(X) * float("nan")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: audit_clones(LinearSVC()), TypeError, "CalibratedClassifierCV"),
        (lambda: audit_clones(RandomForestRegressor()), TypeError, r"for a regressor, .*`audit\.of_losses\(…, probab"),
        (lambda: audit_clones(Nameless()), TypeError, "must have `classes_` after `fit`, got none from Nameless"),
        (lambda: audit_clones(Bare()), TypeError, "must have `get_params`.* got Bare"),
        (lambda: audit_clones(GaussianNB(), units=Y), ValueError, "`units` must name four units or more"),
        (lambda: audit_clones(GaussianNB(), labels=Y[:9]), ValueError, "equally many rows, got 121 and 9"),
        (lambda: audit_clones(GaussianNB(), labels=np.zeros(ROWS)), ValueError, "two classes or more"),
        (lambda: audit_clones(GaussianNB(), labels=[None, "a"] * 60 + [1]), ValueError, "`y` must be .* none at row 0"),
        (lambda: audit_clones(GaussianNB(), labels=X[:, 0]), ValueError, "`y` must be classes; .*Unknown label type"),
        (lambda: audit_clones(GaussianNB(), X[:3], [0, 1, 0]), ValueError, "four rows or more"),
        (lambda: audit_clones(GaussianNB(), models=5), ValueError, "`models` must be even, got 5"),
        (lambda: audit_clones(GaussianNB(), generator=7), TypeError, "numpy.random.default_rng"),
        (lambda: audit_clones(Broken()), ValueError, "probabilities in"),
    ],
)
def test_bad_inputs_of_clones_are_refused_with_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()


POINTS, MODELS = 60, 6
INPUTS = gaussian((POINTS, 30), generator=stream(0, "rows")).float()
CLASSES = torch.randint(0, 3, (POINTS,), generator=stream(0, "labels"))


def factory():
    return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def fitted(module, rows, labels):
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), labels).backward()
        optimiser.step()


def audit_modules(train=fitted, rows=INPUTS, labels=CLASSES, make=factory, **named):
    return audit.of_module(make, train, rows, labels, **{"models": MODELS, "fprs": (0.05,)} | named)


@functools.cache
def undisturbed():
    """The audit that several tests compare another with."""
    return audit_modules()


def test_an_overfitted_module_is_found_and_an_untrained_one_is_not():
    assert undisturbed().strongest.auc.low > 0.8
    for row in audit_modules(lambda *_: None, level=0.99).results:
        assert row.auc.low <= 0.5 <= row.auc.high


def test_the_draws_of_others_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = str(audit_modules())
    torch.testing.assert_close(torch.rand(2), expected)
    assert str(undisturbed()) == first


@pytest.mark.parametrize("form", [lambda x: x.numpy(), lambda x: x.double(), lambda x: x.tolist()])
def test_inputs_of_any_form(form):
    assert audit_modules(rows=form(INPUTS), labels=form(CLASSES)).strongest.auc.low > 0.8


def test_images_and_words_have_the_shape_that_they_have():
    image = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 3 * 4, 3))
    assert audit_modules(rows=INPUTS.view(POINTS, 1, 5, 6), make=lambda: copy.deepcopy(image)).results
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    assert audit_modules(rows=(INPUTS[:, :5] > 0).long(), make=lambda: copy.deepcopy(words)).results


class Interrupted(KeyboardInterrupt):
    """Somebody pressed a key."""


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path):
    calls = []

    def watched(module, rows, labels):
        if len(calls) == stop:
            raise Interrupted
        calls.append(len(rows))
        fitted(module, rows, labels)

    stop = 4
    with pytest.raises(Interrupted):
        audit_modules(watched, folder=tmp_path)
    stop = -1
    first = audit_modules(watched, folder=tmp_path)
    assert len(calls) == MODELS
    assert str(undisturbed()) == str(first)
    del calls[:]
    assert str(audit_modules(watched, folder=tmp_path)) == str(first)
    assert not calls
    audit_modules(watched, rows=INPUTS + 1, folder=tmp_path)
    assert len(calls) == MODELS, "other data are trained anew"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A training that notes its calls, a folder in which a whole audit left its models, and what it found."""
    folder, calls = tmp_path_factory.mktemp("trained"), []

    def watched(module, rows, labels):
        calls.append(1)
        fitted(module, rows, labels)

    return watched, calls, folder, str(audit_modules(watched, folder=folder))


@pytest.mark.parametrize("spoil", [lambda content: content[:50], lambda content: content[:-1] + b"?"])
def test_a_damaged_file_counts_as_absent(spoil, finished, tmp_path):
    watched, calls, folder, expected = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = min(tmp_path.iterdir())
    path.write_bytes(spoil(path.read_bytes()))
    del calls[:]
    assert str(audit_modules(watched, folder=tmp_path)) == expected
    assert len(calls) == 1


@pytest.mark.parametrize("rows", [POINTS, POINTS - 1])
def test_all_at_once(rows, tmp_path, monkeypatch):
    def make():
        return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 3))

    recipe = Recipe(epochs=40, batch=30, learning_rate=0.02)
    given = {"rows": INPUTS[:rows], "labels": CLASSES[:rows], "make": make, "recipe": recipe}
    found = audit_modules(None, **given, folder=tmp_path)
    assert found.strongest.auc.low > 0.75
    assert len([*tmp_path.iterdir()]) == 1
    monkeypatch.setattr("leakage.trainers.ensembles.train", None)  # nothing is trained again
    assert str(audit_modules(None, **given, folder=tmp_path)) == str(found)


@pytest.mark.parametrize("train", [fitted, None])
def test_units_are_trained_on_as_a_whole(train):
    found = audit_modules(train, units=np.arange(POINTS) // 3, make=lambda: nn.Linear(30, 3))
    assert (found.member.shape, found.outsiders) == ((MODELS, POINTS // 3), POINTS // 6)


def test_one_output_of_a_module_is_the_logit_of_class_one():
    recipe = Recipe(epochs=40, batch=30, learning_rate=0.02)
    found = audit_modules(None, labels=CLASSES % 2, make=lambda: nn.Linear(30, 1), recipe=recipe)
    assert found.strongest.auc.estimate > 0.6


class Answering(nn.Module):
    """A module that answers in another form than logits."""

    def __init__(self, form):
        super().__init__()
        self.inner, self.form = nn.Linear(30, 3), form

    def forward(self, rows):
        return self.form(self.inner(rows), rows)


class Output(NamedTuple):
    logits: torch.Tensor
    state: torch.Tensor


OUTPUTS = {
    "tuple": lambda: Answering(lambda logits, rows: (logits, rows)),
    "dictionary": lambda: Answering(lambda logits, rows: {"logits": logits}),
    "named tuple": lambda: Answering(Output),
    "nothing": lambda: Answering(lambda logits, rows: None),
    "one axis more": lambda: Answering(lambda logits, rows: logits[None]),
    "recurrent": lambda: nn.LSTM(30, 3),
}


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_module_returns_is_looked_at_before_it_is_trained(make, at_once):
    calls = []
    with pytest.raises(ValueError, match=r"`factory` makes a module that fails .* `factory` must (return|give)"):
        audit_modules(None if at_once else lambda *_: calls.append(1), make=make)
    assert not calls


def test_whole_numbers_are_said_where_a_layer_takes_none():
    with pytest.raises(ValueError, match=r"rows of `X`, .*int64; for a layer that takes no whole numbers"):
        audit_modules(rows=(INPUTS > 0).long(), make=lambda: nn.Linear(30, 3))


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3))


@pytest.mark.parametrize("train", [fitted, None])
def test_lazy_layers_have_weights_before_a_file_is_named(train, tmp_path):
    recipe = {} if train else {"recipe": Recipe(epochs=2, batch=30)}
    first = str(audit_modules(train, make=lazy, folder=tmp_path, **recipe))
    assert str(audit_modules(train, make=lazy, folder=tmp_path, **recipe)) == first
    assert len([*tmp_path.iterdir()]) == (MODELS if train else 1)


@pytest.mark.slow
def test_modules_are_trained_and_asked_on_the_device_that_is_named(tmp_path):
    program = [sys.executable, Path(__file__).parents[2] / "elsewhere_audit.py", tmp_path]
    found = subprocess.run(program, capture_output=True, text=True, timeout=HANGS)
    assert found.returncode == 0, found.stderr


ONE = nn.Linear(30, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: audit_modules(make=lambda: 3), TypeError, "`factory` must make an nn.Module"),
        (lambda: audit_modules(labels=CLASSES + 1), ValueError, "at least 0 and at most 2"),
        (lambda: audit_modules(labels=CLASSES + 0.5), ValueError, "`y` must be whole numbers"),
        (lambda: audit_modules(labels=CLASSES[:5]), ValueError, "equally many rows"),
        (lambda: audit_modules(rows=INPUTS[:, 0]), ValueError, "rows of features"),
        (lambda: audit_modules(rows=INPUTS / 0), ValueError, "`X` must be finite"),
        (
            lambda: audit_modules(make=lambda: nn.Sequential(nn.Linear(30, 3), nn.Softmax(1))),
            ValueError,
            "`factory` must give logits, got probabilities",
        ),
        (lambda: audit_modules(rows=TensorDataset(INPUTS, CLASSES)), TypeError, "got TensorDataset; of a data set"),
        (lambda: audit_modules(folder=__file__), ValueError, "`folder` must be a folder"),
        (lambda: audit_modules(None, recipe=Recipe(1, 0)), ValueError, "`recipe` or `factory` fails on half 0"),
        (lambda: audit_modules(lambda *_: 1 / 0), ValueError, "`train` fails on half 0, 30 rows: .*ZeroDivisionError"),
        (lambda: audit_modules(recipe=Recipe(1, 1)), ValueError, "goes with `train=None`"),
        (lambda: audit_modules(device="nowhere"), ValueError, "`device` must be .* got 'nowhere': .*; 'cpu' always is"),
        (lambda: audit_modules(device="meta"), ValueError, "`device` must be one .* got 'meta'"),
        (lambda: audit_modules(lambda module, *_: copy.deepcopy(module)), ValueError, "`train` must train the module"),
        (lambda: audit_modules(make=lambda: ONE), ValueError, "`factory` must make a new module"),
        (lambda: audit_modules(make=ONE), TypeError, "`factory` must be a function"),
        (lambda: audit_modules(lambda module, *_: module[0].weight.data.fill_(torch.nan)), ValueError, "diverged"),
    ],
)
def test_bad_inputs_of_modules_are_refused_with_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()
