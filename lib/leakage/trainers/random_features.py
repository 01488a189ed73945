r"""Random-feature regression on given inputs: how the training labels enter one prediction.

The model fits $y \approx \phi_p(x)^\top \beta$ with features $\phi(x) = \max(Vx, 0)$, V a Gaussian matrix, by minimum
norm. Its prediction is $w^\top y$; `label_weights` returns $w$ for many training sets and all widths at once, so that
any law of the labels can be put in afterwards without sampling it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.data.synthetic import gaussian
from leakage.trainers.min_norm import nested_weights

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
    """Train `designs` models on `rows` inputs drawn without replacement, and predict at input number `query`.

    The query is the first training row of a member's designs and in none of an outsider's. Features are drawn anew for
    every design, and shared by its widths.

    Raises:
        ValueError: if the pool is too small for a training set that leaves the query out, or has no such query.
    """
    pool = inputs.shape[0]
    if not 0 <= query < pool:
        raise ValueError(f"`query` must be the number of an input, 0 to {pool - 1}; got {query!r}.")
    if not 1 <= rows <= pool - 1:
        raise ValueError(f"`rows` must be 1 to {pool - 1}, the inputs besides the query; got {rows!r}.")
    keys = torch.rand(designs, pool, generator=generator, device=generator.device)
    # The query sorts first into a member's training set, and last, beyond reach, for an outsider's.
    keys[:, query] = -1.0 if member else 2.0
    chosen = keys.argsort(dim=-1)[:, :rows]
    # From p = n on the model interpolates: a member's prediction is its own label, and nothing need be trained.
    trained = [p for p in widths if p < rows] if member else list(widths)
    weights = torch.zeros(designs, len(widths), rows, dtype=inputs.dtype, device=inputs.device)
    if len(trained) < len(widths):
        weights[:, len(trained) :, 0] = 1.0
    per_batch = max(1, _CHUNK // (rows * max(trained, default=1)))
    for start in range(0, designs if trained else 0, per_batch):
        indices = chosen[start : start + per_batch]
        asked = inputs[query].expand(len(indices), 1, -1)
        features = _features(torch.cat([inputs[indices], asked], dim=-2), trained[-1], generator)
        found = nested_weights(features[:, :-1], features[:, -1:], widths=trained)
        weights[start : start + per_batch, : len(trained)] = found.squeeze(-2)
    return LabelWeights(weights, chosen)


def _features(points: Float[Tensor, "b m d"], width: int, generator: torch.Generator) -> Float[Tensor, "b m P"]:
    r"""ReLU features of a few points under directions $N(0, I/d)$, new for each of the b batches.

    m points see a d-dimensional direction only through its projection on their span: with $A^\top = QR$ the products
    $Av$ and $R^\top z$ have the same law, and z has m coordinates. (The Gram matrix would do, at half the digits.)
    """
    dimension = points.shape[-1]
    if dimension > points.shape[-2]:
        points = torch.linalg.qr(points.mT, mode="r").R.mT
    directions = gaussian((points.shape[0], points.shape[-1], width), generator=generator)
    return (points @ directions).clamp_min(0) / dimension**0.5


def teacher_variances(
    trained: LabelWeights, inputs: Float[Tensor, "pool d"], *, sigma: float
) -> Float[Tensor, "widths designs"]:
    r"""Variance of the prediction given the design when $y = x^\top\beta + \varepsilon$, $\beta \sim N(0, I/d)$.

    $$ V = \lVert X^\top w \rVert^2 / d + \sigma^2 \lVert w \rVert^2 $$
    """
    signal = (trained.weights @ inputs[trained.rows]).square().sum(-1) / inputs.shape[1]
    return (signal + sigma**2 * trained.weights.square().sum(-1)).T


def label_noise_law(
    trained: LabelWeights, labels: Float[Tensor, " pool"], *, sigma: float
) -> tuple[Float[Tensor, "widths designs"], Float[Tensor, "widths designs"]]:
    r"""Mean $w^\top y$ and variance $\sigma^2 \lVert w \rVert^2$ of the prediction given the design, for real labels y
    trained with Gaussian label noise of deviation σ."""
    mean = (trained.weights * labels[trained.rows].unsqueeze(-2)).sum(-1)
    return mean.T, (sigma**2 * trained.weights.square().sum(-1)).T
