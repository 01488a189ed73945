"""What is recorded while networks train is what they did, and widths are compared on the same pairs."""

from typing import Any

import torch

import clustered_bits
from leakage.studies.blessing import width_audit
from leakage.trainers.ensembles import Recipe
from refusing import refusals

POOL, POINTS = 120, 160
SETTINGS: dict[str, Any] = dict(
    pool=POOL,
    models=6,
    recipe=Recipe(epochs=6, batch=20, learning_rate=0.01),
    epochs=(0, 2, 6),
    kept=(0, 2, 6),
    attacks=(),
    seed=0,
)


def run(width=8, split=0, **changes):
    drawn = clustered_bits.draw(POINTS, features=40, classes=5, flip=0.25)
    data: dict[str, Any] = dict(features=drawn.features, labels=drawn.labels)
    return width_audit.width_audit((width, split), **(data | SETTINGS | changes))


def sides(seen):
    """The mean loss on members and on outsiders, (epochs, models)."""
    losses, member = seen.kept.losses, seen.kept.member
    return [(losses * side).sum(-1) / side.sum(-1) for side in (member, ~member)]


def test_losses_fall_and_those_of_members_faster():
    seen = run()
    assert seen.kept.losses.shape == (3, 6, POOL)
    assert seen.kept.member.shape == (6, POOL)
    assert seen.error.shape == seen.validation_loss.shape == (3, 6)
    assert seen.epochs.tolist() == [0, 2, 6]
    inside, outside = sides(seen)
    assert torch.equal(inside, seen.train_loss)
    assert bool((inside.diff(dim=0) < 0).all())
    assert bool((inside[-1] < outside[-1]).all())
    # Before training nobody is known: 60 losses of about log 5 with a spread of 0.2, a side and model.
    assert abs(float((inside - outside)[0].mean())) < 4 * 0.2 / (6 * 30) ** 0.5
    assert bool((seen.error[-1] < seen.error[0]).all())
    assert bool(((seen.error * (POINTS - POOL)).round() == seen.error * (POINTS - POOL)).all())


def test_outsiders_of_the_pool_and_validation_points_follow_one_law():
    seen = run(models=20)
    gap = (sides(seen)[1] - seen.validation_loss)[-1]
    # 160 points shared by all models, 40 of them validate; losses here spread by 1.
    assert abs(float(gap.mean())) < 4 * (1 / 40 + 1 / 120) ** 0.5


def test_widths_share_pool_and_pairs_and_splits_do_not():
    narrow, wide, other = (run(*point).kept for point in ((4, 0), (8, 0), (8, 1)))
    assert torch.equal(narrow.member, wide.member)
    assert not torch.equal(narrow.member, other.member)
    assert torch.equal(run().kept.losses, wide.losses)
    assert not torch.equal(run(seed=1).kept.losses, wide.losses)


test_a_pool_without_a_rest_is_refused = refusals(
    (lambda: run(pool=POINTS), "leave points to validate"),
    (lambda: run(pool=POOL - 1), "`points` must be even"),
)
