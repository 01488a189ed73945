"""The best blind attack: the likelihood ratio of one prediction at a known point, seen without its label.

The attacker sees one number of each point, the prediction without its label, and knows the law of the data and how the
model is trained, hence both laws of what it sees. Scores, one for each prediction, are logarithms of the ratio (in
nats), so a positive score says "member". Source: Tan et al. (2022), Proposition 3.1 and eq. (3).
"""

from jaxtyping import Float
from torch import Tensor

from leakage import arguments
from leakage.theory.scale_mixture import ScaleMixture


def score(
    predictions: Float[Tensor, " draws"], *, member: ScaleMixture, outsider: ScaleMixture
) -> Float[Tensor, " draws"]:
    r"""Log-likelihood ratio $\log f_1(\hat y_0) - \log f_0(\hat y_0)$ of unbatched laws."""
    size = arguments.real("predictions", predictions).abs()
    return member.log_density(size) - outsider.log_density(size)
