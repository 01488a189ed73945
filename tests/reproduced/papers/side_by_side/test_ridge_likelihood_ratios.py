"""The law of one row's evidence in a ridge regression is that of the densities, and grows with what is seen."""

from itertools import pairwise

import pytest
import torch
from torch.distributions import MultivariateNormal

from leakage.draws import gaussian
from leakage.metrics.scores import Scores
from reproduced.papers.side_by_side.ridge_likelihood_ratios import RidgeTargets
from reproduced.runtime import stream

N, P, ASKED = 12, 4, 3
DRAWS = stream(0, "evidence")
OTHERS, POINTS, BETA = (gaussian(shape, generator=DRAWS) for shape in ((N, P), (ASKED, P), (P,)))
LABELS, QUERIES = gaussian((ASKED,), generator=DRAWS), gaussian((P - 1, P), generator=DRAWS)


def rows(penalty=2.0, **changed):
    whole = dict(others=OTHERS, targets=POINTS, labels=LABELS, beta=BETA, penalty=penalty, noise=0.7)
    return RidgeTargets(**(whole | changed))


def ratio_of_densities(setting, place, maps, noise):
    """The log-ratio of the two Gaussian laws of `maps` times the weights, at weights trained on `noise`, out and in."""
    row, found = setting.targets[place], []
    laws, seen = [], []
    for inside in (False, True):
        inverse = torch.linalg.inv(setting.penalised_gram + inside * torch.outer(row, row))
        added = inside * setting.labels[place] * row
        view = maps @ inverse
        covariance = setting.noise**2 * view @ setting.gram @ view.mT
        laws.append(MultivariateNormal(view @ (setting.gram @ setting.beta + added), (covariance + covariance.mT) / 2))
        labels = setting.others @ setting.beta + setting.noise * noise
        seen.append((labels @ setting.others + added) @ view.mT)
    for one in seen:
        found.append(laws[1].log_prob(one) - laws[0].log_prob(one))
    return found


@pytest.mark.parametrize("penalty", [0.0, 2.0, 50.0])
@pytest.mark.parametrize("seen", ["weights", "predictions", "prediction"])
def test_the_ratio_has_the_moments_of_the_densities_written_down(penalty, seen):
    setting = rows(penalty)
    maps = {"weights": lambda i: torch.eye(P).double(), "prediction": lambda i: POINTS[i : i + 1]}
    maps["predictions"] = lambda i: torch.cat([POINTS[i : i + 1], QUERIES[:1]])
    laws = {
        "weights": setting.from_weights,
        "prediction": setting.from_prediction,
        "predictions": lambda: setting.from_predictions(QUERIES[:1]),
    }[seen]()
    draws = gaussian((20_000, N), generator=stream(0, "labels"))
    for place in range(ASKED):
        for known, drawn in zip(laws, ratio_of_densities(setting, place, maps[seen](place), draws), strict=True):
            error = float(drawn.std()) / len(drawn) ** 0.5
            # Sampling, and the midpoints of 128 cells in place of the law.
            assert abs(float(known[place].mean() - drawn.mean())) < 4 * error + 0.01 * float(drawn.std())


def test_evidence_only_grows_with_what_is_seen():
    setting = rows()
    strengths = [setting.evidence_strength(QUERIES[:k]) for k in range(P)]
    one = setting.leverage.square() / setting.residual_law()[1]
    torch.testing.assert_close(strengths[0], one)
    assert all(bool((more >= less - 1e-12).all()) for less, more in pairwise(strengths))
    torch.testing.assert_close(strengths[-1], setting.evidence_strength())


def test_in_least_squares_a_prediction_tells_what_the_weights_tell():
    setting = rows(0.0)
    torch.testing.assert_close(setting.leverage.square() / setting.residual_law()[1], setting.evidence_strength())


@pytest.mark.parametrize("seen", ["label", "loss", "prediction", "weights", "first_gradient"])
def test_both_laws_leave_the_same_overlap(seen):
    # The mass that two laws share is E min(1, exp L) without the row and E min(1, exp -L) with it.
    setting = rows()
    outsider, member = getattr(setting, f"from_{seen}")(nodes=256)
    shared = [ratio.clamp_max(0).exp().mean(1) for ratio in (outsider, -member)]
    torch.testing.assert_close(*shared, rtol=0, atol=0.01)  # a cell at the crossing of the densities


def test_what_is_computed_from_a_prediction_tells_no_more():
    setting = rows()
    areas = [
        float(Scores.from_groups(member=law().member.flatten(), outsider=law().outsider.flatten()).auc())
        for law in (setting.from_label, setting.from_loss, setting.from_prediction, setting.from_weights)
    ]
    assert all(more >= less - 1e-12 for less, more in pairwise(areas))
    assert areas[0] > 0.5


def test_what_follows_from_other_answers_tells_nothing_more():
    setting = rows()
    asked = setting.evidence_strength(QUERIES[:1])
    torch.testing.assert_close(setting.evidence_strength(QUERIES[[0, 0]]), asked, rtol=1e-9, atol=0)
    torch.testing.assert_close(
        rows(targets=POINTS[:1], labels=LABELS[:1]).evidence_strength(POINTS[:1] * 2),
        setting.evidence_strength(QUERIES[:0])[:1],
    )
    everything = torch.cat([QUERIES, QUERIES[:1] + QUERIES[1:2]])
    torch.testing.assert_close(setting.evidence_strength(everything), setting.evidence_strength(), rtol=1e-8, atol=0)


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1e8])
def test_what_answers_tell_has_no_unit(unit):
    torch.testing.assert_close(
        rows().evidence_strength(QUERIES * unit), rows().evidence_strength(QUERIES), rtol=1e-9, atol=0
    )
