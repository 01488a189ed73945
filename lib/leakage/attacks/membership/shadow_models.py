r"""Membership by likelihood ratios over shadow models: LiRA and RMIA.

The attacker sees the loss (or the logit) of each point, knows its true label, and has shadow models of which it knows
the members. The conventions are those of `loss_threshold`: scores (models, points) are larger for likelier members and
positive where the attack says "member"; every model is the target once, or `target` alone, and its references are all
others but its partner, if it has one. *Online* attacks have references that were trained on a point and others that
were not; *offline* ones need the latter only. Points are gone through in blocks (`blocks`), twice where something is a
mean over all of them: so losses may lie in a mapped file. Nothing here trains or draws.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from leakage import blocks
from leakage.attacks.membership import references
from leakage.attacks.membership.posterior import logit
from leakage.metrics.scores import ascending

LINEAR = 0.3
"""The slope a of `rmia` that its authors use for CIFAR-10."""
_LEAST_VARIANCE = 1e-6  # of logits; less is the rounding of losses near 0, not evidence
_LEAST_CHANCE = 1e-300  # of references, in units of a point's largest
_DECIMALS = 9  # of the logarithm of a ratio, so nine digits of the ratio; rounding errors are below 1e-11


def lira(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    variance: str = "fixed",
    offline: bool = False,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""`lira_of_logits` for whoever has losses only, by `posterior.logit`.

    Raises:
        ValueError: as `lira_of_logits`.
    """
    return _lira(losses, logit, member, partner, variance=variance, offline=offline, target=target)


def lira_of_logits(
    logits: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    variance: str = "fixed",
    offline: bool = False,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""The log-likelihood ratio of a logit under two Gaussians fitted to the references (LiRA), in nats.

    $$ s(x) = \log N(\phi; \mu_1(x), \sigma_1^2) - \log N(\phi; \mu_0(x), \sigma_0^2),
       \qquad \phi = \log \tfrac{p}{1-p} $$

    Offline there is no first Gaussian, and $s(x) = (\phi - \mu_0(x)) / \sigma_0$, in standard deviations: it orders
    points as the probability $\Pr(Z \le \phi)$ of $Z \sim N(\mu_0, \sigma_0^2)$ does, which rounds to 1 beyond 8.
    Positive scores then are larger than those of half of the outsiders. Scores have nine decimals, so that ratios that
    are equal but for rounding tie.

    In independent subsets some points may lack references of a kind. Where none was trained on a point, its $\mu_1$ is
    $\mu_0$ plus the mean difference over the points that have both (and the other way round); where there are fewer
    than two, its variance is the `fixed` one, the mean over the points that have two.

    Source: Carlini et al. (2022), algorithm 1, and eq. (4) for the offline attack. Our fixed variances are means of the
    points' own unbiased ones; the authors' code takes the variance of all logits together, which includes how points
    differ from each other.

    Args:
        logits: φ of the true label, of every model on every point: `posterior.margin`, which rounds nothing away.
        member: who was trained on what.
        partner: each model's partner, in complementary pairs; None for independent subsets.
        variance: `fixed` for one $\sigma_1$ and one $\sigma_0$ for all points of a target, better with few references;
            `own` for one pair for each point.
        offline: use only references that were not trained on a point.
        target: attack this model only; the result then has one row.

    Raises:
        ValueError: if no point has two references of a kind that is needed.
    """
    return _lira(logits, Tensor.double, member, partner, variance=variance, offline=offline, target=target)


VARIANCES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "fixed": lambda own, known, fixed: fixed,
    "own": lambda own, known, fixed: own.where(known, fixed),
}
"""How `lira` estimates $\\sigma^2$: from a point's own variance, which is known where there are two references, and the
mean of these."""


def rmia(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None = None,
    *,
    gamma: float = 1.0,
    population: Float[Tensor, "*e models z"] | None = None,
    offline: bool = False,
    slope: float = LINEAR,
    target: int | None = None,
) -> Float64[Tensor, "*e targets points"]:
    r"""How large a share of a population a point dominates, less one half (RMIA).

    $$ s(x) = \Pr_z\Bigl(\frac{\Lambda(x)}{\Lambda(z)} \ge \gamma\Bigr) - \tfrac12, \qquad
       \Lambda(x) = \frac{p_\theta(x)}{\tfrac12 \bar p_1(x) + \tfrac12 \bar p_0(x)}, $$

    with $p = e^{-\ell}$ and its mean over references that are trained on x ($\bar p_1$) or not ($\bar p_0$). Without a
    population z is a point of the pool; half of it are members, so that with γ = 1 the attack accuses the half that
    ranks highest. The score rises with Λ(x): within one target any γ and any population order points as Λ does, up to
    the ties they make. Ratios that agree to nine digits are equal: those of a forest often differ by rounding only.

    Offline, and where no reference is trained on a point, $\bar p_1 = a \bar p_0 + 1 - a$; where all are, the mean is
    $\bar p_1$ alone. No model is trained on the population, whose $\bar p_1$ is made in the same way.

    Source: Zarifzadeh, Liu, Shokri (2024), eqs. (2) and (8), and their linear approximation
    $\tfrac12 ((1 + a) \bar p_0 + 1 - a)$ for the offline attack.

    Args:
        losses: of every model on every point.
        member: who was trained on what.
        partner: each model's partner, in complementary pairs; None for independent subsets.
        gamma: γ, the ratio by which z must be dominated.
        population: losses of every model on other points, which no model was trained on.
        offline: use only references that were not trained on a point.
        slope: a, in [0, 1].
        target: attack this model only; the result then has one row.
    """
    given = {"target": target, "offline": offline, "slope": slope}
    ratio = _ratio(losses, member, partner, **given)
    others = ratio
    if population is not None:
        unseen = member.new_zeros(1, 1).expand(population.shape[-2:])
        others = _ratio(population, unseen, partner, **given)
    rows, among = (table.view(-1, table.shape[-1]) for table in (ratio, others))
    for part in blocks.of_rows(rows.shape):  # each becomes its score, in place
        cuts = (rows[part] - math.log(gamma)).round(decimals=_DECIMALS)
        below = torch.searchsorted(ascending(among[part].round(decimals=_DECIMALS)), cuts, right=True)
        rows[part] = below.double() / others.shape[-1] - 0.5
    return ratio


class _Kind(NamedTuple):
    """The references of one kind: how many, their mean and unbiased variance; 0 where there are too few for one."""

    count: Float64[Tensor, "targets points"]
    mean: Float64[Tensor, "*e targets points"]
    variance: Float64[Tensor, "*e targets points"]


class _Sums(NamedTuple):
    """Sums over points, of one kind: points without a reference, with two and more, and the variances of these."""

    lacking: Float64[Tensor, "targets 1"]
    known: Float64[Tensor, "targets 1"]
    variance: Float64[Tensor, "*e targets 1"]


def _lira(
    values: Float[Tensor, "*e models points"],
    logits: Callable[[Tensor], Tensor],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None,
    *,
    variance: str,
    offline: bool,
    target: int | None,
) -> Float64[Tensor, "*e targets points"]:
    """`lira_of_logits`, where `logits` makes them of the values of a block."""
    asked = references.rows(len(member), target)
    parts = blocks.of(values.shape)

    @lru_cache(maxsize=1)  # a single block is fitted once
    def fitted(place: int) -> tuple[Tensor, _Kind, _Kind]:
        phi, kinds = logits(values[..., parts[place]]), member[:, parts[place]]
        phi = phi - phi.mean(-2, keepdim=True)  # a shift of each point changes no ratio and keeps the squares small
        return phi[..., asked, :], _kind(phi, kinds, partner, target), _kind(phi, ~kinds, partner, target)

    def summed(place: int) -> tuple[Tensor, ...]:
        _, inside, outside = fitted(place)
        both = (inside.count > 0) & (outside.count > 0)
        difference = ((inside.mean - outside.mean) * both).sum(-1, keepdim=True)
        return difference, both.double().sum(-1, keepdim=True), *_sums(inside), *_sums(outside)

    totals = summed(0)
    for place in range(1, len(parts)):
        totals = tuple(one + more for one, more in zip(totals, summed(place), strict=True))
    difference, both, *sums = totals
    difference, points = difference / both.clamp_min(1), values.shape[-1]
    within, beyond = _Sums(*sums[:3]), _Sums(*sums[3:])
    for one in (beyond,) if offline else (beyond, within):
        _check(one, both)

    def scores(place: int) -> Tensor:
        own, inside, outside = fitted(place)
        outer = torch.where(outside.count == 0, inside.mean - difference, outside.mean)
        spread = _spread(outside, beyond, points, variance)
        if offline:
            return ((own - outer) / spread.sqrt()).round(decimals=_DECIMALS)
        inner = torch.where(inside.count == 0, outside.mean + difference, inside.mean)
        score = torch.zeros_like(own)
        for sign, mean, wide in ((1, inner, _spread(inside, within, points, variance)), (-1, outer, spread)):
            score -= sign * ((own - mean).square() / wide + wide.log()) / 2
        return score.round(decimals=_DECIMALS)  # equal ratios tie, and a ratio of 1 accuses nobody

    found = blocks.room(*difference.shape[:-1], points, device=values.device)
    for place in reversed(range(len(parts))):  # the last one is fitted
        found[..., parts[place]] = scores(place)
    return found


def _kind(phi: Tensor, kind: Tensor, partner: Tensor | None, target: int | None) -> _Kind:
    known = references.spread(phi, kind, partner, target=target)
    return _Kind(known.count, known.mean, known.squares / (known.count - 1).clamp_min(1))


def _sums(kind: _Kind) -> _Sums:
    known = kind.count > 1
    parts = (kind.count == 0, known, kind.variance * known)
    return _Sums(*(part.double().sum(-1, keepdim=True) for part in parts))


def _check(sums: _Sums, both: Tensor) -> None:
    if bool(((sums.lacking > 0) & (both == 0)).any()):
        raise ValueError(
            "`member` must give some point both a reference that was trained on it and one that was not; where no "
            "reference saw the points set `offline=True`."
        )
    if bool((sums.known == 0).any()):
        raise ValueError("`member` must give some point two references of each kind that is used; train more models.")


def _spread(kind: _Kind, sums: _Sums, points: int, variance: str) -> Float64[Tensor, "*e targets either"]:
    """The variance of the references of one kind."""
    fixed = (sums.variance / points) / (sums.known / points)
    return VARIANCES[variance](kind.variance, kind.count > 1, fixed).clamp_min(_LEAST_VARIANCE)


def _ratio(
    losses: Float[Tensor, "*e models points"],
    member: Bool[Tensor, "models points"],
    partner: Int[Tensor, " models"] | None,
    *,
    target: int | None,
    offline: bool,
    slope: float,
) -> Float64[Tensor, "*e targets points"]:
    """The logarithm of Λ. Chances are taken in units of a point's largest, so that large losses do not round to 0;
    those of references whose losses are 690 nats and more beyond the least count as that."""
    asked = references.rows(len(member), target)
    shrunk, rest = (
        torch.tensor(share, dtype=torch.float64, device=losses.device).log() for share in (slope, 1 - slope)
    )

    def of(part: slice) -> Tensor:
        each, kinds = losses[..., part].double(), member[:, part]
        least = each.amin(-2, keepdim=True)
        chance = torch.exp(least - each)
        inside, outside = (references.means(chance, kind, partner, target=target) for kind in (kinds, ~kinds))
        within, beyond = (kind.mean.clamp_min(_LEAST_CHANCE).log() - least for kind in (inside, outside))
        seen = torch.logaddexp(beyond + shrunk, rest)
        if not offline:
            seen = torch.where(inside.count > 0, within, seen)
        average = torch.where(outside.count > 0, torch.logaddexp(seen, beyond) - math.log(2), within)
        return -each[..., asked, :] - average

    shape = (*losses.shape[:-2], len(range(len(member))[asked]), losses.shape[-1])
    return blocks.made(shape, blocks.of(losses.shape), of, device=losses.device)
