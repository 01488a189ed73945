r"""Training linear regressions in batches and asking each for one prediction.

These are the experiments of Tan et al. (2022), Appendix D, as they are described: draw a training set, put the queried
point in or leave it out, train, predict. They cost what training costs; `theory.least_squares_law` and `theory.ridge`
draw from the same laws without training, and are checked against this module.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.data.gaussians import gaussian
from leakage.theory.least_squares import Design
from leakage.trainers.min_norm import check_widths, nested_min_norm

_CHUNK = 2**24  # numbers in one batch of training sets


def ridge_predictions(
    features: Float[Tensor, "*b n p"],
    labels: Float[Tensor, "*b n"],
    query: Float[Tensor, "*b p"],
    *,
    penalties: Sequence[float],
) -> Float[Tensor, "*b m"]:
    r"""Predictions $x_0^\top (X^\top X + n\lambda I)^{-1} X^\top y$ for every λ in `penalties`, from one decomposition.

    Raises:
        ValueError: if a penalty is not positive and finite.
    """
    if not len(penalties):
        raise ValueError("`penalties` must be at least one.")
    for penalty in penalties:
        arguments.number("penalties", penalty, above=0)
    asked, heard = query.unsqueeze(-1), labels.unsqueeze(-1)
    # The smaller Gram matrix: the larger has a null space, whose rounding errors a small penalty would make large.
    if features.shape[-1] < features.shape[-2]:
        gram, heard = features.mT @ features, features.mT @ heard
    else:
        gram, asked = features @ features.mT, features @ asked
    values, vectors = torch.linalg.eigh(gram)
    cross, target = vectors.mT @ asked, vectors.mT @ heard
    shift = features.shape[-2] * torch.as_tensor(penalties, dtype=features.dtype, device=features.device)
    return (cross * target / (values.clamp_min(0).unsqueeze(-1) + shift)).sum(-2)


def trained_predictions(
    design: Design,
    point: Float[Tensor, " D"],
    *,
    widths: Sequence[int],
    trials: int,
    member: bool,
    generator: torch.Generator,
    penalties: Sequence[float] = (),
) -> Float[Tensor, "trials models"]:
    r"""Train on `trials` Gaussian data sets and predict at `point` with each: one column a model.

    Every trial draws $X$, $\beta \sim N(0, I/D)$ and ε anew; for a member the first row of $X$ is the point, and its
    label is made as all others are. The models are the minimum-norm fits on the first p features for p in `widths`;
    with `penalties`, the ridge fits on the first `widths[0]` features instead, which must then be the only width.

    Raises:
        ValueError: if the point has not D coordinates, or the widths or penalties are wrong.
    """
    used = check_widths(widths)[-1]
    if penalties and len(widths) > 1:
        raise ValueError(f"`widths` must be a single width where `penalties` are given, got {list(widths)!r}.")
    per_batch = max(1, _CHUNK // (design.n * design.D))
    parts = []
    for start in range(0, trials, per_batch):
        rows, labels = _training_sets(design, point, min(per_batch, trials - start), member, generator)
        query, features = point.expand(rows.shape[0], 1, -1)[..., :used], rows[..., :used]
        if penalties:
            parts.append(ridge_predictions(features, labels, query.squeeze(-2), penalties=penalties))
        else:
            parts.append(nested_min_norm(features, labels, query, widths=widths).squeeze(-1))
    return torch.cat(parts)


def _training_sets(
    design: Design, point: Tensor, count: int, member: bool, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`count` data sets: rows `[count, n, D]` and labels `[count, n]`."""
    if point.shape != (design.D,):
        raise ValueError(f"`point` must have D = {design.D} coordinates, got shape {tuple(point.shape)}.")
    rows = gaussian((count, design.n, design.D), generator=generator)
    if member:
        rows[:, 0] = point
    beta = gaussian((count, design.D, 1), generator=generator) / design.D**0.5
    noise = design.sigma * gaussian((count, design.n), generator=generator)
    return rows, (rows @ beta).squeeze(-1) + noise
