r"""The bounds of Theorem 3.2, in which dimension its proof begins, and how near networks come to the bounds.

The bounds for near-orthogonal training points follow from inner products alone (`InnerProducts`), for all labels,
widths and KKT points (`kkt_margin.kkt`). A bound that does not hold is infinite (above) or 0 (below). Leading
dimensions are independent networks and training sets.

Training sets are drawn through their inner products (`kkt_margin.mixtures`), so any dimension costs the same. The
bounds become useful one after the other as d grows, in the stages named by `STAGES`.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy import special
from torch import Tensor

from leakage.metrics.estimates import Estimate, clopper_pearson
from reproduced.papers.kkt_margin.kkt import KktConditions, check_kkt
from reproduced.papers.kkt_margin.max_margin import optimum_of_independent_points
from reproduced.papers.kkt_margin.mixtures import Law, Sample, draw_sample
from reproduced.papers.kkt_margin.two_layer import TwoLayer

STAGES = ("den > 0", "all on the margin", "fresh < m, factor 1", "fresh < m", "fresh < m/2")
"""The steps of the proof of Theorem 3.2, each implied by the next: Lemma B.3 holds, Lemma B.4 puts all training
points on the margin, the bound on a fresh output is below m, with factor 1 (`output_bound`) and with the paper's
factor 2, and below m/2 (Corollary 3.3). Below m with factor 2 is also below m/2 with factor 1."""

_MOST_NUMBERS = 2**23  # of inner products drawn at once: 64 MiB


# ── the bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class InnerProducts:
    r"""The sizes of a training set's inner products.

    Attributes:
        delta: $\delta$, the largest $|x_i^\top x_j|$ of two different points.
        least: $\Delta$, the smallest $\lVert x_i \rVert^2$.
        most: $\Delta_{\max}$, the largest $\lVert x_i \rVert^2$.
        n: the number of points.
    """

    delta: Float[Tensor, "*b"]
    least: Float[Tensor, "*b"]
    most: Float[Tensor, "*b"]
    n: int

    @classmethod
    def from_points(cls, points: Float[Tensor, "*b n d"]) -> "InnerProducts":
        """The sizes for these training points."""
        gram = points @ points.mT
        squares = gram.diagonal(dim1=-2, dim2=-1)
        others = (gram - torch.diag_embed(squares)).abs()
        return cls(others.amax((-2, -1)), squares.amin(-1), squares.amax(-1), points.shape[-2])

    @property
    def ratio(self) -> Float[Tensor, "*b"]:
        r"""$n\delta/\Delta$, which Assumption 3.1 of Smorodinsky et al. sends to 0."""
        return self.n * self.delta / self.least

    @property
    def denominator(self) -> Float[Tensor, "*b"]:
        r"""$\Delta + 1 - 2(\delta + 1)(n - 1)$, the denominator of the bounds; they hold where it is positive."""
        return self.least + 1 - 2 * (self.delta + 1) * (self.n - 1)

    def delta_x(self, products: Float[Tensor, "*b t n"]) -> Float[Tensor, "*b t"]:
        r"""$\delta_x = \max(\delta, \max_i |x_i^\top x|)$ of fresh points, from their `products` with each $x_i$."""
        return torch.maximum(self.delta.unsqueeze(-1), products.abs().amax(-1))


def activation_upper_bound(products: InnerProducts, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""Upper bound of `activation_sums` at a KKT point: $m / \text{den}$ (`InnerProducts.denominator`).

    Source: Smorodinsky et al., Lemma B.3.
    """
    return torch.where(products.denominator > 0, margin / products.denominator, torch.inf)


def activation_lower_bound(products: InnerProducts, margin: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    r"""Lower bound of the `activation_sums` of the point's own sign at a KKT point:

    $$ \Bigl( m - \frac{(\delta + 1)(n - 1)\, m}{\text{den}} \Bigr) \frac1{\Delta_{\max} + 1} . $$

    Where it is positive, which is for $\Delta + 1 > 3 (\delta + 1)(n - 1)$, every training point has $\lambda > 0$ and
    lies on the margin.

    Source: Smorodinsky et al., Lemma B.4; the paper's expression is negative where this one is 0.
    """
    others = (products.delta + 1) * (products.n - 1) * activation_upper_bound(products, margin)
    return (margin - others).clamp_min(0) / (products.most + 1)


def output_bound(
    products: InnerProducts, delta_x: Float[Tensor, "*b t"], margin: Float[Tensor, "*#b"], *, factor: int = 2
) -> Float[Tensor, "*b t"]:
    r"""Upper bound of $|\Phi(x)|$ at a KKT point, for a fresh x:

    $$ \text{factor} \cdot n (\delta_x + 1) \frac m{\text{den}} . $$

    The paper adds the bounds of the neurons with $v_j > 0$ and of those with $v_j < 0$ (`factor` 2). The two parts of
    $\Phi$ have opposite signs, so the larger of them suffices (`factor` 1).

    Source: Smorodinsky et al., proof of Theorem 3.2.
    """
    return factor * products.n * (delta_x + 1) * activation_upper_bound(products, margin).unsqueeze(-1)


def activation_sums(model: TwoLayer, conditions: KktConditions) -> tuple[Float[Tensor, "*b n"], Float[Tensor, "*b n"]]:
    r"""$\sum_j v_j^2 \lambda_l s_{lj}$ of every training point, over the neurons with $v_j > 0$ and with $v_j < 0$."""
    weights = conditions.multipliers.unsqueeze(-1) * conditions.subgradients
    plus, minus = ((sign * model.outputs).clamp_min(0).square().unsqueeze(-1) for sign in (1, -1))
    return (weights @ plus).squeeze(-1), (weights @ minus).squeeze(-1)


# ── the dimension ────────────────────────────────────────────────────────────────────────────────────────────────────


class StageShares(NamedTuple):
    r"""$n\delta/\Delta$ of every training set, and by stage the share of its fresh points for which it is reached."""

    ratios: Float[Tensor, "dimensions runs"]
    shares: Mapping[str, Float[Tensor, "dimensions runs"]]

    def probability(self, stage: str) -> Float[Tensor, " dimensions"]:
        """The probability of a stage over training sets and fresh points."""
        return self.shares[stage].mean(-1)


def measure_stages(
    law: str | Law, *, rows: int, dimensions: Sequence[int], runs: int, fresh: int, generator: torch.Generator
) -> StageShares:
    """Draw `runs` training sets of `rows` points, with `fresh` points each, in every dimension, and measure stages."""
    ratios, shares = [], {name: [] for name in STAGES}
    at_once = max(1, _MOST_NUMBERS // (rows * (rows + fresh)))
    for dimension, first in itertools.product(dimensions, range(0, runs, at_once)):
        size = min(at_once, runs - first)
        sample = draw_sample(law, rows=rows, fresh=fresh, dimension=dimension, runs=size, generator=generator)
        ratios.append(InnerProducts.from_points(sample.train).ratio)
        for name, reached in stage_flags(sample).items():
            shares[name].append(reached.to(sample.train).mean(-1))
    shape = len(dimensions), runs
    by_stage = {name: torch.cat(parts).view(shape) for name, parts in shares.items()}
    return StageShares(torch.cat(ratios).view(shape), by_stage)


def stage_probability(
    law: str | Law, stage: str, *, rows: int, dimension: int, runs: int, generator: torch.Generator
) -> Estimate:
    """How often a training set reaches a stage with one fresh point, of `runs` pairs; the interval is conservative."""
    found = measure_stages(law, rows=rows, dimensions=[dimension], runs=runs, fresh=1, generator=generator)
    return clopper_pearson(int(found.shares[stage].sum()), runs)


def stage_flags(sample: Sample) -> dict[str, Bool[Tensor, "runs t"]]:
    """Which of `STAGES` every fresh point reaches with its training set."""
    geometry = InnerProducts.from_points(sample.train)
    delta_x = geometry.delta_x(sample.fresh @ sample.train.mT)
    margin = torch.ones_like(geometry.denominator)
    bound = output_bound(geometry, delta_x, margin, factor=1)
    proved = [geometry.denominator > 0, activation_lower_bound(geometry, margin) > 0]
    flags = [flag.unsqueeze(-1).expand(bound.shape) for flag in proved] + [bound < share for share in (1, 0.5, 0.25)]
    return dict(zip(STAGES, flags, strict=True))


def first_dimension(
    dimensions: Sequence[int], probability: Float[Tensor, " dimensions"], *, level: float = 0.9
) -> float:
    """The dimension from which on the probability stays at `level`, interpolated in log d; infinite if it does not.

    Where the level is reached everywhere, the smallest dimension given is returned.
    """
    values = probability.tolist()
    low = max((i for i, value in enumerate(values) if value < level), default=-1)
    if low in (-1, len(values) - 1):
        return float(dimensions[0]) if low == -1 else math.inf
    part = (level - values[low]) / (values[low + 1] - values[low])
    return float(dimensions[low] * (dimensions[low + 1] / dimensions[low]) ** part)


def ratio_exponent(ratios: Float[Tensor, "dimensions runs"], dimensions: Sequence[int]) -> Estimate:
    r"""The slope of the logarithm of the mean ratio in $\log d$, with an interval over training sets.

    The means of different dimensions are independent, and the variance of $\log \bar r$ is that of $\bar r$ over its
    square. Each variance is known from the training sets of one dimension alone, so the quantile is Student's for their
    number, which is conservative for few training sets.
    """
    runs = ratios.shape[-1]
    x = torch.tensor([math.log(dimension) for dimension in dimensions], dtype=ratios.dtype)
    weights = (x - x.mean()) / (x - x.mean()).square().sum()
    means, spread = ratios.mean(-1), ratios.std(-1) / math.sqrt(runs)
    slope = float(weights @ means.log())
    half = float(special.stdtrit(runs - 1, 0.975)) * float((weights * spread / means).square().sum().sqrt())
    return Estimate(slope, slope - half, slope + half, n=ratios.numel())


@dataclass(frozen=True)
class LearnableCase:
    r"""A mixture of four Gaussians that meets the learnability conditions of Xu et al., with constants 1.

    Xu et al. (2023) ask for $n^{0.51} \sqrt d \le \lVert\mu\rVert^2 \le d / n^2$, which is possible for
    $d \ge n^{5.02}$. Assumption 3.1 follows from $n \lVert\mu\rVert^2 / d \to 0$ and $n d^{\epsilon - 1} \to 0$ with
    some $\epsilon > \frac12$. The first is at most $1/n$, the second at most $d^{\epsilon - 1 + 1/5.02}$: both vanish
    if n grows, but with n fixed the first stays at $1/n$ where $\lVert\mu\rVert^2$ is as large as allowed.

    Source: Smorodinsky et al., Appendix C and Section 3, item 3.
    """

    n: int
    dimension: int

    @property
    def mean_squares(self) -> tuple[float, float]:
        r"""The least and the largest $\lVert\mu\rVert^2$ allowed; none is where the first exceeds the second."""
        return self.n**0.51 * math.sqrt(self.dimension), self.dimension / self.n**2

    def terms(self, mean_square: float) -> tuple[float, float]:
        r"""$n \lVert\mu\rVert^2 / d$ and $n d^{\epsilon - 1}$ at $\epsilon = 0.6$, which Assumption 3.1 sends to 0."""
        return self.n * mean_square / self.dimension, self.n * self.dimension ** (0.6 - 1)

    def law(self, mean_square: float) -> Law:
        r"""Four Gaussians with means $\pm\mu_1$ (label 1) and $\pm\mu_2$ (label -1), orthogonal and of equal length."""
        r = math.sqrt(mean_square)
        return Law(((r, 0.0), (-r, 0.0), (0.0, r), (0.0, -r)), labels=(1.0, 1.0, -1.0, -1.0))


# ── the tightness ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Tightness:
    """How close networks come to the bounds: the value found over the bound, for each network.

    `member` is the largest training answer over the margin, less 1: 0 at a KKT point where the floor is positive, and
    set to 0 elsewhere.
    """

    ceiling: Float[Tensor, "*b"]  # largest of the `activation_sums` over `activation_upper_bound`: at most 1
    floor: Float[Tensor, "*b"]  # least of the own sign over `activation_lower_bound`: at least 1; inf if it is 0
    fresh: Float[Tensor, "*b"]  # largest fresh answer over `output_bound` with factor 1: at most 1
    member: Float[Tensor, "*b"]

    @classmethod
    def worst(cls, found: Sequence["Tightness"]) -> "Tightness":
        """The numbers closest to a violation of each bound: the least floor, and the largest of the others."""
        every = {each.name: torch.cat([getattr(one, each.name).flatten() for one in found]) for each in fields(cls)}
        return cls(**{name: values.amin() if name == "floor" else values.amax() for name, values in every.items()})


def measure_tightness(
    model: TwoLayer,
    points: Float[Tensor, "*b n d"],
    labels: Float[Tensor, "*b n"],
    *,
    margin: Float[Tensor, "*#b"],
    products: Float[Tensor, "*b t n"],
    answers: Float[Tensor, "*b t"],
    kinks: float = 1e-2,
) -> Tightness:
    r"""The tightness of networks at KKT points, or near them, with `kinks` as in `kkt_margin.kkt.check_kkt`.

    `products` are $x_i^\top x$ of fresh points x with the training points, `answers` are $\Phi(x)$.
    """
    geometry = InnerProducts.from_points(points)
    ceiling, floor = (
        bound(geometry, margin).unsqueeze(-1) for bound in (activation_upper_bound, activation_lower_bound)
    )
    plus, minus = activation_sums(model, check_kkt(model, points, labels, kink_tolerance=kinks))
    own = torch.where(labels > 0, plus, minus)
    excess = (labels * model(points)).amax(-1) / margin - 1
    return Tightness(
        ceiling=(torch.maximum(plus, minus) / ceiling).amax(-1),
        floor=torch.where(floor > 0, own / floor, torch.inf).amin(-1),
        fresh=(answers.abs() / output_bound(geometry, geometry.delta_x(products), margin, factor=1)).amax(-1),
        member=torch.where(floor.squeeze(-1) > 0, excess, 0.0),
    )


def tightness_of_all_labels(
    rows: int, dimension: int, *, runs: int, fresh: int, generator: torch.Generator
) -> Tightness:
    r"""The worst tightness over exact KKT points of all labellings of `runs` sets of points of the mixture.

    With $-y$ the network is $-\Phi$, so half of the $2^n$ labellings suffice. Fresh points lie in the span of the
    training points; what is outside does not reach these networks.
    """
    sample = draw_sample("mixture", rows=rows, fresh=fresh, dimension=dimension, runs=runs, generator=generator)
    found = []
    for points, others in zip(sample.train, sample.fresh, strict=True):
        for rest in itertools.product((1.0, -1.0), repeat=rows - 1):
            labels = points.new_tensor((1.0, *rest))
            model = optimum_of_independent_points(points, labels).model
            asked = dict(products=others @ points.mT, answers=model(others), margin=points.new_ones(()))
            found.append(measure_tightness(model, points, labels, kinks=1e-6, **asked))
    return Tightness.worst(found)


def failures_of_assumption(
    dimension: int, *, rows: int, runs: int, generator: torch.Generator
) -> tuple[Estimate, Estimate]:
    r"""How often Assumption 3.1 fails, read as in `overlap_tails.log_tau`: on the training set, or with a fresh point.

    Theorem 3.2 allows $2\tau$ for the first and $4\tau$ for the second.
    """
    sample = draw_sample("mixture", rows=rows, fresh=1, dimension=dimension, runs=runs, generator=generator)
    geometry, allowed = InnerProducts.from_points(sample.train), dimension / (4 * rows)
    short = geometry.least < 0.75 * dimension
    within = short | (geometry.delta > allowed)
    with_fresh = short | (geometry.delta_x(sample.fresh @ sample.train.mT)[..., 0] > allowed)
    return clopper_pearson(int(within.sum()), runs), clopper_pearson(int(with_fresh.sum()), runs)
