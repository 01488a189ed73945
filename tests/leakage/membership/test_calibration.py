"""Calibration takes off what other models say of the point, and uses nobody's secret for it."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership.calibration import calibrate_scores
from leakage.metrics import roc
from reproduced.runtime import stream


def some(models: int = 8, points: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    member = torch.rand(models, points, generator=stream(0, "member")) < 0.1
    return gaussian((models, points), generator=stream(0, "scores")), member


def test_it_is_the_difference_to_the_mean_of_the_others_outside():
    scores, member = some()
    for without in (None, 3):
        found = calibrate_scores(scores, member, without=without)
        for i, x in ((0, 0), (3, 7), (5, 11)):
            others = [j for j in range(8) if j != i and not member[j, x] and (j != without or i == without)]
            assert float(found[i, x]) == pytest.approx(float(scores[i, x] - scores[others, x].mean()), abs=1e-8)


def test_without_the_target_its_membership_enters_no_score():
    scores, member = some()
    other = member.clone()
    other[3] = ~member[3]
    assert torch.allclose(
        calibrate_scores(scores, member, without=3), calibrate_scores(scores, other, without=3), atol=1e-12
    )
    # The leak: as a shadow model it does.
    assert not torch.allclose(calibrate_scores(scores, member)[2], calibrate_scores(scores, other)[2], atol=1e-3)


def test_a_planted_leak_is_found_better_and_noise_is_not():
    scores, member = some(12, 4000)
    ease = 3 * gaussian((1, 4000), generator=stream(0, "ease"))
    leaking = scores + ease + 2 * member
    for values, leak in ((leaking, True), (scores + ease, False)):
        raw, better = (
            roc.auc(member=part[0][member[0]], outsider=part[0][~member[0]]).estimate
            for part in (values, calibrate_scores(values, member))
        )
        error = math.sqrt(4001 / (12 * 400 * 3600))  # Mann-Whitney, no ties
        assert better > raw + 0.1 if leak else abs(better - 0.5) < 4 * error


def test_points_without_references_take_the_usual_mean():
    _, member = some(9, 40)
    member[1:, 0] = True
    scores = gaussian((9, 40), generator=stream(0, "scores"))
    means = [scores[1:][~member[1:, point], point].mean() for point in range(40) if not bool(member[1:, point].all())]
    found = calibrate_scores(scores, member)
    assert float(found[0, 0]) == pytest.approx(float(scores[0, 0] - torch.stack(means).mean()), abs=1e-8)
