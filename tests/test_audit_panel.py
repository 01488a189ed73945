"""Models that are trained already are audited as their losses would be, a block of points at a time."""

import functools
import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from leakage import audit, blocks
from leakage.attacks.membership.panels import Hidden, Panel
from leakage.data.membership_splits import complementary_pairs
from leakage.models.mlp import from_module
from leakage.runtime import stream
from test_blocks import numbers

MODELS, POINTS, CLASSES = 6, 90, 4
PAIRS = complementary_pairs(POINTS, MODELS, generator=stream(0, "pairs"))
IMAGES = torch.rand(POINTS, 1, 3, 3, generator=stream(0, "images"))
LABELS = torch.randint(CLASSES, (POINTS,), generator=stream(0, "labels"))
FORMS = ("modules", "opened", "functions", "estimators")
SINGLE = dict(rtol=1e-5, atol=1e-6)  # modules compute in float32, whatever holds their answers


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # So many neurons that some are on: where all are off answers are equal, and rounding would rank them.
        return nn.Sequential(nn.Flatten(), nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def of_form(form):
    """A panel of six models, none of which but the estimators was trained."""
    where = PAIRS.member, PAIRS.partner
    if form == "estimators":
        rows = IMAGES.flatten(1).numpy()
        fitted = [LogisticRegression().fit(rows[own], LABELS.numpy()[own]) for own in PAIRS.rows.numpy()]
        return Panel.of_estimators(fitted, rows, LABELS.numpy(), *where)
    if form == "modules":
        return Panel.of_modules([nn.Sequential(network(k), nn.Tanh()) for k in range(MODELS)], IMAGES, LABELS, *where)
    opened = [from_module(network(k)[1:]) for k in range(MODELS)]
    functions = [lambda images, k=k: images.flatten(1)[:, k % 5 : k % 5 + CLASSES] * (1 + k) for k in range(MODELS)]
    return Panel(opened if form == "opened" else functions, IMAGES, LABELS, *where)


@functools.cache
def in_one_block(form):
    """The panel that several tests look at, asked everything while blocks are large."""
    panel = of_form(form)
    assert panel.logits.shape == (MODELS, POINTS, CLASSES)
    assert panel.margins.shape == panel.losses.shape == panel.correct.shape == (MODELS, POINTS)
    return panel


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("numbers", [1, 100, 2000])
def test_the_size_of_a_block_changes_nothing(form, numbers, monkeypatch):
    whole = in_one_block(form)
    monkeypatch.setattr(blocks, "NUMBERS", numbers)
    parts = of_form(form)
    for name in ("margins", "losses", "correct"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), **SINGLE)
    assert "logits" not in vars(parts)
    torch.testing.assert_close(parts.logits, whole.logits, **SINGLE)


@pytest.mark.parametrize("form", FORMS)
def test_an_audit_of_models_is_one_of_what_they_say(form):
    panel = in_one_block(form)
    losses = nn.functional.cross_entropy(panel.logits.mT, LABELS.expand(MODELS, -1), reduction="none")
    right = panel.logits.argmax(-1) == LABELS
    groups = np.arange(POINTS) % 2
    known = {"correct": right, "labels": LABELS, "groups": groups, "fprs": (0.1,)}
    of_models, of_answers = (
        audit.of_panel(panel, groups=groups, fprs=(0.1,)),
        audit.of_losses(losses, PAIRS.member, **known),
    )
    found, expected = ([*numbers(json.loads(one.to_json()))] for one in (of_models, of_answers))
    assert found == pytest.approx(expected, abs=1e-6)


def test_losses_that_were_given_stay_what_they_were():
    losses = torch.rand(MODELS, POINTS, generator=stream(0, "losses")).square() * 1e-7  # some lost in float32
    panel = Panel.of_losses(losses, PAIRS.member, PAIRS.partner)
    assert str(audit.of_panel(panel, target=2)) == str(audit.of_losses(losses, PAIRS.member, target=2))
    with pytest.raises(Hidden, match="only losses were given"):
        _ = panel.correct


def test_what_is_no_panel_is_refused():
    with pytest.raises(TypeError, match="`panel` must be"):
        audit.of_panel(PAIRS.member)
    tree = DecisionTreeClassifier().fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="`member` must hold truth values"):
        Panel.of_estimators([tree] * 4, np.eye(2), np.array([0, 1]), np.full((4, 2), "False"))
