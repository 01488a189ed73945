"""With features of the rows an audit needs no shadow models, and says whether members differ without the model."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

from leakage import audit
from leakage.membership.trained_models import TrainedModels

ROWS = 600
DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(ROWS, 3))
MEMBER = DRAWS.random(ROWS) < 0.5


def losses_of(members, shift):
    """Losses that the first feature explains; members' are smaller."""
    logits = 4 * np.sign(X[:, 0]) + np.random.default_rng(1).normal(size=members.shape) + shift * members
    return np.logaddexp(0, -logits)


def notes_on_members(found):
    return [note for note in found.notes if "without the model" in note]


def test_one_model_is_attacked_by_quantiles_where_features_are_given():
    losses = losses_of(MEMBER, 2.0)
    found = audit.of_losses(losses, MEMBER, features=X)
    assert [row.attack for row in found.results] == ["loss", "quantile regression"]
    assert found.strongest.attack == "quantile regression"
    assert found.strongest.auc.low > found.results[0].auc.high
    assert [row.attack for row in audit.of_losses(losses, MEMBER).results] == ["loss"]


def test_without_a_leak_neither_the_attack_nor_the_baseline_finds_anything():
    found = audit.of_losses(losses_of(MEMBER, 0.0), MEMBER, features=X, level=0.99)
    for row in (*found.results, found.baseline):
        assert row.auc.low < 0.5 < row.auc.high
        assert row.advantage.low < 0 < row.advantage.high
    assert notes_on_members(found) == []


def test_members_that_differ_are_said_and_count_as_no_attack():
    features = X.copy()
    features[:, 2] += 1.5 * MEMBER
    found = audit.of_losses(losses_of(MEMBER, 0.3), MEMBER, features=features)
    assert found.baseline.auc.low > 0.75 > found.strongest.auc.high
    (note,) = notes_on_members(found)
    assert note in found.warnings
    assert f"AUC {found.baseline.auc:.2f} from the features alone" in note
    assert found.at_least("auc") < 0.7
    *attacks, last = found.table()
    assert last["attack"] == found.baseline.attack
    assert last["sees"] == "features"
    assert [row["attack"] for row in attacks] == [row.attack for row in found.results]
    assert "no attack: without the model" in found.to_json()


def test_labels_that_differ_are_a_part_of_the_rows():
    """Next year's rows with noisier labels: neither the features nor the labels tell, but both together do."""
    labels = np.where(~MEMBER & (np.random.default_rng(2).random(ROWS) < 0.5), X[:, 1] < 0, X[:, 1] > 0)
    found = audit.of_losses(losses_of(MEMBER, 0.0), MEMBER, features=X, labels=labels)
    assert notes_on_members(found)


def test_shadow_models_make_the_quantiles_needless_but_not_the_baseline():
    member = DRAWS.random((6, ROWS)) < 0.5
    found = audit.of_losses(losses_of(member, 1.0), member, features=X, target=0)
    assert "LiRA" in {row.attack for row in found.results}
    assert "quantile regression" not in {row.attack for row in found.results}
    assert found.baseline.auc.low < 0.5 < found.baseline.auc.high
    offline = np.zeros_like(member)
    offline[0] = member[0]
    names = {row.attack for row in audit.of_losses(losses_of(offline, 1.0), offline, features=X).results}
    assert {"LiRA, offline", "RMIA, offline", "quantile regression"} < names


def test_visits_of_one_patient_tell_nothing_of_each_other():
    """Each patient has features and losses of its own, which its visits share: a fit that saw one knows the others."""
    units = np.arange(ROWS) // 3
    member, levels = MEMBER[units], losses_of(MEMBER, 0.0)[units]
    found = audit.of_losses(levels, member, features=X[units], units=units, level=0.99)
    for row in (*found.results, found.baseline):
        assert row.auc.low < 0.5 < row.auc.high


def test_features_of_any_form_are_the_same():
    expected = str(audit.of_losses(losses_of(MEMBER, 1.0), MEMBER, features=X).table())
    for form in (X.tolist(), torch.tensor(X), X.reshape(ROWS, 3, 1)):
        assert str(audit.of_losses(losses_of(MEMBER, 1.0), MEMBER, features=form).table()) == expected
    for lacking in (np.nan, np.inf):
        missing = np.where(np.arange(ROWS)[:, None] % 9 == 0, lacking, X)
        found = audit.of_losses(losses_of(MEMBER, 1.0), MEMBER, features=missing)
        assert found.strongest.attack == "quantile regression"


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (X[1:], ValueError, r"`features` must have one row for each of the 600 rows, got shape \(599, 3\)"),
        (1.0, ValueError, "`features` must have one row for each"),
        ([["a"]] * ROWS, TypeError, "`features` must hold numbers"),
    ],
)
def test_features_that_cannot_be_used_are_refused(features, error, message):
    with pytest.raises(error, match=message):
        audit.of_losses(losses_of(MEMBER, 1.0), MEMBER, features=features)


def test_trained_models_may_have_features():
    models = TrainedModels.from_losses(
        torch.tensor(losses_of(MEMBER, 2.0))[None], torch.tensor(MEMBER)[None], features=torch.tensor(X)
    )
    assert audit.of_models(models).strongest.attack == "quantile regression"


def test_two_clones_are_attacked_by_the_numbers_among_their_features():
    pandas = pytest.importorskip("pandas")  # the library alone does not need it

    frame = pandas.DataFrame(X, columns=list("abc"))
    labels = (X[:, 0] + DRAWS.normal(size=ROWS) > 0).astype(int)
    forest = RandomForestClassifier(5, random_state=0)
    for rows in (X, torch.tensor(X), frame):
        found = audit.of_sklearn(forest, rows, labels, models=2)
        assert "quantile regression" in {row.attack for row in found.results}
        assert found.baseline is None
    frame["d"] = np.where(X[:, 1] > 0, "yes", "no")
    assert audit.of_sklearn(RandomForestClassifier(5), frame[["a"]], labels, models=2).results
