r"""Lower bounds of ε from how well membership is guessed; `trainers.privacy_accounting` has the upper bounds.

A training is (ε, δ)-differentially private if no set of outcomes is more than $e^\varepsilon$ times as likely, plus δ,
for one data set than for another that differs by one point. An attack that guesses better than that allows refutes it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Real
from scipy import optimize, stats
from torch import Tensor

from leakage.metrics.estimates import as_sample, clopper_pearson
from leakage.metrics.scores import round_ties

_TIE_SEED = 0  # of the order of equal scores, so that the same points give the same bound
_LARGEST_EPSILON = 64.0  # nats; no sample of realistic size refutes more


@dataclass(frozen=True)
class Bound:
    """A lower bound of ε with a stated confidence.

    Attributes:
        epsilon: the lower bound, in nats; 0 if nothing is refuted.
        delta: the δ for which it holds.
        level: the probability, at least, with which such a bound is right.
        guesses: the number of guesses behind it.
        correct: how many of them were right.
    """

    epsilon: float
    delta: float
    level: float
    guesses: int
    correct: int

    def __str__(self) -> str:
        return f"ε ≥ {self.epsilon:.3g} at δ = {self.delta:g} ({self.correct} of {self.guesses} guesses are right)"


def one_run(
    scores: Real[Tensor, " points"],
    member: Bool[Tensor, " points"],
    *,
    guesses: Sequence[tuple[int, int]],
    delta: float,
    level: float = 0.95,
) -> Bound:
    r"""A lower bound of ε from one training in which a fair coin decided for each of m points whether it was included.

    The $k_+$ points with the highest scores are guessed to be members, the $k_-$ with the lowest to be outsiders; the
    others are not guessed. If the training is (ε, δ)-private, then of r guesses v or more are right with probability

    $$ p \le f(v) + 2 m \delta \max_{1 \le i \le v} \frac{f(v - i) - f(v)}{i}, \qquad
       f(v) = \Pr\bigl(\operatorname{Bin}(r, \tfrac{e^\varepsilon}{1 + e^\varepsilon}) \ge v\bigr), $$

    for every attack and any dependence between the points. The bound is the largest ε for which p is below
    $1 - \text{level}$, divided by the number of pairs in `guesses`; the best pair counts. It is conservative.

    Source: Steinke, Nasr and Jagielski (2023), Privacy Auditing with One (1) Training Run, Theorem 5.2.

    Args:
        scores: of the points whose coin was thrown, and of no others; larger for likelier members. Equal scores are
            put in random order, because the order of the points may reveal the coins.
        member: the coins.
        guesses: pairs $(k_+, k_-)$ with $1 \le k_+ + k_- \le m$, chosen before the scores were seen.
        delta: $\delta \in [0, 1)$.
        level: the confidence.
    """
    ranked = round_ties(as_sample(scores, "scores"))
    shuffled = torch.randperm(len(ranked), generator=torch.Generator().manual_seed(_TIE_SEED)).to(ranked.device)
    right = member[shuffled[torch.sort(ranked[shuffled], descending=True, stable=True).indices]]
    found = []
    for first, last in guesses:
        correct = int(right[:first].sum()) + int((~right[len(right) - last :]).sum())
        error = (1 - level) / len(guesses)
        epsilon = _largest_refuted(correct, first + last, points=len(right), delta=delta, error=error)
        found.append((epsilon, first + last, correct))
    epsilon, count, correct = max(found)
    return Bound(epsilon, delta, level, count, correct)


def p_value(correct: int, guesses: int, *, points: int, epsilon: float, delta: float) -> float:
    """The bound p of `one_run`: how probable so many right guesses are, at most, in a private training."""
    if correct == 0:
        return 1.0
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0:
        return tail
    steps = np.arange(1, correct + 1)
    gains = stats.binom.pmf(correct - steps, guesses, chance).cumsum() / steps
    return min(1.0, tail + 2 * points * delta * float(gains.max()))


def of_trials(hits: tuple[int, int], alarms: tuple[int, int], *, delta: float, level: float = 0.95) -> Bound:
    r"""A lower bound of ε from many independent trainings with and without one point.

    $$ \varepsilon \ge \max\Bigl(\log \frac{\mathrm{TPR}_{\text{low}} - \delta}{\mathrm{FPR}_{\text{high}}},\;
       \log \frac{1 - \mathrm{FPR}_{\text{high}} - \delta}{1 - \mathrm{TPR}_{\text{low}}}\Bigr) $$

    with Clopper–Pearson ends, each one-sided at half the error, so that both hold together: it is conservative. Many
    points of one training are not independent trials; `one_run` is for these.

    Source: Jagielski, Ullman and Oprea (2020), Auditing Differentially Private Machine Learning; Nasr et al. (2021).

    Args:
        hits: how many trainings with the point were flagged, and the number of all trainings with it.
        alarms: how many trainings without the point were flagged, and the number of all trainings without it. The
            threshold was chosen on other trainings.
        delta: $\delta \in [0, 1)$.
        level: the confidence.
    """
    # An interval leaves half of its error on either side, and only one side is used.
    tpr, fpr = clopper_pearson(*hits, level=level), clopper_pearson(*alarms, level=level)
    ratios = ((tpr.low - delta, fpr.high), (1 - fpr.high - delta, 1 - tpr.low))
    epsilon = max(0.0, *(math.log(above / under) for above, under in ratios if above > 0))
    return Bound(epsilon, delta, level, hits[1] + alarms[1], correct=hits[0] + alarms[1] - alarms[0])


def _largest_refuted(correct: int, guesses: int, *, points: int, delta: float, error: float) -> float:
    """The largest ε such that it and every smaller one are refuted at this error."""

    def excess(epsilon: float) -> float:
        return p_value(correct, guesses, points=points, epsilon=epsilon, delta=delta) - error

    if excess(0.0) >= 0:
        return 0.0
    if excess(_LARGEST_EPSILON) < 0:
        return _LARGEST_EPSILON
    # If ε is refuted, so is every smaller one, because privacy at ε implies privacy at any larger one. So any crossing
    # is a bound, even if p is not monotone.
    low = next(step for step in range(int(_LARGEST_EPSILON)) if excess(step + 1.0) >= 0)
    return float(optimize.brentq(excess, low, low + 1.0, xtol=1e-9))  # pyright: ignore[reportArgumentType]
