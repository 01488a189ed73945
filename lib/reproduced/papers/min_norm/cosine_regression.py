r"""Noise-free regression on cosines: was a signal observed at a given time?

A signal on the times $0, \dots, T - 1$ is $\beta^\top c(t)$ with $\beta \sim N(0, I_D/D)$ and $c(t)$ the unit vector
along $(\cos(2\pi k t/N))_{k < D}$. It is observed at n times and fitted by min-norm least squares on the first
$p \le D$ cosines; the attacker sees the prediction at $t_0$. Given the observed times, the prediction is a centred
Gaussian. With $p = D$ its variance is
$$ V_0 = \lVert \Pi\, c(t_0) \rVert^2 / p, \qquad V_1 = 1/p, $$
where $\Pi$ projects on the span of the observed $c(t)$: the *leverage* of $t_0$ decides, and a member's leverage is 1
for every p, since there is no noise. Source: Tan et al. (2022), Section 5.

Two things make this model delicate. If $N < 2T - 1$ some times are *aliases*: $c(t) = c(s)$ when $t \equiv \pm s$
modulo N, so an outsider with an observed alias has leverage 1. And a design with aliases, or with $p$ far below
$N/2$, has singular values that would be zero without rounding: the prediction depends on which of them the solver
keeps (`cutoff`) and on the order in which the phase $2\pi k t/N$ was computed (`phase`).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakage.draws import uniform
from leakage.precision import DTYPE
from reproduced.papers.min_norm.gaussian_mixtures import ScaleMixture, total_variation

_ATTEMPTS = 8  # a batch fails about one time in ten: that many failures in a row mean another problem
_CHUNK = 2**22  # elements of the designs decomposed at once, to bound memory
_CONDITION = 1e4  # of a design, up to which a Gram matrix, which squares it, gives eight digits


def _reduced_phase(k: Tensor, t: Tensor, period: int) -> Tensor:
    remainder = (k.long() * t.long()) % period
    return 2 * math.pi * torch.minimum(remainder, period - remainder).to(DTYPE) / period


PHASES = {
    "left-to-right": lambda k, t, period: 2 * math.pi * k * t / period,
    "product-first": lambda k, t, period: 2 * math.pi * (k * t) / period,
    "reduced": _reduced_phase,
}
r"""How $2\pi kt/N$ is rounded: as in the authors' release, product first, or kt modulo N first, so that aliases have
equal rows."""


@dataclass(frozen=True)
class Cosines:
    """The model: `n` of `horizon` times observed, the first `width` of `signal` cosines of period `period` fitted.

    `Cosines.released` and `Cosines.band_limited` are the choices that the chapter compares.
    """

    n: int
    horizon: int
    width: int
    period: int
    signal: int

    @classmethod
    def released(cls, n: int, horizon: int, width: int) -> "Cosines":
        """The model of the authors' released simulation: D = p and a period 2p − 1 that grows with the fit."""
        return cls(n, horizon, width, 2 * width - 1, width)

    @classmethod
    def band_limited(cls, n: int, horizon: int, width: int, *, signal: int | None = None) -> "Cosines":
        """The model without aliases: period 2T − 1 at every width; the signal has p cosines, or `signal`."""
        return cls(n, horizon, width, 2 * horizon - 1, width if signal is None else signal)

    @property
    def member_variance(self) -> float:
        r"""$V_1 = 1/D$, where the fit returns the noise-free label at every observed time: $p \ge \min(n, D)$."""
        return 1 / self.signal

    def alias_class(self, times: Int[Tensor, "*b"]) -> Int[Tensor, "*b"]:
        """The smallest time with the same cosines."""
        remainder = times % self.period
        return torch.minimum(remainder, self.period - remainder)

    def rows(self, times: Int[Tensor, "*b"], *, phase: str = "reduced") -> Float[Tensor, "*b signal"]:
        """The unit vectors c(t), with a rounding of `PHASES`."""
        k = torch.arange(self.signal, dtype=DTYPE)
        cosines = torch.cos(PHASES[phase](k, times.to(DTYPE).unsqueeze(-1), self.period))
        return cosines / cosines.norm(dim=-1, keepdim=True)


def training_times(
    model: Cosines, query_times: Int[Tensor, "*b"], *, trials: int, aliases: bool = True, generator: torch.Generator
) -> Int[Tensor, "*b trials n"]:
    """Draw n distinct times out of the horizon, never the query time, `trials` times for each query.

    Without `aliases` no alias of the query time is drawn either: the draw is conditional on the event whose
    probability is `uncovered_probability`, which must be positive; see `alias_law`.
    """
    horizon = torch.arange(model.horizon)
    excluded = horizon == query_times.unsqueeze(-1)
    if not aliases:
        excluded = model.alias_class(horizon) == model.alias_class(query_times).unsqueeze(-1)
    keys = uniform((*query_times.shape, trials, model.horizon), generator=generator)
    return keys.masked_fill(excluded.unsqueeze(-2), -1.0).topk(model.n, dim=-1).indices


def outsider_variances(
    model: Cosines,
    times: Int[Tensor, "*b trials n"],
    query_times: Int[Tensor, "*b"],
    *,
    cutoff: float | None = None,
    phase: str = "reduced",
) -> Float[Tensor, "*b trials"]:
    r"""$V_0 = \lVert C^\top w \rVert^2 / D$ for each set of observed times, where $w = (C_p^\top)^+ c_p(t_0)$.

    $C$ are the observed rows and $C_p$ their first p columns. Singular values up to `cutoff` times the largest count as
    zero. None is the default of NumPy's `lstsq`, $\epsilon \max(n, p)$, which keeps directions that are rounding noise
    when the phases are not reduced.
    """
    if cutoff is None:
        cutoff = torch.finfo(DTYPE).eps * max(model.n, model.width)
    targets = model.rows(query_times, phase=phase)
    distinct, places = times.unique(return_inverse=True)
    known = model.rows(distinct, phase=phase)
    step = max(1, _CHUNK // max(1, query_times.numel() * model.n * model.signal))
    parts = [_squared_answer(known[chunk], targets, model.width, cutoff) for chunk in places.split(step, dim=-2)]
    return torch.cat(parts, dim=-1) / model.signal


def exact_outsider_variances(
    model: Cosines, times: Int[Tensor, "*b trials n"], query_times: Int[Tensor, "*b"]
) -> Float[Tensor, "*b trials"]:
    r"""$V_0$ in exact arithmetic of `Cosines.released`, where $D = p$ and the period is $2p - 1$.

    Up to the norm, $\langle c(s), c(t) \rangle = 2 + N(\mathbb 1[s \equiv t] + \mathbb 1[s \equiv -t])$ modulo N, so
    the Gram matrix of the distinct classes observed is a diagonal plus a constant. If $t_0$ has an observed alias its
    leverage is 1; otherwise, with $\tau = \sum_c 1/N_c$ over the observed classes ($N_c = N$, or $2N$ for class 0),

    $$ \lVert \Pi\, c(t_0) \rVert^2 = \frac{4 \tau}{(1 + 2\tau)(2 + N_{t_0})}. $$

    Not in the paper. A fit with any cutoff well above rounding computes the same.
    """
    own = model.alias_class(query_times).unsqueeze(-1)
    classes = model.alias_class(times).sort(dim=-1).values
    first = torch.diff(classes, dim=-1, prepend=torch.full_like(classes[..., :1], -1)) != 0
    tau = (torch.where(classes == 0, 0.5, 1.0).to(DTYPE) * first).sum(-1) / model.period
    norm = 2 + torch.where(own == 0, 2, 1) * model.period
    leverage = torch.where((classes == own.unsqueeze(-1)).any(-1), 1.0, 4 * tau / ((1 + 2 * tau) * norm))
    return leverage / model.width


def uncovered_probability(model: Cosines, query_times: Int[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    r"""Probability that none of the $a$ aliases of $t_0$ is observed, $\binom{T-1-a}{n} / \binom{T-1}{n}$."""
    horizon = torch.arange(model.horizon)
    aliases = (model.alias_class(horizon) == model.alias_class(query_times).unsqueeze(-1)).sum(-1) - 1
    # One factor for each observed time: the chance that it, too, is no alias.
    free = model.horizon - 1 - torch.arange(model.n, dtype=DTYPE)
    return ((free - aliases.unsqueeze(-1)).clamp_min(0) / free).prod(-1)


def alias_law(model: Cosines, query_times: Int[Tensor, "*b"], uncovered: Float[Tensor, "*b trials"]) -> ScaleMixture:
    """The law of an outsider's prediction, from the variances of `training_times(..., aliases=False)`.

    With an observed alias the variance is that of a member. The probability of that is known, so it is not left to
    sampling: the law has one more component, the last, with that weight.
    """
    share = uncovered_probability(model, query_times).unsqueeze(-1)
    atom = torch.full_like(uncovered[..., :1], model.member_variance)
    weights = torch.cat([(share / uncovered.shape[-1]).expand(uncovered.shape), 1 - share], dim=-1)
    return ScaleMixture(torch.cat([uncovered, atom], dim=-1), weights)


def exact_advantages(
    model: Cosines, query_times: Int[Tensor, " b"], *, trials: int, generator: torch.Generator
) -> Float[Tensor, " c"]:
    """Advantage of the best attack on `Cosines.released` in exact arithmetic, at each time that may have no alias."""
    asked = query_times[uncovered_probability(model, query_times) > 0]
    times = training_times(model, asked, trials=trials, aliases=False, generator=generator)
    uncovered = exact_outsider_variances(model, times, asked)
    member = torch.full_like(uncovered[:, :1], model.member_variance)
    return total_variation(member=member, outsider=alias_law(model, asked, uncovered))


def solved_advantages(
    model: Cosines,
    query_times: Int[Tensor, "*b"],
    *,
    trials: int,
    cutoff: float | None = None,
    phase: str = "reduced",
    generator: torch.Generator,
) -> Float[Tensor, "*b"]:
    """Advantage of the best attack on the designs as a solver sees them, over `trials` sets of observed times each.

    `cutoff` and `phase` are those of `outsider_variances`.
    """
    aliases = model.period == 2 * model.horizon - 1  # there are none to leave out
    times = training_times(model, query_times, trials=trials, aliases=aliases, generator=generator)
    outsiders = outsider_variances(model, times, query_times, cutoff=cutoff, phase=phase)
    law = ScaleMixture(outsiders) if aliases else alias_law(model, query_times, outsiders)
    member = torch.full_like(outsiders[..., :1], model.member_variance)
    return total_variation(member=member, outsider=law)


def _squared_answer(designs: Tensor, targets: Tensor, width: int, cutoff: float) -> Tensor:
    r"""$\lVert C^\top w \rVert^2$, or the leverage, which is the same number better conditioned, when $D = p$.

    A well-conditioned design needs no singular values: $w = (C_p C_p^\top)^{-1} C_p c_p(t_0)$.
    """
    asked = targets.unsqueeze(-2).expand(*designs.shape[:-2], -1).flatten(0, -2)
    fitted, shape, designs = designs[..., :width].flatten(0, -3), designs.shape[:-2], designs.flatten(0, -3)
    factor, failed = torch.linalg.cholesky_ex(fitted @ fitted.mT)
    inverse = torch.linalg.solve_triangular(factor, torch.eye(len(factor[0]), dtype=DTYPE), upper=False)
    condition = factor.norm(dim=(-2, -1)) * inverse.norm(dim=(-2, -1))  # or more
    clear = (failed == 0) & (condition < min(_CONDITION, 1 / max(cutoff, torch.finfo(DTYPE).eps)))
    half = inverse @ (fitted @ asked[:, :width, None])
    whole = width == designs.shape[-1]
    answer = (half if whole else designs.mT @ (inverse.mT @ half)).square().sum(dim=(-2, -1))
    if not bool(clear.all()):
        left, sizes, right = _svd(fitted[~clear])
        kept = sizes > cutoff * sizes[..., :1]
        along = (right @ asked[~clear, :width, None]).squeeze(-1) * kept
        weights = left @ torch.where(kept, along / sizes, 0.0).unsqueeze(-1)
        wide = along if whole else (designs[~clear].mT @ weights).squeeze(-1)
        answer[~clear] = wide.square().sum(-1)
    return answer.view(shape)


def _svd(design: Tensor, attempt: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """The thin singular value decomposition.

    About one design in some thousand with aliases defeats LAPACK's divide and conquer. A permutation of the rows
    changes the result by rounding only, so such a batch is decomposed again with its rows in another order.
    """
    try:
        left, sizes, right = torch.linalg.svd(design.roll(attempt, dims=-2), full_matrices=False)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
        if attempt == _ATTEMPTS:
            raise
        return _svd(design, attempt + 1)
    return left.roll(-attempt, dims=-2), sizes, right
