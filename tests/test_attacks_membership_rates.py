"""Rates of many models at once are those of `leakage.metrics.roc` for one; curves are read off where they cross."""

import math

import pytest
import torch

from leakage.attacks.membership import rates
from leakage.metrics import estimates, roc
from leakage.runtime import stream

MODELS, POINTS = 4, 130


def some_scores(epochs=(3,), ties=True):
    draws = stream(0, "scores")
    member = torch.rand(MODELS, POINTS, generator=draws) < torch.linspace(0.3, 0.6, MODELS)[:, None]
    scores = torch.randn(*epochs, MODELS, POINTS, generator=draws, dtype=torch.float64) + member
    return ((scores * 4).round() / 4 if ties else scores), member


@pytest.mark.parametrize("ties", [True, False])
def test_they_are_those_of_the_metrics(ties):
    scores, member = some_scores(ties=ties)
    found = rates.rates(scores, member, fprs=(0.05, 0.2))
    assert set(found) == {"advantage", "auc", "tpr_at_0.05", "tpr_at_0.2"}
    for epoch in range(3):
        for model in range(MODELS):
            inside, outside = (scores[epoch, model, kind] for kind in (member[model], ~member[model]))
            expected = {
                "advantage": roc.membership_advantage(inside, outside, threshold=1e-12),
                "auc": roc.auc(inside, outside),
                "tpr_at_0.05": roc.tpr_at_fpr(inside, outside, fpr=0.05),
                "tpr_at_0.2": roc.tpr_at_fpr(inside, outside, fpr=0.2),
            }
            for name, value in expected.items():
                assert float(found[name][epoch, model]) == pytest.approx(float(value), abs=1e-14)


def test_one_rate_alone_is_the_same():
    scores, member = some_scores()
    assert torch.equal(
        rates.tpr_at_fpr(scores, member, fpr=0.05), rates.rates(scores, member, fprs=(0.05,))["tpr_at_0.05"]
    )


def test_a_rate_that_cannot_be_seen_is_refused():
    scores, member = some_scores()
    with pytest.raises(ValueError, match="take at least 1000"):
        rates.tpr_at_fpr(scores, member, fpr=0.001)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        rates.tpr_at_fpr(scores, member, fpr=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, m: (s * math.nan, m), "finite"),
        (lambda s, m: (s[..., :-1], m), "shape"),
        (lambda s, m: (s, m.long()), "truth values"),
        (lambda s, m: (s, m | True), "members and outsiders"),
        (lambda s, m: (s, m.to(torch.uint8)), "truth values"),
        (lambda s, m: (s.long(), m), "floating-point"),
    ],
)
@pytest.mark.parametrize("measure", [rates.rates, rates.tpr_at_fpr])
def test_bad_scores_are_refused(measure, change, message):
    with pytest.raises(ValueError, match=message):
        measure(*change(*some_scores()), **({"fpr": 0.05} if measure is rates.tpr_at_fpr else {}))


def test_one_outsider_without_a_score_is_no_rate():
    scores, member = some_scores()
    scores[0, 0, int((~member[0]).nonzero()[0])] = math.nan
    with pytest.raises(ValueError, match="`scores` must be finite"):
        rates.tpr_at_fpr(scores, member, fpr=0.05)


def test_a_curve_is_read_off_between_epochs():
    error = torch.tensor([0.8, 0.6, 0.4, 0.45, 0.3])
    advantage = torch.tensor([0.0, 0.1, 0.3, 0.4, 0.5])
    assert float(rates.at_crossing(error, advantage, target=0.5)) == pytest.approx(0.2)
    assert float(rates.at_crossing(error, advantage, target=0.42)) == pytest.approx(0.28), "the first crossing counts"
    assert float(rates.at_crossing(advantage, error, target=0.3)) == pytest.approx(0.4)
    both = rates.at_crossing(torch.stack([error, error]), torch.stack([advantage, -advantage]), target=0.5)
    assert both.tolist() == pytest.approx([0.2, -0.2])


def test_pairs_are_stopped_where_their_own_curves_cross():
    error = torch.tensor([[0.9, 0.7, 0.6, 0.6], [0.5, 0.3, 0.2, 0.2]])  # means of pairs: 0.8, 0.6 and 0.4, 0.2
    advantage = torch.tensor([[0.0, 0.2, 0.3, 0.5], [0.2, 0.4, 0.5, 0.7]])
    found = rates.pairs_at_crossing(error, advantage, target=0.5)
    assert found.tolist() == pytest.approx([0.25, 0.45])
    assert rates.pairs_at_crossing(torch.stack([error] * 3), torch.stack([advantage] * 3), target=0.5).shape == (3, 2)
    with pytest.raises(ValueError, match="pairs"):
        rates.pairs_at_crossing(error[:, :3], advantage[:, :3], target=0.5)


def test_what_is_not_crossed_is_not_made_up():
    error, advantage = torch.tensor([0.8, 0.6, 0.4]), torch.tensor([0.1, 0.2, 0.3])
    assert math.isnan(float(rates.at_crossing(error, advantage, target=0.39)))
    assert math.isnan(float(rates.at_crossing(error, advantage, target=0.9)))
    assert float(rates.at_crossing(error, advantage, target=0.4)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="finite"):
        rates.over_models(torch.tensor([0.1, 0.2, math.nan, 0.3]))


@pytest.mark.parametrize(
    ("level", "target", "expected"),
    [
        ((0.5, 0.2, 0.6), 0.3, 2 / 3),  # falls through the target before it rises
        ((0.25, 0.35, 0.2), 0.3, 0.5),  # rises through it before it falls
        ((0.2, 0.6, 0.4), 0.5, 0.75),
        ((0.3, 0.2, 0.3), 0.3, math.nan),  # starts on it
        ((0.2, 0.25, 0.28), 0.3, math.nan),
    ],
)
def test_the_first_epoch_says_whether_a_curve_must_rise_or_fall(level, target, expected):
    level, epochs = torch.tensor(level), torch.arange(3.0)
    assert float(rates.at_crossing(level, epochs, target=target)) == pytest.approx(expected, nan_ok=True)
    assert float(rates.at_crossing(-level, epochs, target=-target)) == pytest.approx(expected, nan_ok=True)


def test_curves_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="same epochs"):
        rates.at_crossing(torch.zeros(3), torch.zeros(4), target=0.0)
    with pytest.raises(ValueError, match="must be finite"):
        rates.at_crossing(torch.tensor([1.0, math.nan]), torch.zeros(2), target=0.5)


def test_pairs_are_the_observations():
    values = torch.tensor([[0.1, 0.3, 0.2, 0.6], [0.5, 0.5, 0.0, 0.4]])
    found = rates.over_models(values)
    assert found.n == 4
    expected = estimates.mean_interval(torch.tensor([0.2, 0.4, 0.5, 0.2]))
    assert float(found) == pytest.approx(float(expected))
    assert found.low == pytest.approx(expected.low, rel=1e-6)
    with pytest.raises(ValueError, match="pairs"):
        rates.over_models(torch.zeros(3))
