r"""Laws of features for support vector machines, with one point that stays fixed while training sets vary.

Each law of `FEATURE_MODELS` fixes a point and draws training sets whose features are nested: the first p columns are
the model with p features. Where features are random projections of latent variables, the latent variables of the point
are fixed, and each training set has its own projection. Labels are ±1; label noise flips training labels only, never
the label of the point. Source: Tan et al. (2023), Appendix G.5.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from leakage.data.embedded import digits
from leakage.data.gaussians import gaussian, sphere

Draw = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]


class Sets(NamedTuple):
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
        label: its label, ±1.
        noise: probability that a training label is flipped.
        draw: from `(trials, count, generator)` draws rows `[trials, count, dimension]` and true labels; within a trial
            the rows of a finite pool are different, and none is the point.
        activation: applied to the random projections; `None` where the rows are the features.
    """

    point: Float[Tensor, " D"]
    label: float
    noise: float
    draw: Draw
    activation: Callable[[Tensor], Tensor] | None = None

    def sets(self, trials: int, *, rows: int, fresh: int, width: int, generator: torch.Generator) -> Sets:
        """Draw training sets of `rows` points with `width` features; the point is in none of them."""
        found, labels = self.draw(trials, rows + fresh, generator)
        every = torch.cat([found, self.point.expand(trials, 1, -1)], dim=1)
        if self.activation is None:
            every = every[..., :width]
        else:
            directions = sphere(trials * width, len(self.point), generator=generator).reshape(trials, width, -1)
            every = self.activation(every @ directions.mT)
        train, unseen, point = every.split([rows, fresh, 1], dim=1)
        flips = (
            torch.rand((trials, rows), dtype=torch.float32, generator=generator, device=generator.device) < self.noise
        )
        given = torch.where(flips, -labels[:, :rows], labels[:, :rows])
        return Sets(train, given, unseen, labels[:, rows:], point.squeeze(1))


def weak_features(generator: torch.Generator, *, dimension: int = 1000, noise: float = 0.2) -> FeatureModel:
    r"""Every feature is the signal $z \sim N(0, 1)$ plus noise of its own; the label is the sign of z.

    The point is drawn with $z = 1$. Source: Appendix G.5.2 (Muthukumar et al. 2021).
    """

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        signal = gaussian((trials, count, 1), generator=generator)
        return signal + gaussian((trials, count, dimension), generator=generator), _sign(signal.squeeze(-1) > 0)

    return FeatureModel(1 + gaussian((dimension,), generator=generator), 1.0, noise, draw)


def separable_gaussians(
    generator: torch.Generator, *, dimension: int = 1000, informative: int = 100, noise: float = 0.1
) -> FeatureModel:
    r"""Gaussian features whose first `informative` have the label as their mean.

    Source: Appendix G.5.3 (Belkin et al. 2018). Our copy gives the label noise as 1, which would flip every training
    label and contradict the point's, which is never flipped; we take 0.1.
    """

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = _sign(
            torch.rand((trials, count), dtype=torch.float32, generator=generator, device=generator.device) < 0.5
        )
        features = gaussian((trials, count, dimension), generator=generator)
        features[..., :informative] += labels.unsqueeze(-1)
        return features, labels

    point = gaussian((dimension,), generator=generator)
    point[:informative] += 1
    return FeatureModel(point, 1.0, noise, draw)


def random_relu(generator: torch.Generator, *, dimension: int = 200, strength: float = 4.0) -> FeatureModel:
    r"""Features $\max(Wz, 0)$ with random unit rows of W; $y = 1$ with probability $\rho'(z^\top \beta)$.

    Source: Appendix G.5.4 (Montanari et al. 2019). β, of length `strength`, is drawn once with the law, and so is the
    label of the point.
    """
    beta = strength * sphere(1, dimension, generator=generator).squeeze(0)

    def labels(latent: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.rand(latent.shape[:-1], generator=generator, device=latent.device, dtype=latent.dtype)
        return _sign(draws < torch.sigmoid(latent @ beta))

    def draw(trials: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        latent = gaussian((trials, count, dimension), generator=generator)
        return latent, labels(latent, generator)

    point = gaussian((dimension,), generator=generator)
    return FeatureModel(point, float(labels(point, generator)), 0.0, draw, torch.relu)


def digit_pixels(generator: torch.Generator, *, classes: tuple[int, int] = (0, 1)) -> FeatureModel:
    r"""Random projections of 8 × 8 images of two digits, labelled -1 and +1, as many of each.

    It stands in for Appendix G.5.5, which projects CIFAR-10's aeroplanes and cars: that set is not among ours. The
    point is the first image of the first digit, as the paper's is the first aeroplane. `rows` and `fresh` must sum to
    an even number.
    """
    every = digits()
    pixels = every.features.to(generator.device)
    first, second = (pixels[(every.labels == digit).to(pixels.device)] for digit in classes)
    pool = (first[1:], second)

    def draw(trials: int, images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        half, picked = images // 2, []
        for digit in pool:
            keys = torch.rand((trials, len(digit)), dtype=torch.float32, generator=generator, device=digit.device)
            picked.append(digit[keys.argsort(-1)[:, :half]])
        labels = torch.ones(trials, half, 2, dtype=pixels.dtype, device=pixels.device)
        labels[..., 0] = -1
        # The digits alternate, so any even number of leading rows holds as many of each.
        return torch.stack(picked, dim=2).flatten(1, 2), labels.flatten(1)

    return FeatureModel(first[0], -1.0, 0.0, draw, _identity)


FEATURE_MODELS: Mapping[str, Callable[[torch.Generator], FeatureModel]] = {
    "weak features": weak_features,
    "separable Gaussians": separable_gaussians,
    "random ReLU features": random_relu,
    "digit pixels": digit_pixels,
}
"""The panels of Figure 14, with digits in place of CIFAR-10; each takes the generator that draws the point."""


def _sign(positive: Bool[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return torch.where(positive, 1.0, -1.0).double()


def _identity(projections: Tensor) -> Tensor:
    return projections
