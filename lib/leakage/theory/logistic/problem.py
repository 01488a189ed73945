r"""Grid points of ridge logistic regression problems: the penalty, the numbers of rows and features, and the spectrum.

$$ \hat\beta = \arg\min_b \frac1n \sum_i \ell(y_i, x_i^\top b) + \frac{\lambda}{2p} \lVert b \rVert^2, \qquad
   x_i \sim N(0, \Sigma/p), \quad P(y_i = 1 \mid x_i) = \rho'(x_i^\top \beta^*), $$

as n and p grow with $n/p \to \delta$. Settings are batched: every field is a float64 tensor, numbers and tensors given
broadcast, and the device is theirs. Nothing here solves anything (`system`) or is random.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.runtime import DTYPE


class Spectrum(NamedTuple):
    r"""The eigenvalues of Σ, each with its share of the features and its share of the signal.

    `signal` is the share of $\kappa^2 = \beta^{*\top} \Sigma \beta^* / p$ along the eigenvectors; both shares sum to 1.
    """

    values: Float[Tensor, "*b atoms"]
    features: Float[Tensor, "*b atoms"]
    signal: Float[Tensor, "*b atoms"]


@dataclass(frozen=True)
class Setting:
    r"""Points of a grid of problems, batched: `penalty` λ, `delta` $\delta = n/p$, `kappa` κ, and the spectrum of Σ.

    `bilevel` and `panel` make those of the paper, broadcast and checked. κ is the standard deviation of the teacher's
    logit; at $\kappa = 0$ the labels are coin flips and α is its limit as $\kappa \to 0$.
    """

    penalty: Float[Tensor, "*b"]
    delta: Float[Tensor, "*b"]
    kappa: Float[Tensor, "*b"]
    spectrum: Spectrum

    @classmethod
    def bilevel(
        cls,
        *,
        penalty: Tensor | float,
        delta: Tensor | float,
        phi: Tensor | float,
        eta: Tensor | float = 1.0,
        kappa: Tensor | float = 10.0,
    ) -> "Setting":
        r"""The bi-level ensemble: $p/\phi$ signal features of total variance 1, and a tail of total variance η.

        Eigenvalues of Σ: $\phi$ for a share $1/\phi$ of the features, which carry all the signal, and
        $\eta\phi/(\phi - 1)$ for the others. Source: Tan et al. (2023), equation (5), which in our copy prints
        $[\Sigma]^2$ where (53) and (61) use Σ. $\kappa = \sigma_\beta$.
        """
        penalty, delta, phi, eta, kappa = together(penalty=penalty, delta=delta, phi=phi, eta=eta, kappa=kappa)
        head, tail = torch.ones_like(phi), torch.zeros_like(phi)
        spectrum = Spectrum(
            torch.stack([phi, eta * phi / (phi - 1)], -1),
            torch.stack([1 / phi, (phi - 1) / phi], -1),
            torch.stack([head, tail], -1),
        )
        return cls(penalty, delta, kappa, spectrum)

    @classmethod
    def panel(
        cls,
        *,
        lambda_delta: Tensor | float,
        phi: Tensor | float,
        samples: Tensor | float = 5.0,
        eta: Tensor | float = 1.0,
        kappa: Tensor | float = 10.0,
    ) -> "Setting":
        r"""The bi-level ensemble in the variables of the figures: $\lambda\delta$, and `samples` $n/d = \delta\phi$."""
        product, phi, samples = together(lambda_delta=lambda_delta, phi=phi, samples=samples)
        delta = samples / phi
        return cls.bilevel(penalty=product / delta, delta=delta, phi=phi, eta=eta, kappa=kappa)

    @property
    def shape(self) -> torch.Size:
        """The shape of the batch."""
        return self.penalty.shape

    def flat(self) -> "Setting":
        """The same points as a vector."""
        spectrum = Spectrum(*(part.flatten(0, -2) if part.ndim > 1 else part[None] for part in self.spectrum))
        return Setting(self.penalty.flatten(), self.delta.flatten(), self.kappa.flatten(), spectrum)

    def take(self, index: Tensor) -> "Setting":
        """The points of a vector at `index`, numbers or booleans."""
        spectrum = Spectrum(*(part[index] for part in self.spectrum))
        return Setting(self.penalty[index], self.delta[index], self.kappa[index], spectrum)


def together(**fields: Tensor | float) -> list[Tensor]:
    """Float64 tensors of one shape, on the device of those given as tensors."""
    device = next((field.device for field in fields.values() if isinstance(field, Tensor)), None)
    return list(torch.broadcast_tensors(*(torch.as_tensor(f, dtype=DTYPE, device=device) for f in fields.values())))
