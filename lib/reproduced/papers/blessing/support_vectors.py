r"""Support vector machines trained with and without one point: their outputs at it, at many numbers of features.

Each law of `FEATURE_MODELS` fixes a point with its label and draws training sets whose features are nested: the model
with p features uses the first p, and the Gram matrix grows by the products of the new ones. A member's training set is
an outsider's with the first point exchanged, so one draw and one Gram matrix serve both. From p = n on the margin is
hard, below it soft with C = 1. An output is the signed distance of the point from the hyperplane; the attack calls the
point a member if it is far on its label's side. The threshold is chosen on one half of the training sets and judged on
the other, so that without a leak the advantage is 0 on average. Source: Tan et al. (2023), Appendix G.5.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.data.gaussians import sphere
from leakage.data.tabular import load_digits
from leakage.draws import gaussian, uniform
from leakage.metrics.roc import calibrate_threshold
from reproduced.papers.blessing.svm import Machine, hard_margin, soft_margin
from reproduced.statistics import histogram_null_bias, histograms

_BATCH = 2**22  # features drawn at once


class LabelledSets(NamedTuple):
    """Training sets, fresh points of the same law with their true labels, and the fixed point in the same features."""

    rows: Float[Tensor, "T n P"]
    labels: Float[Tensor, "T n"]
    fresh: Float[Tensor, "T m P"]
    fresh_labels: Float[Tensor, "T m"]
    point: Float[Tensor, "T P"]


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """A law of features with its fixed point.

    Attributes:
        point: the features of the fixed point, or the latent variables that they are projections of.
        label: its label, ±1, which is never flipped.
        noise: probability that a training label is flipped.
        draw: from `(trials, count, generator)` draws rows `[trials, count, dimension]` and true labels; within a trial
            the rows of a finite pool are different, and none is the point.
        activation: applied to random projections, which each training set draws anew; `None` where the rows are the
            features.
    """

    point: Float[Tensor, " D"]
    label: float
    noise: float
    draw: Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]
    activation: Callable[[Tensor], Tensor] | None = None

    def draw_sets(self, trials: int, *, rows: int, fresh: int, width: int, generator: torch.Generator) -> LabelledSets:
        """Draw training sets of `rows` points with `width` features; the point is in none of them."""
        found, labels = self.draw(trials, rows + fresh, generator)
        every = torch.cat([found, self.point.expand(trials, 1, -1)], dim=1)
        if self.activation is None:
            every = every[..., :width]
        else:
            directions = sphere(trials * width, len(self.point), generator=generator).reshape(trials, width, -1)
            every = self.activation(every @ directions.mT)
        train, unseen, point = every.split([rows, fresh, 1], dim=1)
        flips = uniform((trials, rows), generator=generator, dtype=torch.float32) < self.noise
        given = torch.where(flips, -labels[:, :rows], labels[:, :rows])
        return LabelledSets(train, given, unseen, labels[:, rows:], point.squeeze(1))


class MarginOutputs(NamedTuple):
    """Signed distances of the point from machines trained with and without it, one column a training set.

    A member takes the place of the first training point. `errors` are the shares of fresh points that the machine
    without the point misclassifies.
    """

    member: Float[Tensor, "widths T"]
    outsider: Float[Tensor, "widths T"]
    errors: Float[Tensor, "widths T"]


class Curve(NamedTuple):
    """Privacy and accuracy at each number of features.

    Attributes:
        gains: see `split_gains`, one for each training set; their mean is the advantage.
        errors: share of fresh points misclassified, for each training set.
        null: `gains` between two halves of the outsiders, where nothing leaks.
        histogram: the advantage read off the paper's histograms, of members of one half and outsiders of the other.
        histogram_null: its mean if nothing leaked.
    """

    gains: Float[Tensor, "widths T"]
    errors: Float[Tensor, "widths T"]
    null: Float[Tensor, "widths half"]
    histogram: Float[Tensor, " widths"]
    histogram_null: Float[Tensor, " widths"]


def weak_features(generator: torch.Generator, *, dimension: int = 1000) -> FeatureModel:
    r"""Every feature is the signal $z \sim N(0, 1)$ plus noise of its own; the label is the sign of z.

    The point is drawn with $z = 1$. Source: Appendix G.5.2 (Muthukumar et al. 2021).
    """

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        signal = gaussian((trials, count, 1), generator=generator)
        return signal + gaussian((trials, count, dimension), generator=generator), _sign(signal.squeeze(-1) > 0)

    return FeatureModel(1 + gaussian((dimension,), generator=generator), 1.0, 0.2, draw)


def separable_gaussians(generator: torch.Generator, *, informative: int = 100) -> FeatureModel:
    r"""Gaussian features whose first `informative` of a thousand have the label as their mean.

    Source: Appendix G.5.3 (Belkin et al. 2018). Our copy gives the label noise as 1, which would flip every training
    label and contradict the point's, which is never flipped; we take 0.1.
    """

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = _sign(uniform((trials, count), generator=generator, dtype=torch.float32) < 0.5)
        features = gaussian((trials, count, 1000), generator=generator)
        features[..., :informative] += labels.unsqueeze(-1)
        return features, labels

    point = gaussian((1000,), generator=generator)
    point[:informative] += 1
    return FeatureModel(point, 1.0, 0.1, draw)


def random_relu(generator: torch.Generator) -> FeatureModel:
    r"""Features $\max(Wz, 0)$ of 200 latent variables, W with random unit rows; $P(y = 1) = \rho'(z^\top \beta)$.

    Source: Appendix G.5.4 (Montanari et al. 2019). β, of length 4, and the label of the point are drawn with the law.
    """
    beta = 4.0 * sphere(1, 200, generator=generator).squeeze(0)

    def draw_labels(latent: Tensor, generator: torch.Generator) -> Tensor:
        return _sign(uniform(latent.shape[:-1], generator=generator) < torch.sigmoid(latent @ beta))

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        latent = gaussian((trials, count, 200), generator=generator)
        return latent, draw_labels(latent, generator)

    point = gaussian((200,), generator=generator)
    return FeatureModel(point, float(draw_labels(point, generator)), 0.0, draw, torch.relu)


def digit_pixels(generator: torch.Generator) -> FeatureModel:
    r"""Random projections of 8 × 8 images of the digits 0 and 1, labelled -1 and +1, as many of each.

    It stands in for Appendix G.5.5, which projects CIFAR-10's aeroplanes and cars: that set is not among ours. The
    point is the first zero, as the paper's is the first aeroplane. `rows` and `fresh` must sum to an even number.
    """
    every = load_digits()
    zeros, ones = (every.features[every.labels == digit] for digit in (0, 1))

    def draw(trials: int, images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        half, picked = images // 2, []
        for digit in (zeros[1:], ones):
            order = uniform((trials, len(digit)), generator=generator, dtype=torch.float32).argsort(-1)
            picked.append(digit[order[:, :half]])
        labels = torch.ones(trials, half, 2, dtype=zeros.dtype)
        labels[..., 0] = -1
        # The digits alternate, so any even number of leading rows holds as many of each.
        return torch.stack(picked, dim=2).flatten(1, 2), labels.flatten(1)

    return FeatureModel(zeros[0], -1.0, 0.0, draw, lambda projections: projections)


FEATURE_MODELS: Mapping[str, Callable[[torch.Generator], FeatureModel]] = {
    "weak features": weak_features,
    "separable Gaussians": separable_gaussians,
    "random ReLU features": random_relu,
    "digit pixels": digit_pixels,
}
"""The panels of Figure 14, with digits in place of CIFAR-10; each takes the generator that draws the point."""


def measure_privacy(
    name: str, *, widths: Sequence[int], rows: int, trials: int, generator: torch.Generator, bin_width: float = 0.05
) -> Curve:
    r"""One panel of Figure 14, for a point of the law `name`: the generator draws the point first.

    The paper reads the advantage off histograms of the same draws that made them; that advantage and its bias are given
    beside the threshold's. The paper draws the training sets of members anew; here they are paired, which changes no
    law of an output and makes differences more precise. At least four `trials` are needed: two to choose the threshold
    and two to judge it.
    """
    model = FEATURE_MODELS[name](generator)
    found = train_machines(model, widths=widths, rows=rows, trials=trials, generator=generator)
    inside, outside, half = model.label * found.member, model.label * found.outsider, trials // 2
    # Of different training sets, as the paper's: pairs would hide the histograms' noise.
    biased = [
        _histogram_advantage(member=member[:half], outsider=other[half:], bin_width=bin_width)
        for member, other in zip(inside, outside, strict=True)
    ]
    return Curve(
        torch.stack([split_gains(member=of, outsider=other) for of, other in zip(inside, outside, strict=True)]),
        found.errors,
        torch.stack([split_gains(member=row[:half], outsider=row[half : 2 * half]) for row in outside]),
        *torch.tensor(biased, dtype=torch.float64).mT,
    )


def train_machines(
    model: FeatureModel,
    *,
    widths: Sequence[int],
    rows: int,
    trials: int,
    generator: torch.Generator,
    fresh: int = 20,
) -> MarginOutputs:
    """Outputs at the point of machines trained on `trials` data sets of `rows` points, at every width (increasing).

    `fresh` points of the same law test each machine.
    """
    batch = max(1, _BATCH // ((rows + fresh) * widths[-1]))
    parts = []
    for begin in range(0, trials, batch):
        count = min(batch, trials - begin)
        sets = model.draw_sets(count, rows=rows, fresh=fresh, width=widths[-1], generator=generator)
        parts.append(_train_batch(sets, model.label, widths))
    return MarginOutputs(*torch.cat(parts, dim=-1))


def split_gains(*, member: Float[Tensor, " T"], outsider: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    """For each pair, 1 if the member is called a member, minus 1 if the outsider is.

    The threshold is chosen on the other half of the pairs. If both laws are equal the mean is 0, even for dependent
    pairs.
    """
    inside, outside = member.tensor_split(2), outsider.tensor_split(2)
    gains = []
    for tuned, judged in ((1, 0), (0, 1)):
        threshold = calibrate_threshold(member=inside[tuned], outsider=outside[tuned])
        found, accused = ((scores >= threshold).to(scores.dtype) for scores in (inside[judged], outside[judged]))
        gains.append(found - accused)
    return torch.cat(gains)


def _train_batch(sets: LabelledSets, label: float, widths: Sequence[int]) -> Float[Tensor, "3 widths T"]:
    """Distances with and without the point, and errors, of one batch of training sets."""
    rows = sets.rows.shape[1]
    asked = torch.cat([sets.rows, sets.point.unsqueeze(1), sets.fresh], dim=1)
    # The last row of the products belongs to the point, which is the first row of a member's training set.
    train = asked[:, : rows + 1]
    products, last, answers = asked.new_zeros(len(asked), rows + 1, asked.shape[1]), 0, []
    swapped = [rows, *range(1, rows)]
    labels = torch.cat([torch.full_like(sets.labels[:, :1], label), sets.labels[:, 1:]], dim=1)
    for width in widths:
        products = products + train[..., last:width] @ asked[..., last:width].mT
        last = width
        outsider = _train(products[:, :rows, :rows], sets.labels, width)
        member = _train(products[:, swapped][..., swapped], labels, width)
        distances = outsider.distances(products[:, :rows, rows:])
        with_point = member.distances(products[:, swapped, rows : rows + 1])
        wrong = (distances[:, 1:] * sets.fresh_labels <= 0).to(distances.dtype).mean(-1)
        answers.append(torch.stack([with_point[:, 0], distances[:, 0], wrong]))
    return torch.stack(answers, dim=1)


def _train(gram: Tensor, labels: Tensor, width: int) -> Machine:
    return hard_margin(gram, labels) if width >= labels.shape[-1] else soft_margin(gram, labels, cost=1.0)


def _histogram_advantage(*, member: Tensor, outsider: Tensor, bin_width: float) -> tuple[float, float]:
    """The advantage between two histograms of bins no wider than `bin_width`, and its mean where nothing leaks."""
    pooled = torch.cat([member, outsider])
    edges = max(2, math.ceil(float(pooled.max() - pooled.min()) / bin_width) + 1)
    both = histograms(member=member, outsider=outsider, edges=edges, percentiles=(0.0, 100.0))
    mean = (both.member + both.outsider) / 2
    bias = histogram_null_bias(mean, samples=2 / (1 / len(member) + 1 / len(outsider)))
    return float((both.member - both.outsider).clamp(min=0).sum()), float(bias)


def _sign(positive: Bool[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return torch.where(positive, 1.0, -1.0).double()
