r"""Random-feature regression on given inputs: how the training labels enter one prediction.

The model fits $y \approx \phi_p(x)^\top \beta$ with features $\phi(x) = \max(Vx, 0)$, V a Gaussian matrix, by minimum
norm. Its prediction is $w^\top y$; `label_weights` returns $w$ for many training sets and all widths at once, so the
labels can follow any law without being sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakage.draws import gaussian, uniform
from reproduced.papers.min_norm import gaussian_mixtures
from reproduced.papers.min_norm.gaussian_mixtures import GaussianMixture
from reproduced.papers.min_norm.nested_fits import nested_weights
from reproduced.runtime import stream

_CLEAR = 1e-4  # pivots above this share of the largest: a design of full rank, whatever rounding did
_CHUNK = 2**21  # features computed at once: what fits the cache is faster than what fits the memory


@dataclass(frozen=True)
class LabelWeights:
    """Weights of the training labels in the prediction, and which inputs were trained on."""

    weights: Float[Tensor, "designs widths n"]
    rows: Int[Tensor, "designs n"]


def label_weights(
    inputs: Float[Tensor, "pool d"],
    query: int,
    *,
    rows: int,
    widths: Sequence[int],
    designs: int,
    member: bool,
    generator: torch.Generator,
) -> LabelWeights:
    r"""Weights w with the prediction $w^\top y$ at `inputs[query]`, for `designs` models on `rows` random inputs each.

    The query is the first training row of a member's designs and in none of an outsider's. Features are drawn anew for
    every design, and shared by its widths, which increase. From p = n on a model whose features have rank n
    interpolates: a member's weights are 1 for its own label and 0 for the others. Inputs in one orthant, in few
    dimensions or given twice may have a lower rank at any p: the weights are then a row of the features' projector.
    """
    keys = uniform((designs, len(inputs)), generator=generator, dtype=torch.float32)
    # The query sorts first into a member's training set, and last, beyond reach, for an outsider's.
    keys[:, query] = -1.0 if member else 2.0
    chosen = keys.topk(rows, largest=False).indices
    # From p = n on a member's prediction is its own label, if the features have full rank, and nothing need be trained.
    trained = [p for p in widths if p < rows] if member else widths
    narrow = trained[-1] if trained else 0
    weights = torch.zeros(designs, len(widths), rows, dtype=inputs.dtype)
    if len(trained) < len(widths):
        weights[:, len(trained) :, 0] = 1.0
    per_batch = max(1, _CHUNK // (rows * max(trained, default=rows)))
    for start in range(0, designs, per_batch):
        points = inputs[chosen[start : start + per_batch]]
        asked = inputs[query].expand(len(points), 1, -1)
        features = _features(torch.cat([points, asked], dim=-2), narrow, generator)
        part = weights[start : start + per_batch]
        if trained:
            found = nested_weights(features[:, :-1], features[:, -1:], widths=trained)
            part[:, : len(trained)] = found.squeeze(-2)
        if len(trained) < len(widths):
            _correct(part[:, len(trained) :], points, features[:, :-1], widths[len(trained) :], generator)
    return LabelWeights(weights, chosen)


def _correct(
    weights: Float[Tensor, "b w n"],
    points: Float[Tensor, "b n d"],
    features: Float[Tensor, "b n P"],
    widths: Sequence[int],
    generator: torch.Generator,
) -> None:
    """Where the first row is not interpolated, write its row of the projector on the features' columns into `weights`.

    A full rank stays full, and n columns nearly always give it: only designs of lower rank are widened.
    """
    short = torch.arange(len(points))
    for p in sorted({points.shape[1], *widths}):
        fresh = _features(points[short], p - features.shape[-1], generator)
        features = torch.cat([features, fresh], dim=-1)
        row, full = _first_row(features)
        short, features, row = short[~full], features[~full], row[~full]
        if not len(short):
            return
        if p in widths:
            weights[short, widths.index(p)] = row


def _first_row(features: Float[Tensor, "b n p"]) -> tuple[Float[Tensor, "b n"], Bool[Tensor, " b"]]:
    """The first row of the projector on the columns, and whether their rank is n, where it is $(1, 0, …)$."""
    factor, failed = torch.linalg.cholesky_ex(features @ features.mT)
    smallest, largest = factor.diagonal(dim1=-2, dim2=-1).aminmax(dim=-1)
    full = (failed == 0) & (smallest > _CLEAR * largest)
    row = torch.zeros_like(features[:, :, 0])
    row[:, 0] = 1.0
    left, sizes, _ = torch.linalg.svd(features[~full], full_matrices=False)
    kept = sizes > torch.finfo(sizes.dtype).eps * max(features.shape[-2:]) * sizes[:, :1]
    row[~full] = ((left * kept.unsqueeze(-2)) @ left[:, :1].mT).squeeze(-1)
    full[~full] = kept.sum(-1) == features.shape[-2]
    return row, full


def _features(points: Float[Tensor, "b m d"], width: int, generator: torch.Generator) -> Float[Tensor, "b m P"]:
    r"""ReLU features of a few points under directions $N(0, I/d)$, new for each of the b batches.

    Only the projection of a direction on the span of the m points matters: with $A^\top = QR$ the products $Av$ and
    $R^\top z$ have the same law, and z has m coordinates. (The Gram matrix would do, at half the digits.)
    """
    dimension = points.shape[-1]
    if dimension > points.shape[-2]:
        points = torch.linalg.qr(points.mT, mode="r").R.mT
    # A rounded direction is as good as any other, and drawing it in float64 would take most of the time.
    size = (points.shape[0], points.shape[-1], width)
    directions = gaussian(size, generator=generator, dtype=torch.float32).to(points.dtype)
    return (points / dimension**0.5 @ directions).clamp_min_(0)


def teacher_variances(
    trained: LabelWeights, inputs: Float[Tensor, "pool d"], *, sigma: float
) -> Float[Tensor, "widths designs"]:
    r"""Variance $\lVert X^\top w \rVert^2 / d + \sigma^2 \lVert w \rVert^2$ of the prediction if a teacher labels."""
    signal = (trained.weights @ inputs[trained.rows]).square().sum(-1) / inputs.shape[1]
    return (signal + sigma**2 * trained.weights.square().sum(-1)).T


def label_noise_law(
    trained: LabelWeights, labels: Float[Tensor, " pool"], *, sigma: float
) -> tuple[Float[Tensor, "widths designs"], Float[Tensor, "widths designs"]]:
    r"""Mean $w^\top y$ and variance $\sigma^2 \lVert w \rVert^2$ of the prediction given the design; y has noise σ."""
    mean = (trained.weights * labels[trained.rows].unsqueeze(-2)).sum(-1)
    return mean.T, (sigma**2 * trained.weights.square().sum(-1)).T


class Advantages(NamedTuple):
    r"""Advantages of the best attack: for noisy labels of a linear `teacher`, and for the data's noisy `labels`."""

    teacher: Float[Tensor, "*b widths"]
    labels: Float[Tensor, "*b widths"]


def random_feature_advantage(
    query: int,
    *,
    inputs: Float[Tensor, "pool d"],
    labels: Float[Tensor, " pool"],
    rows: int,
    widths: Sequence[int],
    designs: int,
    sigma: float,
    seed: int,
) -> Advantages:
    r"""Advantage of the best attack on random-feature regression at one of the given inputs, for every width.

    `designs` models are trained with the input and as many without it; the noise of the labels is integrated out, so
    the only sampling is over designs. σ is positive: without noise an interpolated label would identify the member.
    """
    label = partial(label_weights, inputs, query, rows=rows, widths=widths, designs=designs)
    trained = {
        who: label(member=member, generator=stream(seed, f"random features/{query}/{member}"))
        for who, member in (("outsider", False), ("member", True))
    }
    teacher = {who: teacher_variances(models, inputs, sigma=sigma) for who, models in trained.items()}
    noisy = {who: GaussianMixture(*label_noise_law(models, labels, sigma=sigma)) for who, models in trained.items()}
    return Advantages(gaussian_mixtures.total_variation(**teacher), gaussian_mixtures.total_variation(**noisy))
