"""Criteria count answers, and examples keep their tensors together."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from leakage.runtime import DTYPE, stream
from leakage.trainers import criteria
from leakage.trainers.criteria import Examples

# Two classes with odds 3 to 1.
LOGITS = torch.tensor([math.log(3), 0.0], dtype=DTYPE)


def test_a_classifier_gives_one_answer_an_example():
    score = criteria.classification(LOGITS.expand(2, 2), torch.tensor([0, 1]))
    torch.testing.assert_close(score.losses, torch.tensor([math.log(4 / 3), math.log(4)], dtype=DTYPE))
    assert (score.wrong.tolist(), score.answers.tolist()) == ([0, 1], [1, 1])


def test_a_loss_judged_is_the_cross_entropy_however_small_it_is():
    logits = torch.randn(2, 50, 7, generator=stream(0, "logits"), dtype=DTYPE)
    targets = torch.randint(7, (2, 50), generator=stream(0, "targets"))
    losses, wrong = criteria.cross_entropies(logits, targets)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(2, 50)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(wrong, logits.argmax(-1) != targets)
    coarse, _ = criteria.cross_entropies(logits.float(), targets)
    torch.testing.assert_close(coarse, expected, rtol=1e-5, atol=1e-5)  # rounding of logits up to 4
    sure, _ = criteria.cross_entropies(torch.tensor([40.0, 0.0]), torch.tensor(0))
    assert float(sure) == pytest.approx(4.248354255291589e-18, rel=1e-9)  # e^-40, which float32 rounds to 0


def test_a_tie_is_a_mistake():
    assert criteria.cross_entropies(torch.zeros(2, 3), torch.tensor([0, 2]))[1].tolist() == [True, True]


def test_rows_are_taken_of_every_tensor():
    examples = Examples((torch.arange(4), torch.arange(8).reshape(4, 2)), 10 * torch.arange(4))
    some = examples[torch.tensor([[3, 0], [1, 2]])]
    assert [tensor.shape for tensor in (*some.inputs, some.targets)] == [(2, 2), (2, 2, 2), (2, 2)]
    assert some.targets.tolist() == [[30, 0], [10, 20]]
    assert (len(examples), len(examples[slice(1, 3)])) == (4, 2)
