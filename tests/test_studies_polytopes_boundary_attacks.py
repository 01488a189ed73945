"""Distances to the boundary as attacks, on networks that memorise, and on networks that have learned nothing."""

import math

import pytest
import torch

import noise_labels
from leakage.attacks.membership.label_only import Jumps
from reproduced.studies.polytopes import boundary_attacks as trials


def test_what_memorises_is_found_out_by_distances():
    found = trials.white_box_trial(0, task=noise_labels.task(), points=100)
    for name in ("confidence + label", "DeepFool + label", "loss"):
        assert float(found[name].auc) > 0.8
        assert float(found[name].shadow) <= float(found[name].optimal) + 1e-12
    assert float(found["confidence"].unreached) == pytest.approx(0.0)
    assert found.names[-2:] == ("loss", "gap")


def test_what_memorises_is_found_out_by_labels():
    found = trials.label_only_trial(
        0, task=noise_labels.task(), points=60, jumps=Jumps(iterations=2, directions=40), copies=50
    )
    for name in ("HopSkipJump + label", "noise"):
        assert float(found[name].auc) >= float(found["gap"].auc) > 0.7


def test_what_has_learned_nothing_is_not():
    found = trials.white_box_trial(0, task=noise_labels.task(epochs=0), points=120)
    error = math.sqrt(241 / (12 * 120 * 120))  # Mann-Whitney, no ties
    for name, row in found.rows():
        assert abs(float(row.auc) - 0.5) < 4 * error, name


def test_as_printed_the_walk_changes_its_label_once():
    found = trials.printed_trial(0, task=noise_labels.task(), points=60, widths=(1.0,))
    printed, start, exact = (row for _, row in found.rows())
    assert float(printed.once) >= 0.95
    assert float(start.more) >= 0.8
    assert float(printed.ratio) > float(start.ratio) > float(exact.ratio) - 0.01


def test_bounds_are_in_order():
    found = trials.bounds_trial(0, task=noise_labels.task(), points=60)
    assert bool((found.certified <= found.deepfool * (1 + 1e-9)).all())
    assert bool((found.certified > 0).all())


def test_what_was_not_reached_ranks_first_and_is_counted():
    member = torch.tensor([True, True, False, False])
    distances = torch.tensor([torch.inf, 2.0, 1.0, torch.inf], dtype=torch.float64)
    found = trials.judged([distances] * 2, [member] * 2)
    assert float(found.unreached) == pytest.approx(0.5)
    assert float(found.auc) == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert (float(found.optimal), float(found.shadow)) == pytest.approx((0.75, 0.75))
