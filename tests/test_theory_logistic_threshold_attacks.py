"""One threshold for all points: its rates on samples, its best value, and that it never beats the best attacker."""

import math

import pytest
import torch

from leakage.runtime import DTYPE, stream
from leakage.theory.logistic.limit import solve
from leakage.theory.logistic.output_law import (
    OutputLaw,
    average_advantage,
    best_loss_threshold,
    loss_threshold_rates,
)
from leakage.theory.logistic.proximal_operator import loss
from logistic_points import of, random_settings, spread_out
from test_theory_logistic_output_law import LAW, draws

COUNT = 40_000
ROOM = 4 / math.sqrt(4 * COUNT)  # four standard errors of a share, at most


@pytest.mark.parametrize("threshold", [0.02, 0.3, 1.0])
def test_samples_have_the_rates_of_the_loss_threshold(threshold):
    _, label, fresh, seen = draws(LAW, COUNT, seed=2)
    rates = loss_threshold_rates(LAW, of(threshold))
    assert abs(float((loss(seen, label) < threshold).to(DTYPE).mean() - rates.tpr)) < ROOM
    assert abs(float((loss(fresh, label) < threshold).to(DTYPE).mean() - rates.fpr)) < ROOM


def test_no_single_threshold_beats_the_best_attacker():
    law = solve(random_settings(50)).law
    best, optimum = best_loss_threshold(law), average_advantage(law)
    others = spread_out(1e-4, 5.0, 20, stream(0, "thresholds"))
    assert bool((optimum >= best.advantage - 1e-9).all())
    assert bool((best.advantage[:, None] >= loss_threshold_rates(law.unsqueeze(), others).advantage - 1e-9).all())


def test_the_best_threshold_has_the_rates_it_reports():
    best = best_loss_threshold(LAW)
    torch.testing.assert_close(loss_threshold_rates(LAW, best.threshold).advantage, best.advantage, rtol=1e-9, atol=0)


def test_a_threshold_above_every_loss_calls_all_members():
    rates = loss_threshold_rates(LAW, of(700.0))
    assert float(rates.tpr) == pytest.approx(1, abs=1e-12)
    assert float(rates.fpr) == pytest.approx(1, abs=1e-12)


def test_without_a_pull_there_is_no_advantage():
    blind = OutputLaw(LAW.alpha, LAW.sigma, 0 * LAW.gamma, LAW.kappa)
    for rates in (loss_threshold_rates(blind, of(0.3)), best_loss_threshold(blind)):
        assert float(rates.advantage) == pytest.approx(0, abs=1e-12)
