r"""Exact log-likelihood ratios for the membership of one row in a ridge regression, from every kind of evidence.

The evidence is a label, a loss, predictions, the weights or a gradient. The attacker knows everything but the noise of
the labels: the other rows X, the coefficients β, the penalty μ and the target row $(x_0, y_0)$. With $G = X^\top X$,
$A = G + \mu I$ and $u = A \hat w$, a model without the row has $u = s$, $s \sim N(G\beta, \sigma^2 G)$, and one with it

$$ u = s + r x_0, \qquad r = y_0 - x_0^\top \hat w = \frac{y_0 - x_0^\top A^{-1} s}{1 + h}, \qquad
   h = x_0^\top A^{-1} x_0 . $$

So predictions at $x_0$ and at k - 1 other points, or the weights, have the log-likelihood ratio

$$ L = \log(1 + h) + r z - \tfrac12 \kappa r^2, \qquad z = q^\top C^{-1} (v - \bar v), \quad
   \kappa = q^\top C^{-1} q, \qquad q_i = x_i^\top A^{-1} x_0, $$

where v are the predictions, and $\bar v$ and C are their mean and covariance in a model without the row. More
predictions only increase κ: it grows from $h^2 / \operatorname{var}(\hat y_0)$ at k = 1 to $x_0^\top G^{-1} x_0 /
\sigma^2$ for the weights, and for μ = 0 the two are equal. Not in a paper. Nothing here is random.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class LikelihoodRatios(NamedTuple):
    """Log-likelihood ratios at equally likely outcomes, of models without the row and of models with it."""

    outsider: Float[Tensor, "points outcomes"]
    member: Float[Tensor, "points outcomes"]


@dataclass(frozen=True, eq=False)
class RidgeTargets:
    r"""Target rows, each alone beside the same n other rows.

    The methods `from_…` give the ratio for one kind of evidence at `nodes`² equally likely outcomes.

    Attributes:
        others: X, of full column rank; with fewer rows than columns the weights would show membership for certain.
        targets: one $x_0$ a row.
        labels: their $y_0$.
        beta: the coefficients β behind the labels of the others.
        penalty: μ, added to the diagonal of $X^\top X$.
        noise: σ of the labels.
    """

    others: Float[Tensor, "n p"]
    targets: Float[Tensor, "points p"]
    labels: Float[Tensor, " points"]
    beta: Float[Tensor, " p"]
    penalty: float
    noise: float

    @property
    def gram(self) -> Float[Tensor, "p p"]:
        """$G = X^\\top X$."""
        return self.others.mT @ self.others

    @property
    def penalised_gram(self) -> Float[Tensor, "p p"]:
        """$A = G + \\mu I$."""
        return self.gram + self.penalty * torch.eye(len(self.beta), dtype=self.beta.dtype)

    @property
    def leverage(self) -> Float[Tensor, " points"]:
        """$h = x_0^\\top A^{-1} x_0$."""
        return (self.targets * torch.linalg.solve(self.penalised_gram, self.targets.mT).mT).sum(-1)

    def residual_law(self) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
        """Mean and variance of the residual $y_0 - x_0^\\top A^{-1} s$ of a model without the row."""
        maps = torch.linalg.solve(self.penalised_gram, self.targets.mT).mT
        mean = self.labels - maps @ self.gram @ self.beta
        return mean, self.noise**2 * ((maps @ self.gram) * maps).sum(-1)

    def evidence_strength(self, queries: Float[Tensor, "k p"] | None = None) -> Float[Tensor, " points"]:
        r"""κ of the weights or, with `queries`, of the predictions at $x_0$ and at these points."""
        if queries is None:
            return (self.targets * torch.linalg.solve(self.gram, self.targets.mT).mT).sum(-1) / self.noise**2
        places = torch.cat([self.targets[:, None], queries.expand(len(self.targets), *queries.shape)], dim=1)
        maps = torch.linalg.solve(self.penalised_gram, places.mT).mT
        covariance = self.noise**2 * maps @ self.gram @ maps.mT
        images = (maps @ self.targets[..., None]).squeeze(-1)
        # Predictions that follow from others add directions without variance, which are left out.
        units = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        units = torch.where(units > 0, units, 1.0)  # a prediction that is always 0
        images, covariance = images / units, covariance / (units.unsqueeze(-1) * units.unsqueeze(-2))
        values, vectors = torch.linalg.eigh(covariance)
        rounding = torch.finfo(values.dtype).eps * values.shape[-1] * values[:, -1:]
        parts = (vectors.mT @ images[..., None]).squeeze(-1).square() / values.clamp_min(rounding)
        return torch.where(values > rounding, parts, 0.0).sum(-1)

    def from_weights(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of all weights."""
        return self._ratios(self.evidence_strength(), nodes=nodes)

    def from_predictions(self, queries: Float[Tensor, "k p"], *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the predictions at $x_0$ and at `queries`."""
        return self._ratios(self.evidence_strength(queries), nodes=nodes)

    def from_prediction(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the one prediction at $x_0$, which is equivalent to its gradient."""
        return self._ratios(self.leverage.square() / self.residual_law()[1], nodes=nodes)

    def from_loss(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the squared residual at $x_0$, which has lost its sign."""
        mean, variance = self.residual_law()
        shrink = (1 + self.leverage)[:, None]
        first, _ = _outcomes(mean, nodes)
        residual = mean[:, None] + variance.sqrt()[:, None] * first
        laws = ((mean[:, None], variance[:, None]), (mean[:, None] / shrink, variance[:, None] / shrink.square()))

        def ratio(size: Tensor) -> Tensor:
            out, inside = (
                torch.logaddexp(*(-((side * size - m).square() / v + v.log()) / 2 for side in (-1, 1))) for m, v in laws
            )
            return inside - out

        return LikelihoodRatios(ratio(residual.abs()), ratio((residual / shrink).abs()))

    def from_label(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the sign of the prediction at $x_0$."""
        mean, variance = self.residual_law()
        shrink = 1 + self.leverage
        first, _ = _outcomes(mean, nodes)
        residual = mean[:, None] + variance.sqrt()[:, None] * first
        deviation = variance.sqrt()
        # A prediction is positive where the residual is below the label.
        out, inside = ((self.labels * scale - mean)[:, None] / deviation[:, None] for scale in (1.0, shrink))
        log_share = torch.special.log_ndtr
        yes, no = log_share(inside) - log_share(out), log_share(-inside) - log_share(-out)
        residuals = residual, residual / shrink[:, None]
        return LikelihoodRatios(*(torch.where(one < self.labels[:, None], yes, no) for one in residuals))

    def from_first_gradient(self, *, nodes: int = 128) -> LikelihoodRatios:
        r"""The ratio of the gradient of the whole loss at w = 0, $X^\top y$ without the row, $X^\top y + y_0 x_0$ with.

        Two Gaussians of one covariance: $L = d N \mp d^2/2$ with $d^2 = y_0^2 \kappa$.
        """
        distance = (self.labels.square() * self.evidence_strength()).sqrt()[:, None]
        first, _ = _outcomes(self.labels, nodes)
        return LikelihoodRatios(distance * first - distance.square() / 2, distance * first + distance.square() / 2)

    def _ratios(self, strength: Float[Tensor, " points"], *, nodes: int) -> LikelihoodRatios:
        mean, variance = (part[:, None] for part in self.residual_law())
        h, kappa = self.leverage[:, None], strength[:, None]
        first, second = _outcomes(mean[:, 0], nodes)
        residual = mean + variance.sqrt() * first
        # z given the residual; for a single prediction it has no noise of its own, up to rounding.
        rest = (kappa - h.square() / variance).clamp_min(0).sqrt()
        z = -h / variance.sqrt() * first + rest * second
        without = torch.log1p(h) + residual * z - kappa * residual.square() / 2
        kept = residual / (1 + h)
        return LikelihoodRatios(without, torch.log1p(h) + kept * z + kappa * kept.square() / 2)


def _outcomes(like: Tensor, nodes: int) -> tuple[Float[Tensor, " outcomes"], Float[Tensor, " outcomes"]]:
    """Two independent normal numbers at the midpoints of equally likely cells."""
    shares = (torch.arange(nodes, dtype=like.dtype) + 0.5) / nodes
    normal = torch.special.ndtri(shares)
    return normal.repeat_interleave(nodes), normal.repeat(nodes)
