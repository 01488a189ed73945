"""Dual Newton against scikit-learn and its own optimality; points added and left out against training again."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from leakage.draws import gaussian
from reproduced.papers.blessing.logistic_regression import fit, leave_one_out, predict_with_point, train_with_point
from reproduced.runtime import stream


def problem(batch, n, p, name):
    generator = stream(0, name)
    rows = gaussian((*batch, n, p), generator=generator) / p**0.5
    labels = (torch.rand((*batch, n), generator=generator) < torch.sigmoid(4 * rows[..., 0] * p**0.5)).double()
    return rows, labels


@pytest.mark.parametrize(("n", "p"), [(30, 90), (60, 20), (40, 40)])
def test_the_fit_is_that_of_scikit_learn(n, p):
    rows, labels = problem((), n, p, f"sklearn {n} {p}")
    model = fit(rows @ rows.mT, labels, ridge=0.3)
    reference = LogisticRegression(C=1 / 0.3, fit_intercept=False, tol=1e-12, max_iter=10_000)
    reference.fit(rows.numpy(), labels.numpy())
    # lbfgs at this tolerance leaves some 1e-6.
    torch.testing.assert_close(model.dual @ rows, torch.from_numpy(reference.coef_[0]), rtol=0, atol=1e-5)
    assert bool(model.converged)
    assert float(model.residual) < 1e-9


@pytest.mark.parametrize("ridge", [1e-7, 1e-3, 1.0, 1e4])
def test_the_optimality_conditions_hold_over_eleven_decades_of_ridge(ridge):
    rows, labels = problem((6,), 40, 120, "decades")
    model = fit(rows @ rows.mT, labels, ridge=ridge)
    assert bool(model.converged.all())
    # The residual is in units of probability; the last step is of second order after one below 1e-4.
    assert float(model.residual.max()) < 1e-8
    torch.testing.assert_close(model.logits, (rows @ rows.mT @ model.dual.unsqueeze(-1)).squeeze(-1))


def test_a_batch_is_its_models_one_by_one_whatever_their_order():
    rows, labels = problem((2, 3), 25, 50, "batch")
    together = fit(rows @ rows.mT, labels, ridge=0.05)
    for i in range(2):
        for j in range(3):
            alone = fit(rows[i, j] @ rows[i, j].mT, labels[i, j], ridge=0.05)
            torch.testing.assert_close(together.dual[i, j], alone.dual, rtol=1e-9, atol=1e-9)
    order = torch.randperm(25, generator=stream(0, "order"))
    shuffled = rows[0, 0][order]
    again = fit(shuffled @ shuffled.mT, labels[0, 0][order], ridge=0.05)
    torch.testing.assert_close(again.dual, together.dual[0, 0][order], rtol=1e-9, atol=1e-9)


def test_a_model_that_does_not_arrive_is_marked():
    rows, labels = problem((4,), 30, 60, "marked")
    model = fit(rows @ rows.mT, labels, ridge=1e-3, most_steps=2)
    assert not bool(model.converged.any())


def test_the_gamma_of_a_new_point_is_that_of_the_features():
    rows, labels = problem((), 30, 12, "gamma")
    model = fit(rows @ rows.mT, labels, ridge=0.2)
    point = gaussian((12,), generator=stream(0, "gamma point"))
    slopes = torch.sigmoid(model.logits) * torch.sigmoid(-model.logits)
    hessian = rows.mT @ (slopes[:, None] * rows) + 0.2 * torch.eye(12, dtype=torch.float64)
    added = predict_with_point(model, (rows @ point)[:, None], (point @ point)[None], torch.ones(1))
    torch.testing.assert_close(added.gamma[0], point @ torch.linalg.solve(hessian, point))
    torch.testing.assert_close(added.without[0], rows.mT @ model.dual @ point)
    torch.testing.assert_close(added.outputs + added.gamma * (torch.sigmoid(added.outputs) - 1), added.without)


def test_the_proximal_operator_approaches_training_again():
    errors = []
    for n in (60, 240):
        rows, labels = problem((8,), n + 1, 3 * n, f"added {n}")
        gram, last = rows @ rows.mT, n
        cross, square = gram[:, :n, last], gram[:, last, last]
        model = fit(gram[:, :n, :n], labels[:, :n], ridge=0.05)
        added = predict_with_point(model, cross.unsqueeze(-1), square.unsqueeze(-1), labels[:, last:])
        exact = train_with_point(model, labels[:, :n], cross, square, labels[:, last])
        whole = fit(gram, labels, ridge=0.05)
        torch.testing.assert_close(exact.logits, whole.logits, rtol=0, atol=1e-7)
        errors.append(float((added.outputs.squeeze(-1) - exact.logits[:, -1]).abs().mean()))
    assert errors[0] < 0.02  # outputs are of order 1
    assert errors[1] < 0.6 * errors[0]  # of order 1/n: a quarter is expected


def test_leaving_out_is_adding_backwards():
    rows, labels = problem((5,), 120, 200, "left out")
    gram = rows @ rows.mT
    left = leave_one_out(fit(gram, labels, ridge=0.05))
    smaller = fit(gram[:, 1:, 1:], labels[:, 1:], ridge=0.05)
    exact = (gram[:, 0, 1:] * smaller.dual).sum(-1)
    assert float((left.without[:, 0] - exact).abs().max()) < 0.02  # outputs are of order 1, the error of order 1/n
    added = predict_with_point(smaller, gram[:, 1:, :1], gram[:, 0, :1], labels[:, :1])
    torch.testing.assert_close(left.gamma[:, 0], added.gamma[:, 0], rtol=0.05, atol=0)


def test_a_long_step_is_shortened_until_the_objective_falls():
    # One point far out: from c = 0 the Newton step overshoots where the logistic function is flat.
    gram, labels = torch.tensor([[1e6]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    model = fit(gram, labels, ridge=1e-3, start=torch.tensor([-5e-6], dtype=torch.float64))
    assert bool(model.converged)
    assert float(model.residual) < 1e-9


@pytest.mark.parametrize("ridge", [1e-8, 1e-16, 1e-40])
def test_a_separable_set_is_fitted_down_to_ridges_below_rounding(ridge):
    generator = stream(0, "tiny ridge")
    rows = torch.randn((3, 20, 40), generator=generator, dtype=torch.float64)
    labels = (torch.rand((3, 20), generator=generator) < 0.5).double()
    model = fit(rows @ rows.mT, labels, ridge=ridge, most_steps=200)
    assert bool(model.converged.all())
    missing = torch.sigmoid(-(2 * labels - 1) * model.logits)
    # The condition μ|c| = 1 - p in its own scale; a step of 1e-4 leaves its square.
    torch.testing.assert_close(ridge * model.dual.abs(), missing, rtol=1e-6, atol=0)


def test_a_matrix_that_is_no_gram_matrix_is_refused():
    with pytest.raises(ValueError, match="`gram` must be positive semi-definite"):
        fit(-torch.eye(2, dtype=torch.float64), torch.tensor([0.0, 1.0]).double(), ridge=1e-3)
