r"""Linear regressions trained in batches, and the prediction of each at one point.

The experiments of Tan et al. (2022), Appendix D, as described there: draw a training set, put the queried point in or
leave it out, train, predict. `theory.least_squares_law` and `theory.ridge` draw from the same laws without training,
and are checked against this module.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.data.gaussians import gaussian
from leakage.theory.least_squares import Design
from leakage.trainers.min_norm import nested_min_norm

_CHUNK = 2**24  # numbers in one batch of training sets


def ridge_predictions(
    features: Float[Tensor, "*b n p"],
    labels: Float[Tensor, "*b n"],
    query: Float[Tensor, "*b p"],
    *,
    penalties: Sequence[float],
) -> Float[Tensor, "*b m"]:
    r"""Predictions $x_0^\top (X^\top X + n\lambda I)^{-1} X^\top y$, one for each λ in `penalties`."""
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
    r"""Predictions at `point` of models trained on `trials` Gaussian data sets: one column a model.

    Every trial draws $X$, $\beta \sim N(0, I/D)$ and ε anew; for a member the first row of $X$ is the point, and its
    label is drawn as all others are. The models are the minimum-norm fits on the first p features for p in `widths`;
    with `penalties`, the ridge fits on the first `widths[0]` features, one for each penalty.
    """
    used = widths[-1]
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
    rows = gaussian((count, design.n, design.D), generator=generator)
    if member:
        rows[:, 0] = point
    beta = gaussian((count, design.D, 1), generator=generator) / design.D**0.5
    noise = design.sigma * gaussian((count, design.n), generator=generator)
    return rows, (rows @ beta).squeeze(-1) + noise
