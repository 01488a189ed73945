"""A measured number with its uncertainty, and the intervals of proportions.

Every interval is two-sided with the stated coverage `level`. Nothing here is random, or needs a tensor: see `estimates`
for the intervals of samples.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from leakage import arguments


@dataclass(frozen=True)
class Estimate:
    """A number, its confidence interval and the number of observations behind it.

    `format(e, ".2f")` gives `0.12 [0.10, 0.14]`: the specification (by default `.3f`) applies to each number.

    Args:
        estimate: the value measured.
        low: lower end of the interval; may be infinite.
        high: upper end of the interval; may be infinite.
        n: observations behind the number, over all samples.
        level: coverage of the interval, in (0, 1).

    Raises:
        ValueError: if a number is NaN, `low` exceeds `high`, `n` is below 1 or `level` is outside (0, 1).
    """

    estimate: float
    low: float
    high: float
    n: int
    level: float = 0.95

    def __post_init__(self) -> None:
        for name in ("estimate", "low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "n", arguments.count("n", self.n, least=1))
        arguments.number("level", self.level, above=0, below=1)
        if math.isnan(self.estimate) or not self.low <= self.high:
            raise ValueError(
                f"`Estimate` needs a number and low <= high, got {self._numbers()}; is a sample degenerate?"
            )

    def __float__(self) -> float:
        return self.estimate

    def __format__(self, spec: str) -> str:
        estimate, low, high = (format(number, spec or ".3f") for number in self._numbers())
        return f"{estimate} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self, "")

    def agrees_with(self, value: float) -> bool:
        """Whether `value` lies in the closed interval."""
        return self.low <= arguments.number("value", value, finite=False) <= self.high

    def _numbers(self) -> tuple[float, ...]:
        return self.estimate, self.low, self.high


def clopper_pearson(successes: int, trials: int, *, level: float = 0.95) -> Estimate:
    """The exact interval of a proportion, conservative: it covers at least as often as it says, at any size.

    Source: C. J. Clopper, E. S. Pearson (1934), Biometrika 26; the ends are those of `exact_ends`.

    Raises:
        ValueError: unless 0 <= `successes` <= `trials`, with at least one trial.
    """
    arguments.number("level", level, above=0, below=1)
    successes, trials = arguments.count("successes", successes), arguments.count("trials", trials)
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"`successes` must lie in 0 … `trials`, of one trial at least, got {successes} of {trials}; swapped?"
        )
    low, high = (float(end) for end in exact_ends(successes, trials, error=(1 - level) / 2))
    return Estimate(successes / trials, low, high, n=trials, level=level)


def exact_ends(successes: Any, trials: int, *, error: Any) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's ends of a proportion, elementwise, each missing the truth with probability `error` at most.

    Args:
        successes: whole numbers from 0 to `trials`.
        trials: at least one.
        error: in (0, 1), for each end, of one number or the shape of `successes`.

    Returns:
        The chances at which so many successes and more, and so many and fewer, have the probability `error`.
    """
    found = np.asarray(successes, dtype=float)
    low = special.betaincinv(found, trials - found + 1, error)
    high = special.betainccinv(found + 1, trials - found, error)
    return np.where(found > 0, low, 0.0), np.where(found < trials, high, 1.0)


def at_most(successes: Any, *, trials: int, chance: float) -> Any:
    """The probability of so many successes or fewer in independent trials, elementwise; `successes` from 0 on."""
    return special.betaincc(np.add(successes, 1.0), np.subtract(float(trials), successes), chance)


def at_least(successes: Any, *, trials: int, chance: float) -> Any:
    """The probability of so many successes or more in independent trials, elementwise; `successes` up to `trials`."""
    return special.betainc(successes, np.subtract(trials + 1.0, successes), chance)


def newcombe(first: tuple[int, int], second: tuple[int, int], *, level: float = 0.95) -> Estimate:
    r"""The difference of two independent proportions, first minus second, each given as (successes, trials).

    $$ \Big[d - \sqrt{(p_1 - l_1)^2 + (u_2 - p_2)^2},\; d + \sqrt{(u_1 - p_1)^2 + (p_2 - l_2)^2}\Big] $$

    with $d = p_1 - p_2$ and the exact intervals $[l_i, u_i]$ of `clopper_pearson`: unlike the textbook formula it stays
    within [-1, 1] and keeps its width when a proportion is 0 or 1. It is conservative; with Wilson's intervals, which
    Newcombe takes, it is narrower by a fifth at five trials and by a twentieth at two hundred, but covers as little as
    87 % of five and five.

    Source: R. G. Newcombe (1998), Statistics in Medicine 17, method 10, with other intervals.

    Raises:
        ValueError: as `clopper_pearson`.
    """
    one, other = (clopper_pearson(*pair, level=level) for pair in (first, second))
    difference = one.estimate - other.estimate
    low = difference - math.hypot(one.estimate - one.low, other.high - other.estimate)
    high = difference + math.hypot(one.high - one.estimate, other.estimate - other.low)
    return Estimate(difference, max(low, -1.0), min(high, 1.0), n=one.n + other.n, level=level)


def wilson(share: float, *, size: float, quantile: float) -> tuple[float, float]:
    r"""The ends of Wilson's interval of a share, for a `size` that need not be whole.

    They are the shares p with $N (\hat p - p)^2 = z^2\, p (1 - p)$; they lie within [0, 1], and the share between them.

    Source: E. B. Wilson (1927), Journal of the American Statistical Association 22.

    Args:
        share: $\hat p$, in [0, 1].
        size: N, how many independent yes-or-no observations it is worth, above 0.
        quantile: z, of the normal law or Student's, above 0.
    """
    spread = quantile**2 / size
    middle, half = share + spread / 2, math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return min(max(low, 0.0), share), max(min(high, 1.0), share)  # of all or none, rounding would leave the share out
