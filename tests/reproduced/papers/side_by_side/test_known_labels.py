"""Known labels: the limit's advantages against trained regressions, and the two models' opposite answers."""

import torch

from reproduced.papers.side_by_side import known_labels

PENALTIES = [0.01, 1.0, 100.0]


def test_on_real_labels_trained_models_have_the_advantages_of_the_limit():
    exact = known_labels.real_labels(PENALTIES)
    found = known_labels.attack_ridge_regressions(PENALTIES, n=40, models=1500, seed=0)
    for limit, trained in zip(exact[:2], found, strict=True):
        torch.testing.assert_close(trained.mean(0), limit, rtol=0, atol=0.07)  # four standard errors


def test_on_binary_labels_trained_models_have_the_advantages_of_the_limit():
    exact = known_labels.binary_labels(PENALTIES)
    found = known_labels.attack_logistic_regressions(PENALTIES, n=60, models=20, points=40, seed=0)
    for limit, trained in zip(exact[:2], found, strict=True):
        torch.testing.assert_close(trained.mean(0), limit, rtol=0, atol=0.1)  # sampling, and 60 rows


def test_ridge_helps_only_the_attacker_without_a_real_label():
    real, binary = known_labels.real_labels(PENALTIES), known_labels.binary_labels(PENALTIES)
    assert (real.blind.diff() > 0).all()
    for falling in (real.labelled, binary.blind, binary.labelled):
        assert (falling.diff() < 0).all()


def test_the_label_never_lowers_an_advantage():
    for exact in (known_labels.real_labels(PENALTIES), known_labels.binary_labels(PENALTIES)):
        assert (exact.labelled > exact.blind).all()
