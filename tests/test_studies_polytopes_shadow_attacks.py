"""Pairs know nothing of each other's quarters; ML-Leaks finds networks that memorise, and none that learned nothing."""

import math

import pytest
import torch

import noise_labels
from leakage.attacks.membership import attack_models
from leakage.attacks.membership.attack_models import Settings
from leakage.data.tabular import LOADERS
from leakage.trainers.ensembles import Recipe
from noise_labels import NOISE
from reproduced.studies.polytopes import shadow_attacks
from reproduced.studies.polytopes.shadow_attacks import RaySettings, Task, evaluate_scores, stack_splits

QUICK = Settings(hidden=16, recipe=Recipe(epochs=20, batch=40, learning_rate=1e-2), trees=30)
RAYS = RaySettings(rays=2, boundaries=3, cells=4, until=20.0)


MEMORISED = noise_labels.task()


def test_each_network_fits_its_members_and_not_the_outsiders():
    pair = shadow_attacks.train_pair(MEMORISED, split=0, seed=0)
    for side in pair:
        assert side.fit.train > 0.99
        # Labels by lot of four classes: a quarter, and five standard errors of 120 points.
        assert side.fit.test < 0.25 + 5 * (0.25 * 0.75 / 120) ** 0.5
        assert side.points.dtype == torch.float64
        assert int(side.member.sum()) == 120
        assert side.take(10).fit.train > 0.99
    seen = [{tuple(row) for row in side.points.tolist()} for side in pair]
    assert not seen[0] & seen[1]


def test_split_and_seed_fix_everything():
    task = noise_labels.task(epochs=1)
    first, again, other = (
        shadow_attacks.train_pair(task, split=split, seed=seed).target for split, seed in ((1, 0), (1, 0), (0, 1))
    )
    torch.testing.assert_close(first.network.weights[0], again.network.weights[0])
    assert not torch.allclose(first.points, other.points)


def test_the_tasks_of_the_book_are_those_of_the_thesis():
    assert (shadow_attacks.SIZES["location"], shadow_attacks.SIZES["adult"]) == (1252, 2500)
    assert (Task(NOISE, size=2).hidden, Task(NOISE, size=2).recipe) == ((128,), Recipe(epochs=60, batch=100))
    assert shadow_attacks.SIZES.keys() == LOADERS.keys()


def test_splits_stand_behind_the_names():
    member = torch.tensor([True, True, False, False])
    scores = {"good": torch.tensor([4.0, 3.0, 2.0, 1.0]), "mixed": torch.tensor([4.0, 1.0, 3.0, 2.0])}
    splits = [
        {
            name: evaluate_scores(values + shift, member=member, rates=(0.5,), threshold=2.5)
            for name, values in scores.items()
        }
        for shift in (0.0, -2.0)
    ]
    both = stack_splits(splits)
    assert both["good"].accuracy.tolist() == pytest.approx([1, 0.5])
    assert both["mixed"].auc.tolist() == pytest.approx([0.5, 0.5])
    assert both["good"].tpr.tolist() == [[1], [1]]


def test_without_a_threshold_the_best_one_counts():
    member = torch.tensor([True, False, True, False])
    found = evaluate_scores(torch.tensor([1.0, 0.0, 9.0, -9.0]), member=member)
    assert float(found.accuracy) == pytest.approx(1)


def test_what_memorises_is_found_out_by_posteriors():
    found = shadow_attacks.attack_split(0, task=MEMORISED, rays=RAYS, settings=QUICK)
    assert found.fit.train > 0.99
    gap = (found.fit.train - found.fit.test) / 2
    assert float(found.scores["threshold: correct"].accuracy) == pytest.approx(0.5 + gap, abs=1e-12)
    for name in attack_models.MODELS:
        assert float(found.scores[f"{name}: top-3"].auc) > 0.75
    assert all(row.tpr.shape == (1,) for row in found.scores.values())
    assert "NN: distance" not in found.scores
    assert set(shadow_attacks.STANDALONE_SIGNALS) <= {name.removeprefix("GBDT: ") for name in found.scores}


def test_what_has_learned_nothing_is_not():
    task = noise_labels.task(epochs=0)
    found = shadow_attacks.attack_split(0, task=task, rays=RAYS, settings=QUICK, models=("GBDT",))
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.scores.items():
        # Seventeen areas: one in a hundred sets of them passes four standard errors.
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_tree_sizes_are_compared_on_target_and_shadow():
    found = shadow_attacks.compare_tree_sizes(0, task=MEMORISED, leaves=(3, 8), trees=20)
    assert found.leaves.tolist() == [3, 8]
    assert all(bool((values > 0.6).all()) and values.dtype == torch.float64 for values in found[1:])


def test_a_signal_is_tried_along_each_ray_by_itself():
    asked = dict(task=MEMORISED, rays=RAYS, settings=QUICK, models=("GBDT",), sets=("distance",))
    found = shadow_attacks.attack_split(0, **asked, each_ray=("distance", "norm"))
    assert found.by_ray.shape == (2, RAYS.rays)
    assert bool(((found.by_ray >= 0) & (found.by_ray <= 1)).all())
    assert len({*found.by_ray[0].tolist()}) > 1
    again = shadow_attacks.attack_split(0, **asked)
    assert again.by_ray.shape == (0, RAYS.rays)
    torch.testing.assert_close(again.scores["GBDT: distance"].auc, found.scores["GBDT: distance"].auc)


def test_target_and_shadow_change_places():
    asked = dict(task=MEMORISED, rays=RAYS, settings=QUICK, models=("GBDT",), sets=("distance", "cell"))
    found = shadow_attacks.attack_split(0, **asked)
    assert list(found.swapped) == ["GBDT: distance"]
    assert float(found.swapped["GBDT: distance"].auc) > 0.5
    assert float(found.swapped["GBDT: distance"].auc) != pytest.approx(float(found.scores["GBDT: distance"].auc))
