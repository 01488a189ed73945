"""Labels that are real numbers come back as the inputs do; an input with a much smaller residual is lost."""

from functools import partial

import torch

from leakage.inversion import tensor_attack
from leakage.inversion.recover import recover
from reproduced.papers.gradient_inversion.games import Game
from reproduced.papers.gradient_inversion.real_labels import label_errors, unequal_residual_errors
from reproduced.runtime import Run

RUN = Run("smoke", 0, torch.device("cpu"))
HIDDEN = partial(tensor_attack.reconstruct, source="hidden", contraction="mean", centre=False)


def test_the_exact_recovery_has_labels_to_rounding():
    game = Game(20, 200, activation="tanh", inputs="sphere", bias=2.0)
    found = label_errors(game, partial(recover, norm=1.0), rounds=2, run=RUN)
    assert float(torch.cat([found.labels, found.inputs]).max()) < 1e-9


def test_labels_are_nearer_in_wider_networks():
    narrow, wide = (
        label_errors(Game(20, m, activation="tanh", inputs="sphere", bias=2.0), HIDDEN, rounds=4, run=RUN)
        for m in (1000, 64_000)
    )
    # eight times by the bound, in both; labels even more
    assert float(narrow.inputs.mean() / wide.inputs.mean()) > 5
    assert float(narrow.labels.mean() / wide.labels.mean()) > 8


def test_an_input_with_a_much_smaller_residual_is_lost_and_the_other_is_not():
    even, uneven = (
        unequal_residual_errors(Game(20, 8000, bias=0.0), HIDDEN, residuals=(1.0, ratio), rounds=4, run=RUN).mean(0)
        for ratio in (1.0, 1000.0)
    )
    assert float(even.max()) < 0.15
    assert float(uneven[0]) > 0.3
    assert float(uneven[1]) < 0.15
