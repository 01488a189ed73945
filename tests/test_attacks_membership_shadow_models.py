"""Likelihood-ratio attacks agree with the plain formulas, find what is planted and nothing else."""

from functools import partial

import pytest
import torch
from torch.distributions import Normal

from leakage.attacks.membership import posterior, shadow_models
from leakage.attacks.membership.calibration import calibrated_losses
from leakage.data.membership_splits import complementary_pairs
from leakage.metrics.scores import marked, rates
from leakage.runtime import stream

MODELS, POINTS = 8, 50
ATTACKS = {
    "lira": shadow_models.lira,
    "lira-own": lambda *given: shadow_models.lira(*given, variance="own"),
    "rmia": shadow_models.rmia,
}
each_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def a_design(models=MODELS, points=POINTS):
    drawn = complementary_pairs(points, models, generator=stream(0, "pairs"))
    return drawn.member, drawn.partner


def some_losses(member, shift, epochs=()):
    """Losses whose logits are Gaussian about a mean of each point, with members higher by `shift`."""
    draws = stream(0, "losses")
    noise = torch.randn(*epochs, *member.shape, generator=draws, dtype=torch.float64)
    level = 2 * torch.randn(member.shape[-1], generator=draws, dtype=torch.float64)
    return torch.nn.functional.softplus(-(level + noise + shift * member))


def split_references(values, member, partner, target, point):
    kept = torch.ones(len(partner), dtype=torch.bool)
    kept[[target, int(partner[target])]] = False
    seen, inside = values[kept, point], member[kept, point]
    return seen[inside], seen[~inside]


def test_own_variances_are_those_of_the_references():
    member, partner = a_design()
    losses = some_losses(member, 2.0)
    found = shadow_models.lira(losses, member, partner, variance="own")
    phi = posterior.logit(losses)
    for target in range(MODELS):
        for point in range(POINTS):
            inside, outside = split_references(phi, member, partner, target, point)
            laws = [Normal(seen.mean(), seen.std()) for seen in (inside, outside)]
            expected = laws[0].log_prob(phi[target, point]) - laws[1].log_prob(phi[target, point])
            # Variances of three numbers from sums of squares: a few digits are lost.
            assert float(found[target, point]) == pytest.approx(float(expected), rel=1e-7, abs=1e-8)


def test_fixed_variances_are_means_of_the_points_own():
    member, partner = a_design()
    losses = some_losses(member, 2.0)
    found = shadow_models.lira(losses, member, partner)
    phi = posterior.logit(losses)
    for target in range(MODELS):
        sides = [split_references(phi, member, partner, target, point) for point in range(POINTS)]
        means, variances = ([[call(side) for side in pair] for pair in sides] for call in (torch.mean, torch.var))
        means, deviation = torch.tensor(means), torch.tensor(variances).mean(0).sqrt()
        ratio = [Normal(means[:, side], deviation[side]).log_prob(phi[target]) for side in (0, 1)]
        assert torch.allclose(found[target], ratio[0] - ratio[1], rtol=1e-7, atol=1e-8)


def test_logits_at_hand_tell_apart_what_losses_have_lost():
    member, partner = a_design()
    logits = 60 + some_losses(member, 2.0) + 5 * member  # every loss rounds to less than 1e-16
    losses = torch.nn.functional.softplus(-logits)
    assert not shadow_models.lira(losses, member, partner).any()
    found = shadow_models.lira_of_logits(logits, member, partner)
    assert float(((found > 0) == member).double().mean()) > 0.9
    ordinary = logits - 55
    losses = torch.nn.functional.softplus(-ordinary)
    torch.testing.assert_close(
        shadow_models.lira(losses, member, partner),
        shadow_models.lira_of_logits(ordinary, member, partner),
        rtol=1e-6,
        atol=1e-6,
    )


def test_the_share_dominated_is_counted():
    member, partner = a_design()
    losses = some_losses(member, 2.0)
    for gamma in (1.0, 2.0):
        found = shadow_models.rmia(losses, member, partner, gamma=gamma)
        for target in (0, 5):
            ratio = []
            for point in range(POINTS):
                inside, outside = split_references((-losses).exp(), member, partner, target, point)
                ratio.append(float((-losses[target, point]).exp() / (inside.mean() / 2 + outside.mean() / 2)))
            ratio = torch.tensor(ratio, dtype=torch.float64)
            share = (ratio[:, None] / ratio >= gamma).double().mean(-1)
            assert torch.allclose(found[target], share - 0.5, atol=1e-12)


def test_the_better_half_is_accused():
    member, partner = a_design()
    scores = shadow_models.rmia(some_losses(member, 2.0), member, partner)
    assert (scores > 0).sum(-1).tolist() == [POINTS // 2] * MODELS


@each_attack
def test_where_nothing_leaks_the_advantage_is_zero(attack):
    member, partner = a_design(models=16, points=2000)
    found = rates(attack(some_losses(member, 0.0), member, partner), member=member)
    # As for the loss thresholds: deviations of 0.0056 and 0.0032 at most.
    assert abs(float(found["advantage"].mean())) < 4 * 0.0056
    assert abs(float(found["auc"].mean()) - 0.5) < 4 * 0.0032


@each_attack
def test_a_planted_leak_is_found(attack):
    member, partner = a_design(models=16, points=400)
    assert float(rates(attack(some_losses(member, 8.0), member, partner), member=member, fprs=())["auc"].min()) > 0.97


def test_many_references_reach_the_closed_form():
    member, partner = a_design(models=100, points=1000)
    scores = shadow_models.lira(some_losses(member, 2.0), member, partner)
    found = rates(scores, member=member, fprs=())
    # Two Gaussians at distance 2: Adv = 2 Φ(1) - 1 = 0.683. References are a sample of 49 a side, which costs
    # about a hundredth; the mean of 100 models of 500 + 500 has a deviation of 0.003.
    assert 0.66 < float(found["advantage"].mean()) < 0.69
    assert float(found["auc"].mean()) == pytest.approx(float(Normal(0.0, 1.0).cdf(torch.tensor(2**0.5))), abs=0.012)


@each_attack
def test_the_target_and_its_partner_do_not_teach(attack):
    member, partner = a_design()
    losses = some_losses(member, 1.0)
    changed = losses.clone()
    changed[1] = 7.0
    before, after = attack(losses, member, partner), attack(changed, member, partner)
    # Logits were centred with the partner, and scores have nine decimals.
    torch.testing.assert_close(before[0], after[0], rtol=1e-8, atol=1e-8)
    assert not torch.allclose(before[2], after[2], rtol=1e-3, atol=1e-3)


@each_attack
def test_order_of_points_and_epochs_does_not_matter(attack):
    member, partner = a_design()
    losses = some_losses(member, 1.0, epochs=(2, 3))
    scores = attack(losses, member, partner)
    torch.testing.assert_close(scores[1, 2], attack(losses[1, 2], member, partner), rtol=1e-8, atol=1e-8)
    points = torch.randperm(POINTS, generator=stream(0, "order"))
    moved = attack(losses[..., points], member[:, points], partner)
    torch.testing.assert_close(moved, scores[..., points], rtol=1e-8, atol=1e-8)


@each_attack
def test_losses_of_zero_and_of_hundreds_have_finite_scores(attack):
    member, partner = a_design()
    losses = torch.where(member, 0.0, 900.0).double()
    scores = attack(losses, member, partner)
    assert bool(scores.isfinite().all())
    assert float(rates(scores, member=member, fprs=())["auc"].min()) == pytest.approx(1.0)


@pytest.mark.parametrize("far", [700.0, 750.0, 1e4])
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_points_whose_losses_are_all_large_keep_their_ratios(far, slope):
    """Λ is a ratio: what moves all losses of a point by one number does not change it, where both means are known."""
    member, partner = a_design()
    losses = some_losses(member, 0.3)
    moved = losses.clone()
    moved[:, ::2] += far
    near, away = (shadow_models.rmia(each, member, partner, slope=slope) for each in (losses, moved))
    torch.testing.assert_close(near, away, rtol=0, atol=1.5 / member.shape[1])  # ranks


TIED = {
    "lira": shadow_models.lira,
    "own variance": partial(shadow_models.lira, variance="own"),
    "offline": partial(shadow_models.lira, offline=True),
    "rmia": shadow_models.rmia,
    "calibrated": calibrated_losses,
}


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
        expected = marked(attack(losses, member, partner), member=member).auc()
        turned = attack(losses[models][:, points], member[models][:, points], back[partner[models]])
        found = marked(turned, member=member[models][:, points]).auc()[back]
        torch.testing.assert_close(found, expected)  # one pair out of order would move it by 8e-4


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("offline", [True, False])
def test_ratios_are_those_of_the_plain_formula_where_a_kind_is_lacking(offline, slope):
    """In independent subsets; some points were seen by all models, others by none."""
    member = torch.rand(6, 40, generator=stream(0, "subsets")) < 0.5
    member[:, 0], member[:, 1] = True, False
    losses = some_losses(member, 0.3)
    chance, ratios = torch.exp(-losses), torch.empty_like(losses)
    for target in range(6):
        others = [model for model in range(6) if model != target]
        for point in range(40):
            kinds = [
                [float(chance[m, point]) for m in others if bool(member[m, point]) == kind] for kind in (True, False)
            ]
            inside, outside = (sum(kind) / len(kind) if kind else None for kind in kinds)
            if outside is None:
                average = inside
            else:
                guessed = slope * outside + 1 - slope
                average = ((guessed if offline or inside is None else inside) + outside) / 2
            ratios[target, point] = chance[target, point] / average
    expected = (ratios[:, None, :] <= ratios[:, :, None] * (1 + 1e-12)).double().mean(-1) - 0.5
    torch.testing.assert_close(shadow_models.rmia(losses, member, offline=offline, slope=slope), expected)
