"""RMIA counts the share of points that are dominated, in pairs, in independent subsets and with a population."""

import pytest
import torch

from leakage.membership.rmia import rmia
from planted import draw_losses, independent, paired, split_shadows


def ratios(losses, member, partner, target, *, offline, slope):
    """Λ of every point by loops."""
    likelihood = torch.exp(-losses)
    for point in range(member.shape[1]):
        seen, unseen = split_shadows(likelihood, member, partner, target, point)
        guessed = ((1 + slope) * unseen.mean() + 1 - slope) / 2
        average = guessed if offline or not len(seen) else (seen.mean() + unseen.mean()) / 2
        yield float(likelihood[target, point] / (average if len(unseen) else seen.mean()))


@pytest.mark.parametrize("design", [paired, independent])
@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize(("slope", "gamma"), [(0.0, 1.0), (0.3, 2.0), (1.0, 1.5)])
def test_the_share_dominated_is_counted(design, offline, outside, slope, gamma):
    member, partner = design(8, 40)
    losses = draw_losses(member, 0.5)
    unseen = torch.zeros(8, 70, dtype=torch.bool)
    others = draw_losses(unseen, 0.0, name="population")
    settings = {"slope": slope, "offline": offline}
    population = others if outside else None
    found = rmia(losses, member, partner, gamma=gamma, population=population, **settings)
    for target in (0, 5):
        own = torch.tensor([*ratios(losses, member, partner, target, **settings)], dtype=torch.float64)
        z = torch.tensor([*ratios(others, unseen, partner, target, **settings)]).double() if outside else own
        expected = (own[:, None] * (1 + 1e-12) >= gamma * z).double().mean(-1) - 0.5
        torch.testing.assert_close(found[target], expected, rtol=0, atol=1e-12)


def test_half_of_the_points_have_positive_scores():
    member, partner = paired(8, 50)
    scores = rmia(draw_losses(member, 2.0), member, partner)
    assert (scores > 0).sum(-1).tolist() == [25] * 8


@pytest.mark.parametrize("far", [700.0, 750.0, 1e4])
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_points_whose_losses_are_all_large_keep_their_ratios(far, slope):
    """Λ is a ratio: what moves all losses of a point by one number does not change it, where both means are known."""
    member, partner = paired(8, 50)
    losses = draw_losses(member, 0.3)
    moved = losses.clone()
    moved[:, ::2] += far
    near, away = (rmia(each, member, partner, slope=slope) for each in (losses, moved))
    torch.testing.assert_close(near, away, rtol=0, atol=1.5 / member.shape[1])  # ranks
