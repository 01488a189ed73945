r"""Ridge logistic regression whose features have any covariance, trained and in the limit.

The limit (`limit.solve`) asks of a covariance Σ only its eigenvalues $S_k$, and which share of the signal
$\kappa^2 = \beta^{*\top} \Sigma \beta^* / p$ lies along each eigenvector. Σ is diagonal here, for a rotation
changes nothing. `simulate_constants` draws from a generator; the rest is not random. Source: Tan et al. (2023),
Theorems 5 and 6, and equation (5).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from leakage.draws import gaussian, uniform
from leakage.precision import DTYPE
from reproduced.papers.blessing.limit import Setting, Spectrum, broadcast_float64
from reproduced.papers.blessing.logistic_regression import fit, require_convergence
from reproduced.papers.blessing.proximal_operator import curvature

_BATCH = 2**18  # numbers in the Gram matrices trained at once


@dataclass(frozen=True, eq=False)
class Covariance:
    r"""The eigenvalues $S_k$ of Σ, the teacher's coefficients $\beta^*$ in the same basis, and the number of rows n."""

    eigenvalues: Float[Tensor, " p"]
    teacher: Float[Tensor, " p"]
    rows: int

    @property
    def delta(self) -> float:
        """Rows per feature, n / p."""
        return self.rows / len(self.eigenvalues)

    @property
    def kappa(self) -> float:
        r"""κ, the standard deviation of the teacher's logit: $\kappa^2 = \sum_k S_k \beta_k^{*2} / p$."""
        return float((self.eigenvalues * self.teacher.square()).mean().sqrt())

    def setting(self, penalty: float) -> Setting:
        """The limit problem with this spectrum."""
        signal = self.eigenvalues * self.teacher.square()
        spectrum = Spectrum(self.eigenvalues, torch.full_like(signal, 1 / len(signal)), signal / signal.sum())
        return self._problem(penalty, spectrum)

    def flat_setting(self, penalty: float) -> Setting:
        """The same problem with every eigenvalue replaced by their mean, as a control."""
        one = torch.ones(1, dtype=DTYPE)
        return self._problem(penalty, Spectrum(self.eigenvalues.mean()[None], one, one))

    def _problem(self, penalty: float, spectrum: Spectrum) -> Setting:
        penalties, delta, kappa = broadcast_float64(penalty, self.delta, self.kappa)
        return Setting(penalties, delta, kappa, spectrum)


class Constants(NamedTuple):
    r"""α, σ and γ of each trained model; see `logistic_models.Simulation`."""

    alpha: Float[Tensor, " T"]
    sigma: Float[Tensor, " T"]
    gamma: Float[Tensor, " T"]


SPECTRA = ("power law 1/k", "power law 1/√k", "uniform", "four decades")
"""Names of the spectra of `covariance`."""


def covariance(spectrum: str, *, features: int, rows: int, kappa: float, weak_signal: bool = False) -> Covariance:
    r"""One of `SPECTRA`, scaled to a mean eigenvalue of 1; the signal on all features, or on the smaller half only.

    Eigenvalues in proportion to $k^{-1}$, to $k^{-1/2}$, evenly spaced with a largest ten times the smallest, or in
    geometric progression over four decades. The teacher has one coefficient on all features that carry the signal.
    """
    k = torch.arange(1, features + 1, dtype=DTYPE)
    values = {
        "power law 1/k": 1 / k,
        "power law 1/√k": k**-0.5,
        "uniform": torch.linspace(2.0, 0.2, features, dtype=DTYPE),
        "four decades": torch.logspace(2, -2, features, dtype=DTYPE),
    }[spectrum]
    values = values / values.mean()
    carries = (k > features / 2 if weak_signal else k > 0).to(DTYPE)
    teacher = carries * kappa / (values * carries).mean().sqrt()
    return Covariance(values, teacher, rows)


def printed_bilevel(*, penalty: float, samples: float, phi: Float[Tensor, "*b"]) -> Setting:
    r"""The bi-level ensemble with equation (5) read to the letter: its numbers are the eigenvalues of $\Sigma^2$.

    Then $\sqrt\phi$ and $\sqrt{\phi/(\phi - 1)}$ are those of Σ at $\eta = 1$. With $\sigma_\beta = 10$ the teacher's
    logit has the standard deviation $\kappa = \sigma_\beta \phi^{-1/4}$, for
    $\beta^{*\top} \Sigma \beta^* / p \to \sigma_\beta^2/\sqrt\phi$: the signal fades as φ grows.
    `limit.Setting.bilevel` has the reading that the text around (5), (53) and (61) need.
    """
    penalties, delta, phi, sigma = broadcast_float64(penalty, samples / phi, phi, 10.0)
    one = torch.ones_like(phi)
    spectrum = Spectrum(
        torch.stack([phi.sqrt(), (phi / (phi - 1)).sqrt()], -1),
        torch.stack([1 / phi, 1 - 1 / phi], -1),
        torch.stack([one, 0 * one], -1),
    )
    return Setting(penalties, delta, sigma * phi**-0.25, spectrum)


def simulate_constants(one: Covariance, *, penalty: float, trials: int, generator: torch.Generator) -> Constants:
    r"""Train `trials` models and measure the numbers that Theorem 5 predicts.

    $$ \alpha = \frac{\beta^{*\top} \Sigma b}{\beta^{*\top} \Sigma \beta^*}, \quad
       \sigma^2 = \frac{b^\top \Sigma b}p - \alpha^2 \kappa^2, \quad
       \gamma = \frac1p \operatorname{tr}\,\Sigma\,(X^\top W X + \mu I)^{-1}, \qquad \mu = \lambda n/p, $$

    γ being the mean of $x_0^\top (X^\top W X + \mu I)^{-1} x_0$ over a fresh point.
    """
    variances, parts = one.eigenvalues / len(one.eigenvalues), []
    per_batch = max(1, _BATCH // one.rows**2)
    for begin in range(0, trials, per_batch):
        shape = (min(per_batch, trials - begin), one.rows, len(variances))
        rows = gaussian(shape, generator=generator) * variances.sqrt()
        labels = (uniform(shape[:2], generator=generator) < torch.sigmoid(rows @ one.teacher)).to(rows.dtype)
        model = require_convergence(fit(rows @ rows.mT, labels, ridge=penalty * one.delta))
        coefficients = (model.dual.unsqueeze(-2) @ rows).squeeze(-2)
        alpha = coefficients @ (variances * one.teacher) / one.kappa**2
        spread = (coefficients.square() @ variances - (alpha * one.kappa).square()).clamp_min(0).sqrt()
        root = curvature(model.logits).sqrt().unsqueeze(-1)
        explained = torch.linalg.solve_triangular(model.factor, root * rows, upper=False).square().sum(-2)
        parts.append(Constants(alpha, spread, (variances * (1 - explained)).sum(-1) / model.ridge))
    return Constants(*(torch.cat(column) for column in zip(*parts, strict=True)))
