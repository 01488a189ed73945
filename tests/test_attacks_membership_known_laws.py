"""The likelihood ratio finds what there is to find, points the right way, and sees nothing where nothing is."""

import math
from functools import cache

import pytest
import torch
from scipy import stats

from leakage.attacks.membership.known_laws import score
from leakage.metrics import roc
from leakage.runtime import DTYPE, stream
from leakage.theory import least_squares, least_squares_law, two_gaussians
from leakage.theory.least_squares import Design, Query
from leakage.theory.scale_mixture import ScaleMixture, rule_advantage, total_variation

TRIALS = 20_000


def tensor(*values):
    return torch.tensor(values, dtype=DTYPE)


@cache
def game(design, p):
    """Both laws at the typical point, and exact predictions of members and outsiders."""
    query, generator = Query.typical(design, p), stream(0, f"game {design.n} {p}")
    # A law of 12 × 32 × 4 atoms is that of the draws to 2e-5, far below what so many draws resolve.
    laws = least_squares_law.laws(design, p, query, nodes=(12, 32, 4))
    samplers = least_squares_law.sample_member, least_squares_law.sample_outsider
    return laws, [sample(design, p, query, trials=TRIALS, generator=generator) for sample in samplers]


@pytest.mark.parametrize(("design", "p"), [(Design(20, 60), 26), (Design(20, 600), 60), (Design(20, 60), 20)])
def test_played_with_the_score_the_game_has_the_promised_advantage(design, p):
    laws, (member, outsider) = game(design, p)
    won = roc.membership_advantage(member=score(member, **laws), outsider=score(outsider, **laws), threshold=0.0)
    # 4 standard errors of a difference of two shares, at most.
    assert abs(won.estimate - float(total_variation(**laws))) < 4 * math.sqrt(0.5 / TRIALS)
    assert roc.auc(member=score(member, **laws), outsider=score(outsider, **laws)).low > 0.5


def test_the_score_is_the_logarithm_of_the_likelihood_ratio():
    outsider, member = ScaleMixture(tensor(0.25, 4.0), tensor(0.3, 0.7)), ScaleMixture(tensor(1.0))
    y = tensor(-3.0, -0.1, 0.0, 2.0)
    reference = torch.from_numpy(0.3 * stats.norm.pdf(y, scale=0.5) + 0.7 * stats.norm.pdf(y, scale=2))
    torch.testing.assert_close(
        score(y, outsider=outsider, member=member), torch.from_numpy(stats.norm.logpdf(y)) - reference.log()
    )


def test_the_score_of_an_answer_far_in_the_tails_is_a_number():
    """At p = n an outsider's law has Cauchy tails: answers come that both densities, as numbers, call impossible."""
    laws, (_, outsider) = game(Design(20, 60), 20)
    scores = score(torch.cat([outsider, tensor(1e6, -1e9)]), **laws)
    assert bool(torch.isfinite(scores).all())
    assert bool((scores[-2:] < -1e6).all())


@pytest.mark.parametrize(("p", "larger"), [(30, False), (60, True)])
def test_the_score_points_the_right_way_on_either_side_of_the_crossover(p, larger):
    """Below p* members answer more timidly: "large answers are members" has fewer true than false positives there."""
    design, query = Design(20, 600), Query.typical(Design(20, 600), p)
    assert (p > least_squares.crossover(design)) == larger
    variances = {
        "outsider": least_squares.outsider_variance(design, torch.tensor(p), query),
        "member": least_squares.member_variance(design, query),
    }
    laws, (member, outsider) = game(design, p)
    naive = roc.membership_advantage(
        member=member.abs(), outsider=outsider.abs(), threshold=float(two_gaussians.threshold(**variances))
    )
    assert (naive.estimate > 0) == larger
    assert (float(rule_advantage(two_gaussians.threshold(**variances).reshape(1), **laws)) > 0) == larger
    normal = {who: ScaleMixture(variance.reshape(1)) for who, variance in variances.items()}
    right = roc.membership_advantage(member=score(member, **normal), outsider=score(outsider, **normal), threshold=0.0)
    assert right.estimate == pytest.approx(abs(naive.estimate), abs=1e-12)
    assert right.low > 0.05


def test_equal_laws_score_zero_everywhere():
    law, y = ScaleMixture(tensor(0.5, 2.0)), torch.linspace(-9, 9, 19, dtype=DTYPE)
    assert bool((score(y, outsider=law, member=law) == 0).all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_gives_the_same_scores():
    laws, (member, _) = game(Design(20, 60), 26)
    there = {
        who: ScaleMixture(law.variances.cuda(), None if law.weights is None else law.weights.cuda())
        for who, law in laws.items()
    }
    torch.testing.assert_close(score(member.cuda(), **there).cpu(), score(member, **laws), rtol=1e-9, atol=1e-9)
