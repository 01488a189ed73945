r"""Minimum-norm least squares on the first p of D Gaussian features: the closed forms.

Rows $x_i \sim N(0, I_D)$, coefficients $\beta \sim N(0, I_D/D)$, labels $y = X\beta + \varepsilon$ with
$\varepsilon \sim N(0, \sigma^2)$, prediction $\hat y_0 = x_{0,p}^\top X_p^+ y$. An outsider ($m=0$) is a fresh $x_0$, a
member ($m=1$) is a row of $X$ with its label. Variances are conditional on $x_0$, which enters through two numbers.
`least_squares_law` has the full finite-sample laws, `ridge` the regularised model. Nothing here draws a sample but
`Query.draw`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from scipy.optimize import root_scalar
from torch import Tensor

from leakage.data.gaussians import chi_square
from leakage.runtime import DTYPE
from leakage.theory import two_gaussians


@dataclass(frozen=True)
class Design:
    r"""The linear model: `n` rows, `D` features in all, noise of standard deviation `sigma`."""

    n: int
    D: int
    sigma: float = 1.0

    def widths(
        self, p: int | Sequence[int] | Tensor, *, device: torch.device | str | None = None
    ) -> Float[Tensor, "*w"]:
        """The numbers of features `p` as a float64 tensor; a tensor stays on its device if none is named."""
        return torch.as_tensor(p, device=device).to(DTYPE)


@dataclass(frozen=True)
class Query:
    r"""What a point $x_0$ contributes to every law: the squared norms of the part used and of the part not used.

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

    def at(self, index: int) -> "Query":
        """The query at one of its widths, where the last dimension runs over widths."""
        return Query(self.used[..., index], self.unused[..., index])

    @classmethod
    def typical(cls, design: Design, p: int | Sequence[int] | Tensor) -> "Query":
        r"""The idealised point with $r^2 = p$ and $\rho^2 = D - p$, one for every width."""
        widths = design.widths(p)
        return cls(widths, design.D - widths)

    @classmethod
    def of(cls, point: Float[Tensor, "*b D"], design: Design, p: int) -> "Query":
        """The query of an actual point, whose last dimension must have length D."""
        squares = point.to(DTYPE).square()
        used = squares[..., :p].sum(-1)
        return cls(used, squares[..., p:].sum(-1))

    @classmethod
    def draw(cls, design: Design, p: Sequence[int], *, count: int, generator: torch.Generator) -> "Query":
        r"""`count` Gaussian points seen at the increasing widths `p`: shape `[count, len(p)]`, without a D-vector.

        The same point is seen at every width: its $r^2$ grows by independent $\chi^2$ increments.
        """
        widths = design.widths(list(p), device=generator.device)
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
    p = design.widths(p, device=query.used.device)
    distance = (p - design.n).abs()
    noise = 1 + design.sigma**2 - p / design.D
    finite = query.used * (design.n / p).clamp(max=1) * (1 / design.D + noise / (distance - 1).clamp_min(1))
    return torch.where(distance >= 2, finite, torch.inf)


def member_variance(design: Design, query: Query) -> Float[Tensor, "*q"]:
    r"""Variance of the prediction at a training point once $p \ge n$: that of its label, whatever p is.

    $$ \sigma_1^2 = \sigma^2 + \lVert x_0 \rVert^2 / D $$

    Source: Tan et al. (2022), eq. (2).
    """
    return design.sigma**2 + query.total / design.D


def advantage(design: Design, p: int | Real[Tensor, "*#q"], query: Query) -> Float[Tensor, "*q"]:
    r"""The limit advantage of Tan et al. (2022), eq. (4), in the overparameterised regime."""
    return two_gaussians.advantage(member=member_variance(design, query), outsider=outsider_variance(design, p, query))


def crossover(design: Design) -> float:
    r"""The width $p^*$ at which members and outsiders have equal variance, for the typical point.

    $$ p^* = n + (n + 1)\Bigl(1 - \frac{n}{D(1 + \sigma^2)}\Bigr) $$

    Not in the paper: it makes the "$\gamma \approx 2$" of its Figure 2(a) exact.
    """
    return design.n + (design.n + 1) * (1 - design.n / (design.D * (1 + design.sigma**2)))


def prediction_error(design: Design, p: int | Real[Tensor, "*w"]) -> Float[Tensor, "*w"]:
    r"""Expected squared error at a fresh point, $p \ge n + 2$.

    $$ \mathrm{err}(p) = \frac pD \Bigl(1 - \frac np\Bigr)
       + \Bigl(1 - \frac pD + \sigma^2\Bigr) \Bigl(1 + \frac{n}{p - n - 1}\Bigr)
       = 1 + \sigma^2 + \sigma_0^2\big|_{r^2 = p} - \frac{2n}{D} $$

    Source: Belkin, Hsu and Xu (2020), Corollary 2.2, as Tan et al. (2022) use it in Proposition 4.3.
    """
    p = design.widths(p)
    noise = 1 - p / design.D + design.sigma**2
    return p / design.D * (1 - design.n / p) + noise * (1 + design.n / (p - design.n - 1))


def noise_for_error(design: Design, error: Float[Tensor, "*w"]) -> Float[Tensor, "*w"]:
    r"""Variance $\nu^2$ of output noise that gives the full model (p = D) a prediction error.

    $\nu^2 = \mathrm{err} - \mathrm{err}(D)$. Source: Tan et al. (2022), Lemma 4.4, eq. (6).
    """
    extra = error - prediction_error(design, design.widths(design.D, device=error.device))
    return extra


def noise_advantage(
    design: Design, noise: Float[Tensor, "*#q"], query: Query, *, on_members: bool
) -> Float[Tensor, "*q"]:
    r"""Limit advantage against the full model (p = D) when output noise of variance $\nu^2$ is added.

    With `on_members=False` the noise falls on outsiders only, $(\sigma_0^2 + \nu^2, \sigma_1^2)$, as in Lemma 4.4 of
    Tan et al. (2022): a defender who knows who is a member. With `on_members=True` every answer is perturbed,
    $(\sigma_0^2 + \nu^2, \sigma_1^2 + \nu^2)$, which is what a defender can do.
    """
    full = design.widths(design.D, device=query.used.device)
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
        noise = 1 + design.sigma**2 - width / design.D
        outsider = design.n * (1 / design.D + noise / (width - design.n - 1))
        member = torch.tensor(1 + design.sigma**2, dtype=DTYPE)
        return float(two_gaussians.advantage(member=member, outsider=outsider)) - budget

    first, last = float(design.n + 2), float(design.D)
    middle = min(max(crossover(design), first), last)
    if excess(middle) > 0:
        return None
    low = first if excess(first) <= 0 else root_scalar(excess, bracket=(first, middle)).root
    high = last if excess(last) <= 0 else root_scalar(excess, bracket=(middle, last)).root
    narrowest, widest = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    return (narrowest, widest) if narrowest <= widest else None  # a small budget may hold between two whole numbers
