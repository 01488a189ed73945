"""The audit of a training run holds every attack's rates, epoch by epoch."""

from typing import Any

import pytest
import torch

import clustered_bits
from leakage.attacks.membership import loss_threshold
from leakage.metrics.scores import rates
from leakage.studies.blessing import width_audit
from leakage.trainers.ensembles import Recipe
from refusing import refused

POOL = 400
SETTINGS: dict[str, Any] = dict(
    pool=POOL,
    models=8,
    recipe=Recipe(epochs=12, batch=50, learning_rate=0.01),
    epochs=(0, 4, 12),
    seed=0,
    fprs=(0.05,),
)


def run(width=32, **changes):
    drawn = clustered_bits.draw(500, features=60, classes=20, flip=0.25)
    data: dict[str, Any] = dict(features=drawn.features, labels=drawn.labels)
    return width_audit.width_audit((width, 0), **(data | SETTINGS | changes))


@pytest.fixture(scope="module")
def found():
    return run(kept=(0, 12))


def test_all_rates_of_all_attacks_are_there(found):
    assert found.attacks.keys() == width_audit.ATTACKS.keys()
    rates_of = [part for of in found.attacks.values() for part in (of.advantage, of.auc, of.tpr[0.05])]
    assert {tuple(part.shape) for part in (found.error, found.validation_loss, found.train_loss, *rates_of)} == {(3, 8)}
    assert found.kept.losses.shape == (2, 8, POOL)


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
    assert torch.equal(again, found.attacks["global"].advantage[[0, 2]])


def test_some_attacks_alone_are_the_same(found):
    losses, member = found.kept.losses, found.kept.member
    partner = torch.arange(8).unflatten(0, (4, 2)).flip(-1).flatten()
    some = width_audit.audit(losses, member, partner, attacks=("sample",), fprs=())
    assert set(some) == {"sample"}
    assert torch.equal(some["sample"].advantage, found.attacks["sample"].advantage[[0, 2]])
    assert torch.equal(loss_threshold.global_thresholds(losses, member, partner), found.kept.thresholds)


def test_splits_are_put_together_and_stopped_each_at_its_epoch(found):
    both = width_audit.together([found, found])
    assert both.attacks["lira"].tpr[0.05].shape == (2, 3, 8)
    at = width_audit.stopped(both, [2, 1])
    assert at.epochs.tolist() == [12, 4]
    for place, epoch in enumerate((2, 1)):
        assert torch.equal(at.error[place], found.error[epoch])
        assert torch.equal(at.attacks["lira"].tpr[0.05][place], found.attacks["lira"].tpr[0.05][epoch])


def test_settings_that_do_not_fit_are_refused(found):
    refused(lambda: run(attacks=("oracle",)), "global, sample, lira")
    refused(lambda: run(kept=(5,)), "`kept` must be among")
