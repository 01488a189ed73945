"""Loss thresholds: the best ones, learned on shadow models only, and none where nothing leaks."""

import math

import pytest
import torch

from leakage.membership import loss_threshold
from leakage.metrics import roc
from leakage.metrics.scores import rates
from planted import independent, paired, split_shadows
from reproduced.runtime import stream

MODELS, POINTS = 8, 60
ATTACKS = [loss_threshold.global_scores, loss_threshold.sample_scores]


def some_losses(member, gap):
    """Exponential losses; those of members are smaller by the factor `gap`."""
    draws = torch.rand(member.shape, generator=stream(0, "losses"), dtype=torch.float64)
    return -draws.log() * torch.where(member, gap, 1.0)


@pytest.mark.parametrize("design", [paired, independent])
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("groups", [1, 5, 256])
def test_thresholds_are_those_that_the_metrics_choose_on_the_references(design, coarse, groups, monkeypatch):
    monkeypatch.setattr(loss_threshold, "_GROUPS", groups)
    member, partner = design(MODELS, POINTS)
    losses = some_losses(member, 0.3)
    if coarse:
        losses = (losses * 4).round() / 4  # many ties
    one, own = (
        call(losses, member, partner) for call in (loss_threshold.global_thresholds, loss_threshold.sample_thresholds)
    )
    for target in range(MODELS):
        sides = [split_shadows(-losses, member, partner, target, point) for point in range(POINTS)]
        inside, outside = (torch.cat(kind) for kind in zip(*sides, strict=True))
        expected = -roc.calibrate_threshold(member=inside, outsider=outside)
        assert float(one[target]) == pytest.approx(expected, rel=1e-12)
        for point, (seen, unseen) in enumerate(sides):
            if len(seen) and len(unseen):
                expected = -roc.calibrate_threshold(member=seen, outsider=unseen)
                assert float(own[target, point]) == pytest.approx(expected, rel=1e-12)
            else:
                assert float(own[target, point]) == pytest.approx(float(one[target]), rel=1e-12)


def test_nobody_is_flagged_where_no_threshold_gains():
    member, partner = paired(MODELS, POINTS)
    losses = torch.where(member, 2.0, 1.0)  # members lose more
    for thresholds in (loss_threshold.global_thresholds, loss_threshold.sample_thresholds):
        assert bool((thresholds(losses, member, partner) == -math.inf).all())
    for attack in ATTACKS:
        found = rates(attack(losses, member, partner), member=member, fprs=())
        assert not found["advantage"].any()


@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_that_are_all_zero_flag_nobody(attack):
    member, partner = paired(MODELS, POINTS)
    assert bool((attack(torch.zeros_like(member, dtype=torch.float64), member, partner) <= 0).all())


@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_that_are_equal_but_for_rounding_flag_nobody(attack):
    member, partner = paired(MODELS, POINTS)
    losses = torch.where(member, 0.3, 0.1 + 0.2).double()
    assert not (attack(losses, member, partner) > 0).any()
    apart = losses + 1e-8 * ~member
    torch.testing.assert_close(attack(apart, member, partner) > 0, member)


def test_a_planted_leak_is_found():
    member, partner = paired(12, 4000)
    losses = some_losses(torch.zeros_like(member), 1.0)
    losses[member] *= 1e-9
    one, own = (float(rates(attack(losses, member, partner), member=member)["advantage"].mean()) for attack in ATTACKS)
    assert one > 0.99
    # A point's own threshold is half the least of five exponential losses, which a sixth undercuts with the chance
    # 1/11. 24,000 outsiders, each point in six of them: 0.005 is more than one standard error.
    assert abs(own - 10 / 11) < 4 * 0.005


def test_the_global_threshold_reaches_the_closed_form_of_exponential_losses():
    member, partner = paired(16, 4000)
    found = rates(loss_threshold.global_scores(some_losses(member, 0.5), member, partner), member=member)["advantage"]
    # Rates 2 and 1: 1 - e^(-2t) - (1 - e^(-t)) is largest at t = log 2, where it is 1/4. The deviation of one
    # model's advantage is at most 0.0158, of the mean of 16 at most 0.004.
    assert abs(float(found.mean()) - 0.25) < 4 * 0.004


def test_a_point_that_is_easy_for_all_models_fools_the_global_threshold_only():
    member, partner = paired(16, 2000)
    level = torch.arange(2000) % 2 * 10.0  # half of the points are hard
    losses = some_losses(torch.zeros_like(member), 1.0) * 0.01 + level + torch.where(member, 0.0, 0.1)
    found = [float(rates(attack(losses, member, partner), member=member)["advantage"].mean()) for attack in ATTACKS]
    assert found[0] < 0.6 < 0.95 < found[1]


def test_losses_far_below_the_threshold_keep_their_order():
    """A margin of 45 has a loss of 3e-20, which no difference from an ordinary number shows."""
    member, partner = paired(MODELS, POINTS)
    margins = torch.where(member, 45.0, 40.0) + 3 * torch.randn(
        member.shape, generator=stream(0, "margins"), dtype=torch.float64
    )
    margins[:, 0] = -1.0
    losses = torch.nn.functional.softplus(-margins)
    found = loss_threshold.global_scores(losses, member, partner)
    torch.testing.assert_close(found.argsort(dim=-1, stable=True), (-losses).argsort(dim=-1, stable=True))
    thresholds = loss_threshold.global_thresholds(losses, member, partner)
    torch.testing.assert_close(found > 0, losses < thresholds[:, None])


@pytest.mark.parametrize("apart", [2.0**-52, 1e-10, 1.0])
@pytest.mark.parametrize("loss", [1e-20, 1.0])
def test_a_logarithm_of_a_ratio_has_the_sign_of_the_difference(loss, apart):
    low, high = (torch.tensor([number], dtype=torch.float64) for number in (loss, loss * (1 + apart)))
    up, down = loss_threshold.log_ratio(high, low), loss_threshold.log_ratio(low, high)
    assert float(up) == pytest.approx(math.log1p(apart))
    assert float(down) == pytest.approx(-math.log1p(apart))
    assert float(loss_threshold.log_ratio(low, low)) == pytest.approx(0)
