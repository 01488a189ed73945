"""Models that are trained already are audited as their losses would be."""

import functools
import json

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing
from torch import nn

from checking import all_numbers
from leakage import audit
from leakage.data.membership_splits import complementary_pairs
from leakage.membership.trained_models import NotAvailable, TrainedModels
from leakage.models.mlp import from_module
from reproduced.runtime import stream

MODELS, POINTS, CLASSES = 6, 90, 4
PAIRS = complementary_pairs(POINTS, MODELS, generator=stream(0, "pairs"))
IMAGES = torch.rand(POINTS, 1, 3, 3, generator=stream(0, "images"))
LABELS = torch.randint(CLASSES, (POINTS,), generator=stream(0, "labels"))
FORMS = ("modules", "opened", "functions", "estimators")


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # So many neurons that some are on: where all are off answers are equal, and rounding would rank them.
        return nn.Sequential(nn.Flatten(), nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def of_form(form):
    """Six models, none of which but the estimators was trained."""
    where = PAIRS.member, PAIRS.partner
    if form == "estimators":
        rows = IMAGES.flatten(1).numpy()
        fitted = [LogisticRegression().fit(rows[own], LABELS.numpy()[own]) for own in PAIRS.rows.numpy()]
        return TrainedModels.from_estimators(fitted, rows, LABELS.numpy(), *where)
    if form == "modules":
        return TrainedModels.from_modules(
            [nn.Sequential(network(k), nn.Tanh()) for k in range(MODELS)], IMAGES, LABELS, *where
        )
    opened = [from_module(network(k)[1:]) for k in range(MODELS)]
    functions = [lambda images, k=k: images.flatten(1)[:, k % 5 : k % 5 + CLASSES] * (1 + k) for k in range(MODELS)]
    return TrainedModels(opened if form == "opened" else functions, IMAGES, LABELS, *where)


@functools.cache
def asked(form):
    """The models that several tests look at, asked everything."""
    models = of_form(form)
    assert models.logits.shape == (MODELS, POINTS, CLASSES)
    assert models.margins.shape == models.losses.shape == models.correct.shape == (MODELS, POINTS)
    return models


@pytest.mark.parametrize("form", FORMS)
def test_an_audit_of_models_is_one_of_what_they_say(form):
    models = asked(form)
    losses = nn.functional.cross_entropy(models.logits.mT, LABELS.expand(MODELS, -1), reduction="none")
    right = models.logits.argmax(-1) == LABELS
    groups = np.arange(POINTS) % 2
    known = {"correct": right, "labels": LABELS, "groups": groups, "fprs": (0.1,)}
    of_models, of_answers = (
        audit.of_models(models, groups=groups, fprs=(0.1,)),
        audit.of_losses(losses, PAIRS.member, **known),
    )
    found, expected = ([*all_numbers(json.loads(one.to_json()))] for one in (of_models, of_answers))
    assert found == pytest.approx(expected, abs=1e-6)


def test_losses_that_were_given_stay_what_they_were():
    losses = torch.rand(MODELS, POINTS, generator=stream(0, "losses")).square() * 1e-7  # some lost in float32
    models = TrainedModels.from_losses(losses, PAIRS.member, PAIRS.partner)
    assert str(audit.of_models(models, target=2)) == str(audit.of_losses(losses, PAIRS.member, target=2))
    with pytest.raises(NotAvailable, match="only losses were given"):
        _ = models.correct


def test_other_things_than_trained_models_are_refused():
    with pytest.raises(TypeError, match="`models` must be"):
        audit.of_models(PAIRS.member)
    tree = DecisionTreeClassifier().fit(np.eye(2), [0, 1])
    with pytest.raises(TypeError, match="`member` must hold numbers, got str"):
        TrainedModels.from_estimators([tree] * 4, np.eye(2), np.array([0, 1]), np.full((4, 2), "False"))


def test_the_same_forests_have_the_same_numbers_through_every_door():
    estimator = RandomForestClassifier(20, random_state=0)
    rows, labels = load_breast_cancer(return_X_y=True)
    trained = audit.of_sklearn(estimator, rows, labels, models=16)
    fitted = [clone(estimator).fit(rows[own], labels[own]) for own in trained.member]
    chance = np.stack([one.predict_proba(rows)[np.arange(len(labels)), labels] for one in fitted])
    with np.errstate(divide="ignore"):
        losses = -np.log(chance)
    of_losses = audit.of_losses(losses, trained.member)
    of_models = audit.of_models(TrainedModels.from_estimators(fitted, rows, labels, trained.member))
    assert any("are clipped to" in note for note in trained.notes)
    for other in (of_losses, of_models):
        for name in ("loss", "LiRA", "RMIA"):
            auc = trained.interval(name, "auc").estimate
            assert other.interval(name, "auc").estimate == pytest.approx(auc, abs=1e-9), name
        assert other.scores["LiRA"] == pytest.approx(trained.scores["LiRA"], rel=1e-6, abs=1e-8)


def test_estimators_are_asked_about_rows_of_every_form():
    pandas = pytest.importorskip("pandas")  # the library alone does not need it

    values, labels = (IMAGES.flatten(1) > 0.5).double().numpy(), LABELS.numpy()
    frame = pandas.DataFrame(values, columns=[*"abcdefghi"])
    named = make_pipeline(make_column_transformer(("passthrough", [*frame])), MultinomialNB())
    words = [" ".join(np.array(["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh", "ii"])[row > 0]) for row in values]
    expected = None
    for estimator, rows in {
        MultinomialNB(): values,
        MultinomialNB(): sparse.coo_matrix(values),
        named: frame,
        make_pipeline(CountVectorizer(), MultinomialNB()): words,
    }.items():
        table = rows.tocsr() if sparse.issparse(rows) else rows
        fitted = [clone(estimator).fit(_safe_indexing(table, own.numpy()), labels[own]) for own in PAIRS.rows]
        models = TrainedModels.from_estimators(fitted, rows, labels, PAIRS.member.tolist(), PAIRS.partner)
        found = audit.of_models(models, fprs=(0.1,))
        expected = expected or str(found.table())
        assert str(found.table()) == expected
    gaps = np.where(values > 0.5, np.nan, values)
    trees = [HistGradientBoostingClassifier(max_iter=2).fit(gaps[own], labels[own]) for own in PAIRS.rows.numpy()]
    assert audit.of_models(TrainedModels.from_estimators(trees, gaps, labels, PAIRS.member)).results
    with pytest.raises(ValueError, match=r"model 0 fails on `points`, list: .*audit\.of_losses"):
        TrainedModels.from_estimators(trees, words, labels, PAIRS.member)


def test_units_are_given_with_models():
    units = np.arange(POINTS) // 3
    member = complementary_pairs(POINTS // 3, MODELS, generator=stream(0, "units")).member.repeat_interleave(3, 1)
    models = TrainedModels.from_modules([network(k) for k in range(MODELS)], IMAGES, LABELS, member)
    assert audit.of_models(models, units=units).member.shape == (MODELS, POINTS // 3)
    with pytest.raises(ValueError, match="`units` must be trained on as a whole"):
        audit.of_models(models, units=np.arange(POINTS) // 4)


class Squashed(nn.Sequential):
    def forward(self, input):
        return torch.sigmoid(super().forward(input))


def test_probabilities_of_a_softmax_are_refused_and_those_of_a_sigmoid_are_noted():
    soft, squashed = (
        TrainedModels.from_modules(
            [end(network(k)) for k in range(MODELS)], IMAGES.numpy(), LABELS.numpy(), PAIRS.member
        )
        for end in (lambda inner: nn.Sequential(inner, nn.Softmax(-1)), Squashed)
    )
    with pytest.raises(ValueError, match="leave out the final softmax"):
        audit.of_models(soft)
    (note,) = [note for note in audit.of_models(squashed).notes if "sigmoid" in note]
    assert "All outputs of `models` are in [0, 1]" in note


def test_one_output_of_a_module_is_the_logit_of_class_one():
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(9, 1)) for _ in range(MODELS)]
    models = TrainedModels.from_modules(modules, IMAGES, LABELS % 2, PAIRS.member)
    output = torch.stack([module(IMAGES).squeeze(-1) for module in modules]).detach().double()
    expected = nn.functional.softplus(torch.where(LABELS % 2 == 1, -output, output))
    torch.testing.assert_close(models.losses, expected)
    assert audit.of_models(models).results


@pytest.mark.parametrize(
    "change",
    [dict(estimators=[]), dict(points=IMAGES.flatten(1)[:5]), dict(points=["a", "b"]), dict(labels=LABELS[:3])],
    ids=lambda change: next(iter(change)),
)
def test_estimators_points_labels_and_member_fit_together(change):
    rows = IMAGES.flatten(1).numpy()
    fitted = [DecisionTreeClassifier().fit(rows[half], LABELS[half]) for half in PAIRS.member.numpy()]
    right = dict(estimators=fitted, points=rows, labels=LABELS.numpy(), member=PAIRS.member)
    with pytest.raises(ValueError, match="`member` must be"):
        TrainedModels.from_estimators(**right | change)
