"""The best blind attack: the likelihood ratio of one prediction at a known point, seen without its label.

The attacker knows the law of the data and how the model is trained, and sees one number. Scores are logarithms of the
ratio (in nats), so a positive score says "member". Source: Tan et al. (2022), Proposition 3.1 and eq. (3).
"""

from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.theory.scale_mixture import ScaleMixture


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
