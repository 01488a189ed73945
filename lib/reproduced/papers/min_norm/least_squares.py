r"""Minimum-norm least squares on the first p of D Gaussian features: variances, and exact laws at finite n.

Rows $x_i \sim N(0, I_D)$, coefficients $\beta \sim N(0, I_D/D)$, labels $y = X\beta + \varepsilon$ with
$\varepsilon \sim N(0, \sigma^2)$, prediction $\hat y_0 = x_{0,p}^\top X_p^+ y$. An outsider ($m=0$) is a fresh $x_0$, a
member ($m=1$) is a row of $X$ with its label. Laws are conditional on $x_0$, which enters through two numbers
(`Query`). `ridge` has the regularised model.

Given an outsider's design the prediction is Gaussian, with a variance that depends on three independent scalars:

$$ \hat y_0 = \sqrt{r^2 B\,\bigl(1/D + \tau^2 / K\bigr)}\;N, \qquad
   B \sim \mathrm{Beta}\bigl(\tfrac n2, \tfrac{p - n}2\bigr), \quad
   K \sim \chi^2_{|p - n| + 1}, \quad \tau^2 = \sigma^2 + \chi^2_{D - p} / D, $$

with $B = 1$ for $p \le n$. So the noise part is Student with $|p - n| + 1$ degrees of freedom. This replaces the n×D
draw and the least squares solve of Lemma C.1 of Tan et al. (2022), and is not in the paper; the chapter proves it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Real
from scipy import special
from scipy.optimize import root_scalar
from torch import Tensor

from leakage.data.gaussians import chi_square
from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm import two_gaussians
from reproduced.papers.min_norm.gaussian_mixtures import Laws, ScaleMixture, threshold_advantage, total_variation

NODES = (24, 64, 8)
"""Quadrature nodes in B, K and τ². Total variation is good to 2e-5 from n = 100 on. At small sizes the laws have
heavier tails, and it is good to 4e-5 at n = 12, to 7e-5 at n = 2 and to 1.4e-4 at n = p = 1."""


@dataclass(frozen=True)
class Design:
    r"""The linear model: `n` rows, `D` features in all, noise of standard deviation `sigma`."""

    n: int
    D: int
    sigma: float = 1.0

    def widths(self, p: int | Sequence[int] | Tensor) -> Float[Tensor, "*w"]:
        """The numbers of features `p` as a float64 tensor."""
        return torch.as_tensor(p, dtype=DTYPE)


@dataclass(frozen=True)
class Query:
    r"""The squared norms of the used and of the unused features of a point $x_0$, on which its laws depend.

    Args:
        used: $r^2 = \lVert x_{0,1:p} \rVert^2 > 0$.
        unused: $\rho^2 = \lVert x_{0,p+1:D} \rVert^2 \ge 0$, of the same shape.
    """

    used: Float[Tensor, "*q"]
    unused: Float[Tensor, "*q"]

    @property
    def total(self) -> Float[Tensor, "*q"]:
        r"""$\lVert x_0 \rVert^2 = r^2 + \rho^2$."""
        return self.used + self.unused

    def at_width(self, index: int) -> "Query":
        """The query at one width, where the last dimension runs over widths."""
        return Query(self.used[..., index], self.unused[..., index])

    @classmethod
    def typical(cls, design: Design, p: int | Sequence[int] | Tensor) -> "Query":
        r"""The idealised point with $r^2 = p$ and $\rho^2 = D - p$, one for every width."""
        widths = design.widths(p)
        return cls(widths, design.D - widths)

    @classmethod
    def from_point(cls, point: Float[Tensor, "*b D"], design: Design, p: int) -> "Query":
        """The query of a point with D features."""
        squares = point.to(DTYPE).square()
        used = squares[..., :p].sum(-1)
        return cls(used, squares[..., p:].sum(-1))

    @classmethod
    def draw(cls, design: Design, p: Sequence[int], *, count: int, generator: torch.Generator) -> "Query":
        r"""`count` Gaussian points, each at all the increasing widths `p`: shape `[count, len(p)]`.

        No D-vector is drawn: $r^2$ grows by independent $\chi^2$ increments.
        """
        widths = design.widths(list(p))
        steps = torch.diff(widths, prepend=widths.new_zeros(1))
        used = chi_square(steps, (count, len(widths)), generator=generator).cumsum(-1)
        rest = chi_square(design.D - float(widths[-1]), (count, 1), generator=generator)
        return cls(used, used[:, -1:] - used + rest)


def outsider_variance(design: Design, p: int | Real[Tensor, "*#q"], query: Query) -> Float[Tensor, "*q"]:
    r"""Variance of the prediction at a fresh point, exact at every n.

    $$ \sigma_0^2 = r^2 \min\!\Bigl(1, \frac np\Bigr)
       \Bigl( \frac1D + \frac{1 + \sigma^2 - p/D}{|p - n| - 1} \Bigr), \qquad |p - n| \ge 2, $$

    and $+\infty$ for $|p - n| \le 1$, where the noise part has a Student law with at most two degrees of freedom.
    Source: Tan et al. (2022), eq. (2), for $p \ge n + 2$; the branch $p \le n - 2$ follows from the same Wishart mean.
    """
    p = design.widths(p)
    distance = (p - design.n).abs()
    noise = 1 + design.sigma**2 - p / design.D
    finite = query.used * (design.n / p).clamp(max=1) * (1 / design.D + noise / (distance - 1).clamp_min(1))
    return torch.where(distance >= 2, finite, torch.inf)


def member_variance(design: Design, query: Query) -> Float[Tensor, "*q"]:
    r"""Variance of the prediction at a training point for $p \ge n$: that of its label, for every p.

    $$ \sigma_1^2 = \sigma^2 + \lVert x_0 \rVert^2 / D $$

    Source: Tan et al. (2022), eq. (2).
    """
    return design.sigma**2 + query.total / design.D


def advantage(design: Design, p: int | Real[Tensor, "*#q"], query: Query) -> Float[Tensor, "*q"]:
    r"""The limit advantage of Tan et al. (2022), eq. (4), in the overparameterised regime."""
    return two_gaussians.advantage(member=member_variance(design, query), outsider=outsider_variance(design, p, query))


def crossover_width(design: Design) -> float:
    r"""The width $p^*$ at which members and outsiders have equal variance, for the typical point.

    $$ p^* = n + (n + 1)\Bigl(1 - \frac{n}{D(1 + \sigma^2)}\Bigr) $$

    Not in the paper: it makes the "$\gamma \approx 2$" of its Figure 2(a) exact.
    """
    return design.n + (design.n + 1) * (1 - design.n / (design.D * (1 + design.sigma**2)))


def prediction_error(design: Design, p: int | Real[Tensor, "*w"]) -> Float[Tensor, "*w"]:
    r"""Expected squared error at a fresh point.

    $$ \mathrm{err}(p) = \frac pD \Bigl(1 - \frac np\Bigr)
       + \Bigl(1 - \frac pD + \sigma^2\Bigr) \Bigl(1 + \frac{n}{p - n - 1}\Bigr)
       = 1 + \sigma^2 + \sigma_0^2\big|_{r^2 = p} - \frac{2n}{D}, \qquad p \ge n + 2, $$
    $$ \mathrm{err}(p) = \Bigl(1 - \frac pD + \sigma^2\Bigr) \Bigl(1 + \frac{p}{n - p - 1}\Bigr), \qquad p \le n - 2, $$

    and $+\infty$ between. Source: Belkin, Hsu and Xu (2020), Corollary 2.2, as Tan et al. (2022) use it in Proposition
    4.3 for $p \ge n + 2$.
    """
    p = design.widths(p)
    noise = 1 - p / design.D + design.sigma**2
    wide = p / design.D * (1 - design.n / p) + noise * (1 + design.n / (p - design.n - 1))
    narrow = noise * (1 + p / (design.n - p - 1))
    return torch.where(p >= design.n + 2, wide, torch.where(p <= design.n - 2, narrow, torch.inf))


def break_even_width(design: Design) -> float:
    r"""The width above which a model errs less than the constant answer 0, whose error is $1 + \sigma^2$.

    $$ \mathrm{err}(p) < 1 + \sigma^2 \iff p > \tfrac12 \bigl( D(1 + \sigma^2) + n + 1 \bigr) $$

    for $p \ge n + 2$; for $p \le n - 2$ it is never so. From $\sigma = 1$ on this is beyond D, and no width errs less.
    Needs $D \ge n + 1$. Not in the paper.
    """
    return (design.D * (1 + design.sigma**2) + design.n + 1) / 2


def explained_variance(design: Design, p: int | Real[Tensor, "*w"]) -> Float[Tensor, "*w"]:
    r"""Share of a fresh label's variance that the best multiple of an answer explains, $p \ge n + 2$.

    $$ R^2 = 1 - \min_c \frac{\mathbb{E}(y_0 - c\,\hat y_0)^2}{1 + \sigma^2}
       = \frac{\sigma_1^2}{\sigma_0^2} \Bigl( \frac{n}{D (1 + \sigma^2)} \Bigr)^2 $$

    with the variances of the typical point. The limit advantage of that point depends on the same ratio alone, so at
    fixed n, D and σ it and $R^2$ determine each other. Not in the paper.
    """
    widths = design.widths(p)
    typical = Query.typical(design, widths)
    ratio = member_variance(design, typical) / outsider_variance(design, widths, typical)
    return ratio * (design.n / (design.D * (1 + design.sigma**2))) ** 2


def noise_for_error(design: Design, error: Float[Tensor, "*w"]) -> Float[Tensor, "*w"]:
    r"""Variance $\nu^2$ of output noise that gives the full model (p = D) a prediction error.

    $\nu^2 = \mathrm{err} - \mathrm{err}(D)$. Source: Tan et al. (2022), Lemma 4.4, eq. (6).
    """
    return error - prediction_error(design, design.widths(design.D))


def noise_advantage(
    design: Design, noise: Float[Tensor, "*#q"], query: Query, *, on_members: bool
) -> Float[Tensor, "*q"]:
    r"""Limit advantage against the full model (p = D) when output noise of variance $\nu^2$ is added.

    With `on_members=False` the noise falls on outsiders only, $(\sigma_0^2 + \nu^2, \sigma_1^2)$, as in Lemma 4.4 of
    Tan et al. (2022), which needs a defender who knows the members. With `on_members=True` it falls on all predictions,
    $(\sigma_0^2 + \nu^2, \sigma_1^2 + \nu^2)$.
    """
    full = design.widths(design.D)
    outsider = outsider_variance(design, full, query) + noise
    member = member_variance(design, query) + (noise if on_members else 0)
    return two_gaussians.advantage(member=member, outsider=outsider)


def widths_within_budget(design: Design, budget: float) -> tuple[int, int] | None:
    r"""The widths $p \ge n + 2$ whose limit advantage at the typical point is at most `budget`, as first and last.

    The advantage falls until $p^*$ and rises after it, so the set is an interval; None if no width meets the budget.
    Not in the paper.
    """

    def excess(p: float) -> float:
        width = torch.tensor(p, dtype=DTYPE)
        return float(advantage(design, width, Query.typical(design, width))) - budget

    first, last = float(design.n + 2), float(design.D)
    middle = min(max(crossover_width(design), first), last)
    if excess(middle) > 0:
        return None
    low = first if excess(first) <= 0 else root_scalar(excess, bracket=(first, middle)).root
    high = last if excess(last) <= 0 else root_scalar(excess, bracket=(middle, last)).root
    narrowest, widest = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    return (narrowest, widest) if narrowest <= widest else None  # the interval may hold no whole number


def sample_outsider(
    design: Design, p: int, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    """`trials` predictions at a fresh point, for any n and p, each for a design of its own."""
    size = (*query.used.shape, trials)
    scale = _outsider_scale(design, p, size, generator)
    return (query.used.unsqueeze(-1) * scale).sqrt() * gaussian(size, generator=generator)


def _outsider_scale(design: Design, p: int, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws of the prediction's variance for r² = 1."""
    beta = torch.ones(size, dtype=DTYPE)
    if p > design.n:
        kept = chi_square(design.n, size, generator=generator)
        beta = kept / (kept + chi_square(p - design.n, size, generator=generator))
    tail = chi_square(abs(p - design.n) + 1, size, generator=generator)
    return beta * (1 / design.D + sample_unexplained_variance(design, p, size, generator=generator) / tail)


def sample_unexplained_variance(
    design: Design, p: int, size: tuple[int, ...], *, generator: torch.Generator
) -> Float[Tensor, "*size"]:
    r"""Draws of $\tau^2$: the label's variance given the features in use, conditional on β."""
    return design.sigma**2 + chi_square(design.D - p, size, generator=generator) / design.D


def sample_member(
    design: Design, p: int, query: Query, *, trials: int, generator: torch.Generator
) -> Float[Tensor, "*q trials"]:
    r"""`trials` predictions at a training point.

    For $p \ge n$ the model interpolates and the prediction is the label, $N(0, \lVert x_0 \rVert^2/D + \sigma^2)$. For
    $p < n$ leaving the point out gives, with $q = r^2 / \chi^2_{n-p}$ its leverage odds and $h = q/(1+q)$,

    $$ \hat y_0 = \sqrt{r^2/D}\,N_1 + h\,(\rho\theta + \sigma N_2) + \frac{\sqrt{\tau^2 q}}{1 + q}\,N_3, \qquad
       \theta \sim N(0, 1/D), \quad \tau^2 = \sigma^2 + \theta^2 + \chi^2_{D-p-1}/D. $$
    """
    size = (*query.used.shape, trials)
    used, unused = query.used.unsqueeze(-1), query.unused.unsqueeze(-1)
    if p >= design.n:
        return ((used + unused) / design.D + design.sigma**2).sqrt() * gaussian(size, generator=generator)
    odds = used / chi_square(design.n - p, size, generator=generator)
    along, tau2 = sample_unused_direction(design, p, size, generator=generator)
    label = unused.sqrt() * along + design.sigma * gaussian(size, generator=generator)
    signal = (used / design.D).sqrt() * gaussian(size, generator=generator)
    others = (tau2 * odds).sqrt() / (1 + odds) * gaussian(size, generator=generator)
    return signal + odds / (1 + odds) * label + others


def sample_unused_direction(
    design: Design, p: int, size: tuple[int, ...], *, generator: torch.Generator
) -> tuple[Float[Tensor, "*size"], Float[Tensor, "*size"]]:
    r"""Draws of $c$, the coefficient along the unused part of $x_0$, and of $\tau^2$ given it.

    The unused part moves the member's own label and, through $\tau^2$, all labels: the two draws are dependent.
    """
    if p == design.D:
        zero = torch.zeros(size, dtype=DTYPE)
        return zero, zero + design.sigma**2
    along = gaussian(size, generator=generator) / design.D**0.5
    rest = chi_square(design.D - p - 1, size, generator=generator) / design.D
    return along, design.sigma**2 + along.square() + rest


def outsider_mixture(design: Design, p: int, query: Query, *, nodes: Sequence[int] = NODES) -> ScaleMixture:
    r"""The exact law at a fresh point as a Gaussian scale mixture, by Gauss–Legendre in the quantiles of B, K and τ².

    The batch is that of the query.
    """
    gap = p - design.n
    beta, beta_weight = _quantile_rule(nodes[0], lambda u: special.betaincinv(design.n / 2, gap / 2, u), gap > 0, 1.0)
    tail, tail_weight = _chi_square_rule(nodes[1], abs(gap) + 1)
    rest, rest_weight = _chi_square_rule(nodes[2], design.D - p)
    tau2 = design.sigma**2 + rest / design.D
    scale = beta[:, None, None] * (1 / design.D + tau2[None, None, :] / tail[None, :, None])
    weights = beta_weight[:, None, None] * tail_weight[None, :, None] * rest_weight[None, None, :]
    return ScaleMixture(query.used.unsqueeze(-1) * scale.flatten(), weights.flatten())


def member_mixture(design: Design, p: int, query: Query) -> ScaleMixture:
    """The exact law at a training point for p ≥ n: one Gaussian (see `sample_member`)."""
    return ScaleMixture((query.total / design.D + design.sigma**2).unsqueeze(-1))


def laws(design: Design, p: int, query: Query, *, nodes: Sequence[int] = NODES) -> Laws:
    """`outsider_mixture` and `member_mixture`, for p ≥ n."""
    outsider = outsider_mixture(design, p, query, nodes=nodes)
    return {"outsider": outsider, "member": member_mixture(design, p, query)}


def total_variations(
    design: Design, widths: Sequence[int], query: Query, *, nodes: Sequence[int] = NODES
) -> Float[Tensor, "*q w"]:
    """Advantage of the best attack at finite n, for every p ≥ n in `widths`, which are the last axis of the query."""
    columns = [total_variation(**laws(design, p, query.at_width(index), nodes=nodes)) for index, p in enumerate(widths)]
    return torch.stack(columns, dim=-1)


def single_threshold_advantages(
    design: Design, widths: Sequence[int], query: Query, *, nodes: Sequence[int] = NODES
) -> Float[Tensor, "*q w"]:
    """Advantage at finite n of the limit's attack, the single threshold of eq. (3) of Tan et al. (2022).

    Arguments as those of `total_variations`, whose attack is the best one.
    """
    columns = []
    for index, p in enumerate(widths):
        asked = query.at_width(index)
        cut = two_gaussians.threshold(
            outsider=outsider_variance(design, p, asked), member=member_variance(design, asked)
        )
        columns.append(threshold_advantage(cut[..., None], **laws(design, p, asked, nodes=nodes))[..., 0].abs())
    return torch.stack(columns, dim=-1)


def _chi_square_rule(count: int, dof: int) -> tuple[Tensor, Tensor]:
    return _quantile_rule(count, lambda u: 2 * special.gammaincinv(dof / 2, u), dof > 0, 0.0)


def _quantile_rule(count: int, quantile, varies: bool, constant: float) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes on (0, 1), sent through a quantile function, and weights; one node for a constant."""
    if not varies:
        return torch.tensor([constant], dtype=DTYPE), torch.ones(1, dtype=DTYPE)
    points, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy(quantile((points + 1) / 2)), torch.from_numpy(weights / 2)
