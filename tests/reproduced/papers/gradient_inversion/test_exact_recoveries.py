"""The exact recovery gets batches back to rounding, whatever their lengths and the loss, and certifies only those."""

import dataclasses
from functools import partial

import torch

from leakage.inversion.recover import recover
from reproduced.papers.gradient_inversion.exact_recoveries import (
    logistic_errors,
    recover_rounds,
    unequal_length_errors,
)
from reproduced.papers.gradient_inversion.games import Game
from reproduced.runtime import Run

RUN = Run("smoke", 0, torch.device("cpu"))
GAME = Game(20, 200, activation="tanh", inputs="sphere")
EXACT = partial(recover, norm=1.0, labels=(-1.0, 1.0))


def test_a_recovered_batch_is_certified():
    found = recover_rounds(GAME, EXACT, rounds=2, run=RUN)
    assert float(found.errors.max()) < 1e-10
    assert bool(found.certified.all())


def test_a_gradient_with_noise_gets_no_certificate():
    noisy = dataclasses.replace(GAME, noise=0.01)
    found = recover_rounds(noisy, EXACT, rounds=1, run=RUN)
    assert float(found.errors.min()) > 1e-6
    assert not bool(found.certified.any())


def test_unknown_lengths_and_the_logistic_loss_come_back():
    uneven = unequal_length_errors(GAME, lengths=(0.5, 2.0), rounds=2, run=RUN)
    logistic = logistic_errors(dataclasses.replace(GAME, bias=0.3), rounds=2, run=RUN)
    assert float(torch.cat([uneven, logistic]).max()) < 1e-10
