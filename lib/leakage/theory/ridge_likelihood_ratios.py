r"""What is the evidence of one row in a ridge regression worth, seen as a label, a loss, predictions, weights: exactly.

Everything is known to the attacker but the noise of the labels: the other rows X, the coefficients β, the penalty μ and
the row asked about, $(x_0, y_0)$. With $G = X^\top X$, $A = G + \mu I$ and $u = A \hat w$ an outsider's model has
$u = s$, $s \sim N(G\beta, \sigma^2 G)$, and a member's

$$ u = s + r x_0, \qquad r = y_0 - x_0^\top \hat w = \frac{y_0 - x_0^\top A^{-1} s}{1 + h}, \qquad
   h = x_0^\top A^{-1} x_0 . $$

So whoever sees predictions at $x_0$ and at k - 1 other points, or the weights, has the log-likelihood ratio

$$ L = \log(1 + h) + r z - \tfrac12 \kappa r^2, \qquad z = q^\top C^{-1} (v - \bar v), \quad
   \kappa = q^\top C^{-1} q, \qquad q_i = x_i^\top A^{-1} x_0, $$

where v are the predictions seen, and $\bar v$ and C are their mean and covariance in a model without the row.
What more predictions add is κ alone: it grows from $h^2 / \operatorname{var}(\hat y_0)$ at k = 1 to
$x_0^\top G^{-1} x_0 / \sigma^2$ for the weights, and for μ = 0 the two are equal. All this is ours.
Nothing here trains or draws.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class LikelihoodRatios(NamedTuple):
    """Log-likelihood ratios at equally likely outcomes, (points, outcomes), without the row and with it."""

    outsider: Float[Tensor, "points outcomes"]
    member: Float[Tensor, "points outcomes"]


@dataclass(frozen=True, eq=False)
class RidgeTargets:
    r"""Rows of which the membership is asked, one at a time, beside the same n others.

    Attributes:
        others: X, of full column rank; with fewer rows than columns the weights would tell for certain.
        asked: one $x_0$ a row.
        labels: their $y_0$.
        beta: the coefficients β behind the labels of the others.
        penalty: μ, added to the diagonal of $X^\top X$.
        noise: σ of the labels.
    """

    others: Float[Tensor, "n p"]
    asked: Float[Tensor, "points p"]
    labels: Float[Tensor, " points"]
    beta: Float[Tensor, " p"]
    penalty: float
    noise: float

    @property
    def gram(self) -> Float[Tensor, "p p"]:
        """$G = X^\\top X$."""
        return self.others.mT @ self.others

    @property
    def shrunk(self) -> Float[Tensor, "p p"]:
        """$A = G + \\mu I$."""
        return self.gram + self.penalty * torch.eye(len(self.beta), dtype=self.beta.dtype, device=self.beta.device)

    @property
    def leverage(self) -> Float[Tensor, " points"]:
        """$h = x_0^\\top A^{-1} x_0$."""
        return (self.asked * torch.linalg.solve(self.shrunk, self.asked.mT).mT).sum(-1)

    def surprise(self) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
        """Mean and variance of the outsider's residual $y_0 - x_0^\\top A^{-1} s$."""
        turned = torch.linalg.solve(self.shrunk, self.asked.mT).mT
        mean = self.labels - turned @ self.gram @ self.beta
        return mean, self.noise**2 * ((turned @ self.gram) * turned).sum(-1)

    def strength(self, queries: Float[Tensor, "k p"] | None = None) -> Float[Tensor, " points"]:
        r"""κ of whoever sees the weights or, with `queries`, the predictions at $x_0$ and at these points."""
        if queries is None:
            return (self.asked * torch.linalg.solve(self.gram, self.asked.mT).mT).sum(-1) / self.noise**2
        places = torch.cat([self.asked[:, None], queries.expand(len(self.asked), *queries.shape)], dim=1)
        maps = torch.linalg.solve(self.shrunk, places.mT).mT
        covariance = self.noise**2 * maps @ self.gram @ maps.mT
        images = (maps @ self.asked[..., None]).squeeze(-1)
        # What is asked twice, or follows from other answers, says nothing more: its directions have no variance.
        units = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        units = torch.where(units > 0, units, 1.0)  # an answer that is always 0
        images, covariance = images / units, covariance / (units.unsqueeze(-1) * units.unsqueeze(-2))
        values, vectors = torch.linalg.eigh(covariance)
        rounding = torch.finfo(values.dtype).eps * values.shape[-1] * values[:, -1:]
        parts = (vectors.mT @ images[..., None]).squeeze(-1).square() / values.clamp_min(rounding)
        return torch.where(values > rounding, parts, 0.0).sum(-1)

    def from_answers(self, queries: Float[Tensor, "k p"] | None = None, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of predictions at $x_0$ and `queries`, or of the weights, at `nodes`² equally likely outcomes."""
        return self._ratios(self.strength(queries), nodes=nodes)

    def from_prediction(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the one prediction at $x_0$, from which its gradient follows and follows from it."""
        return self._ratios(self.leverage.square() / self.surprise()[1], nodes=nodes)

    def from_loss(self, *, nodes: int = 128) -> LikelihoodRatios:
        """The ratio of the squared residual at $x_0$, which has lost its sign."""
        mean, variance = self.surprise()
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
        mean, variance = self.surprise()
        shrink = 1 + self.leverage
        first, _ = _outcomes(mean, nodes)
        residual = mean[:, None] + variance.sqrt()[:, None] * first
        deviation = variance.sqrt()
        # A prediction is positive where the residual is below the label.
        out, inside = ((self.labels * scale - mean)[:, None] / deviation[:, None] for scale in (1.0, shrink))
        log_share = torch.special.log_ndtr
        yes, no = log_share(inside) - log_share(out), log_share(-inside) - log_share(-out)
        label = self.labels[:, None]
        return LikelihoodRatios(
            *(torch.where(seen < label, yes, no) for seen in (residual, residual / shrink[:, None]))
        )

    def from_first_gradient(self, *, nodes: int = 128) -> LikelihoodRatios:
        r"""The ratio of the gradient of the whole loss at w = 0, $X^\top y$ without the row, $X^\top y + y_0 x_0$ with.

        Two Gaussians of one covariance: $L = d N \mp d^2/2$ with $d^2 = y_0^2 \kappa$.
        """
        apart = (self.labels.square() * self.strength()).sqrt()[:, None]
        first, _ = _outcomes(self.labels, nodes)
        return LikelihoodRatios(apart * first - apart.square() / 2, apart * first + apart.square() / 2)

    def _ratios(self, strength: Float[Tensor, " points"], *, nodes: int) -> LikelihoodRatios:
        mean, variance = (part[:, None] for part in self.surprise())
        h, kappa = self.leverage[:, None], strength[:, None]
        first, second = _outcomes(mean[:, 0], nodes)
        residual = mean + variance.sqrt() * first
        # Of z, the part that the residual does not tell; 0 for a single prediction, up to rounding.
        rest = (kappa - h.square() / variance).clamp_min(0).sqrt()
        z = -h / variance.sqrt() * first + rest * second
        kept = residual / (1 + h)
        base = torch.log1p(h)
        return LikelihoodRatios(
            base + residual * z - kappa * residual.square() / 2, base + kept * z + kappa * kept.square() / 2
        )


def _outcomes(like: Tensor, nodes: int) -> tuple[Float[Tensor, " outcomes"], Float[Tensor, " outcomes"]]:
    """Two independent normal numbers at the midpoints of equally likely cells."""
    shares = (torch.arange(nodes, dtype=like.dtype, device=like.device) + 0.5) / nodes
    normal = torch.special.ndtri(shares)
    return normal.repeat_interleave(nodes), normal.repeat(nodes)
