r"""Outputs of trained ridge logistic regressions on the bi-level ensemble.

Every experiment is one call that returns tensors, one entry a trial; trials are trained in batches of bounded memory.
`penalty` is the paper's λ. The penalty beside the sum of the losses is $\mu = \lambda n / p$, and a model with one
more point keeps μ. A model that did not converge raises an error, so that no mean leaves one out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import gaussian
from leakage.theory.logistic.prox import curvature, loss
from leakage.trainers.logistic_regression import Fit, fit, leave_one_out, train_with_point, with_point
from reproduced.studies.blessing.bilevel import Bilevel, Points, TrainingSets, training_sets

_BATCH = {"cpu": 2**18, "cuda": 2**26}  # numbers in the Gram matrices trained at once: the cache, or the GPU's appetite


class PointOutputs(NamedTuple):
    r"""Outputs at fixed points, one column a training set.

    Attributes:
        without: of the model trained without the point.
        outputs: of the model with the point as one more training point, by the proximal operator.
        gamma: γ of the proximal operator.
        refits: the same as `outputs`, by training again, for the first training sets.
    """

    without: Float[Tensor, "k T"]
    outputs: Float[Tensor, "k T"]
    gamma: Float[Tensor, "k T"]
    refits: Float[Tensor, "k R"]


class Simulation(NamedTuple):
    r"""The quantities that the theory predicts, measured on trained models: one entry each.

    Attributes:
        alpha: $\beta^{*\top} \Sigma b / \beta^{*\top} \Sigma \beta^*$.
        sigma: $\sqrt{b^\top \Sigma b / p - \alpha^2 \kappa^2}$, the spread of an output that Z does not explain.
        gamma: $\mathbb E\, x_0^\top (X^\top W X + \mu I)^{-1} x_0$ over a fresh $x_0$.
        error: share of fresh points misclassified.
        accuracy: share of training points classified correctly.
        loss: mean loss of the training points.
        tpr: share of training points whose loss is below each threshold.
        fpr: the same of fresh points.
    """

    alpha: Float[Tensor, " T"]
    sigma: Float[Tensor, " T"]
    gamma: Float[Tensor, " T"]
    error: Float[Tensor, " T"]
    accuracy: Float[Tensor, " T"]
    loss: Float[Tensor, " T"]
    tpr: Float[Tensor, "T thresholds"]
    fpr: Float[Tensor, "T thresholds"]


class LeftOutCheck(NamedTuple):
    r"""Leave-one-out outputs of every training point of one model, and some of them by training again.

    Attributes:
        teacher: $Z_i$.
        labels: 0 or 1.
        outputs: of the model at its training points.
        without: of the models without each point, computed from the one model.
        gamma: $\gamma_i$.
        refits: `without` of the first points, by training without them.
    """

    teacher: Float[Tensor, " n"]
    labels: Float[Tensor, " n"]
    outputs: Float[Tensor, " n"]
    without: Float[Tensor, " n"]
    gamma: Float[Tensor, " n"]
    refits: Float[Tensor, " r"]


def point_outputs(
    ensemble: Bilevel,
    points: Points,
    *,
    penalty: float,
    trials: int,
    generator: torch.Generator,
    refits: int = 0,
) -> PointOutputs:
    r"""Outputs at the fixed points of models trained on `trials` data sets, without and with each point.

    One model serves all points: the output with a point is `logistic_regression.with_point`. For the first `refits`
    training sets it is also found by training again.

    Source: Tan et al. (2023), Figure 2: "n additional random training points … either including or not including" it.
    """
    parts, again = [], []
    for data, gram, model in _trained(ensemble, trials, penalty, generator, points):
        parts.append(with_point(model, data.cross, points.squares, points.labels))
        left = min(refits - sum(map(len, again)), len(gram))
        if left > 0:
            again.append(_refits(model, gram, data, points, left))
    without, outputs, gamma = (torch.cat(column).mT.contiguous() for column in zip(*parts, strict=True))
    exact = torch.cat(again).mT.contiguous() if again else without[:, :0]
    return PointOutputs(without, outputs, gamma, exact)


def simulate(
    ensemble: Bilevel,
    *,
    penalty: float,
    trials: int,
    generator: torch.Generator,
    thresholds: Sequence[float] = (),
    fresh: int = 2000,
) -> Simulation:
    r"""α, σ, γ, errors and the rates of constant loss thresholds τ, measured on `trials` trained models.

    Given a model, $(Z, x^\top b)$ of a fresh point is Gaussian and $x^\top b = \alpha Z + \sigma \cdot N(0, 1)$: each
    of a model's `fresh` test points needs two random numbers; γ is averaged over $x_0$ in closed form. The attack with
    threshold τ calls a point with a loss below τ a member.
    """
    limits = torch.tensor(list(thresholds), dtype=torch.float64, device=generator.device)
    parts = []
    for data, _, model in _trained(ensemble, trials, penalty, generator, None):
        alpha, sigma = _overlaps(ensemble, data, model)
        teacher = ensemble.kappa * gaussian((len(alpha), fresh), generator=generator)
        outputs = alpha[:, None] * teacher + sigma[:, None] * gaussian((len(alpha), fresh), generator=generator)
        labels = (
            torch.rand(teacher.shape, dtype=torch.float32, generator=generator, device=teacher.device)
            < torch.sigmoid(teacher)
        ).to(teacher.dtype)
        losses, unseen = loss(model.logits, data.labels), loss(outputs, labels)
        parts.append(
            Simulation(
                alpha,
                sigma,
                _mean_gamma(ensemble, data, model),
                ((outputs > 0) != (labels > 0)).double().mean(-1),
                ((model.logits > 0) == (data.labels > 0)).double().mean(-1),
                losses.mean(-1),
                (losses.unsqueeze(-1) < limits).double().mean(-2),
                (unseen.unsqueeze(-1) < limits).double().mean(-2),
            )
        )
    return Simulation(*(torch.cat(column) for column in zip(*parts, strict=True)))


def left_out_check(ensemble: Bilevel, *, penalty: float, generator: torch.Generator, refits: int = 0) -> LeftOutCheck:
    """One trained model's outputs at its training points, and the outputs of the models without each of them."""
    data, gram, model = next(_trained(ensemble, 1, penalty, generator, None))
    found = leave_one_out(model, gram, data.labels)
    kept = ~torch.eye(ensemble.n, dtype=torch.bool, device=gram.device)[:refits]
    index = kept.nonzero()[:, 1].reshape(refits, ensemble.n - 1)
    # Rows and columns of the Gram matrix without the point, one model for each.
    smaller = gram[0][index[:, :, None], index[:, None, :]]
    again = fit(smaller, data.labels[0][index], ridge=model.ridge, start=model.dual[0][index])
    cross = gram[0][:refits].gather(1, index)
    return LeftOutCheck(
        data.teacher[0], data.labels[0], model.logits[0], found.without[0], found.gamma[0], (cross * again.dual).sum(-1)
    )


def _trained(
    ensemble: Bilevel, trials: int, penalty: float, generator: torch.Generator, points: Points | None
) -> Iterator[tuple[TrainingSets, Tensor, Fit]]:
    """Training sets, their Gram matrices and models, a batch at a time."""
    per_batch = max(1, _BATCH.get(generator.device.type, _BATCH["cpu"]) // ensemble.n**2)
    for begin in range(0, trials, per_batch):
        data = training_sets(ensemble, min(per_batch, trials - begin), generator=generator, points=points)
        gram = data.gram()
        yield data, gram, _converged(fit(gram, data.labels, ridge=ensemble.ridge(penalty)))


def _refits(model: Fit, gram: Tensor, data: TrainingSets, points: Points, count: int) -> Float[Tensor, "R k"]:
    """The output at each point after training with it, for the first `count` training sets."""
    part, columns = model, []
    if count < len(gram):
        tensors = {field.name: getattr(model, field.name) for field in fields(model) if field.name != "ridge"}
        part = replace(model, **{name: tensor[:count] for name, tensor in tensors.items()})
    for j in range(len(points.labels)):
        again = train_with_point(
            part, gram[:count], data.labels[:count], data.cross[:count, :, j], points.squares[j], points.labels[j]
        )
        columns.append(_converged(again).logits[:, -1])
    return torch.stack(columns, dim=-1)


def _overlaps(ensemble: Bilevel, data: TrainingSets, model: Fit) -> tuple[Tensor, Tensor]:
    """α and σ of each model."""
    strong = (model.dual.unsqueeze(-2) @ data.strong).squeeze(-2)
    weak = (model.dual.unsqueeze(-2) @ data.weak).squeeze(-2)
    alpha = strong[..., 0] * ensemble.strong**0.5 / ensemble.kappa
    square = ensemble.strong * strong.square().sum(-1) + ensemble.weak * weak.square().sum(-1)
    return alpha, (square - (alpha * ensemble.kappa).square()).clamp_min(0).sqrt()


def _mean_gamma(ensemble: Bilevel, data: TrainingSets, model: Fit) -> Float[Tensor, " T"]:
    r"""$\operatorname{tr}(\Sigma (X^\top W X + \mu I)^{-1}) / p$, from the same Cholesky factor."""
    root = curvature(model.logits).sqrt().unsqueeze(-1)
    total = torch.zeros_like(model.residual)
    parts = ((data.strong, ensemble.strong, ensemble.d), (data.weak, ensemble.weak, ensemble.p - ensemble.d))
    for rows, variance, count in parts:
        explained = torch.linalg.solve_triangular(model.factor, root * rows, upper=False).square().sum((-2, -1))
        total = total + variance * (count - explained)
    return total / model.ridge


def _converged(model: Fit) -> Fit:
    if not bool(model.converged.all()):
        worst = float(model.change[~model.converged].max())
        raise ArithmeticError(
            f"{int((~model.converged).sum())} of {model.converged.numel()} models did not converge: the last step "
            f"moved a logit by {worst:.3g}; is the ridge μ = {model.ridge:.3g} too small for double precision?"
        )
    return model
