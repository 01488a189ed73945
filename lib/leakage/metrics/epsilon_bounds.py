r"""Lower bounds of ε from how well membership is guessed; `trainers.privacy_accounting` has the upper bounds.

A training is (ε, δ)-differentially private if no set of outcomes is more than $e^\varepsilon$ times as likely, plus δ,
for one data set than for another that differs by one point. An attack that guesses better than that allows refutes it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Real
from scipy import optimize, special, stats
from torch import Tensor

from leakage import draws
from leakage.metrics import gaussian_mechanism
from leakage.metrics.estimates import as_sample
from leakage.metrics.scores import round_digits

_TIE_SEED = 0  # of the order of equal scores, so that the same points give the same bound
LARGEST = 64.0  # ε in nats, and μ; no sample of realistic size refutes more


@dataclass(frozen=True)
class Bound:
    """A lower bound of ε with a stated confidence.

    Attributes:
        epsilon: the lower bound, in nats; 0 if nothing is refuted.
        level: the probability, at least, with which such a bound is right.
        guesses: the number of guesses behind it.
        most: the bound if all guesses had been right: with so few of them no attack can show more.
    """

    epsilon: float
    delta: float
    level: float
    guesses: int
    correct: int
    most: float

    def __str__(self) -> str:
        return (
            f"ε ≥ {self.epsilon:.3g} at δ = {self.delta:g} ({self.correct} of {self.guesses} guesses are right; "
            f"at most ε ≥ {self.most:.3g} could have been shown)"
        )


def one_run(
    scores: Real[Tensor, " points"],
    member: Bool[Tensor, " points"],
    *,
    guesses: Sequence[tuple[int, int]],
    delta: float,
    level: float = 0.95,
    gaussian: bool = False,
) -> Bound:
    r"""A lower bound of ε from one training in which a fair coin decided for each of m points whether it was included.

    The $k_+$ points with the highest scores are guessed to be members, the $k_-$ with the lowest to be outsiders; the
    others are not guessed. For every attack, any dependence between the points and any (ε, δ)-private training,
    `p_value` and `least_total` bound the probability that so many of the guesses are right or more. The bound is the
    largest ε for which one of them is below $1 - \text{level}$, divided by the number of pairs in `guesses`; the best
    pair counts. It is conservative. Both bound the probability of one event, so neither needs a corrected level.

    With `gaussian`, only trainings are refuted that are as private as a Gaussian mechanism. Such a bound is
    larger, for the same guesses by some 1.7 times.

    Source: Steinke, Nasr and Jagielski (2023), Privacy Auditing with One (1) Training Run; Mahloujifar, Melis and
    Chaudhuri (2025), Auditing f-Differential Privacy in One Run. Equal scores are put in random order, because the
    order of the points may reveal the coins. Arguments: `audit.one_run`; `guesses` are pairs $(k_+, k_-)$ with
    $1 \le k_+ + k_- \le m$.
    """
    ranked = round_digits(as_sample(scores, "scores"))
    shuffled = draws.permutation(len(ranked), generator=torch.Generator().manual_seed(_TIE_SEED), like=ranked)
    right = member[shuffled[torch.sort(ranked[shuffled], descending=True, stable=True).indices]]
    largest = _largest_gaussian if gaussian else _largest_private
    design = {"points": len(right), "delta": delta, "error": (1 - level) / len(guesses)}
    found, most = [], []
    for members, outsiders in guesses:
        count = members + outsiders
        correct = int(right[:members].sum()) + int((~right[len(right) - outsiders :]).sum())
        found.append((largest(correct, count, **design), count, correct))
        most.append(largest(count, count, **design))
    epsilon, count, correct = max(found)
    return Bound(epsilon, delta, level, count, correct, max(most))


def p_value(correct: int, guesses: int, *, points: int, epsilon: float, delta: float) -> float:
    r"""How probable v right guesses of r or more are, at most, in an (ε, δ)-private training on m points.

    $$ p \le f(v) + 2 m \delta \max_{1 \le i \le v} \frac{f(v - i) - f(v)}{i}, \qquad
       f(v) = \Pr\bigl(\operatorname{Bin}(r, \tfrac{e^\varepsilon}{1 + e^\varepsilon}) \ge v\bigr) $$

    Source: Steinke, Nasr and Jagielski (2023), Theorem 5.2.
    """
    if correct == 0:
        return 1.0
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0:
        return tail
    steps = np.arange(1, correct + 1)
    gains = stats.binom.pmf(correct - steps, guesses, chance).cumsum() / steps
    return min(1.0, tail + 2 * points * delta * float(gains.max()))


def least_total(
    correct: int, guesses: int, *, points: int, error: float, least_wrong: Callable[[float], float]
) -> float:
    r"""The least total probability of all numbers of right guesses, if v or more are right with probability `error`.

    A total above 1 is impossible: then v right guesses of r, or more, have a probability below `error`.

    Let $p_j$ be the probability of j right guesses, and $R_i = \sum_{j \ge i} \tfrac{j}{m} p_j$ and
    $W_i = \sum_{j \ge i} \tfrac{r - j}{m} p_j$ those that i or more are right and a random point is guessed right, or
    wrong. Flip the coin of a point that is guessed right: its guess is wrong now, and one fewer is right. Two data sets
    that differ by a point can be told apart only so well: $W_i \ge \omega(R_{i+1})$, where ω is `least_wrong`, for each
    point and, because ω is convex, for the mean over points. From $R_v = \tfrac{v}{m}\,\text{error}$ and
    $W_v = \tfrac{r - v}{m}\,\text{error}$ follow, for $i = v - 1, \ldots, 0$, the least values

    $$ W_i = \max\bigl(W_{i+1},\, \omega(R_{i+1})\bigr), \qquad
       R_i = R_{i+1} + \tfrac{i}{r - i}\,(W_i - W_{i+1}), $$

    and the total is $\tfrac{m}{r}(R_0 + W_0)$.

    Source: Mahloujifar, Melis and Chaudhuri (2025), with two choices for each point.
    """
    right, wrong = error * correct / points, error * (guesses - correct) / points
    for i in range(correct - 1, -1, -1):
        least = least_wrong(right)
        if least <= wrong or right + wrong > guesses / points:  # nothing below is added, or the total is above 1
            break
        right, wrong = right + i / (guesses - i) * (least - wrong), least
    return (right + wrong) * points / guesses


def private_wrong(epsilon: float, delta: float) -> Callable[[float], float]:
    r"""ω of an (ε, δ)-private training.

    $$ \omega(R) = \max\bigl(0,\; e^{-\varepsilon}(R - \delta),\; R - \delta - (e^\varepsilon - 1)(1 - R)\bigr) $$
    """
    ratio, ratio_less_one = math.exp(epsilon), math.expm1(epsilon)
    return lambda right: max(0.0, (right - delta) / ratio, right - delta - ratio_less_one * (1 - right))


def gaussian_wrong(mu: float) -> Callable[[float], float]:
    r"""ω where to tell two data sets apart is as hard as $N(0, 1)$ from $N(\mu, 1)$: $\Phi(\Phi^{-1}(R) - \mu)$."""
    return lambda right: float(special.ndtr(special.ndtri(right) - mu))


def _largest_private(correct: int, guesses: int, *, points: int, delta: float, error: float) -> float:
    """The largest ε such that it and every smaller one are refuted at this error, for any private training."""

    def by_value(epsilon: float) -> float:
        return p_value(correct, guesses, points=points, epsilon=epsilon, delta=delta) - error

    def by_total(epsilon: float) -> float:
        least_wrong = private_wrong(epsilon, delta)
        return 1 - least_total(correct, guesses, points=points, error=error, least_wrong=least_wrong)

    # Without δ the first is exact for independent points; with it the second may show more.
    return max(_first_zero(by_value), _first_zero(by_total) if delta else 0.0)


def _largest_gaussian(correct: int, guesses: int, *, points: int, delta: float, error: float) -> float:
    """The same for trainings as private as one number with Gaussian noise."""

    def by_total(mu: float) -> float:
        return 1 - least_total(correct, guesses, points=points, error=error, least_wrong=gaussian_wrong(mu))

    mu = _first_zero(by_total)
    return gaussian_mechanism.epsilon(1 / mu, delta) if mu > 0 else 0.0


def _first_zero(excess: Callable[[float], float]) -> float:
    """The first zero of a function that is below 0 for what is refuted, or 0 or the largest that is looked at.

    If ε is refuted, so is every smaller one, because privacy at ε implies privacy at any larger one. So any crossing is
    a bound, even if the function is not monotone.
    """
    if excess(0.0) >= 0:
        return 0.0
    if excess(LARGEST) < 0:
        return LARGEST
    low = next(step for step in range(int(LARGEST)) if excess(step + 1.0) >= 0)
    return float(optimize.brentq(excess, low, low + 1.0, xtol=1e-9))  # pyright: ignore[reportArgumentType]
