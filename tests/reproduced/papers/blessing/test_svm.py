"""Support vector machines against their optimality conditions, geometry by hand, and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from leakage.draws import gaussian
from reproduced.papers.blessing import svm
from reproduced.papers.blessing.svm import hard_margin, soft_margin
from reproduced.runtime import stream


def problem(batch, n, p, name):
    """Weak features with a fifth of the labels flipped."""
    generator = stream(0, name)
    signal = gaussian((*batch, n, 1), generator=generator)
    rows = signal + gaussian((*batch, n, p), generator=generator)
    flips = torch.rand((*batch, n), generator=generator) < 0.2
    return rows, torch.where(flips, -1.0, 1.0) * signal.squeeze(-1).sign()


def reference(gram, labels, *, cost, tol):
    """Outputs of scikit-learn's machine, divided by its norm."""
    machine = SVC(C=cost, kernel="precomputed", tol=tol).fit(gram.numpy(), labels.numpy())
    dual = np.zeros(len(labels))
    dual[machine.support_] = machine.dual_coef_[0]
    pull = gram.numpy() @ dual
    return torch.from_numpy((pull + machine.intercept_) / np.sqrt(dual @ pull))


def test_two_points_are_divided_half_way():
    rows = torch.tensor([[0.0, 0.0], [4.0, 0.0]], dtype=torch.float64) + 1
    labels = torch.tensor([1.0, -1.0], dtype=torch.float64)
    machine = hard_margin(rows @ rows.mT, labels)
    assert float(1 / machine.norm) == pytest.approx(2.0)
    query = torch.tensor([[3.0, 5.0], [2.0, -7.0]], dtype=torch.float64)
    assert machine.distances(rows @ query.mT).tolist() == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("p", [31, 45, 90, 400])
def test_the_hard_margin_meets_its_conditions_to_rounding(p):
    rows, labels = problem((40,), 30, p, f"hard {p}")
    gram = rows @ rows.mT
    machine = hard_margin(gram, labels)
    margins = labels * machine.distances(gram) * machine.norm.unsqueeze(-1)
    assert float(margins.min()) > 1 - 1e-8
    assert float(machine.dual.min()) > -1e-8
    assert float((machine.dual * (margins - 1)).abs().max()) < 1e-8
    assert float((machine.dual * labels).sum(-1).abs().max()) < 1e-8
    # At the optimum |w|² is the sum of the dual coefficients.
    torch.testing.assert_close(machine.norm.square(), machine.dual.sum(-1))


def test_the_hard_margin_is_at_least_that_of_scikit_learn():
    rows, labels = problem((10,), 60, 150, "margin")
    gram = rows @ rows.mT
    machine = hard_margin(gram, labels)
    for i in range(10):
        theirs = reference(gram[i], labels[i], cost=1e20, tol=1e-3)
        # The default tolerance of SVC is 1e-3 in units of the margin, which is 1/|w|.
        torch.testing.assert_close(machine.distances(gram)[i], theirs, rtol=0, atol=5e-3)
        assert float((labels[i] * theirs).min()) < float(1 / machine.norm[i]) + 1e-9


@pytest.mark.parametrize(("p", "cost"), [(3, 1.0), (20, 1.0), (50, 0.01), (50, 100.0)])
def test_the_soft_margin_is_that_of_scikit_learn(p, cost):
    rows, labels = problem((8,), 40, p, f"soft {p}")
    gram = rows @ rows.mT
    machine = soft_margin(gram, labels, cost=cost)
    for i in range(8):
        theirs = reference(gram[i], labels[i], cost=cost, tol=1e-9)
        # SVC keeps its matrix in single precision.
        torch.testing.assert_close(machine.distances(gram)[i], theirs, rtol=1e-3, atol=1e-3)


def test_without_a_binding_box_the_margins_are_one():
    rows, labels = problem((6,), 20, 60, "loose")
    gram = rows @ rows.mT
    hard, soft = hard_margin(gram, labels), soft_margin(gram, labels, cost=1e3)
    torch.testing.assert_close(hard.distances(gram), soft.distances(gram), rtol=1e-4, atol=1e-4)


def test_order_batch_and_sign_change_nothing():
    rows, labels = problem((3,), 20, 30, "invariance")
    gram = rows @ rows.mT
    machine = hard_margin(gram, labels)
    order = torch.randperm(20, generator=stream(0, "order"))
    again = hard_margin(gram[1][order][:, order], labels[1][order])
    torch.testing.assert_close(again.dual, machine.dual[1][order])
    opposite = hard_margin(gram, -labels)
    torch.testing.assert_close(opposite.distances(gram), -machine.distances(gram))


def test_pivoting_that_does_not_end_raises(monkeypatch):
    rows, labels = problem((5,), 25, 30, "rounds")
    monkeypatch.setattr(svm, "_ROUNDS", 1)
    with pytest.raises(ArithmeticError, match="pivoting did not end after 1 rounds"):
        hard_margin(rows @ rows.mT, labels)


def test_more_points_than_features_are_refused_by_the_hard_margin():
    rows, labels = problem((), 20, 5, "dependent")
    with pytest.raises(ValueError, match="`gram` must be positive definite"):
        hard_margin(rows @ rows.mT, labels)


def test_a_machine_that_says_one_thing_of_every_point_has_no_hyperplane():
    """One negative between positives: paying for its margin is cheaper than any slope."""
    rows = torch.tensor([0.0, -4, -4, 3, 2, 3], dtype=torch.float64)[:, None]
    labels = torch.tensor([1.0, -1, 1, 1, 1, 1], dtype=torch.float64)
    for sign in (1.0, -1.0):
        machine = soft_margin(rows @ rows.mT, sign * labels)
        assert float(machine.norm) == pytest.approx(0)
        assert machine.distances(rows @ rows.mT).tolist() == [sign * math.inf] * 6
        assert float(machine.offset) == pytest.approx(sign, abs=1e-5)  # the solver's accuracy
