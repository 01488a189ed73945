"""Networks are trained on halves of a pool that all widths share, and losses and rates are recorded by epoch."""

from typing import Any

import pytest
import torch

from leakage.data.tabular import LabelledData
from leakage.metrics.scores import rates
from leakage.trainers.ensembles import Recipe
from reproduced.papers.blessing import early_stopping
from reproduced.runtime import begin, stream


def draw_clustered_bits(n: int, *, features: int, classes: int, flip: float) -> LabelledData:
    """`n` rows of bits around one centre a class, each flipped with probability `flip`: learned, and memorised."""
    generator = stream(0, "clustered bits")
    centres = torch.rand(classes, features, generator=generator) < 0.3
    labels = torch.randint(classes, (n,), generator=generator)
    flipped = torch.rand(n, features, generator=generator) < flip
    return LabelledData((centres[labels] ^ flipped).float(), labels)


POOL = 400
SETTINGS: dict[str, Any] = dict(
    pool=POOL,
    models=8,
    recipe=Recipe(epochs=12, batch=50, learning_rate=0.01),
    epochs=(0, 4, 12),
    run=begin(device="cpu"),
    fprs=(0.05,),
)


def audit(width=32, **changes):
    drawn = draw_clustered_bits(500, features=60, classes=20, flip=0.25)
    data: dict[str, Any] = dict(features=drawn.features, labels=drawn.labels)
    return early_stopping.audit_width((width, 0), **(data | SETTINGS | changes))


@pytest.fixture(scope="module")
def found():
    return audit(kept=(0, 12))


def test_what_leaks_before_training_is_nothing_and_after_it_much(found):
    for name, of in found.attacks.items():
        area = of.auc.mean(-1)
        # 8 models of 200 + 200: an area has a deviation of 0.029, the mean of eight 0.0102.
        assert abs(float(area[0]) - 0.5) < 4 * 0.0102, name
        assert float(area[-1]) > 0.7, name
    assert bool((found.train_loss.diff(dim=0) < 0).all())


def test_kept_losses_give_the_same_rates(found):
    scores = found.kept.thresholds.clamp_min(0).unsqueeze(-1) - found.kept.losses
    again = rates(scores, member=found.kept.member, fprs=())["advantage"]
    torch.testing.assert_close(again, found.attacks["global"].advantage[[0, 2]])


def test_the_log_loss_gap_is_nothing_before_training_and_grows(found):
    gap = early_stopping.log_loss_gap(found.kept)
    assert gap.shape == (2, 8)
    # 8 models of 200 + 200 log losses, which spread by less than 0.2 before training.
    assert abs(float(gap[0].mean())) < 4 * 0.2 * (2 / 200 / 8) ** 0.5
    assert bool((gap[1] > gap[0]).all())
    both = early_stopping.log_loss_gap(early_stopping.stack_splits([found, found]).kept)
    torch.testing.assert_close(both, torch.stack([gap, gap]))


def test_the_loss_gap_leads_where_it_alone_orders_the_advantages(found):
    both = early_stopping.stack_splits([found, found])
    steps = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)[:, None].expand(2, 3, 8)
    known = both._replace(
        attacks={"one": both.attacks["global"]._replace(advantage=steps)},
        train_loss=torch.zeros_like(steps),
        validation_loss=steps,
        error=torch.tensor([0.5, 0.25, 0.5], dtype=torch.float64)[:, None].expand(2, 3, 8),
    )
    lead = early_stopping.lead_of_loss_gap([known], "one")
    torch.testing.assert_close(lead, torch.ones(2, dtype=torch.float64))  # 1 less 0, of a symmetric error
    rising = known._replace(error=1 - steps / 4)
    torch.testing.assert_close(early_stopping.lead_of_loss_gap([rising, rising], "one"), torch.zeros(2).double())


# A smaller experiment: are the halves fair, and are networks trained on them?
SMALL: dict[str, Any] = dict(
    pool=120,
    models=6,
    recipe=Recipe(epochs=6, batch=20, learning_rate=0.01),
    epochs=(0, 2, 6),
    kept=(0, 2, 6),
    attacks=(),
    run=begin(device="cpu"),
)


def small(width=8, split=0, **changes):
    drawn = draw_clustered_bits(160, features=40, classes=5, flip=0.25)
    data: dict[str, Any] = dict(features=drawn.features, labels=drawn.labels)
    return early_stopping.audit_width((width, split), **(data | SMALL | changes))


def sides(seen):
    """The mean loss on members and on outsiders, (epochs, models)."""
    losses, member = seen.kept.losses, seen.kept.member
    return [(losses * side).sum(-1) / side.sum(-1) for side in (member, ~member)]


def test_losses_fall_and_those_of_members_faster():
    seen = small()
    assert seen.kept.losses.shape == (3, 6, 120)
    assert seen.kept.member.shape == (6, 120)
    assert seen.epochs.tolist() == [0, 2, 6]
    inside, outside = sides(seen)
    torch.testing.assert_close(inside, seen.train_loss)
    assert bool((inside.diff(dim=0) < 0).all())
    assert bool((inside[-1] < outside[-1]).all())
    # Before training nobody is known: 60 losses of about log 5 with a spread of 0.2, a side and model.
    assert abs(float((inside - outside)[0].mean())) < 4 * 0.2 / (6 * 30) ** 0.5
    assert bool((seen.error[-1] < seen.error[0]).all())
    torch.testing.assert_close(seen.error * 40, (seen.error * 40).round())  # 40 points validate


def test_outsiders_of_the_pool_and_validation_points_follow_one_law():
    seen = small(models=20)
    gap = (sides(seen)[1] - seen.validation_loss)[-1]
    # 160 points shared by all models, 40 of them validate; losses here spread by 1.
    assert abs(float(gap.mean())) < 4 * (1 / 40 + 1 / 120) ** 0.5


def test_widths_share_pool_and_pairs_and_splits_do_not():
    narrow, wide, other = (small(*point).kept for point in ((4, 0), (8, 0), (8, 1)))
    torch.testing.assert_close(narrow.member, wide.member)
    assert bool((narrow.member != other.member).any())
    torch.testing.assert_close(small().kept.losses, wide.losses)
    assert not torch.allclose(small(run=begin(seed=1, device="cpu")).kept.losses, wide.losses)


def test_epochs_cut_into_parts_take_the_same_steps():
    cut = small(epochs=(0, 1 / 3, 2, 6), parts=3)  # 60 rows are three parts of one batch
    torch.testing.assert_close(early_stopping.at_epochs(cut, (0, 2, 6)).train_loss, small().train_loss)
