r"""Lower bounds of ε from how well membership is guessed, beside the upper ones of `trainers.privacy_accounting`.

A training is (ε, δ)-differentially private if no set of outcomes is more than $e^\varepsilon$ times as likely, plus δ,
for one data set than for another that differs by one point. An attack that guesses better than that allows refutes it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Real
from scipy import optimize
from torch import Tensor

from leakage import arguments
from leakage.metrics.estimates import as_sample
from leakage.metrics.intervals import at_least, clopper_pearson
from leakage.metrics.scores import round_ties

_LOT = 0  # seed of the order of equal scores: the same points give the same bound
_MOST = 64.0  # nats; no sample of this world refutes as much


@dataclass(frozen=True)
class Bound:
    """What ε is at least, with a stated confidence.

    Attributes:
        epsilon: the lower bound, in nats, 0 where nothing is refuted.
        delta: the δ it is for.
        level: the probability, at least, with which such a bound is right.
        guesses: how many guesses it rests on.
        correct: how many of these were right.
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
    r"""A lower bound of ε from one training in which each of m points was put in by the throw of a fair coin.

    The $k_+$ points with the highest scores are guessed to be members, the $k_-$ with the lowest to be outsiders, of
    others nothing is said. If the training is (ε, δ)-private, then of r guesses v or more are right with probability

    $$ p \le f(v) + 2 m \delta \max_{1 \le i \le v} \frac{f(v - i) - f(v)}{i}, \qquad
       f(v) = \Pr\bigl(\operatorname{Bin}(r, \tfrac{e^\varepsilon}{1 + e^\varepsilon}) \ge v\bigr), $$

    whatever the attack is and however the points depend on each other. The bound is the largest ε for which p is below
    $1 - \text{level}$, shared out equally among the numbers of guesses that are tried. It is conservative.

    Source: Steinke, Nasr and Jagielski (2023), Privacy Auditing with One (1) Training Run, Theorem 5.2.

    Args:
        scores: of the points whose coin was thrown, and of no others; larger for likelier members. Equal scores
            stand in an order drawn by lot: that in which the points come may tell the coins.
        member: the coins.
        guesses: pairs $(k_+, k_-)$, chosen before the scores were seen.
        delta: $\delta \in [0, 1)$.
        level: the confidence.

    Raises:
        ValueError: if shapes do not fit, a score is NaN, more is guessed than there are points, or a number is out of
            its range.
    """
    arguments.number("level", level, above=0, below=1)
    arguments.number("delta", delta, least=0, below=1)
    ranked = round_ties(as_sample(scores, "scores"))
    arguments.truth("member", member, "points", points=len(ranked))
    if not guesses:
        raise ValueError("`guesses` must have a pair (members, outsiders) at least; got none.")
    lot = torch.randperm(len(ranked), generator=torch.Generator().manual_seed(_LOT)).to(ranked.device)
    right = member[lot[torch.sort(ranked[lot], descending=True, stable=True).indices]]
    found = []
    for pair in guesses:
        first, last = (arguments.count("guesses", count, least=0, most=len(right)) for count in pair)
        if not 1 <= first + last <= len(right):
            raise ValueError(f"`guesses` must be 1 to {len(right)} in sum, the points there are; got {pair}.")
        correct = int(right[:first].sum()) + int((~right[len(right) - last :]).sum())
        found.append(
            (_largest(correct, first + last, len(right), delta, (1 - level) / len(guesses)), first + last, correct)
        )
    epsilon, count, correct = max(found)
    return Bound(epsilon, delta, level, count, correct)


def p_value(correct: int, guesses: int, *, points: int, epsilon: float, delta: float) -> float:
    """How probable so many right guesses or more are, at most, if the training is private: p of `one_run`."""
    if correct == 0:
        return 1.0
    chance = 1 / (1 + math.exp(-epsilon))
    least = float(at_least(correct, trials=guesses, chance=chance))
    if delta == 0:
        return least
    from scipy import stats  # slow to import, and most who import this module do without it

    steps = torch.arange(1, correct + 1)
    below = torch.as_tensor(stats.binom.pmf((correct - steps).numpy(), guesses, chance)).cumsum(0)
    return min(1.0, least + 2 * points * delta * float((below / steps).max()))


def of_trials(hits: tuple[int, int], alarms: tuple[int, int], *, delta: float, level: float = 0.95) -> Bound:
    r"""A lower bound of ε from many independent trainings with and without one point.

    $$ \varepsilon \ge \max\Bigl(\log \frac{\mathrm{TPR}_{\text{low}} - \delta}{\mathrm{FPR}_{\text{high}}},\;
       \log \frac{1 - \mathrm{FPR}_{\text{high}} - \delta}{1 - \mathrm{TPR}_{\text{low}}}\Bigr) $$

    with Clopper–Pearson ends, each one-sided at half the error, so that both hold together: it is conservative. Many
    points of one training are not independent trials; for these there is `one_run`.

    Source: Jagielski, Ullman and Oprea (2020), Auditing Differentially Private Machine Learning; Nasr et al. (2021).

    Args:
        hits: trainings with the point that were accused, and all of them.
        alarms: trainings without it that were accused, and all of them. The threshold was chosen on others.
        delta: $\delta \in [0, 1)$.
        level: the confidence.

    Raises:
        ValueError: as `clopper_pearson`, or if δ is outside [0, 1).
    """
    arguments.number("delta", delta, least=0, below=1)
    # An interval leaves half of its error on either side, and one side is all that is used.
    tpr, fpr = clopper_pearson(*hits, level=level), clopper_pearson(*alarms, level=level)
    ratios = ((tpr.low - delta, fpr.high), (1 - fpr.high - delta, 1 - tpr.low))
    epsilon = max(0.0, *(math.log(above / under) for above, under in ratios if above > 0))
    return Bound(epsilon, delta, level, hits[1] + alarms[1], hits[0] + alarms[1] - alarms[0])


def _largest(correct: int, guesses: int, points: int, delta: float, error: float) -> float:
    """The largest ε up to which all are refuted at this error."""

    def excess(epsilon: float) -> float:
        return p_value(correct, guesses, points=points, epsilon=epsilon, delta=delta) - error

    if excess(0.0) >= 0:
        return 0.0
    if excess(_MOST) < 0:
        return _MOST
    # What is refuted at some ε is refuted at every smaller one, so any crossing is a bound, whether or not p grows.
    low = next(step for step in range(int(_MOST)) if excess(step + 1.0) >= 0)
    return float(optimize.brentq(excess, low, low + 1.0, xtol=1e-9))  # pyright: ignore[reportArgumentType]
