"""Target and shadow see disjoint quarters and know nothing of each other's."""

import torch

import noise_labels
from leakage.data.labelled import LOADERS
from leakage.trainers.ensembles import Recipe
from noise_labels import NOISE
from reproduced.studies.polytopes import shadow_pairs
from reproduced.studies.polytopes.shadow_pairs import Task


def test_each_network_fits_its_members_and_not_the_outsiders():
    task = noise_labels.task()
    pair = shadow_pairs.train_pair(task, split=0, seed=0)
    for side in pair:
        assert side.fit.train > 0.99
        # Labels by lot of four classes: a quarter, and five standard errors of 120 points.
        assert side.fit.test < 0.25 + 5 * (0.25 * 0.75 / 120) ** 0.5
        assert side.points.dtype == torch.float64
        assert int(side.member.sum()) == 120
        assert side.some(10).fit.train > 0.99
    seen = [{tuple(row) for row in side.points.tolist()} for side in pair]
    assert not seen[0] & seen[1]


def test_split_and_seed_fix_everything():
    task = noise_labels.task(epochs=1)
    first, again, other = (
        shadow_pairs.train_pair(task, split=split, seed=seed).target for split, seed in ((1, 0), (1, 0), (0, 1))
    )
    torch.testing.assert_close(first.network.weights[0], again.network.weights[0])
    assert not torch.allclose(first.points, other.points)


def test_the_tasks_of_the_book_are_those_of_the_thesis():
    assert (shadow_pairs.SIZES["location"], shadow_pairs.SIZES["adult"]) == (1252, 2500)
    assert (Task(NOISE, size=2).hidden, Task(NOISE, size=2).recipe) == ((128,), Recipe(epochs=60, batch=100))
    assert shadow_pairs.SIZES.keys() == LOADERS.keys()
