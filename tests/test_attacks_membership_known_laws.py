"""The likelihood ratio finds what there is to find, points the right way, and sees nothing where nothing is."""

import math

import pytest
import torch
from scipy import stats

from leakage.attacks.membership.known_laws import gaussian_score, score
from leakage.metrics import roc
from leakage.runtime import DTYPE, stream
from leakage.theory import least_squares, least_squares_law, two_gaussians
from leakage.theory.least_squares import Design, Query
from leakage.theory.scale_mixture import ScaleMixture, rule_advantage, total_variation

TRIALS = 20_000


def tensor(*values):
    return torch.tensor(values, dtype=DTYPE)


def game(design, p):
    """Both laws at the typical point, and exact predictions of members and outsiders."""
    query, generator = Query.typical(design, p), stream(0, f"game {design.n} {p}")
    # A law of 12 × 32 × 4 atoms is that of the draws to 2e-5, far below what so many draws resolve.
    outsider = least_squares_law.outsider_mixture(design, p, query, nodes=(12, 32, 4))
    laws = outsider, least_squares_law.member_mixture(design, p, query)
    samplers = least_squares_law.sample_member, least_squares_law.sample_outsider
    return laws, [sample(design, p, query, trials=TRIALS, generator=generator) for sample in samplers]


@pytest.mark.parametrize(("design", "p"), [(Design(20, 60), 26), (Design(20, 600), 60), (Design(20, 60), 20)])
def test_played_with_the_score_the_game_has_the_promised_advantage(design, p):
    laws, (member, outsider) = game(design, p)
    won = roc.membership_advantage(score(member, *laws), score(outsider, *laws), threshold=0.0)
    # 4 standard errors of a difference of two shares, at most.
    assert abs(won.estimate - float(total_variation(*laws))) < 4 * math.sqrt(0.5 / TRIALS)
    assert roc.auc(score(member, *laws), score(outsider, *laws)).low > 0.5


def test_the_score_is_the_logarithm_of_the_likelihood_ratio():
    outsider, member = ScaleMixture(tensor(0.25, 4.0), tensor(0.3, 0.7)), ScaleMixture(tensor(1.0))
    y = tensor(-3.0, -0.1, 0.0, 2.0)
    reference = torch.from_numpy(0.3 * stats.norm.pdf(y, scale=0.5) + 0.7 * stats.norm.pdf(y, scale=2))
    torch.testing.assert_close(score(y, outsider, member), torch.from_numpy(stats.norm.logpdf(y)) - reference.log())


def test_the_score_of_an_answer_far_in_the_tails_is_a_number():
    """At p = n an outsider's law has Cauchy tails: answers come that both densities, as numbers, call impossible."""
    laws, (_, outsider) = game(Design(20, 60), 20)
    scores = score(torch.cat([outsider, tensor(1e6, -1e9)]), *laws)
    assert bool(torch.isfinite(scores).all())
    assert bool((scores[-2:] < -1e6).all())


@pytest.mark.parametrize(("outsider", "member"), [(0.3, 2.0), (2.0, 0.3), (1.0, 1.0)])
def test_the_gaussian_score_is_that_of_two_normal_laws(outsider, member):
    y = torch.linspace(-5, 5, 11, dtype=DTYPE)
    ours = gaussian_score(y, tensor(outsider), tensor(member))
    reference = stats.norm.logpdf(y, scale=math.sqrt(member)) - stats.norm.logpdf(y, scale=math.sqrt(outsider))
    assert ours.tolist() == pytest.approx(reference.tolist(), abs=1e-12)
    laws = ScaleMixture(tensor(outsider)), ScaleMixture(tensor(member))
    torch.testing.assert_close(ours, score(y, *laws), rtol=1e-9, atol=1e-12)
    sides = ours * ((y.abs() - two_gaussians.threshold(tensor(outsider), tensor(member))) * (member - outsider))
    assert bool((sides >= -1e-12).all())  # positive exactly on the members' side of the threshold


@pytest.mark.parametrize(("p", "larger"), [(30, False), (60, True)])
def test_the_score_points_the_right_way_on_either_side_of_the_crossover(p, larger):
    """Below p* members answer more timidly: "large answers are members" has fewer true than false positives there."""
    design, query = Design(20, 600), Query.typical(Design(20, 600), p)
    assert (p > least_squares.crossover(design)) == larger
    variances = (
        least_squares.outsider_variance(design, torch.tensor(p), query),
        least_squares.member_variance(design, query),
    )
    laws, (member, outsider) = game(design, p)
    naive = roc.membership_advantage(member.abs(), outsider.abs(), threshold=float(two_gaussians.threshold(*variances)))
    assert (naive.estimate > 0) == larger
    assert (float(rule_advantage(*laws, two_gaussians.threshold(*variances).reshape(1))) > 0) == larger
    right = roc.membership_advantage(
        gaussian_score(member, *variances), gaussian_score(outsider, *variances), threshold=0.0
    )
    assert right.estimate == pytest.approx(abs(naive.estimate), abs=1e-12)
    assert right.low > 0.05


def test_equal_laws_score_zero_everywhere():
    law, y = ScaleMixture(tensor(0.5, 2.0)), torch.linspace(-9, 9, 19, dtype=DTYPE)
    assert bool((score(y, law, law) == 0).all())
    assert bool((gaussian_score(y, tensor(0.7), tensor(0.7)) == 0).all())


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_variances_are_refused(bad):
    for pair, name in (((bad, 1.0), "outsider_variance"), ((1.0, bad), "member_variance")):
        with pytest.raises(ValueError, match=f"`{name}` must be finite and above 0"):
            gaussian_score(tensor(0.5), *(tensor(value) for value in pair))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_gives_the_same_scores():
    laws, (member, _) = game(Design(20, 60), 26)
    there = [ScaleMixture(law.variances.cuda(), None if law.weights is None else law.weights.cuda()) for law in laws]
    torch.testing.assert_close(score(member.cuda(), *there).cpu(), score(member, *laws), rtol=1e-9, atol=1e-9)
