"""LiRA is the ratio of two Gaussians fitted to the shadow models, in pairs and in independent subsets."""

import pytest
import torch
from torch.distributions import Normal

from leakage.membership.lira import lira, lira_of_logits
from leakage.membership.posterior import logit_of_loss
from leakage.metrics.scores import rates
from planted import draw_losses, independent, paired, split_shadows


def fitted_laws(phi, member, partner, target, variance):
    """Means and variances (2, points) by loops, with the mean difference where a point lacks models of a kind."""
    sides = [split_shadows(phi, member, partner, target, point) for point in range(member.shape[1])]
    both = [side for side in sides if len(side[0]) and len(side[1])]
    gap = sum(float(side[0].mean() - side[1].mean()) for side in both) / len(both)
    means, variances = [], []
    for kind, sign in ((0, 1), (1, -1)):
        known = [float(side[kind].var()) for side in sides if len(side[kind]) > 1]
        fixed = sum(known) / len(known)
        own = [float(side[kind].var()) if len(side[kind]) > 1 else fixed for side in sides]
        variances.append(own if variance == "own" else [fixed] * len(sides))
        means.append(
            [float(side[kind].mean() if len(side[kind]) else side[1 - kind].mean() + sign * gap) for side in sides]
        )
    return torch.tensor(means, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)


@pytest.mark.parametrize("design", [paired, independent])
@pytest.mark.parametrize("variance", ["fixed", "own"])
@pytest.mark.parametrize("target", [0, 4])
def test_scores_are_ratios_of_two_gaussians(design, variance, target):
    member, partner = design(8, 40)
    losses = draw_losses(member, 2.0)
    phi = logit_of_loss(losses)
    means, variances = fitted_laws(phi, member, partner, target, variance)
    densities = Normal(means, variances.sqrt()).log_prob(phi[target])
    found = lira(losses, member, partner, variance=variance)[target]
    torch.testing.assert_close(found, densities[0] - densities[1], rtol=1e-9, atol=1e-8)  # nine decimals
    offline = lira(losses, member, partner, variance=variance, offline=True)[target]
    torch.testing.assert_close(offline, (phi[target] - means[1]) / variances[1].sqrt(), rtol=1e-9, atol=1e-8)


def test_logits_keep_what_losses_have_rounded_away():
    member, partner = paired(8, 50)
    logits = 60 + draw_losses(member, 2.0) + 5 * member  # every loss rounds to less than 1e-16
    losses = torch.nn.functional.softplus(-logits)
    assert float(lira(losses, member, partner).abs().max()) < 1e-9
    found = lira_of_logits(logits, member, partner)
    assert float(((found > 0) == member).double().mean()) > 0.9
    ordinary = logits - 55
    losses = torch.nn.functional.softplus(-ordinary)
    expected = lira_of_logits(ordinary, member, partner)
    torch.testing.assert_close(lira(losses, member, partner), expected, rtol=1e-6, atol=1e-6)


def test_many_shadow_models_reach_the_closed_form():
    member, partner = paired(100, 1000)
    found = rates(lira(draw_losses(member, 2.0), member, partner), member=member, fprs=())
    # Two Gaussians at distance 2: Adv = 2 Φ(1) - 1 = 0.683. Shadow models are a sample of 49 a side, which costs
    # about a hundredth; the mean of 100 models of 500 + 500 has a deviation of 0.003.
    assert 0.66 < float(found["advantage"].mean()) < 0.69
    assert float(found["auc"].mean()) == pytest.approx(float(Normal(0.0, 1.0).cdf(torch.tensor(2**0.5))), abs=0.012)


@pytest.mark.parametrize("variance", ["fixed", "own"])
def test_online_attacks_say_what_they_lack(variance):
    member = torch.zeros(5, 20, dtype=torch.bool)
    member[0, ::2] = True
    with pytest.raises(ValueError, match="offline=True"):
        lira(draw_losses(member, 2.0), member, variance=variance, target=0)
