r"""The attacker who sees the label, too: the total variation of answer and label together, for ridge models.

Given $x_0$, answer $\hat y_0$ and label $y_0$ of an outsider are centred and jointly Gaussian in the limit, with

$$ \mathrm{Var}\,\hat y_0 = \sigma_0^2, \qquad \mathrm{Cov} = \frac{r^2}D\,(1 - \lambda m), \qquad
   \mathrm{Var}\,y_0 = \frac{\lVert x_0 \rVert^2}D + \sigma^2 . $$

A member's model is that of the other rows, moved towards the label: leaving the row out,
$\hat y_1 = (\hat y_- + q\,y_0)/(1 + q)$ with $q = r^2 m/n$ and $\hat y_-$ the answer of an outsider. So the member's
residual is the outsider's divided by $1 + q$, and the label does not change:

$$ (y_0 - \hat y_1,\; y_0) = \Bigl(\frac{y_0 - \hat y_-}{1 + q},\; y_0\Bigr) . $$

The pair therefore leaks what two numbers say: $q$, and the correlation of an outsider's residual with its label.
As $\lambda \to 0$ beyond interpolation $q \to \infty$, and the advantage tends to 1. Not in the paper.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm.least_squares import Design, Query
from reproduced.papers.min_norm.linear_regressions import ridge_predictions
from reproduced.papers.min_norm.ridge import limit_moments, limit_variances

_ANGLES = 20_001  # nodes; the integral changes by 1e-9 when they are doubled
_REACH = 30.0  # of the logarithm of the tangent of an angle
_CHUNK = 2**24  # numbers in one batch of training sets


class LabelledLaw(NamedTuple):
    """What the pair leaks by, the odds $q$ and the correlation of an outsider's residual with the label, and the error.

    The error is the mean square of that residual, which the advantage does not depend on.
    """

    odds: Float[Tensor, "*b"]
    correlation: Float[Tensor, "*b"]
    error: Float[Tensor, "*b"]


def limit_law(design: Design, p: int | Real[Tensor, "*#b"], penalty: Float[Tensor, "*#b"], query: Query) -> LabelledLaw:
    r"""The law of the pair as n grows with p/n and D/n fixed, for a penalty $\lambda > 0$."""
    widths, penalty = design.widths(p), penalty.to(DTYPE)
    m = limit_moments(widths / design.n, penalty)[0]
    answer = limit_variances(design, widths, penalty, query).outsider
    shared = query.used / design.D * (1 - penalty * m)
    label = query.total / design.D + design.sigma**2
    residual = answer - 2 * shared + label
    return LabelledLaw(query.used * m / design.n, (label - shared) / (residual * label).sqrt(), residual)


def advantage(law: LabelledLaw) -> Float[Tensor, "*b"]:
    r"""Advantage of the best attack on answer and label: total variation of two centred Gaussians of the plane.

    With $t = 1/(1+q)$ and the correlation c, the eigenvalues $e_1, e_2$ of $S_1^{-1} S_0$ have the product $1/t^2$ and
    the sum $(1 - 2tc^2 + t^2)/(t^2(1-c^2))$. In coordinates in which the member's law has the variances $e_i^{-1/2}$
    and the outsider's $e_i^{1/2}$, the densities cross once on every ray,

    $$ r^2 = \frac{-\log(e_1 e_2)}{a_0 - a_1}, \qquad a_1 = e_1^{1/2} \cos^2\theta + e_2^{1/2} \sin^2\theta, \quad
       a_0 = e_1^{-1/2} \cos^2\theta + e_2^{-1/2} \sin^2\theta, $$

    and both sides of the crossing have a closed form; the angle is integrated in $\log\tan\theta$.
    """
    t, square = 1 / (1 + law.odds), law.correlation.square()
    # In units of 1/t², so that nothing overflows at large odds.
    trace = (1 - 2 * t * square + t.square()) / (1 - square)
    large = (trace + (trace.square() - 4 * t.square()).clamp_min(0).sqrt()) / 2
    roots = [(e.sqrt() / t).unsqueeze(-1) for e in (large, t.square() / large)]  # √e₁ and √e₂
    v = torch.linspace(-_REACH, _REACH, _ANGLES, dtype=DTYPE)
    cosine, sine = torch.sigmoid(-2 * v), torch.sigmoid(2 * v)  # squared
    member = roots[0] * cosine + roots[1] * sine
    outsider = cosine / roots[0] + sine / roots[1]
    scale = (1 / t).sqrt().unsqueeze(-1)  # (e₁e₂)^¼
    crossing = 4 * scale.log() / (member - outsider)
    crossing = torch.where(crossing > 0, crossing, torch.inf)
    inside = [-torch.expm1(-crossing * a / 2) * w / a for a, w in ((member, scale), (outsider, 1 / scale))]
    outside = [torch.exp(-crossing * a / 2) * w / a for a, w in ((member, scale), (outsider, 1 / scale))]
    along = (inside[0] - inside[1]).abs() + (outside[0] - outside[1]).abs()
    return torch.trapezoid(along * (cosine * sine).sqrt(), v, dim=-1) / math.pi


def trained_pairs(
    design: Design,
    point: Float[Tensor, " D"],
    p: int,
    *,
    penalty: float,
    trials: int,
    member: bool,
    generator: torch.Generator,
) -> Float[Tensor, "trials two"]:
    """Answer and label at `point` of ridge models on Gaussian data: a member's label is the one it was trained with."""
    step, parts = max(1, _CHUNK // (design.n * design.D)), []
    for start in range(0, trials, step):
        count = min(step, trials - start)
        rows = gaussian((count, design.n + 1, design.D), generator=generator)
        rows[:, 0] = point
        beta = gaussian((count, design.D, 1), generator=generator) / design.D**0.5
        labels = (rows @ beta).squeeze(-1) + design.sigma * gaussian((count, design.n + 1), generator=generator)
        used = slice(0, design.n) if member else slice(1, None)
        asked = rows[:, 0, :p]
        answers = ridge_predictions(rows[:, used, :p], labels[:, used], asked, penalties=[penalty])
        parts.append(torch.stack([answers[:, 0], labels[:, 0]], dim=-1))
    return torch.cat(parts)
