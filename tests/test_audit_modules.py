"""Modules are trained by their owner or all at once, resume where they were, and are judged like all else."""

import copy
import functools
import shutil

import pytest
import torch
from torch import nn

from leakage import audit
from leakage.data.gaussians import gaussian
from leakage.runtime import stream
from leakage.trainers.ensembles import Recipe

ROWS, MODELS = 60, 6
X = gaussian((ROWS, 30), generator=stream(0, "rows")).float()
Y = torch.randint(0, 3, (ROWS,), generator=stream(0, "labels"))


def factory():
    return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def fitted(module, rows, labels):
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), labels).backward()
        optimiser.step()


def audited(train=fitted, rows=X, labels=Y, make=factory, **named):
    return audit.of_module(make, train, rows, labels, **{"models": MODELS, "fprs": (0.05,)} | named)


@functools.cache
def undisturbed():
    """The audit that several tests compare another with."""
    return audited()


def test_an_overfitted_module_is_found_and_an_untrained_one_is_not():
    assert undisturbed().strongest.auc.low > 0.8
    for row in audited(lambda *_: None, level=0.99).found:
        assert row.auc.low <= 0.5 <= row.auc.high


def test_the_draws_of_others_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = str(audited())
    torch.testing.assert_close(torch.rand(2), expected)
    assert str(undisturbed()) == first


@pytest.mark.parametrize("form", [lambda x: x.numpy(), lambda x: x.double(), lambda x: x.tolist()])
def test_inputs_of_any_form(form):
    assert audited(rows=form(X), labels=form(Y)).strongest.auc.low > 0.8


def test_images_and_words_have_the_shape_that_they_have():
    image = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 3 * 4, 3))
    assert audited(rows=X.view(ROWS, 1, 5, 6), make=lambda: copy.deepcopy(image)).found
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    assert audited(rows=(X[:, :5] > 0).long(), make=lambda: copy.deepcopy(words)).found


class Interrupted(Exception):
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
        audited(watched, folder=tmp_path)
    stop = -1
    first = audited(watched, folder=tmp_path)
    assert len(calls) == MODELS
    assert str(undisturbed()) == str(first)
    del calls[:]
    assert str(audited(watched, folder=tmp_path)) == str(first)
    assert not calls
    audited(watched, rows=X + 1, folder=tmp_path)
    assert len(calls) == MODELS, "other data are trained anew"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training that notes its calls, a folder in which a whole audit left its models, and what it found."""
    folder, calls = tmp_path_factory.mktemp("trained"), []

    def watched(module, rows, labels):
        calls.append(1)
        fitted(module, rows, labels)

    return watched, calls, folder, str(audited(watched, folder=folder))


@pytest.mark.parametrize("spoil", [lambda content: content[:50], lambda content: content[:-1] + b"?"])
def test_a_damaged_file_counts_as_absent(spoil, trained, tmp_path):
    watched, calls, folder, expected = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = min(tmp_path.iterdir())
    path.write_bytes(spoil(path.read_bytes()))
    del calls[:]
    assert str(audited(watched, folder=tmp_path)) == expected
    assert len(calls) == 1


@pytest.mark.parametrize("rows", [ROWS, ROWS - 1])
def test_all_at_once(rows, tmp_path, monkeypatch):
    def make():
        return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 3))

    recipe = Recipe(epochs=40, batch=30, learning_rate=0.02)
    given = {"rows": X[:rows], "labels": Y[:rows], "make": make, "recipe": recipe}
    found = audited(None, **given, folder=tmp_path)
    assert found.strongest.auc.low > 0.75
    assert len([*tmp_path.iterdir()]) == 1
    monkeypatch.setattr("leakage.trainers.ensembles.train", None)  # nothing is trained again
    assert str(audited(None, **given, folder=tmp_path)) == str(found)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: audited(make=lambda: 3), TypeError, "`factory` must make an nn.Module"),
        (lambda: audited(labels=Y + 1), ValueError, "at least 0 and at most 2"),
        (
            lambda: audited(None, labels=Y + 1, make=lambda: nn.Linear(30, 3)),
            ValueError,
            "`y` must be at least 0 and at most 2",
        ),
        (lambda: audited(labels=Y - 1), ValueError, "`y` must be at least 0"),
        (lambda: audited(labels=Y + 0.5), ValueError, "`y` must be whole numbers"),
        (lambda: audited(labels=["a"] * ROWS), TypeError, "`y` must hold numbers"),
        (lambda: audited(labels=Y[:5]), ValueError, "equally many rows"),
        (lambda: audited(rows=X[:, 0]), ValueError, "rows of features"),
        (lambda: audited(rows=X / 0), ValueError, "`X` must be finite"),
        (lambda: audited(make=lambda: nn.Linear(30, 1)), ValueError, "two classes or more"),
        (lambda: audited(recipe=Recipe(1, 1)), ValueError, "goes with `train=None`"),
        (lambda: audited(None), ValueError, "dropout"),
        (lambda: audited(lambda module, *_: module[0].weight.data.fill_(torch.nan)), ValueError, "diverged"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_cure(call, error, message):
    with pytest.raises(error, match=message):
        call()


def train(module, x, y, steps=1):
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()


ONE = nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("factory", "trains", "message"),
    [
        (lambda: nn.Linear(3, 2), lambda module, x, y: copy.deepcopy(module), "`train` must train"),
        (lambda: ONE, train, "`factory` must make a new module"),
    ],
)
def test_a_module_that_is_not_new_or_trained_elsewhere_is_refused(factory, trains, message):
    x, y = torch.randn(40, 3, generator=stream(0, "settings")), torch.arange(40) % 2
    with pytest.raises(ValueError, match=message):
        audit.of_module(factory, trains, x, y, models=8)
