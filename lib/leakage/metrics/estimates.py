"""A measured number with its uncertainty, and the intervals the book uses.

Every interval is two-sided with the stated coverage `level`. Samples are finite tensors and are turned into float64.
Nothing here is random, or knows what a member is: see `roc` for that.
"""

import math
import operator
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Real
from scipy import special
from torch import Tensor

from leakage import arguments

_EXACT = 2**53  # whole numbers up to this are float64 numbers
_LONG = (torch.int64, torch.uint64)  # the integer types that can hold more
_SQUARABLE = 1e150  # a sample between its inverse and this has a variance that neither over- nor underflows


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
        ValueError: unless 0 <= `successes` <= `trials`, with at least one trial and at most 2⁵³.
    """
    arguments.number("level", level, above=0, below=1)
    successes, trials = operator.index(successes), operator.index(trials)
    if not 0 <= successes <= trials or not 1 <= trials <= _EXACT:
        raise ValueError(
            f"`successes` must lie in 0 … `trials` and `trials` in 1 … 2**53, got {successes} of {trials}; swapped?"
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


def mean_interval(values: Real[Tensor, " n"], *, level: float = 0.95) -> Estimate:
    """The mean of independent values with Student's t interval: exact for normal values, sound for many.

    Of few and skewed values it covers less: of ten exponential ones 90 %, of thirty 93 %.

    Raises:
        ValueError: if there are fewer than two values, or one is not finite.
    """
    arguments.number("level", level, above=0, below=1)
    values = arguments.tensor("values", as_sample(values, "values", least=2), "n")
    unit = _unit(values)
    values = values / unit
    mean, half = float(values.mean()), float(values.std()) / math.sqrt(len(values))
    half *= float(special.stdtrit(len(values) - 1, (1 + level) / 2))
    mean, half = mean * unit, half * unit
    return Estimate(mean, mean - half, mean + half, n=len(values), level=level)


def median(values: Real[Tensor, " n"], *, level: float = 0.95) -> Estimate:
    """The median of independent values between two of them in order, which cover it at least as often as `level` says.

    The interval is conservative and asks nothing of the law of the values; of fewer than six it is the whole line.

    Raises:
        ValueError: if there is no value, or one is not finite.
    """
    arguments.number("level", level, above=0, below=1)
    ordered = as_sample(values, "values").sort().values
    n, error = len(ordered), (1 - level) / 2
    below = bisect_right(range(n + 1), error, key=lambda k: at_most(k, trials=n, chance=0.5)) - 1  # on either side
    ends = (float(ordered[below]), float(ordered[-1 - below])) if below >= 0 else (-math.inf, math.inf)
    return Estimate(float(ordered.quantile(0.5)), *ends, n=len(ordered), level=level)


def difference_of_means(first: Real[Tensor, " m"], second: Real[Tensor, " n"], *, level: float = 0.95) -> Estimate:
    r"""Mean of `first` minus mean of `second`, two independent samples; conservative.

    $$ \bar x_1 - \bar x_2 \pm \sqrt{h_1^2 + h_2^2}, $$

    with the half widths of Student's intervals of the means. Of normal values it covers at least as often as it says,
    whatever their variances and however few there are, while Welch's interval of 2 and 30 values covers 87 %.

    Source: S. K. Banerjee (1960), Sankhyā 22.

    Raises:
        ValueError: if a sample has fewer than two values, one that is not finite, or more than one axis, or `level` is
            outside (0, 1).
    """
    arguments.number("level", level, above=0, below=1)
    given = {"first": first, "second": second}
    one, other = (
        mean_interval(arguments.tensor(name, as_sample(values, name, least=2), "n"), level=level)
        for name, values in given.items()
    )
    difference, half = one.estimate - other.estimate, math.hypot(one.high - one.estimate, other.high - other.estimate)
    return Estimate(difference, difference - half, difference + half, one.n + other.n, level)


def as_sample(values: Real[Tensor, "*shape"], name: str, *, least: int = 1) -> Float[Tensor, "*shape"]:
    """`values` as float64 on their device, detached, once they are known to be a usable sample called `name`.

    Raises:
        TypeError: if `values` is no tensor.
        ValueError: if its numbers are complex, there are fewer than `least` along the first axis, none at all, one is
            not finite, or one is a whole number beyond ±2⁵³, which float64 would round.
    """
    if arguments.tensor(name, values).is_complex():
        raise ValueError(f"`{name}` must hold real numbers, got {values.dtype}; take a part of it, or its size.")
    if values.ndim == 0 or len(values) < least or values.numel() == 0:
        raise ValueError(f"`{name}` must hold at least {least} observation(s), got shape {tuple(values.shape)}.")
    if values.dtype in _LONG and bool(((values > _EXACT) | (values < -_EXACT)).any()):
        raise ValueError(
            f"`{name}` must hold whole numbers within ±2**53, which float64 tells apart, got larger ones; "
            "subtract a constant, or give ranks."
        )
    return arguments.real(name, values.detach().to(torch.float64))


def wilson(share: float, *, size: float, quantile: float) -> tuple[float, float]:
    r"""The ends of Wilson's interval of a share, for a `size` that need not be whole.

    They are the shares p with $N (\hat p - p)^2 = z^2\, p (1 - p)$, and lie within [0, 1].

    Source: E. B. Wilson (1927), Journal of the American Statistical Association 22.

    Args:
        share: $\hat p$, in [0, 1].
        size: N, how many independent yes-or-no observations it is worth, above 0.
        quantile: z, of the normal law or Student's, above 0.

    Raises:
        ValueError: if a number is out of its range.
    """
    arguments.number("share", share, least=0, most=1)
    arguments.number("size", size, above=0)
    spread = arguments.number("quantile", quantile, above=0) ** 2 / size
    middle, half = share + spread / 2, math.sqrt(spread * (share * (1 - share) + spread / 4))
    return max((middle - half) / (1 + spread), 0.0), min((middle + half) / (1 + spread), 1.0)


def _unit(values: Float[Tensor, " n"]) -> float:
    """1, or the power of two that is a share of the largest size where squares would over- or underflow."""
    largest = float(values.abs().max())
    return 1.0 if largest == 0 or 1 / _SQUARABLE < largest < _SQUARABLE else 2.0 ** (math.frexp(largest)[1] - 1)
