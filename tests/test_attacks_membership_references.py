"""Independent subsets, and one target with reference models: the attacks agree with loops over the models."""

import pytest
import torch
from torch.distributions import Normal

from leakage.attacks.membership import loss_threshold, posterior, references, shadow_models
from leakage.attacks.membership.calibration import calibrated
from leakage.data.gaussians import gaussian
from leakage.data.membership_splits import complementary_pairs
from leakage.metrics import roc
from leakage.metrics.scores import rates
from leakage.runtime import stream

MODELS, POINTS = 9, 40
NEVER, ALWAYS, ONCE = 0, 1, 2  # points that no reference of model 0 saw, that all did, that one did
ATTACKS = {
    "global": loss_threshold.global_scores,
    "sample": loss_threshold.sample_scores,
    "lira": shadow_models.lira,
    "lira-own": lambda *given, **named: shadow_models.lira(*given, variance="own", **named),
    "lira-offline": lambda *given, **named: shadow_models.lira(*given, offline=True, **named),
    "rmia": shadow_models.rmia,
    "rmia-offline": lambda *given, **named: shadow_models.rmia(*given, offline=True, **named),
}
each_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def a_design(models=MODELS, points=POINTS):
    member = torch.rand(models, points, generator=stream(0, "subsets")) < 0.4
    member[1:, NEVER], member[1:, ALWAYS], member[1:, ONCE] = False, True, False
    member[1, ONCE] = True
    return member


def some_losses(member, shift=2.0, name="losses"):
    noise, level = (gaussian(shape, generator=stream(0, name)) for shape in (member.shape, member.shape[-1:]))
    return torch.nn.functional.softplus(-(2 * level + noise + shift * member))


def split(values, member, target, point):
    """The references' values at a point: of those that saw it, and of the others."""
    seen = [float(values[j, point]) for j in range(len(member)) if j != target and member[j, point]]
    rest = [float(values[j, point]) for j in range(len(member)) if j != target and not member[j, point]]
    return [torch.tensor(some, dtype=torch.float64) for some in (seen, rest)]


def laws(values, member, target, variance):
    """Means and variances (2, points) of both kinds by loops, with the mean difference where a kind lacks."""
    sides = [split(values, member, target, point) for point in range(member.shape[1])]
    both = [side for side in sides if len(side[0]) and len(side[1])]
    difference = sum(float(side[0].mean() - side[1].mean()) for side in both) / len(both)
    means, spreads = [], []
    for kind, sign in ((0, 1), (1, -1)):
        known = [float(side[kind].var()) for side in sides if len(side[kind]) > 1]
        fixed = sum(known) / len(known)
        own = [float(side[kind].var()) if len(side[kind]) > 1 else fixed for side in sides]
        spreads.append(own if variance == "own" else [fixed] * len(sides))
        means.append(
            [
                float(side[kind].mean() if len(side[kind]) else side[1 - kind].mean() + sign * difference)
                for side in sides
            ]
        )
    return torch.tensor(means, dtype=torch.float64), torch.tensor(spreads, dtype=torch.float64)


@pytest.mark.parametrize("variance", ["fixed", "own"])
@pytest.mark.parametrize("target", [0, 4])
def test_lira_is_the_ratio_of_two_gaussians(variance, target):
    member = a_design()
    losses = some_losses(member)
    phi = posterior.logit(losses)
    means, spreads = laws(phi, member, target, variance)
    densities = Normal(means, spreads.sqrt()).log_prob(phi[target])
    found = shadow_models.lira(losses, member, variance=variance)[target]
    # Ratios have nine decimals. Two numbers may be close to each other: a variance from sums of squares loses digits.
    torch.testing.assert_close(found, densities[0] - densities[1], rtol=1e-8, atol=1e-8)
    offline = shadow_models.lira(losses, member, variance=variance, offline=True)[target]
    expected = (phi[target] - means[1]) / spreads[1].sqrt()
    torch.testing.assert_close(offline, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_rmia_counts_the_share_that_is_dominated(offline, outside):
    member, slope, gamma = a_design(), 0.6, 1.5
    losses = some_losses(member)
    others = some_losses(torch.zeros(MODELS, 70, dtype=torch.bool), name="population")

    def ratios(losses, member, target):
        chance = (-losses).exp()
        for point in range(member.shape[1]):
            seen, rest = split(chance, member, target, point)
            guessed = ((1 + slope) * rest.mean() + 1 - slope) / 2
            average = guessed if offline or not len(seen) else (seen.mean() + rest.mean()) / 2
            average = average if len(rest) else seen.mean()
            yield float(chance[target, point] / average)

    settings = {"gamma": gamma, "slope": slope, "offline": offline, "population": others if outside else None}
    found = shadow_models.rmia(losses, member, **settings)
    for target in (0, 4):
        own = torch.tensor([*ratios(losses, member, target)], dtype=torch.float64)
        z = torch.tensor([*ratios(others, torch.zeros_like(others, dtype=torch.bool), target)]) if outside else own
        expected = (own[:, None] / z >= gamma).double().mean(-1) - 0.5
        torch.testing.assert_close(found[target], expected, rtol=0, atol=1e-12)


def test_thresholds_are_those_that_the_metrics_choose_on_the_references():
    member = a_design()
    losses = (some_losses(member) * 8).round() / 8  # ties
    one, own = (call(losses, member) for call in (loss_threshold.global_thresholds, loss_threshold.sample_thresholds))
    for target in (0, 4):
        kept = torch.arange(MODELS) != target
        inside, outside = (-losses[kept][kind[kept]] for kind in (member, ~member))
        assert float(one[target]) == pytest.approx(-roc.calibrate_threshold(member=inside, outsider=outside), rel=1e-12)
        for point in range(POINTS):
            sides = split(-losses, member, target, point)
            least = min(map(len, sides))
            expected = -roc.calibrate_threshold(member=sides[0], outsider=sides[1]) if least else float(one[target])
            assert float(own[target, point]) == pytest.approx(expected, rel=1e-12)


def test_calibration_without_references_takes_the_usual_mean():
    member = a_design()
    scores = gaussian(member.shape, generator=stream(0, "scores"))
    found = calibrated(scores, member)
    usual = [split(scores, member, 0, point)[1] for point in range(POINTS)]
    expected = torch.stack([rest.mean() for rest in usual if len(rest)]).mean()
    assert float(found[0, ALWAYS]) == pytest.approx(float(scores[0, ALWAYS] - expected), abs=1e-8)


def test_calibration_leaves_the_partner_out():
    pairs = complementary_pairs(POINTS, 8, generator=stream(0, "pairs"))
    scores = gaussian((8, POINTS), generator=stream(0, "scores"))
    changed = scores.clone()
    changed[1] += 5
    before, after = (calibrated(some, pairs.member, pairs.partner) for some in (scores, changed))
    torch.testing.assert_close(before[0], after[0])
    assert not torch.allclose(before[2], after[2])


@each_attack
def test_one_target_is_its_row_of_all_and_is_blind_to_its_own_membership(attack):
    member = a_design()
    losses = some_losses(member)
    whole = attack(losses, member)
    turned = member.clone()
    turned[4] = ~turned[4]
    for given in (member, turned):
        # Two references may be close to each other: a variance from sums of squares loses digits.
        torch.testing.assert_close(attack(losses, given, target=4), whole[4:5], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["lira-offline", "rmia-offline"])
def test_offline_attacks_need_no_reference_that_saw_the_points(name):
    member = torch.zeros(17, 2000, dtype=torch.bool)
    member[0] = torch.rand(2000, generator=stream(0, "members")) < 0.5
    for shift, low, high in ((3.0, 0.85, 1.0), (0.0, 0.5 - 4 * 0.013, 0.5 + 4 * 0.013)):  # deviation of 1000 + 1000
        scores = ATTACKS[name](some_losses(member, shift), member, target=0)
        assert low < float(rates(scores, member=member[:1], fprs=())["auc"]) < high


@pytest.mark.parametrize("name", ["lira", "lira-own"])
def test_online_attacks_say_what_they_lack(name):
    member = torch.zeros(5, 20, dtype=torch.bool)
    member[0, ::2] = True
    with pytest.raises(ValueError, match="offline=True"):
        ATTACKS[name](some_losses(member), member, target=0)


@each_attack
def test_where_nothing_leaks_the_advantage_is_zero(attack):
    member = torch.rand(16, 2000, generator=stream(0, "subsets")) < 0.5
    found = rates(attack(some_losses(member, 0.0), member), member=member, fprs=())
    assert abs(float(found["auc"].mean()) - 0.5) < 4 * 0.0032  # as for pairs: 16 models of 1000 + 1000


def test_means_of_no_reference_count_none():
    member = a_design()
    found = references.means(torch.ones(member.shape, dtype=torch.float64), member, target=0)
    assert (float(found.count[0, NEVER]), float(found.mean[0, NEVER])) == (0.0, 0.0)
    assert float(found.count[0, ALWAYS]) == pytest.approx(MODELS - 1)
