"""Loss thresholds: the best ones, learned on references only, and none where nothing leaks."""

import math

import pytest
import torch

from leakage.attacks.membership import loss_threshold, threshold_search
from leakage.data.membership_splits import complementary_pairs
from leakage.metrics import roc
from leakage.metrics.scores import rates
from leakage.runtime import stream

MODELS, POINTS = 8, 60
ATTACKS = [loss_threshold.global_scores, loss_threshold.sample_scores]


def a_design(models=MODELS, points=POINTS, seed=0):
    drawn = complementary_pairs(points, models, generator=stream(seed, "pairs"))
    return drawn.member, drawn.partner


def some_losses(member, gap, seed=0, epochs=()):
    """Exponential losses; those of members are smaller by the factor `gap`."""
    draws = torch.rand(*epochs, *member.shape, generator=stream(seed, "losses"), dtype=torch.float64)
    return -draws.log() * torch.where(member, gap, 1.0)


def references(member, partner, target):
    kept = torch.ones(len(partner), dtype=torch.bool)
    kept[[target, int(partner[target])]] = False
    return kept


def test_global_thresholds_are_those_that_the_metrics_choose_on_the_references():
    member, partner = a_design()
    losses = some_losses(member, 0.3)
    found = loss_threshold.global_thresholds(losses, member, partner)
    for target in range(MODELS):
        kept = references(member, partner, target)
        inside, outside = losses[kept][member[kept]], losses[kept][~member[kept]]
        assert float(found[target]) == pytest.approx(
            -roc.calibrate_threshold(member=-inside, outsider=-outside), rel=1e-14
        )


def test_sample_thresholds_are_those_that_the_metrics_choose_for_each_point():
    member, partner = a_design()
    losses = (some_losses(member, 0.3) * 4).round() / 4  # many ties
    found = loss_threshold.sample_thresholds(losses, member, partner)
    for target in range(MODELS):
        kept = references(member, partner, target)
        for point in range(POINTS):
            seen, inside = losses[kept, point], member[kept, point]
            expected = -roc.calibrate_threshold(member=-seen[inside], outsider=-seen[~inside])
            assert float(found[target, point]) == pytest.approx(expected, rel=1e-14)


def test_the_threshold_lies_midway_and_equal_losses_go_together():
    member = torch.tensor([[True, True, False, False]] * 2)
    member[1] = ~member[1]
    member = member.repeat(2, 1)
    partner = torch.tensor([1, 0, 3, 2])
    row = torch.tensor([1.0, 2.0, 2.0, 5.0])
    losses = torch.stack([row, row, row, row[[2, 3, 0, 1]]]).double()
    # References of model 0 are 2 and 3: members lose 1, 2 and (model 3) 1, 2; outsiders 2, 5 and 2, 5.
    # Below 2 one of two members is found and no outsider; with 2 all members and half the outsiders: the same gain,
    # and the lower of both is taken.
    assert float(loss_threshold.global_thresholds(losses, member, partner)[0]) == pytest.approx(1.5)


def test_nobody_is_accused_where_no_threshold_gains():
    member, partner = a_design()
    losses = torch.where(member, 2.0, 1.0)  # members lose more
    for thresholds in (loss_threshold.global_thresholds, loss_threshold.sample_thresholds):
        assert bool((thresholds(losses, member, partner) == -math.inf).all())
    for attack in ATTACKS:
        found = rates(attack(losses, member, partner), member=member, fprs=())
        assert not found["advantage"].any()


@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_that_are_all_zero_betray_nobody(attack):
    member, partner = a_design()
    assert bool((attack(torch.zeros_like(member, dtype=torch.float64), member, partner) <= 0).all())


@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_that_are_equal_but_for_rounding_betray_nobody(attack):
    member, partner = a_design()
    losses = torch.where(member, 0.3, 0.1 + 0.2).double()
    assert not (attack(losses, member, partner) > 0).any()
    apart = losses + 1e-8 * ~member
    torch.testing.assert_close(attack(apart, member, partner) > 0, member)


@pytest.mark.parametrize("attack", ATTACKS)
def test_where_nothing_leaks_the_advantage_is_zero(attack):
    member, partner = a_design(models=16, points=2000)
    found = rates(attack(some_losses(member, 1.0), member, partner), member=member)
    # 16 models with 1000 members and outsiders: the difference of two shares has a deviation of at most 0.022, the
    # mean of 16 of 0.0056; likewise 0.013 and 0.0032 for the area.
    assert abs(float(found["advantage"].mean())) < 4 * 0.0056
    assert abs(float(found["auc"].mean()) - 0.5) < 4 * 0.0032


def test_a_planted_leak_is_found():
    member, partner = a_design(models=12, points=4000)
    losses = some_losses(torch.zeros_like(member), 1.0)
    losses[member] *= 1e-9
    one, own = (float(rates(attack(losses, member, partner), member=member)["advantage"].mean()) for attack in ATTACKS)
    assert one > 0.99
    # A point's own threshold is half the least of five exponential losses, which a sixth undercuts with the chance
    # 1/11. 24,000 outsiders, each point in six of them: 0.005 is more than one standard error.
    assert abs(own - 10 / 11) < 4 * 0.005


def test_the_global_threshold_reaches_the_closed_form_of_exponential_losses():
    member, partner = a_design(models=16, points=4000)
    found = rates(loss_threshold.global_scores(some_losses(member, 0.5), member, partner), member=member)["advantage"]
    # Rates 2 and 1: 1 - e^(-2t) - (1 - e^(-t)) is largest at t = log 2, where it is 1/4. The deviation of one
    # model's advantage is at most 0.0158, of the mean of 16 at most 0.004.
    assert abs(float(found.mean()) - 0.25) < 4 * 0.004


def test_a_point_that_is_easy_for_all_models_fools_the_global_threshold_only():
    member, partner = a_design(models=16, points=2000)
    level = torch.arange(2000) % 2 * 10.0  # half of the points are hard
    losses = some_losses(torch.zeros_like(member), 1.0) * 0.01 + level + torch.where(member, 0.0, 0.1)
    found = [float(rates(attack(losses, member, partner), member=member)["advantage"].mean()) for attack in ATTACKS]
    assert found[0] < 0.6 < 0.95 < found[1]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_target_and_its_partner_do_not_teach(attack):
    member, partner = a_design()
    losses = some_losses(member, 0.5)
    changed = losses.clone()
    changed[1] = torch.rand(POINTS, generator=stream(0, "other"))
    before, after = attack(losses, member, partner), attack(changed, member, partner)
    torch.testing.assert_close(before[0], after[0])
    assert not torch.allclose(before[2], after[2])


@pytest.mark.parametrize("attack", ATTACKS)
def test_order_of_points_models_and_epochs_does_not_matter(attack):
    member, partner = a_design()
    losses = some_losses(member, 0.5, epochs=(2, 3))
    scores = attack(losses, member, partner)
    torch.testing.assert_close(scores[1, 2], attack(losses[1, 2], member, partner))
    points = torch.randperm(POINTS, generator=stream(0, "order"))
    torch.testing.assert_close(attack(losses[..., points], member[:, points], partner), scores[..., points])
    models = torch.tensor([4, 5, 1, 0, 6, 7, 2, 3])
    moved = attack(losses[:, :, models], member[models], partner)
    assert torch.allclose(moved, scores[:, :, models], rtol=0, atol=1e-15)


@pytest.mark.parametrize("attack", ATTACKS)
def test_scores_are_float64_on_float32_losses(attack):
    member, partner = a_design()
    assert attack(some_losses(member, 0.5).float(), member, partner).dtype == torch.float64


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("paired", [True, False])
def test_many_losses_are_counted_as_few_are(attack, paired, monkeypatch):
    member, partner = a_design()
    given = some_losses(member, 0.3), member, partner if paired else None
    found = attack(*given)
    monkeypatch.setattr(threshold_search, "_SHORT", 0)
    torch.testing.assert_close(attack(*given), found)
    alone = [attack(*given, target=target) for target in range(MODELS)]
    torch.testing.assert_close(torch.cat(alone), found)


def test_losses_far_below_the_threshold_keep_their_order():
    """A margin of 45 has a loss of 3e-20, which no difference from an ordinary number shows."""
    member, partner = a_design()
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


def test_scores_of_any_size_are_accused_by_their_order():
    member, partner = a_design()
    scores = -some_losses(member, 0.3)
    expected = loss_threshold.accused(scores, member, partner)
    torch.testing.assert_close(expected, loss_threshold.global_scores(-scores, member, partner) > 0)
    scores[:, 0] = 1e18  # beside which a difference would hold no digit of the others
    found = loss_threshold.accused(scores, member, partner)
    assert (found[:, 1:] != expected[:, 1:]).double().mean() < 0.1
