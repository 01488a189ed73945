r"""Problems whose covariance is not the bi-level ensemble's: equation (5) of Tan et al. (2023) read to the letter.

The limit (`limit.solve`) asks of a covariance Σ only its eigenvalues $S_k$, and which share of the signal
$\kappa^2 = \beta^{*\top} \Sigma \beta^* / p$ lies along each eigenvector. Nothing is random.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from reproduced.papers.blessing.limit import Setting, Spectrum, broadcast_float64


def printed_bilevel(*, penalty: float, samples: float, phi: Float[Tensor, "*b"], sigma_beta: float = 10.0) -> Setting:
    r"""The bi-level ensemble with equation (5) read to the letter: its numbers are the eigenvalues of $\Sigma^2$.

    Then $\sqrt\phi$ and $\sqrt{\phi/(\phi - 1)}$ are those of Σ at $\eta = 1$, and the teacher's logit has the standard
    deviation $\kappa = \sigma_\beta \phi^{-1/4}$, for $\beta^{*\top} \Sigma \beta^* / p \to \sigma_\beta^2/\sqrt\phi$:
    the signal fades as φ grows. `limit.Setting.bilevel` has the reading that the text around (5), (53) and (61) need.
    """
    penalties, delta, phi, sigma = broadcast_float64(penalty, samples / phi, phi, sigma_beta)
    one = torch.ones_like(phi)
    spectrum = Spectrum(
        torch.stack([phi.sqrt(), (phi / (phi - 1)).sqrt()], -1),
        torch.stack([1 / phi, 1 - 1 / phi], -1),
        torch.stack([one, 0 * one], -1),
    )
    return Setting(penalties, delta, sigma * phi**-0.25, spectrum)
