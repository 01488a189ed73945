"""Scores of many models at once are measured as `leakage.metrics.roc` measures one, and refused alike."""

import math

import pytest
import torch

from leakage.metrics import roc, scores
from leakage.metrics.scores import Scores
from reproduced.runtime import stream

MODELS, POINTS = 4, 130


def some_scores(epochs=(3,), ties=True):
    draws = stream(0, "scores")
    member = torch.rand(MODELS, POINTS, generator=draws) < torch.linspace(0.3, 0.6, MODELS)[:, None]
    values = torch.randn(*epochs, MODELS, POINTS, generator=draws, dtype=torch.float64) + member
    return ((values * 4).round() / 4 if ties else values), member


def alone(values, mask):
    """What `roc` says of one model's scores."""
    pair = {"member": values[mask], "outsider": values[~mask]}
    return {
        "advantage": roc.membership_advantage(**pair, threshold=1e-12),
        "best": roc.best_advantage(**pair),
        "auc": roc.auc(**pair),
        "tpr_at_0.05": roc.tpr_at_fpr(**pair, fpr=0.05),
        "tpr_at_0.29": roc.tpr_at_fpr(**pair, fpr=0.29),
    }


@pytest.mark.parametrize("ties", [True, False])
def test_every_model_of_a_batch_is_measured_as_one_alone(ties):
    values, member = some_scores(ties=ties)
    found = scores.rates(values, member=member, fprs=(0.05, 0.29))
    assert set(found) == {"advantage", "auc", "tpr_at_0.05", "tpr_at_0.29"}
    found["best"] = Scores.from_mask(values, member=member).best_advantage()
    for epoch in range(3):
        for model in range(MODELS):
            for name, value in alone(values[epoch, model], member[model]).items():
                assert float(found[name][epoch, model]) == pytest.approx(float(value), abs=1e-12), name


@pytest.mark.parametrize("ties", [True, False])
def test_several_rates_at_once_are_each_by_itself(ties):
    values, member = some_scores(ties=ties)
    ranked = Scores.from_mask(values, member=member)
    rates = [0.29, 0.05, 0.98]
    expected = torch.cat([ranked.tpr_at_fprs([rate]) for rate in rates], -1)
    torch.testing.assert_close(ranked.tpr_at_fprs(rates), expected)
    with pytest.raises(ValueError, match=r"`fpr` = 0\.001 cannot be measured"):
        ranked.tpr_at_fprs([0.05, 0.001])


def test_scores_from_groups_are_those_from_a_mask():
    values, _ = some_scores(epochs=())
    member = torch.arange(POINTS) < 50
    masked = Scores.from_mask(values, member=member.expand(MODELS, -1))
    grouped = Scores.from_groups(member=values[:, :50], outsider=values[:, 50:])
    torch.testing.assert_close(tuple(masked), tuple(grouped))
    shared = Scores.from_mask(values, member=member)  # a mask that all models share
    torch.testing.assert_close(tuple(masked), tuple(shared))


@pytest.mark.parametrize("strict", [False, True])
def test_a_score_on_the_threshold_reaches_it_and_does_not_exceed_it(strict):
    found = Scores.from_groups(member=torch.tensor([0.0, 1.0]), outsider=torch.tensor([-1.0, 0.0, 0.0]))
    assert [int(count) for count in found.count_flagged(0.0, strict=strict)] == ([1, 0] if strict else [2, 2])
    assert [int(count) for count in found.count_flagged(math.inf)] == [0, 0]
    assert [int(count) for count in found.count_flagged(-math.inf)] == [2, 3]


def test_tied_scores_of_models_with_few_members_are_counted_by_halves():
    member = torch.tensor([[True, False, False, False], [True, True, True, False]])
    found = Scores.from_mask(torch.ones(2, 4), member=member)
    assert found.auc().tolist() == [0.5, 0.5]
    assert found.best_advantage().tolist() == [0.0, 0.0]


def test_a_model_without_outsiders_is_refused():
    values, member = some_scores()
    with pytest.raises(ValueError, match="members and outsiders"):
        Scores.from_mask(values, member=member | True)


@pytest.mark.parametrize("kind", [0, 1])
def test_one_point_without_a_score_is_no_rate(kind):
    values, member = some_scores()
    values[0, 0, int((member[0] == kind).nonzero()[0])] = math.nan
    with pytest.raises(ValueError, match="`scores` must be finite"):
        Scores.from_mask(values, member=member)


def test_numbers_that_agree_to_nine_digits_tie_and_others_do_not():
    values = torch.tensor([0.3, 0.1 + 0.2, 0.3 * (1 + 1e-8), -0.3, -(0.1 + 0.2), 1e-200, 0.0], dtype=torch.float64)
    found = scores.round_digits(values)
    assert found[0] == found[1]
    assert found[3] == found[4] == -found[0]
    assert len(found.unique()) == 5
    torch.testing.assert_close(found, values, rtol=1e-9, atol=0)


@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1.0, 3e7, 1e150])
def test_rounding_keeps_order_whatever_the_unit(unit):
    draws = torch.randn(1000, generator=stream(0, "order"), dtype=torch.float64)
    near = draws * (1 + 1e-9 * torch.randn(1000, generator=stream(0, "near"), dtype=torch.float64))
    ordered = scores.round_digits(torch.cat([draws, near]).sort().values * unit)
    assert bool((ordered.diff() >= 0).all())
    torch.testing.assert_close(scores.round_digits(ordered), ordered, rtol=0, atol=0)  # what is rounded stays as it is


def test_scores_and_thresholds_that_are_equal_but_for_rounding_count_as_equal():
    member, outsider = (torch.tensor([number], dtype=torch.float64) for number in (0.3, 0.1 + 0.2))
    found = Scores.from_groups(member=member, outsider=outsider)
    assert float(found.auc()) == pytest.approx(0.5)
    assert float(found.best_advantage()) == pytest.approx(0)
    for threshold in (0.3, 0.1 + 0.2):
        assert [int(count) for count in found.count_flagged(threshold)] == [1, 1]
        assert [int(count) for count in found.count_flagged(threshold, strict=True)] == [0, 0]
