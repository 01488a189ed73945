"""Features and scores from posteriors."""

import math

import pytest
import torch

from leakage.draws import gaussian
from leakage.membership import posterior
from reproduced.runtime import stream


def test_the_largest_posteriors_come_in_order():
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.05, 0.25]], dtype=torch.float64))
    expected = torch.tensor([[0.6, 0.25, 0.1]], dtype=torch.float64)
    assert torch.allclose(posterior.top_posteriors(logits), expected, atol=1e-15)
    assert torch.allclose(posterior.top_logits(logits), torch.logit(expected), atol=1e-14)


def test_two_classes_have_two_posteriors():
    assert posterior.top_posteriors(torch.zeros(4, 2)).shape == (4, 2)
    assert posterior.top_logits(torch.zeros(4, 2)).shape == (4, 2)


def test_a_posterior_that_rounds_to_one_keeps_its_logit():
    logits = torch.tensor([[200.0, 0.0, -50.0]], dtype=torch.float64)
    assert float(posterior.top_posteriors(logits)[0, 0]) == pytest.approx(1.0)
    assert float(posterior.top_logits(logits)[0, 0]) == pytest.approx(200.0, abs=1e-12)
    assert float(posterior.label_logit(logits, torch.tensor([0]))[0]) == pytest.approx(200.0, abs=1e-12)


def test_the_logit_of_the_label_is_a_falling_function_of_the_loss():
    logits = 3 * gaussian((200, 5), generator=stream(0, "logits"))
    labels = torch.randint(5, (200,), generator=stream(0, "labels"))
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    expected = -torch.log(torch.expm1(loss))  # p / (1 - p) with p = exp(-loss)
    assert torch.allclose(posterior.label_logit(logits, labels), expected, atol=1e-10)


def test_the_logit_of_a_loss_is_that_of_the_label_to_rounding():
    margins = torch.tensor([-700.0, -40.0, 0.0, 3.0, 20.0, 36.0], dtype=torch.float64)
    losses = torch.nn.functional.softplus(-margins)
    assert torch.allclose(posterior.logit_of_loss(losses), margins, rtol=1e-14, atol=1e-15)
    ends = [float(posterior.logit_of_loss(torch.zeros(1, dtype=kind))) for kind in (torch.float64, torch.float32)]
    assert ends == pytest.approx([53 * math.log(2), 24 * math.log(2)]), (
        "what rounds to 0 is at the end of its precision"
    )


def test_the_gap_attack_calls_a_member_what_is_predicted_rightly():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert posterior.correct(logits, torch.tensor([0, 0])).tolist() == [1.0, 0.0]
