"""The best blind attack: the likelihood ratio of one prediction at a known point, seen without its label.

The attacker knows the law of the data and how the model is trained, and sees one number. Scores are logarithms of the
ratio (in nats), so a positive score says "member". Source: Tan et al. (2022), Proposition 3.1 and eq. (3).
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.runtime import stream
from leakage.theory import gaussian_mixture, scale_mixture
from leakage.theory.gaussian_mixture import GaussianMixture
from leakage.theory.scale_mixture import ScaleMixture
from leakage.trainers.random_features import label_noise_law, label_weights, teacher_variances


def score(
    predictions: Float[Tensor, " draws"], outsider: ScaleMixture, member: ScaleMixture
) -> Float[Tensor, " draws"]:
    r"""Log-likelihood ratio $\log f_1(\hat y_0) - \log f_0(\hat y_0)$ of unbatched laws."""
    size = arguments.real("predictions", predictions).abs()
    return member.log_density(size) - outsider.log_density(size)


def gaussian_score(
    predictions: Float[Tensor, "*#b"], outsider_variance: Float[Tensor, "*#b"], member_variance: Float[Tensor, "*#b"]
) -> Float[Tensor, "*b"]:
    r"""Log-likelihood ratio of two centred Gaussians: the attack of eq. (3), good in either orientation.

    $$ s = \tfrac12 \log\frac{\sigma_0^2}{\sigma_1^2}
         + \tfrac{\hat y_0^2}2 \Bigl(\frac1{\sigma_0^2} - \frac1{\sigma_1^2}\Bigr) $$

    Raises:
        ValueError: if a variance is not positive and finite, or a prediction not finite.
    """
    arguments.real("predictions", predictions)
    arguments.real("outsider_variance", outsider_variance, above=0)
    arguments.real("member_variance", member_variance, above=0)
    shape = (1 / outsider_variance - 1 / member_variance) * predictions.square()
    return ((outsider_variance / member_variance).log() + shape) / 2


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
) -> dict[str, Float[Tensor, " widths"]]:
    r"""Advantage of the best attack on random-feature regression at one of the given inputs, for every width.

    `designs` models are trained with the input and as many without it (`trainers.random_features`); the noise of the
    labels is integrated out, so the only sampling is over designs.

    Returns:
        `teacher`: labels $y = x^\top\beta + \varepsilon$, $\beta \sim N(0, I/d)$, as in the linear theory. `labels`:
        the labels given, with noise ε; both with $\varepsilon \sim N(0, \sigma^2)$.

    Raises:
        ValueError: if σ is not positive (without noise an interpolated label gives the member away for certain), or
            so few features are asked for that some design has none which responds to the input.
    """
    arguments.number("sigma", sigma, above=0)
    trained = [
        label_weights(
            inputs,
            query,
            rows=rows,
            widths=widths,
            designs=designs,
            member=member,
            generator=stream(seed, f"random features/{query}/{member}", inputs.device),
        )
        for member in (False, True)
    ]
    if any(bool((models.weights == 0).all(-1).any()) for models in trained):
        raise ValueError(f"`widths` starts too low: with {widths[0]} features some design is silent at the input.")
    teacher = [teacher_variances(models, inputs, sigma=sigma) for models in trained]
    noisy = [GaussianMixture(*label_noise_law(models, labels, sigma=sigma)) for models in trained]
    return {
        "teacher": scale_mixture.total_variation(*teacher),
        "labels": gaussian_mixture.total_variation(*noisy),
    }
