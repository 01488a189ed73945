"""ML-Leaks with and without polytopes on networks that memorise, and on networks that have learned nothing."""

import math
from functools import cache

import pytest
import torch

import noise_labels
from leakage.attacks.membership import attack_models
from leakage.attacks.membership.attack_models import Settings
from leakage.trainers.ensembles import Recipe
from reproduced.studies.polytopes import shadow_attacks, shadow_pairs
from reproduced.studies.polytopes.shadow_attacks import Shooting

QUICK = Settings(hidden=16, recipe=Recipe(epochs=20, batch=40, learning_rate=1e-2), trees=30)
SHOTS = Shooting(rays=2, boundaries=3, cells=4, until=20.0)


@cache
def pair():
    """A target and its shadow, both of which memorise."""
    return shadow_pairs.train_pair(noise_labels.task(), split=0, seed=0)


def test_what_memorises_is_found_out_by_posteriors():
    found = shadow_attacks.attack(0, task=noise_labels.task(), shooting=SHOTS, settings=QUICK)
    assert found.fit.train > 0.99
    gap = (found.fit.train - found.fit.test) / 2
    assert float(found.scores["threshold: correct"].accuracy) == pytest.approx(0.5 + gap, abs=1e-12)
    for name in attack_models.MODELS:
        assert float(found.scores[f"{name}: top-3"].auc) > 0.75
    assert found.scores.columns.tpr.shape == (len(found.scores.names), 1)
    assert "NN: distance" not in found.scores.names
    assert set(shadow_attacks.STANDALONE) <= {name.removeprefix("GBDT: ") for name in found.scores.names}


def test_what_has_learned_nothing_is_not():
    task = noise_labels.task(epochs=0)
    found = shadow_attacks.attack(0, task=task, shooting=SHOTS, settings=QUICK, models=("GBDT",))
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.scores.rows():
        # Seventeen areas: one in a hundred sets of them passes four standard errors.
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_tree_sizes_are_compared_on_target_and_shadow():
    found = shadow_attacks.tree_sizes(0, task=noise_labels.task(), leaves=(3, 8), trees=20)
    assert found.leaves.tolist() == [3, 8]
    assert all(bool((values > 0.6).all()) and values.dtype == torch.float64 for values in found[1:])


def test_a_signal_is_tried_along_each_ray_by_itself():
    asked = dict(split=0, seed=0, shooting=SHOTS, settings=QUICK, models=("GBDT",), sets=("distance",))
    found = shadow_attacks.compare(pair(), **asked, each_ray=("distance", "norm"))
    assert found.by_ray.shape == (2, SHOTS.rays)
    assert bool(((found.by_ray >= 0) & (found.by_ray <= 1)).all())
    assert len({*found.by_ray[0].tolist()}) > 1
    again = shadow_attacks.compare(pair(), **asked)
    assert again.by_ray.shape == (0, SHOTS.rays)
    torch.testing.assert_close(again.scores["GBDT: distance"].auc, found.scores["GBDT: distance"].auc)


def test_target_and_shadow_change_places():
    asked = dict(split=0, seed=0, shooting=SHOTS, settings=QUICK, models=("GBDT",), sets=("distance", "cell"))
    found = shadow_attacks.compare(pair(), **asked)
    assert found.swapped.names == ("GBDT: distance",)
    assert float(found.swapped["GBDT: distance"].auc) > 0.5
    assert float(found.swapped["GBDT: distance"].auc) != pytest.approx(float(found.scores["GBDT: distance"].auc))
