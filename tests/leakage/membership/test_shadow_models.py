"""What every attack with shadow models promises: blind to its target's membership, and right in any order."""

from functools import partial

import pytest
import torch

from leakage.data.membership_splits import complementary_pairs
from leakage.membership.calibration import calibrate_scores
from leakage.membership.lira import lira
from leakage.membership.loss_threshold import global_scores, sample_scores
from leakage.membership.rmia import rmia
from leakage.metrics.scores import Scores, rates
from planted import draw_losses, independent, paired
from reproduced.runtime import stream

MODELS, POINTS = 8, 50
TIED = {
    "calibrated": lambda losses, *where, **how: calibrate_scores(-losses, *where, **how),
    "lira": lira,
    "lira, own": partial(lira, variance="own"),
    "lira, offline": partial(lira, offline=True),
    "rmia": rmia,
    "rmia, offline": partial(rmia, offline=True),
}
ATTACKS = {"global": global_scores, "sample": sample_scores} | TIED
EPOCHS = {name: attack for name, attack in ATTACKS.items() if name != "calibrated"}  # takes no leading dimensions
each_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
each_design = pytest.mark.parametrize("design", [paired, independent])


@each_attack
@each_design
def test_one_target_is_its_row_of_all_and_is_blind_to_its_own_membership(attack, design):
    member, partner = design(MODELS, POINTS)
    losses = draw_losses(member, 2.0)
    whole = attack(losses, member, partner)
    torch.testing.assert_close(attack(losses, member, partner, target=4), whole[4:5], rtol=1e-8, atol=1e-8)
    turned = member.clone()
    turned[4] = ~turned[4]
    torch.testing.assert_close(attack(losses, turned, partner, target=4), whole[4:5], rtol=1e-8, atol=1e-8)


@each_attack
def test_the_target_and_its_partner_do_not_teach(attack):
    member, partner = paired(MODELS, POINTS)
    losses = draw_losses(member, 1.0)
    changed = losses.clone()
    changed[1] = 0.01 * torch.rand(POINTS, generator=stream(0, "other"))
    before, after = attack(losses, member, partner), attack(changed, member, partner)
    torch.testing.assert_close(before[0], after[0], rtol=1e-8, atol=1e-8)  # likelihood ratios have nine decimals
    assert not torch.allclose(before[2], after[2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("attack", EPOCHS.values(), ids=EPOCHS)
@each_design
def test_leading_dimensions_are_independent(attack, design):
    member, partner = design(MODELS, POINTS)
    losses = draw_losses(member, 1.0, epochs=(2, 3))
    for target in (None, 3):
        scores = attack(losses, member, partner, target=target)
        one = attack(losses[1, 2], member, partner, target=target)
        torch.testing.assert_close(scores[1, 2], one, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["lira, offline", "rmia, offline"])
def test_offline_attacks_need_no_reference_that_saw_the_points(name):
    member = torch.zeros(17, 2000, dtype=torch.bool)
    member[0] = torch.rand(2000, generator=stream(0, "members")) < 0.5
    for shift, low, high in ((3.0, 0.85, 1.0), (0.0, 0.5 - 4 * 0.013, 0.5 + 4 * 0.013)):  # deviation of 1000 + 1000
        scores = ATTACKS[name](draw_losses(member, shift), member, target=0)
        assert low < float(rates(scores, member=member[:1], fprs=())["auc"]) < high


@each_attack
def test_losses_of_zero_and_of_hundreds_have_finite_scores(attack):
    member, partner = paired(MODELS, POINTS)
    losses = torch.where(member, 0.0, 900.0).double()
    scores = attack(losses, member, partner)
    assert bool(scores.isfinite().all())
    assert float(rates(scores, member=member, fprs=())["auc"].min()) == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("attack", TIED.values(), ids=TIED)
def test_what_is_equal_ties_in_whatever_order_models_and_points_come(attack, scale):
    """Few different losses, as forests have them: many scores are equal in exact arithmetic, and rounding is not."""
    for seed in range(5):
        draws = stream(seed, "ties")
        drawn = complementary_pairs(POINTS, MODELS, generator=draws)
        member, partner = drawn.member, drawn.partner
        levels = torch.rand(3, generator=draws, dtype=torch.float64) * scale
        losses = levels[torch.randint(0, 3, member.shape, generator=draws)]
        models, points = (torch.randperm(size, generator=draws) for size in member.shape)
        back = models.argsort()
        expected = Scores.from_mask(attack(losses, member, partner), member=member).auc()
        turned = attack(losses[models][:, points], member[models][:, points], back[partner[models]])
        found = Scores.from_mask(turned, member=member[models][:, points]).auc()[back]
        torch.testing.assert_close(found, expected)  # one pair out of order would move it by 8e-4
